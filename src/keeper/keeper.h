/* The keeper: the privileged process that makes and ends boxes for a front. It speaks proto/keeper.h. */
#ifndef CARREL_KEEPER_KEEPER_H
#define CARREL_KEEPER_KEEPER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "box/box.h"
#include "box/family/family.h"
#include "box/store.h"
#include "box/volume.h"
#include "keeper/clerk.h"
#include "proto/create.h"
#include "proto/events.h"

enum { KEEPER_ROOTS = 64, KEEPER_LAYERS = 16, KEEPER_OPENERS = 1024 };
_Static_assert((int)KEEPER_LIST + 2 * (int)KEEPER_LAYERS <= (int)SPEC_LIST_MAX, "every list that a front sends fits");
/* A payload's slot. */
struct kept_payload {
    bool           ended;
    bool           is_helper;       /* of ours, outside the box's pid namespace */
    bool           forking;         /* no process yet; the zygote is forking it, or will */
    bool           is_requested, is_in_line;    /* while forking: of the zygote; queued (forks.c) */
    struct kept_payload *next_in_line;
    struct kept_box *box;           /* of a forked one */
    int            order[4];        /* owned while forking: its command and its stdio */
    enum way       way;
    uint64_t       timeout_ms;      /* counts from its start; 0: none */
    struct payload payload;
    uint64_t       token, started_us, deadline_us;  /* deadline 0: none */
    bool           timed_out;
    bool           out_of_memory;   /* we killed it for that, perhaps before the kernel counted a kill of its own */
    bool           untold;          /* ended, but not reported until the box has settled (memory.c) */
    struct process_end how;         /* it ended */
    uint64_t       cpu_before_us;   /* of a parked one: its warm-up is charged to no command */
    uint64_t       oom_kills_before, pids_refused_before;   /* of the box, at its start: not its doing */
    int            n_held, held[KEEPER_HELD];       /* owned */
    union {
        struct event_head   head;                   /* type 0: it has not ended */
        struct event_ended  ended;
        struct event_failed failed;
    } end;                                          /* repeated to a front that connects later */
};

/* A child that opens what a caller wants mounted (opener.c). */
struct opener {
    struct process process;
    int            link;                    /* owned while it is held */
    bool           is_held;                 /* a box waits for it, or for its store */
    uid_t          uid;                     /* the caller */
    uint64_t       since_us;                /* for its answer or its end; 0: it has answered */
};

/* A box that waits for its mounts to be opened and its store to be mounted. */
struct kept_create {
    struct opener        *opener;               /* NULL: it has no mounts */
    uint64_t              deadline_us;          /* for the opener; 0: it has answered */
    struct store_job      job;                  /* mounts the store, then the volumes */
    bool                  mounts_volumes;
    int                   store_tree;           /* owned: the mounted store, while the volumes are mounted; -1: none */
    struct request_create frame;
    int                   fds[KEEPER_MOUNTS];   /* owned: of the host mounts, in their order */
    size_t                n_fds;
    bool                  is_in_line;           /* waits for its turn to be born */
    struct kept_box      *next_in_line;
};

/* A template's layers: directories of the host, at the same paths in boxes. */
struct kept_template {
    char       *text;                   /* owned, never freed: the names point into it */
    size_t      n;
    const char *dir[KEEPER_LAYERS];
    int         fd[KEEPER_LAYERS];      /* owned */
};

enum kept_family_state { FAMILY_MAKING, FAMILY_READY, FAMILY_ENDING, FAMILY_ORPHANED, FAMILY_TREE };

struct kept_family {
    struct kept_family    *next, **back;        /* all families; also those that left their slot */
    enum kept_family_state state;
    bool                   was_ready;
    struct family          family;
    uint64_t               token, deadline_us;
    uint32_t               slot;
    struct kept_layer     *layer;               /* its packages; NULL: none */
    struct frame_mounts    mounts;              /* of the zygote and of each of its boxes */
    uint32_t               make_serial, end_serial;     /* of requests that wait for an answer; 0: none */
    struct err             cause;               /* why it ended, if no request ended it */
    size_t                 n_boxes;
    unsigned               n_births, n_late;    /* boxes being born; consecutive late children */
    unsigned               n_forks;             /* requested, and not answered yet */
    struct kept_payload   *line;                /* that wait to be requested, the oldest first */
};

/* A box's slot. The table of slots is the truth about live boxes. */
struct kept_box {
    struct engine_box    box;
    uint64_t             token;
    uint32_t             slot;
    uint32_t             create_serial;     /* answered when the box is complete; 0: answered */
    uint32_t             destroy_serial;    /* answered when it is gone; 0: no request */
    uint32_t             freeze_serial;     /* answered when the whole box is frozen; 0: no request */
    uint64_t             freeze_us, freeze_end_us;  /* while being frozen: the next, the last check; 0: not */
    bool                 is_ahead;          /* no caller waits for it */
    bool                 dying;
    struct err           cause;             /* why it is dying, if no request ended it */
    uint64_t             oom_kills, pids_refused, n_unrouted;   /* at the last check */
    struct kept_shortage *shortage;         /* owned: memory ran out, and the box settles (memory.h) */
    uint64_t             store;             /* its number; 0: none */
    struct volume_uses   volumes;           /* without their trees once the box is made */
    struct kept_layer   *layer;             /* its packages; NULL: none */
    struct kept_family  *family;            /* NULL: a plain box */
    uint64_t             deadline_us;       /* for its birth and completion; 0: none */
    struct box_trust     trust;             /* owned until the box is made: mapped files of the front (trust.h) */
    struct kept_create  *waiting;           /* owned: not made yet; waits for mounts, store or its turn */
    uint32_t             net_serial;        /* of a REQUEST_NET that waits; 0: none */
    bool                 wants_sockets;     /* egress has no sockets of it (egress.h) */
    struct kept_payload *payload[KEEPER_PAYLOADS];
};

