/* Kernels: live interpreters in boxes. A kernel is an exec whose standard input is a seqpacket socket, the link, on
 * which both sides exchange Jupyter messages; its standard output and error carry the output of its C code and its
 * child processes, which becomes stream messages of the present cell.
 *
 * proto/link.h and proto/kernel.h define packets and messages.
 *
 * A kernel is untrusted: sizes, offsets, JSON and ids are checked before a message is used, and a kernel that breaks
 * the rules is ended. */
#ifndef CARREL_FRONT_KERNELS_KERNELS_H
#define CARREL_FRONT_KERNELS_KERNELS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/err.h"
#include "front/kernels/kernel_message.h"
#include "proto/kernel.h"
#include "proto/names.h"

struct box;
struct box_part;
struct exec;
struct exec_owner;
struct front;
struct kernel;

enum { KERNEL_RING_BYTES = 4 << 20, KERNELS_PER_BOX = 16 };

enum kernel_state { KERNEL_STARTING, KERNEL_IDLE, KERNEL_BUSY, KERNEL_RESTARTING, KERNEL_DEAD };
extern const char *const kernel_state_names[];     /* Jupyter's execution_state */

/* A listener: a run, a WebSocket. Embedded in its owner. May detach (and end the kernel) in a callback. */
struct kernel_client {
    struct kernel_client *next, **back;
    struct kernel        *kernel;               /* True: it cannot take more for now (the message was taken); the
                                                 * kernel's link is not read until kernel_resume(). */
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
    json_t     *secrets;        /* borrowed: added to the box's (secret_uses.h); or NULL */
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
    json_t               *secrets;              /* owned: which ones, no values; NULL: none */
    enum kernel_state     state;
    enum kernel_way       way;
    unsigned              restarts;
    bool                  is_adopted;           /* an earlier front has started it */
    enum outcome          outcome;              /* of a dead one */
    char                  reason[480];          /* as a sentence */
    int64_t               started_ms, activity_ms;
    unsigned              n_clients, connections;       /* connections: counted by the doors */
    struct kernel_client *clients;
    void                 *private;              /* private to kernels.c: link, queues, ring */
};

/* Starts one in a running box. It exists at once (state starting); clients are notified of its progress. Messages sent
 * before it runs are queued for it. */
MUST_CHECK int kernel_start(struct box *box, const struct kernel_options *options, struct kernel **ret, struct err *e);
/* By its id; owner NULL: any. */
struct kernel *kernel_find(struct front *front, const char *owner, const char *id);
/* By its context's name in a box. */
struct kernel *kernel_in_box(struct box *box, const char *name);

/* after: a message's number; later ones that the ring still has are delivered first, from inside the call. UINT64_MAX:
 * none. */
void           kernel_attach(struct kernel *k, struct kernel_client *c, uint64_t after);
void           kernel_detach(struct kernel_client *c);
/* The number of its newest message; 0: there was none. */
uint64_t       kernel_last_number(const struct kernel *k);
void           kernel_resume(struct kernel *k, struct kernel_client *c);

/* Sends one message; the parts must be JSON objects (checked), buffers may be NULL. -EPIPE: it is dead; -ENOBUFS: it
 * does not read, and too much is queued already; -EMSGSIZE, -EINVAL. */
MUST_CHECK int kernel_send(struct kernel *k, enum kernel_channel channel, const struct iovec part[KERNEL_PARTS],
                           const struct iovec *buffer, unsigned n_buffers, struct err *e);

/* SIGINT to its process group. */
MUST_CHECK int kernel_interrupt(struct kernel *k, struct err *e);
/* Stops the cell whose request has this id: SIGINT, then a message, then SIGTERM, then SIGKILL, a second apart, until
 * the kernel is idle or dead. If the cell has not begun, as soon as it does. */
void           kernel_stop_cell(struct kernel *k, const char *id);
/* The answer to input(); -ENOENT: there is no open input(). */
MUST_CHECK int kernel_answer_input(struct kernel *k, const char *text, struct err *e);
/* In place: the box and its files stay, the process is new; clients stay attached. */
MUST_CHECK int kernel_restart(struct kernel *k, struct err *e);
/* Ends the process, and forgets the kernel once its clients were notified. */
void           kernel_end(struct kernel *k, const char *reason);

/* For front/parts.c. */
extern const struct box_part   kernels_part;
extern const struct exec_owner kernels_exec_owner;

#endif
