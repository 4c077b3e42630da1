/* What the front and the keeper say to each other over one SOCK_SEQPACKET socket: fixed frames, a few descriptors,
 * nothing to parse.
 *
 * The front numbers boxes and payloads itself: a box is a slot below KEEPER_BOXES, a payload a slot below
 * KEEPER_PAYLOADS in its box. Every request is answered by one event with its serial; other events (serial 0) tell what
 * happened on its own. Strings in a request never become paths on the host: a mount's target is a path in the box,
 * roots are named by number, commands travel in a memfd that only the sealed payload reads. */
#ifndef CARREL_PROTO_KEEPER_H
#define CARREL_PROTO_KEEPER_H

#include <stdint.h>

#include "base/err.h"
#include "proto/walls.h"
#include "proto/limits.h"

enum {
    KEEPER_VERSION = 7,
    KEEPER_BOXES = 4096,
    KEEPER_PAYLOADS = 64,
    KEEPER_FDS = 24,
    KEEPER_HELD = 3,
    KEEPER_FAMILIES = 64,
    KEEPER_TEMPLATES = 32,
    KEEPER_INLET_PORT = 807     /* of the box's 127.0.0.1; below 1024, so that its user cannot take it */
};

enum request_type {
    REQUEST_CREATE = 1, /* fds: of each MOUNT_HOST in turn, its source in its caller's envelope (envelope.h) */
    /* fds: command (command.h), stdio as flagged, then up to KEEPER_HELD that the keeper holds for the next front */
    REQUEST_START,
    REQUEST_SIGNAL,
    REQUEST_FREEZE,
    REQUEST_THAW,
    REQUEST_LIMITS,
    REQUEST_USAGE,
    REQUEST_SOCKET,      /* a socket made in the network of the box; the answer carries it */
    REQUEST_FILES,       /* fd: the socket that the file helper speaks on; it takes a payload's slot */
    REQUEST_CLOSE_INPUT, /* the end of a payload's standard input: what is held of it is let go */
    REQUEST_FORGET,      /* the front has noted a payload's end; its slot is free again */
    REQUEST_DESTROY,
    REQUEST_STORE_REMOVE, /* about no box: its slot means nothing */
    REQUEST_FAMILY,       /* about a family's slot, in head.box; fds: the zygote's command, then its stderr if there */
    REQUEST_FAMILY_END,
    REQUEST_NET,          /* the network of a ready box is switched on or off */
    REQUEST_METER,        /* files that count the box's use; the answer's code says which: enum meter */
    REQUEST_COUNT
};

struct request_head {
    uint16_t type;
    uint16_t payload;       /* slot */
    uint32_t box;           /* slot */
    uint32_t serial;        /* not 0 */
    uint32_t reserved;
};
_Static_assert(sizeof(struct request_head) == 16, "a frame has no hidden bytes");

struct request_start {
    struct request_head head;
    uint64_t            token;
    uint64_t            timeout_ms;     /* 0: none; kept by the keeper, so that it holds while no front is there */
    uint8_t             has_stdio[3];
    uint8_t             n_held;
    uint32_t            way;            /* enum start_way */
    uint32_t            user, group;    /* 0: the box's own; else the id in the box, plus one */
};
_Static_assert(sizeof(struct request_start) == 48, "a frame has no hidden bytes");

enum start_way {
    START_EXEC,
    START_FORK, /* from the family's zygote: the child that waits already, or a new one. STARTED says which in code */
};

/* How a payload came to be. */
enum way { WAY_EXECUTED, WAY_FORKED, WAY_PARKED /* forked before anybody asked, and waited */ };

enum box_state { BOX_NONE, BOX_MAKING, BOX_READY, BOX_FROZEN, BOX_DEAD };

struct request_family {
    struct request_head head;           /* box: the family's slot */
    uint64_t            token;
    struct limits limits;         /* of the zygote and what it forks before they are in their boxes */
    uint32_t            template, profile;
    uint32_t            has_stderr;
    uint32_t            reserved;
};

