/* Commands in boxes. Output goes from the command's pipes into a log file by splice(2), so that a front that dies at
 * any moment neither loses nor doubles a byte; clients follow the log from an offset (exec_log.h).
 *
 * A command with an output limit is ended when it exceeds it, and all its output is kept. Without a limit, the log
 * keeps beginning and end; the part between is dropped when the log's followers have read it. */
#ifndef CARREL_FRONT_EXECS_EXECS_H
#define CARREL_FRONT_EXECS_EXECS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "front/execs/exec_log.h"
#include "http/loop.h"
#include "proto/events.h"
#include "proto/names.h"

struct box;
struct box_part;
struct exec_owner;
struct front;

enum exec_state { EXEC_STARTING, EXEC_RUNNING, EXEC_ENDED };

struct exec_options {
    char      **argv, **env;        /* NULL-terminated; env complete */
    json_t     *secrets;            /* borrowed: its own (secret_uses.h), whose variables are in env; NULL: none */
    const char *cwd;                /* NULL: the home directory */
    bool        terminal;
    uint16_t    rows, columns;      /* 0: unknown */
    uint32_t    user, group;        /* 0: the box's own; else the id in the box, plus one */
    bool        background;
    bool        delete_box;         /* when it has ended */
    bool        with_stdin;         /* else /dev/null */
    bool        fork;               /* from the zygote of the box's family */
    const struct exec_owner *owner; /* NULL: a command. Else standard input is a link */
    void       *owned_by;           /* the owner's data */
    json_t     *about;              /* borrowed: state that the owner needs after a restart of the front; has a
                                     * "name" */
    uint64_t    timeout_ms;         /* 0: none */
    uint64_t    output_bytes;       /* a limit, beyond which it is ended; 0: none was set */
};

/* A follower of the log. Embedded in its owner. on_change: there is more output, or the exec's state has changed. */
struct exec_follower {
    struct exec_follower *next, **back;
    void (*on_change)(struct exec_follower *f);
    /* Its read position; NULL: it does not read the log. The command waits for it before an unread part is dropped:
     * without bound for the owner of a foreground command, for others while they keep reading. */
    const struct exec_reader *reader;
    size_t (*pending)(struct exec_follower *f);     /* bytes queued for it */
    bool                  is_owner;
    bool                  is_slow;      /* it took nothing for a while: not waited for until it does */
    struct exec_place {
        uint64_t at;
        uint32_t part;
        size_t   pending;
    }                     place;        /* its position then, or when the command began to wait for it */
};

struct exec {
    struct exec          *next;         /* in its box */
    struct box           *box;          /* an exec ends before its box does */
    char                  id[16];
    uint64_t              number;
    enum exec_state       state;
    unsigned              slot;
    bool                  background, terminal, delete_box;
    bool                  is_kept;      /* the keeper has it: it continues if this front dies */
    /* Descriptors owned: read ends, write end (or the terminal's master as out, with in a duplicate). For an exec with
     * an owner, in is our end of the link, which only the owner watches. */
    struct loop_fd        out, err, in;
    struct exec_log       log;
    uint16_t              rows, columns;
    uint64_t              output_limit; /* 0: none was set */
    uint64_t              timeout_ms;   /* 0: none */
    bool                  over_limit, killed_by_caller;
    bool                  is_disowned;  /* see exec_disown() */
    bool                  is_ending;    /* followers are being notified of its end; they may start other execs */
    bool                  stuck;        /* the log cannot be written for now; room_timer tries again */
    bool                  is_held;      /* a reader must read on before more is taken; see hold_timer */
    bool                  is_draining;  /* it has ended: all its output is taken at once */
    struct loop_timer     room_timer, hold_timer;
    int64_t               end_waits;    /* since when its end waits for that; 0: it does not */
    int                   early_signal; /* sent while it started; 0: none */
    json_t               *argv;         /* owned: for display */
    uint32_t              shown_bytes;  /* of it */
    bool                  is_argv_cut;  /* shortened */
    char                 *cwd;          /* owned or NULL */
    uint32_t              user, group;  /* as in struct exec_options */
    int64_t               started_ms, ended_ms;
    uint64_t              started_us;
    /* Once ended: */
    struct frame_end      end;
    struct err            failure;      /* why it never ran; code 0: it ran */
    char                 *failure_text; /* owned: the message from before a restart; NULL: use failure */
    enum outcome          outcome;      /* OUTCOME_NONE: it never ran */
    enum exec_reason      reason;
    json_t               *refused;      /* owned: refusals of its box meanwhile (front/net); NULL: none */
    uint64_t              limit_value;  /* of the limit behind the outcome; 0: none */
    struct exec_follower *followers;
    const struct exec_owner *owner;     /* NULL: a command */
    void                 *owned_by;     /* the owner's data; NULL: none, or already freed */
    json_t               *about;        /* owned; as in struct exec_options */
    void (*on_stdin)(struct exec *x, void *arg);    /* there is room again */
    void                 *stdin_arg;
};

/* Starts a command. The exec is in *ret at once; followers are notified of its progress. -errno: the box is not
 * running, too many execs, no memory. */
MUST_CHECK int exec_start(struct box *box, const struct exec_options *options, struct exec **ret, struct err *e);
struct exec   *exec_find(struct box *box, const char *id);

void           exec_follow(struct exec *x, struct exec_follower *f);
void           exec_unfollow(struct exec_follower *f);

/* Its output in bytes, on both streams. */
uint64_t       exec_output_bytes(const struct exec *x);
/* A follower's reader has moved on, or is gone. */
void           exec_reader_moved(struct exec *x);

/* Returns bytes, -EAGAIN (on_stdin will follow), -EPIPE. */
ssize_t        exec_stdin_write(struct exec *x, const void *data, size_t size);
void           exec_stdin_close(struct exec *x);
MUST_CHECK int exec_resize(struct exec *x, uint16_t rows, uint16_t columns, struct err *e);
/* To the process group. */
MUST_CHECK int exec_signal(struct exec *x, int signal, struct err *e);

json_t        *exec_json(const struct exec *x);
/* NULL: it has not ended. */
const char    *exec_outcome_name(const struct exec *x);
/* Adds the members for missing bytes of stdout and stderr. */
void           exec_show_missing(json_t *o, uint64_t out, uint64_t err);

/* For front/parts.c. */
extern const struct box_part execs_part;

#endif
