/* The keeper: the privileged process that makes and ends boxes for a front. It speaks proto/keeper.h. */
#ifndef CARREL_KEEPER_KEEPER_H
#define CARREL_KEEPER_KEEPER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "box/box.h"
#include "box/family/family.h"
#include "box/store.h"
#include "proto/create.h"

enum { KEEPER_ROOTS = 64, KEEPER_LAYERS = 16, KEEPER_OPENERS = 1024 };
_Static_assert((int)KEEPER_LIST + (int)KEEPER_LAYERS <= (int)SPEC_LIST_MAX, "every list that a front sends fits");

/* A payload's slot. */
struct kept_payload {
    bool           ended;
    bool           is_helper;       /* of ours, outside the box's pid namespace */
    bool           forking;         /* there is no process yet; the zygote was asked */
    int            order[4];        /* owned while forking: its command and its stdio */
    enum way       way;
    uint64_t       timeout_ms;      /* counts from its start; 0: none */
    struct payload payload;
    uint64_t       token, started_us, deadline_us;  /* deadline 0: none */
    bool           timed_out;
    bool           out_of_memory;   /* we ended it for that, maybe before the kernel counted a kill of its own */
    bool           untold;          /* it has ended, but the box has not settled yet (memory.c) */
    struct process_end how;         /* it ended */
    uint64_t       cpu_before_us;   /* of a parked one: what it took to warm it is nobody's */
    uint64_t       oom_kills_before, pids_refused_before;   /* of the box, when it started: not its doing */
    int            n_held, held[KEEPER_HELD];       /* owned */
    struct event   end;                             /* told to a front that comes later */
};

/* A child that looks at what a caller wants mounted (opener.c). */
struct opener {
    struct process process;
    int            link;                    /* owned while it is held */
    bool           is_held;                 /* a box waits for it, or for its store */
    uid_t          uid;                     /* the caller */
    uint64_t       since_us;                /* it is to answer, or to end; 0: it has answered */
};

/* What a box is to be made of when its mounts are opened and its store is mounted. */
struct kept_create {
    struct opener        *opener;               /* NULL: it has no mounts */
    uint64_t              deadline_us;          /* for the opener; 0: it has answered */
    struct store_job      job;
    struct request_create frame;
    int                   fds[KEEPER_MOUNTS];   /* owned: of the host mounts, in their order */
    size_t                n_fds;
    bool                  is_in_line;           /* until its family has fewer births */
    struct kept_box      *next_in_line;
};

/* A template's layers: directories of the host, in boxes at the same path. */
struct kept_template {
    char       *text;                   /* owned, for ever: what the names point into */
    size_t      n;
    const char *dir[KEEPER_LAYERS];
    int         fd[KEEPER_LAYERS];      /* owned */
};

enum kept_family_state { FAMILY_MAKING, FAMILY_READY, FAMILY_ENDING, FAMILY_ORPHANED, FAMILY_TREE };

struct kept_family {
    struct kept_family    *next, **back;        /* all; also those whose slot is free again */
    enum kept_family_state state;
    bool                   was_ready;
    struct family          family;
    uint64_t               token, deadline_us;
    uint32_t               slot, template;
    uint32_t               make_serial, end_serial;     /* of requests that wait for an answer; 0: none */
    struct err             cause;               /* why it ended, if nobody asked for it */
    size_t                 n_boxes;
    unsigned               n_births, n_late;    /* being born; children in a row that did not come in time */
};

/* A box's slot. The table of them is the truth about what is alive. */
struct kept_box {
    struct engine_box    box;
    uint64_t             token;
    uint32_t             slot;
    uint32_t             create_serial;     /* answered when the box is complete; 0: answered */
    uint32_t             destroy_serial;    /* answered when it is gone; 0: nobody asked */
    uint32_t             freeze_serial;     /* answered when all of it stands still; 0: nobody waits for that */
    uint64_t             freeze_us, freeze_end_us;  /* it is being frozen: when to look next, and last; 0: it is not */
    bool                 dying;
    struct err           cause;             /* why it is dying, if nobody asked for it */
    uint64_t             oom_kills, pids_refused;   /* when last looked */
    struct kept_shortage *shortage;         /* owned: memory ran out, and the box settles (memory.h) */
    uint64_t             store;             /* its number; 0: none */
    struct kept_family  *family;            /* NULL: a plain box */
    uint64_t             deadline_us;       /* to be born and complete; 0: none */
    struct kept_create  *waiting;           /* owned: there is no box yet; mounts, store or its turn are to come */
    uint32_t             net_serial;        /* of a REQUEST_NET that waits; 0: none */
    bool                 wants_sockets;     /* egress has none of it (egress.h) */
    struct kept_payload *payload[KEEPER_PAYLOADS];
};