struct request_signal {
    struct request_head head;
    int32_t             signal;
    uint32_t            group;          /* 1: the payload's process group */
};
_Static_assert(sizeof(struct request_signal) == 24, "a frame has no hidden bytes");

struct request_limits {
    struct request_head head;
    struct limits limits;
};

enum socket_use {
    /* a TCP connection, perhaps not complete yet, to a port of the box's loopback; -EPERM: to KEEPER_INLET_PORT */
    SOCKET_CONNECT,
    SOCKET_LISTEN,      /* the box's inlet: a listener on KEEPER_INLET_PORT, made once and kept for the next front */
};

struct request_socket {
    struct request_head head;
    uint32_t            use;            /* enum socket_use */
    uint32_t            port;
    uint32_t            ipv6;           /* of SOCKET_CONNECT */
    uint32_t            reserved;
};
_Static_assert(sizeof(struct request_socket) == 32, "a frame has no hidden bytes");

struct request_net {
    struct request_head head;
    uint32_t            has_network;
    uint32_t            reserved;
};
_Static_assert(sizeof(struct request_net) == 24, "a frame has no hidden bytes");

struct request_store {
    struct request_head head;
    uint64_t            store;
};
_Static_assert(sizeof(struct request_store) == 24, "a frame has no hidden bytes");

/* Which files came with the answer, in this order; each is for reading alone and ends with the box. */
enum meter {
    METER_CPU_US = 1, /* the line usage_usec */
    METER_CPU_NS = 2,
    METER_MEMORY_PEAK = 4,
    METER_FDS = 2,
};

enum event_type {
    /* First on a new connection. result: version; state 1: there can be stores, else err says why not; walls: what
     * this host can do; n_held: how many templates there are. */
    EVENT_HELLO = 1,
    EVENT_BOX,         /* after HELLO, for each living box; outcome: 1 with network; fd: its inlet, if there is one */
    EVENT_PAYLOAD,     /* after its BOX; fds: what is held for the front */
    EVENT_SYNCED,      /* after the last of them */
    EVENT_DONE,        /* the answer to a request; result 0 or -errno with err */
    EVENT_READY,       /* a box is complete */
    /* It runs; fd: the PTY's master, if one was asked for. code: enum way; cpu_us: what the box had used by then, of
     * one that was parked. */
    EVENT_STARTED,
    EVENT_FAILED,      /* a payload never ran, err says why; like one that ended, it is to be forgotten */
    EVENT_ENDED,       /* a payload ended */
    EVENT_GONE,        /* a box is gone, and its store free; so is its slot; err says why if it was not asked for */
    EVENT_FAMILY,      /* a family is ready (result 0), or after HELLO: one that is alive; box: its slot */
    EVENT_FAMILY_GONE, /* its zygote ended, asked to or not (err: why); its boxes live on until they are destroyed */
    EVENT_REFUSED,     /* err.what: a name that a program of a box without network asked for */
    EVENT_EGRESS,      /* fd: a new link to egress (proto/egress.h), in the place of an earlier one */
    EVENT_STORE,       /* after HELLO, for each store: its number in token, what it takes of the disk in usage */
};

struct frame_usage {
    uint64_t memory_bytes, memory_peak_bytes, cpu_us, disk_bytes;
    uint32_t pids, pids_peak, oom_kills, pids_refused;
    uint32_t disk_full;
    uint32_t reserved;
};
_Static_assert(sizeof(struct frame_usage) == 56, "a frame has no hidden bytes");

struct event {
    uint16_t           type;
    uint16_t           payload;
    uint32_t           box;
    uint32_t           serial;
    int32_t            result;
    uint64_t           token;
    uint64_t           wall_us, cpu_us, peak_bytes;     /* of a payload */
    int32_t            code, signal;
    uint32_t           outcome;         /* enum outcome */
    uint32_t           state;           /* enum box_state of a BOX, or 1 for a PAYLOAD that has ended */
    uint32_t           n_held;
    uint32_t           reserved;
    struct walls_host  walls;           /* of HELLO */
    struct frame_usage usage;
    struct err         err;
};

#endif
