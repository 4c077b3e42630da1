/* The keeper: the privileged process that makes and ends boxes for a front. See proto.h for what it understands. */
#ifndef CARREL_KEEPER_KEEPER_H
#define CARREL_KEEPER_KEEPER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "box/box.h"
#include "box/store.h"
#include "keeper/proto.h"

enum { KEEPER_ROOTS = 64 };

/* A payload's slot. */
struct kept_payload {
    bool           ended;
    bool           is_helper;       /* of ours, outside the box's pid namespace */
    struct payload payload;
    uint64_t       token, started_us, deadline_us;  /* deadline 0: none */
    bool           timed_out;
    bool           out_of_memory;   /* we ended it for that, maybe before the kernel counted a kill of its own */
    uint64_t       oom_kills_before, pids_refused_before;   /* of the box, when it started: not its doing */
    int            n_held;
    int            held[KEEPER_HELD];               /* owned */
    struct event   end;                             /* told to a front that comes later */
};

/* What a box is to be made of when its store is mounted. */
struct kept_create {
    struct store_job      job;
    struct request_create frame;
    int                   fds[KEEPER_MOUNTS];   /* owned */
    size_t                n_fds;
};

/* A box's slot. The table of them is the truth about what is alive. */
struct kept_box {
    struct box           box;
    uint64_t             token;
    uint32_t             slot;
    uint32_t             create_serial;     /* answered when the box is complete; 0: answered */
    uint32_t             destroy_serial;    /* answered when it is gone; 0: nobody asked */
    bool                 dying;
    struct err           cause;             /* why it is dying, if nobody asked for it */
    uint64_t             oom_kills, pids_refused;   /* when last looked */
    uint64_t             store;             /* its number; 0: none */
    struct kept_create  *waiting;           /* owned: there is no box yet, its store is being mounted */
    struct kept_payload *payload[KEEPER_PAYLOADS];
};

struct keeper {
    struct box_host  host;
    struct stores    stores;
    int              epoll, listener, front, signals;   /* owned; -1: none */
    uid_t            front_uid;
    bool             end_with_front;            /* a private keeper: no front, no boxes */
    bool             stopping;
    uint64_t         deadline_us;               /* no payload has an earlier one; 0: none has any */
    size_t           n_boxes;
    struct kept_box *box[KEEPER_BOXES];
    size_t           n_roots;
    const char      *root[KEEPER_ROOTS];        /* root number i+1 */
};

/* What an epoll event is about. */
enum watch {
    WATCH_LISTENER = 1,
    WATCH_FRONT,
    WATCH_INIT,
    WATCH_BOX_LINK,
    WATCH_FIRST_LINK,
    WATCH_FIRST_END,
    WATCH_PAYLOAD_LINK,
    WATCH_PAYLOAD_END,
    WATCH_SIGNALS,
    WATCH_MEMORY,
    WATCH_STORE
};

/* Serves until told to stop. front: an already connected socket, or -1; listener: where fronts connect, or -1. */
MUST_CHECK int keeper_run(struct keeper *keeper, int front, int listener, uid_t front_uid, struct err *e);

/* Carries one request out (ops.c). fds are owned by it from here on. False: the frame is not legal and the front is to
 * be dropped. */
bool           keeper_request(struct keeper *keeper, const void *frame, size_t size, int *fds, size_t n_fds);

/* Used by both. */
MUST_CHECK int keeper_watch(struct keeper *keeper, int fd, enum watch what, uint32_t box, uint32_t payload);
void           keeper_tell(struct keeper *keeper, const struct event *event, const int *fds, size_t n_fds);
void           keeper_end_box(struct keeper *keeper, struct kept_box *box, const struct err *cause);
void           keeper_free_payload(struct kept_box *box, unsigned slot);
void           keeper_usage(const struct box *box, struct frame_usage *ret, struct box_usage *ret_full);
void           keeper_tell_all(struct keeper *keeper);
void           keeper_bury_box(struct keeper *keeper, struct kept_box *box);
/* The child that mounts a box's store has ended: makes the box, or tells why not. */
void           keeper_store_ended(struct keeper *keeper, struct kept_box *box);
/* Forgets what a box waits for, once the child has ended or is about to. */
void           keeper_free_create(struct keeper *keeper, struct kept_box *box);

#endif