/* The link to egress. */
struct kept_egress {
    const char       *path;         /* where it listens; NULL: there is none */
    int               link;         /* owned; -1: none */
    uint64_t          retry_us;     /* when to connect next; 0: it is connected */
    struct egress_job job;          /* link -1: none */
    uint64_t          job_token;    /* of which box */
};

struct keeper {
    struct box_host  host;
    struct stores    stores;
    int              epoll, listener, front, signals;   /* owned; -1: none */
    uid_t            front_uid;
    bool             end_with_front;            /* a private keeper: no front, no boxes */
    bool             stopping;
    uint64_t         deadline_us;               /* no payload and no box has an earlier one; 0: none has any */
    uint64_t         sweep_us;                  /* when to look after families next */
    size_t           n_boxes, n_dying;          /* n_dying: on their way out */
    struct kept_box *box[KEEPER_BOXES];
    size_t           n_roots;
    const char      *root[KEEPER_ROOTS];        /* root number i+1 */
    size_t           n_templates;
    struct kept_template template[KEEPER_TEMPLATES];    /* template number i+1 */
    const char      *device_kinds;              /* comma list: what boxes may have; NULL: none (devices/cdi.h) */
    struct opener    opener[KEEPER_OPENERS];
    struct kept_family *families;
    struct kept_family *family[KEEPER_FAMILIES];
    struct kept_dying  *dying;
    struct kept_box    *line;                   /* boxes that wait for a birth, the oldest first */
    struct kept_egress  egress;
    bool                look_at_line;           /* one of them may have its turn, or is to go */
};

/* What an epoll event is about. */
enum watch_kind {
    WATCH_LISTENER = 1,
    WATCH_FRONT,
    WATCH_INIT,
    WATCH_BIRTH,
    WATCH_BOX_LINK,
    WATCH_FIRST_END,
    WATCH_PAYLOAD_LINK,
    WATCH_PAYLOAD_END,
    WATCH_SIGNALS,
    WATCH_MEMORY,
    WATCH_STORE,
    WATCH_MOUNTS,
    WATCH_OPENER,
    WATCH_FAMILY,
    WATCH_DOOR,
    WATCH_EGRESS,
    WATCH_EGRESS_JOB,
    WATCH_DYING
};

/* Serves until told to stop. front: an already connected socket, or -1; listener: where fronts connect, or -1. */
MUST_CHECK int keeper_run(struct keeper *keeper, int front, int listener, uid_t front_uid, struct err *e);

/* Carries one request out (ops.c). fds are owned by it from here on. False: the frame is not legal and the front is to
 * be dropped. */
bool           keeper_request(struct keeper *keeper, const void *frame, size_t size, int *fds, size_t n_fds);

/* Used by both. */
MUST_CHECK int keeper_watch(struct keeper *keeper, int fd, enum watch_kind what, uint32_t box, uint32_t payload);
/* Before it is closed: what epoll watches ends with the last copy, and a child that is being born has copies of all
 * that we had. Until it closes them, what is ready and of no interest would wake us again and again. */
void           keeper_unwatch(struct keeper *keeper, int fd);
/* False: the descriptors could not be sent, and the rest was told without them. */
bool           keeper_tell(struct keeper *keeper, const struct event *event, const int *fds, size_t n_fds);
void           keeper_end_box(struct keeper *keeper, struct kept_box *box, const struct err *cause);
void           keeper_free_payload(struct keeper *keeper, struct kept_box *box, unsigned slot);
void           keeper_usage(const struct engine_box *box, struct frame_usage *ret, struct box_usage *ret_full);
void           keeper_tell_all(struct keeper *keeper);
void           keeper_bury_box(struct keeper *keeper, struct kept_box *box);
/* Earlier than what is known? Then it is the next deadline. */
void           keeper_note_deadline(struct keeper *keeper, uint64_t deadline_us);
/* Ends what is over its time; returns how long until the next, in ms, or -1. */
int            keeper_keep_deadlines(struct keeper *keeper);
/* The payload runs: its time counts. */
void           keeper_arm(struct keeper *keeper, struct kept_payload *p);
MUST_CHECK int keeper_watch_end(struct keeper *keeper, struct kept_box *box, unsigned slot, struct err *e);

#endif
