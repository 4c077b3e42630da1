/* Events from the keeper to its front: a frame for each type, over the socket of keeper.h.
 *
 * Every request is answered by one event with its serial: a failed one by DONE, a successful one by DONE, too, unless a
 * comment below names another event. Events with serial 0 are unrequested. */
#ifndef CARREL_PROTO_EVENTS_H
#define CARREL_PROTO_EVENTS_H

#include <stdint.h>

#include "base/err.h"
#include "proto/keeper.h"
#include "proto/net.h"
#include "proto/usage.h"
#include "proto/walls.h"

enum event_type {
    EVENT_HELLO = 1,    /* first on a new connection */
    EVENT_STORE,        /* after HELLO, for each store */
    EVENT_FAMILY,       /* a family is ready: answers REQUEST_FAMILY. After HELLO, for each that is ready */
    EVENT_BOX,          /* after HELLO, for each living box; fd: its inlet, if there is one */
    /* After its BOX; fds: those held for the front, then the PTY's master if it has one. If it has ended, its ENDED or
     * FAILED comes next. */
    EVENT_PAYLOAD,
    EVENT_SYNCED,       /* after the last of them; head only */
    EVENT_DONE,         /* the answer to a request; fd: of REQUEST_SOCKET */
    EVENT_USAGE,        /* answers REQUEST_USAGE */
    EVENT_METER,        /* answers REQUEST_METER; fds: the files */
    EVENT_READY,        /* a box is complete: answers REQUEST_CREATE; head only */
    EVENT_STARTED,      /* a payload runs; fd: the PTY's master, if requested */
    EVENT_FAILED,       /* a payload never ran; it must be forgotten like one that ended */
    EVENT_ENDED,        /* a payload ended */
    EVENT_GONE,         /* a box is gone, and its store free; so is its slot. Answers REQUEST_DESTROY */
    EVENT_FAMILY_GONE,  /* a zygote ended, requested or not; its boxes live on until they are destroyed */
    EVENT_REFUSED,      /* a program in a box without network looked up a name */
    EVENT_EGRESS,       /* fd: a new link to egress (egress.h), in the place of an earlier one; head only */
    EVENT_VOLUME,       /* after HELLO, for each volume; answers REQUEST_VOLUME with VOLUME_OP_LOOK */
    EVENT_COUNT
};

struct event_head {
    uint16_t type;
    uint16_t payload;   /* slot; 0 if it is about no payload */
    uint32_t box;       /* slot; 0 if it is about no box */
    uint32_t serial;    /* of the request that it answers; 0: it happened on its own */
    int32_t  result;    /* of DONE: 0 or -errno; of others always 0 */
};
_Static_assert(sizeof(struct event_head) == 16, "a frame has no hidden bytes");

struct event_hello {
    struct event_head head;
    uint32_t          version;          /* KEEPER_VERSION */
    uint32_t          n_templates;
    uint32_t          can_store, most_boxes;    /* most_boxes: its descriptors are enough for so many */
    struct walls_host walls;            /* the host's abilities */
    uint64_t          memory_bound;     /* by the cgroups in which boxes are made; 0: none */
    struct err        why_no_store;     /* if it cannot store */
    uint32_t          volumes;          /* enum volumes_held */
    uint32_t          reserved;
};
_Static_assert(sizeof(struct event_hello) == 304, "a frame has no hidden bytes");

/* Whether there can be volumes; if not, why_no_store says why. FREE: their sizes are not limits. */
enum volumes_held { VOLUMES_NONE, VOLUMES_LIMITED, VOLUMES_FREE };

struct event_volume {
    struct event_head head;
    uint64_t          volume;           /* its number */
    uint64_t          bytes;            /* its size; 0: a folder has none */
    uint64_t          used_bytes;       /* on the host's disk */
};
_Static_assert(sizeof(struct event_volume) == 40, "a frame has no hidden bytes");

struct event_store {
    struct event_head head;
    uint64_t          store;            /* its number */
    uint64_t          used_bytes;       /* its disk usage */
};
_Static_assert(sizeof(struct event_store) == 32, "a frame has no hidden bytes");

