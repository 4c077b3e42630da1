/* Commands in boxes. Output goes from the command's pipes into a log file by splice(2), so that a front that dies at
 * any moment loses and doubles nothing; clients follow the log from an offset (exec_log.h).
 *
 * A command with an output limit is ended when it passes it, and all that it wrote is kept. Of one without, the log
 * keeps beginning and end; what lies between is dropped when those who follow the log have read it. */
#ifndef CARREL_FRONT_EXECS_EXECS_H
#define CARREL_FRONT_EXECS_EXECS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "front/execs/exec_log.h"
#include "http/loop.h"
#include "proto/keeper.h"
#include "proto/names.h"

struct box;
struct front;
struct kernel;
struct service;

enum exec_state { EXEC_STARTING, EXEC_RUNNING, EXEC_ENDED };

struct exec_options {
    char      **argv, **env;        /* NULL-terminated; env complete */
    const char *cwd;                /* NULL: the home directory */
    bool        terminal;
    uint16_t    rows, columns;      /* 0: not told */
    uint32_t    user, group;        /* 0: the box's own; else the id in the box, plus one */
    bool        background;
    bool        delete_box;         /* when it has ended */
    bool        with_stdin;         /* else /dev/null */
    bool        link;               /* standard input is a kernel's link; what is printed goes to the kernel */
    bool        fork;               /* from the zygote of the box's family */
    json_t     *kernel;             /* lent: what the next front must know of the kernel or service; NULL: it is none */
    uint64_t    timeout_ms;         /* 0: none */
    uint64_t    output_bytes;       /* more ends it; 0: no limit was asked for */
};

/* Somebody who follows the log. Embedded in its owner. on_change: there is more, or the exec's state has changed. */
struct exec_follower {
    struct exec_follower *next, **back;
    void (*on_change)(struct exec_follower *f);
    /* Where it reads; NULL: it does not read the log. The command waits for it before something is dropped that it has
     * not read: the owner of a foreground command is waited for without end, others while they read on. */
    const struct exec_reader *reader;
    size_t (*pending)(struct exec_follower *f);     /* bytes that are on their way to it */
    bool                  is_owner;
    bool                  is_slow;      /* it took nothing for a while: it is not waited for until it has */
    struct exec_place {
        uint64_t at;
        uint32_t part;
        size_t   pending;
    }                     place;        /* where it was then, or when the command began to wait for it */
};

struct exec {
    struct exec          *next;         /* in its box */
    struct box           *box;          /* an exec ends before its box does */
    char                  id[16];
    uint64_t              number;
    enum exec_state       state;
    unsigned              slot;
    bool                  background, terminal, delete_box;
    bool                  is_kept;      /* the keeper has it: it goes on if this front dies */
    /* Descriptors owned: read ends, write end (or the terminal's master as out, with in a duplicate). */
    struct loop_fd        out, err, in;
    struct exec_log       log;
    uint16_t              rows, columns;
    uint64_t              output_limit; /* 0: none was asked for */
    uint64_t              timeout_ms;   /* 0: none */
    bool                  over_limit, killed_by_caller;
    bool                  is_nobodys;   /* its kernel was ended: whoever finds its process ends it, too */
    bool                  is_ending;    /* its end is being told; whoever hears it may start others */
    bool                  stuck;        /* the log cannot be written for now; room_timer tries again */
    bool                  is_held;      /* a reader must read on before more is taken; hold_timer sees to it */
    bool                  is_draining;  /* it has ended: all that it wrote is taken at once */
    struct loop_timer     room_timer, hold_timer;
    int64_t               end_waits;    /* since when its end waits for that; 0: it does not */
    int                   early_signal; /* asked for while it started; 0: none */
    json_t               *argv;         /* owned: for show */
    uint32_t              shown_bytes;  /* of it */
    bool                  is_argv_cut;  /* only its beginning is there */
    char                 *cwd;          /* owned or NULL */
    uint32_t              user, group;  /* as in struct exec_options */
    int64_t               started_ms, ended_ms;
    uint64_t              started_us;
    /* Once ended: */
    struct event          end;
    struct err            failure;      /* it never ran; code 0: it did */
    char                 *failure_text; /* owned: what was told of it before a restart; NULL: failure says all */
    enum outcome          outcome;      /* OUTCOME_NONE: it never ran */
    enum exec_reason      reason;
    json_t               *refused;      /* owned: what its box was refused meanwhile (front/net); NULL: nothing */
    uint64_t              limit_value;  /* of the limit that the outcome is about; 0: none */
    struct exec_follower *followers;
    int                   link;         /* owned: our end of a kernel's link; -1: none */
    enum kernel_way       way;
    json_t               *about_kernel; /* owned; NULL: it is neither a kernel nor a service's worker */
    struct kernel        *kernel;       /* NULL: none, or it has been forgotten */
    struct service       *service;      /* the same */
    void (*on_stdin)(struct exec *x, void *arg);    /* there is room again */
    void                 *stdin_arg;
};

/* Starts a command. The exec is in *ret at once; followers hear how it goes on. -errno: the box is not running, too
 * many execs, no memory. */
MUST_CHECK int exec_start(struct box *box, const struct exec_options *options, struct exec **ret, struct err *e);
struct exec   *exec_find(struct box *box, const char *id);

void           exec_follow(struct exec *x, struct exec_follower *f);
void           exec_unfollow(struct exec_follower *f);

/* How many bytes it has written to both. */
uint64_t       exec_output_bytes(const struct exec *x);
/* A follower's reader has read on, or is gone. */
void           exec_reader_moved(struct exec *x);

/* Bytes taken, -EAGAIN (on_stdin will come), -EPIPE. */
ssize_t        exec_stdin_write(struct exec *x, const void *data, size_t size);
void           exec_stdin_close(struct exec *x);
MUST_CHECK int exec_resize(struct exec *x, uint16_t rows, uint16_t columns, struct err *e);
/* To the process group. */
MUST_CHECK int exec_signal(struct exec *x, int signal, struct err *e);

json_t        *exec_json(const struct exec *x);
/* Sets what says that so many bytes of stdout and stderr are not there. */
void           exec_show_missing(json_t *o, uint64_t out, uint64_t err);

/* Called by boxes.c. */
void           execs_on_keeper_event(struct box *box, const struct event *event, int *fds, size_t n_fds);
void           execs_lost(struct box *box);
/* The keeper has told of all that it runs: what it did not tell of was never started. */
void           execs_synced(struct box *box);
MUST_CHECK int execs_load(struct box *box, struct err *e);
void           execs_free(struct box *box);
/* Removes their logs. */
void           execs_forget(struct box *box);

#endif
