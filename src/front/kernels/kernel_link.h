/* Messages over the seqpacket socket that is a payload's standard input: of a kernel in Jupyter's layout, of a service
 * as plain JSON objects. */
#ifndef CARREL_FRONT_KERNELS_KERNEL_LINK_H
#define CARREL_FRONT_KERNELS_KERNEL_LINK_H

#include "base/budget.h"
#include "base/jsonscan.h"
#include "front/kernels/kernels.h"
#include "http/loop.h"
#include "proto/names.h"

/* --- kernel_message.c --- */
/* Room for a message of this size; NULL: no memory. */
struct kernel_message *kernel_message_new(size_t size);
/* Checks m->data and fills in the rest. NULL if it is good, else what is wrong. */
const char            *kernel_message_read(struct kernel_message *m);
/* Puts one together; it is checked, too. */
MUST_CHECK int         kernel_message_make(enum kernel_channel channel, const struct iovec part[KERNEL_PARTS],
                                           const struct iovec *buffer, unsigned n_buffers, struct kernel_message **ret,
                                           struct err *e);
struct jsonslice       kernel_message_part(const struct kernel_message *m, enum kernel_part part);

/* --- kernel_link.c: messages over one socket --- */
struct kernel_out {
    struct kernel_out     *next;
    struct kernel_message *message;     /* owned: a reference */
};

struct kernel_link {
    struct loop           *loop;
    struct loop_fd         watch;       /* the fd is the exec's; -1: none */
    struct kernel_message *partial;     /* owned */
    size_t                 room, got;   /* of its data: how much is allocated, how much is there */
    bool                   synced;      /* a message's beginning has been seen */
    bool                   held;        /* not read for now */
    bool                   plain;       /* a message is one JSON object, and not of Jupyter's layout */
    struct kernel_out     *queue, **queue_end;
    size_t                 queued, sent;        /* bytes in the queue; of its first message, how many are gone */
    unsigned               n_queued;
    bool                   keep;        /* what is sent is kept: it may have to be sent again to somebody else */
    struct kernel_out     *kept, **kept_end;
    size_t                 kept_bytes;
    struct share           share;       /* for the queue and what is kept */
    struct share           partials;    /* for what is half there: a bound of its own, since it ends the kernel */
    void (*on_message)(struct kernel_link *l, struct kernel_message *m);     /* m is lent */
    /* The other side broke the rules, or closed (OUTCOME_NONE). It is not read any more. */
    void (*on_broken)(struct kernel_link *l, enum outcome outcome, const char *why);
};

void           kernel_link_init(struct kernel_link *l, struct loop *loop);
MUST_CHECK int kernel_link_open(struct kernel_link *l, int fd, bool keep);
/* The other side is there: nothing need be kept. */
void           kernel_link_confirm(struct kernel_link *l);
/* It never was: what was kept waits for the next. */
void           kernel_link_rewind(struct kernel_link *l);
/* Drops what was not sent and what is half there. */
void           kernel_link_close(struct kernel_link *l);
/* -ENOBUFS: too much waits already. -EDQUOT: for the owner, here and elsewhere. */
MUST_CHECK int kernel_link_send(struct kernel_link *l, struct kernel_message *m);
void           kernel_link_hold(struct kernel_link *l, bool hold);
/* The last line of a process' standard error, at its end. True: with the status LINK_UNFIT it says in JSON why its
 * interpreter is unfit, and *ret is that reason with its fix. */
bool           kernel_link_last_words(const char *tail, size_t tail_size, int status, char *ret, size_t size);
/* Reads what is there, up to a bound. */
void           kernel_link_turn(struct kernel_link *l);
/* Reads all that is there now, and not what comes meanwhile: whoever else has the other side may never be silent. */
void           kernel_link_drain(struct kernel_link *l);

#endif
