/* The front's end of a link (proto/link.h): messages over the seqpacket socket that is an interpreter's standard input.
 * The link's owner defines the messages: kernels/kernel_message.h, services/service_link.c. */
#ifndef CARREL_FRONT_LINKS_GUEST_LINK_H
#define CARREL_FRONT_LINKS_GUEST_LINK_H

#include <stdbool.h>
#include <stddef.h>

#include "base/budget.h"
#include "base/err.h"
#include "front/links/guest_message.h"
#include "http/loop.h"
#include "proto/link.h"
#include "proto/names.h"

struct guest_out {
    struct guest_out     *next;
    struct guest_message *message;     /* owned: a reference */
};

struct guest_link;

/* The owner's rules for its messages. */
struct guest_link_owner {
    size_t before;              /* as in struct guest_message */
    size_t least;               /* bytes of the smallest message */
    /* NULL: the message is valid; else the error. */
    const char *(*check)(struct guest_message *m);
    void (*on_message)(struct guest_link *l, struct guest_message *m);      /* m is borrowed */
    /* The other side broke the rules, or closed (OUTCOME_NONE). The link is no longer read. */
    void (*on_broken)(struct guest_link *l, enum outcome outcome, const char *why);
};

struct guest_link {
    struct loop                   *loop;
    const struct guest_link_owner *owner;
    struct loop_fd         watch;       /* its fd is the exec's; -1: none */
    struct guest_message *partial;     /* owned */
    size_t                 room, got;   /* of its data: allocated, received */
    bool                   synced;      /* the beginning of a message was seen */
    bool                   held;        /* not read for now */
    struct guest_out     *queue, **queue_end;
    size_t                 queued, sent;        /* bytes in the queue; sent bytes of its first message */
    unsigned               n_queued;
    bool                   keep;        /* keep sent messages: they may have to be sent again to another process */
    struct guest_out     *kept, **kept_end;
    size_t                 kept_bytes;
    struct share           share;       /* for the queue and the kept messages */
    struct share           partials;    /* for incomplete messages: a separate bound, because exceeding it ends the
                                         * kernel */
};

void           guest_link_init(struct guest_link *l, struct loop *loop, const struct guest_link_owner *owner);
MUST_CHECK int guest_link_open(struct guest_link *l, int fd, bool keep);
/* The other side runs: drops the kept messages. */
void           guest_link_confirm(struct guest_link *l);
/* It never ran: queues the kept messages for the next process. */
void           guest_link_rewind(struct guest_link *l);
/* Drops messages that were not sent, and an incomplete one. */
void           guest_link_close(struct guest_link *l);
/* -ENOBUFS: too much is queued already. -EDQUOT: over the owner's budget. */
MUST_CHECK int guest_link_send(struct guest_link *l, struct guest_message *m);
void           guest_link_hold(struct guest_link *l, bool hold);
/* Parses the last line of a process's standard error at its end. True: with the status LINK_UNFIT it is JSON with the
 * reason why its interpreter is unfit, and *ret is that reason with its remedy. */
bool           guest_link_last_words(const char *tail, size_t tail_size, int status, char *ret, size_t size);
/* Reads available messages, up to a bound. */
void           guest_link_turn(struct guest_link *l);
/* Reads all messages that are there now, and not those that come meanwhile: another process with the socket may never
 * stop sending. */
void           guest_link_drain(struct guest_link *l);

#endif