/* The link to egress. */
struct kept_egress {
    const char       *path;         /* egress's socket; NULL: there is none */
    int               link;         /* owned; -1: none */
    uint64_t          retry_us;     /* when to connect, or to prepare boxes, again; 0: nothing to do */
    struct egress_job job;          /* link -1: none */
    uint64_t          job_token;    /* its box */
};

struct keeper {
    struct box_host  host;
    struct stores    stores;
    struct volumes   volumes;
    struct kept_volume_job *volume_jobs;        /* volumes.h */
    int              epoll, listener, front, signals;   /* owned; -1: none */
    uid_t            front_uid;
    bool             end_with_front;            /* a private keeper: no front, no boxes */
    bool             stopping;
    uint64_t         deadline_us;               /* not later than any payload's or box's; 0: none has one */
    uint64_t         sweep_us;                  /* when to reap unknown children next */
    uint32_t         boxes_most;                /* its descriptors are enough for so many */
    size_t           n_boxes, n_dying;          /* n_dying: on their way out */
    struct kept_box *box[KEEPER_BOXES];
    size_t           n_roots;
    const char      *root[KEEPER_ROOTS];        /* root number i+1 */
    size_t           n_templates;
    struct kept_template template[KEEPER_TEMPLATES];    /* template number i+1 */
    const char      *device_kinds;              /* kinds that boxes may have (devices/cdi.h); NULL: none */
    struct opener    opener[KEEPER_OPENERS];
    const char      *layers_place;              /* the folder of package layers (box/layer.h) */
    struct kept_layer *layers;                  /* in use */
    struct clerk     clerk;                     /* starts their builders */
    struct kept_family *families;
    struct kept_family *family[KEEPER_FAMILIES];
    struct kept_dying  *dying;
    struct kept_box    *line;                   /* boxes that wait to be born: callers' first, then the oldest */
    unsigned            n_callers_born;         /* callers' boxes of families that are being born */
    struct kept_egress  egress;
    bool                look_at_line;           /* the queue must be checked */
};

/* The kinds of epoll events. */
enum watch_kind {
    WATCH_LISTENER = 1, WATCH_FRONT, WATCH_SIGNALS,
    WATCH_INIT, WATCH_BIRTH, WATCH_BOX_LINK, WATCH_FIRST_END,
    WATCH_PAYLOAD_LINK, WATCH_PAYLOAD_END,
    WATCH_MEMORY, WATCH_STORE, WATCH_MOUNTS, WATCH_OPENER, WATCH_VOLUME,
    WATCH_FAMILY, WATCH_DOOR, WATCH_EGRESS, WATCH_EGRESS_JOB, WATCH_DYING
};

/* Serves until asked to stop. front: a connected socket, or -1; listener: for fronts, or -1. */
MUST_CHECK int keeper_run(struct keeper *keeper, int front, int listener, uid_t front_uid, struct err *e);

/* Executes one request (ops.c). Takes over fds. False: the frame is illegal, and the front must be dropped. */
bool           keeper_request(struct keeper *keeper, const void *frame, size_t size, int *fds, size_t n_fds);

/* Shared by keeper.c and ops.c. */
MUST_CHECK int keeper_watch(struct keeper *keeper, int fd, enum watch_kind what, uint32_t box, uint32_t payload);
/* Call it before the descriptor is closed: epoll watches a file until its last copy is closed, and a child that is
 * being born has copies of all our descriptors. Until it closes them, unhandled ready files would keep waking us. */
void           keeper_unwatch(struct keeper *keeper, int fd);
/* Sends a frame of events.h. False: its descriptors could not be sent; an answer becomes a failure. */
bool           keeper_tell(struct keeper *keeper, const void *event, size_t size, const int *fds, size_t n_fds);
void           keeper_tell_done(struct keeper *keeper, uint32_t box, uint32_t serial, const struct err *e);
void           keeper_tell_end(struct keeper *keeper, const struct kept_payload *p);
void           keeper_end_box(struct keeper *keeper, struct kept_box *box, const struct err *cause);
void           keeper_free_payload(struct keeper *keeper, struct kept_box *box, unsigned slot);
void           keeper_usage(const struct engine_box *box, struct frame_usage *ret, struct box_usage *ret_full);
void           keeper_tell_all(struct keeper *keeper);
void           keeper_bury_box(struct keeper *keeper, struct kept_box *box);
/* Makes this the next deadline if it is earlier. */
void           keeper_note_deadline(struct keeper *keeper, uint64_t deadline_us);
/* Ends everything that is late; returns how long until the next deadline, in ms, or -1. */
int            keeper_keep_deadlines(struct keeper *keeper);
/* The payload runs: starts its timeout. */
void           keeper_arm(struct keeper *keeper, struct kept_payload *p);
MUST_CHECK int keeper_watch_end(struct keeper *keeper, struct kept_box *box, unsigned slot, struct err *e);

#endif