struct event_family {
    struct event_head head;
    uint64_t          token;
    uint32_t          slot, reserved;
};
_Static_assert(sizeof(struct event_family) == 32, "a frame has no hidden bytes");

struct event_box {
    struct event_head head;
    uint64_t          token;
    uint32_t          state;            /* enum box_state */
    uint32_t          family;           /* as in REQUEST_CREATE; 0 also if its family is gone */
    uint32_t          has_network, reserved;
};
_Static_assert(sizeof(struct event_box) == 40, "a frame has no hidden bytes");

struct event_payload {
    struct event_head head;
    uint64_t          token;
    uint32_t          way;              /* enum way */
    uint32_t          has_ended;
    uint32_t          n_held, reserved; /* n_held: descriptors */
};
_Static_assert(sizeof(struct event_payload) == 40, "a frame has no hidden bytes");

struct event_done {
    struct event_head head;
    struct err        err;              /* of a result that is not 0 */
};
_Static_assert(sizeof(struct event_done) == 256, "a frame has no hidden bytes");

struct event_usage {
    struct event_head  head;
    struct frame_usage usage;
};
_Static_assert(sizeof(struct event_usage) == 72, "a frame has no hidden bytes");

/* Which files come, in this order; each is for reading alone and ends with the box. CPU_US: its line usage_usec. */
enum meter { METER_CPU_US = 1, METER_CPU_NS = 2, METER_MEMORY_PEAK = 4, METER_FDS = 2 };

struct event_meter {
    struct event_head head;
    uint32_t          files;            /* enum meter */
    uint32_t          reserved;
};
_Static_assert(sizeof(struct event_meter) == 24, "a frame has no hidden bytes");

struct event_started {
    struct event_head head;
    uint64_t          token;
    uint64_t          cpu_before_us;    /* of a parked one: the box's usage so far */
    uint32_t          way;              /* enum way */
    uint32_t          reserved;
};
_Static_assert(sizeof(struct event_started) == 40, "a frame has no hidden bytes");

struct event_failed {
    struct event_head head;
    uint64_t          token;
    struct err        err;
};
_Static_assert(sizeof(struct event_failed) == 264, "a frame has no hidden bytes");

struct event_ended {
    struct event_head head;
    uint64_t          token;
    struct frame_end  end;
};
_Static_assert(sizeof(struct event_ended) == 120, "a frame has no hidden bytes");

struct event_gone {
    struct event_head head;
    uint64_t          token;
    struct err        cause;            /* code 0: it was requested */
};
_Static_assert(sizeof(struct event_gone) == 264, "a frame has no hidden bytes");

struct event_family_gone {
    struct event_head head;
    uint64_t          token;
    uint32_t          slot;
    int32_t           code, signal;     /* how the zygote ended; signal 0: it exited with code */
    uint32_t          reserved;
    struct err        cause;            /* code 0: it was requested */
};
_Static_assert(sizeof(struct event_family_gone) == 280, "a frame has no hidden bytes");

/* A program of a box without network looked this up; "": addresses, when a command has failed (box/unrouted.h). */
struct event_refused {
    struct event_head head;
    char              name[NET_NAME_SIZE];
};
_Static_assert(sizeof(struct event_refused) == 272, "a frame has no hidden bytes");

/* Room for any of them; head.type says which it is. */
union event {
    struct event_head        head;
    struct event_hello       hello;
    struct event_store       store;
    struct event_family      family;
    struct event_box         box;
    struct event_payload     payload;
    struct event_done        done;
    struct event_usage       usage;
    struct event_meter       meter;
    struct event_started     started;
    struct event_failed      failed;
    struct event_ended       ended;
    struct event_gone        gone;
    struct event_family_gone family_gone;
    struct event_refused     refused;
    struct event_volume      volume;
};

/* Why a request failed; NULL: it was carried out. */
static inline const struct err *event_failure(const union event *event)
{
    return event->head.result < 0 ? &event->done.err : NULL;
}

#endif
