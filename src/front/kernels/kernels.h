/* Kernels: live interpreters in boxes. A kernel is an exec whose standard input is a seqpacket socket, the link, on
 * which both sides speak Jupyter messages; its standard output and error are what its C code and its child processes
 * print, and are told as stream messages of the cell that runs.
 *
 * proto/link.h and proto/kernel.h say how messages travel and what they are made of.
 *
 * What a kernel says is a stranger's word: sizes, offsets, JSON and ids are checked before anybody sees a message, and
 * a kernel that breaks the rules is ended. */
#ifndef CARREL_FRONT_KERNELS_KERNELS_H
#define CARREL_FRONT_KERNELS_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/err.h"
#include "proto/kernel.h"
#include "proto/names.h"

struct box;
struct exec;
struct front;
struct kernel;

enum { KERNEL_RING_BYTES = 4 << 20, KERNELS_PER_BOX = 16 };

enum kernel_state { KERNEL_STARTING, KERNEL_IDLE, KERNEL_BUSY, KERNEL_RESTARTING, KERNEL_DEAD };
extern const char *const kernel_state_names[];     /* as Jupyter's execution_state */

/* Shared by all who are to get it; immutable. Each part is valid JSON. */
struct kernel_message {
    unsigned            refs;
    uint64_t            number;                 /* counted up from 1 in its kernel */
    enum kernel_channel channel;
    char                type[48], id[96];       /* msg_type and msg_id of the header */
    char                parent_type[48], parent_id[96], parent_session[96];     /* "" if there is none */
    struct iovec        part[KERNEL_PARTS];     /* into data */
    unsigned            n_buffers;
    size_t              size;
    char                data[];                 /* the message in v1 layout */
};
void kernel_message_ref(struct kernel_message *m);
void kernel_message_unref(struct kernel_message *m);
/* The i-th binary buffer. */
struct iovec kernel_message_buffer(const struct kernel_message *m, unsigned i);

/* Somebody who listens: a run, a WebSocket. Embedded in its owner. May detach (and end the kernel) in a callback. */
struct kernel_client {
    struct kernel_client *next, **back;
    struct kernel        *kernel;               /* NULL: not attached (any more) */
    /* True: it cannot take more for now (the message was taken); the kernel's link is not read
     * until kernel_resume(). */
    bool (*on_message)(struct kernel_client *c, struct kernel_message *m);
    void (*on_state)(struct kernel_client *c);  /* starting, idle, busy, restarting, dead */
    bool  paused;
};

struct kernel_options {
    const char *id;             /* NULL: made here; else [A-Za-z0-9._-]{1,128}, unique for its owner */
    const char *name;           /* of the context in its box, unique there; NULL: "default" */
    const char *spec;           /* name of the kernelspec or template; NULL: the default template */
    const char *cwd;            /* NULL: the home directory */
    char      **env;            /* NULL-terminated NAME=VALUE, added to the box's; or NULL */
};

struct kernel {
    struct kernel        *next, **back;         /* all of the front */
    struct kernel        *next_in_box;
    struct front         *front;
    struct box           *box;                  /* a kernel ends before its box does */
    struct exec          *exec;                 /* its process; NULL between two lives */
    char                  id[132];
    char                 *name, *spec, *cwd;    /* owned; cwd may be NULL */
    char                **env;                  /* owned */
    enum kernel_state     state;
    enum kernel_way       way;
    unsigned              restarts;
    bool                  is_adopted;           /* an earlier front has started it */
    enum outcome          outcome;              /* of a dead one */
    char                  reason[480];          /* in words */
    int64_t               started_ms, activity_ms;
    unsigned              n_clients, connections;       /* connections: counted by the doors */
    struct kernel_client *clients;
    void                 *private;              /* kernels.c's own: link, queues, ring */
};

/* Starts one in a running box. It is there at once (state starting); clients hear how it goes on. What is sent before
 * it runs is kept for it. */
MUST_CHECK int kernel_start(struct box *box, const struct kernel_options *options, struct kernel **ret, struct err *e);
/* By its id; owner NULL: anybody's. */
struct kernel *kernel_find(struct front *front, const char *owner, const char *id);
/* By its context's name in a box. */
struct kernel *kernel_in_box(struct box *box, const char *name);

/* after: a message's number; what the ring still has of later ones is told first, from inside the call. UINT64_MAX:
 * none. */
void           kernel_attach(struct kernel *k, struct kernel_client *c, uint64_t after);
void           kernel_detach(struct kernel_client *c);
/* The number of its newest message; 0: there was none. */
uint64_t       kernel_last_number(const struct kernel *k);
void           kernel_resume(struct kernel *k, struct kernel_client *c);

/* One message to the kernel; the parts must be JSON objects (checked), buffers may be NULL. -EPIPE: it is dead;
 * -ENOBUFS: it does not read, and too much waits for it already; -EMSGSIZE, -EINVAL. */
MUST_CHECK int kernel_send(struct kernel *k, enum kernel_channel channel, const struct iovec part[KERNEL_PARTS],
                           const struct iovec *buffer, unsigned n_buffers, struct err *e);

/* SIGINT to its process group. */
MUST_CHECK int kernel_interrupt(struct kernel *k, struct err *e);
/* Nobody waits any more for the cell whose request has this id: SIGINT, then a message, then SIGTERM, then SIGKILL, a
 * second apart, until the kernel is idle or dead. If it has not begun yet, as soon as it does. */
void           kernel_stop_cell(struct kernel *k, const char *id);
/* The answer to input(); -ENOENT: nothing was asked. */
MUST_CHECK int kernel_answer_input(struct kernel *k, const char *text, struct err *e);
/* In place: the box and its files stay, the process is new; clients stay attached. */
MUST_CHECK int kernel_restart(struct kernel *k, struct err *e);
/* Ends the process, and forgets the kernel once clients have been told. */
void           kernel_end(struct kernel *k, const char *reason);

/* Called by the front's other parts. */
void           kernels_on_exec_change(struct exec *x);
/* There is output in the pipes: what is on the link may say which cell it is of. */
void           kernels_before_output(struct exec *x);
void           kernels_on_output(struct exec *x, unsigned stream, const char *data, size_t size);
/* An earlier front's kernel, by its exec. */
void           kernels_adopt(struct exec *x);
void           kernels_on_box_end(struct box *box);
/* This process ends, or the box is forgotten: the kernels' processes are none of its business. */
void           kernels_free(struct box *box);
/* How many kernels of the box wait for something to do. */
unsigned       kernels_idle(const struct box *box);

#endif
