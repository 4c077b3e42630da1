/* The protocol between the front and the keeper, over one SOCK_SEQPACKET socket: fixed frames, a few descriptors,
 * nothing to parse.
 *
 * This file has the front's requests; events.h has the keeper's events. Each type has a frame of its own, and the
 * receiver has a table of them with their exact sizes (keeper/ops.c, front/keeper_link.c).
 *
 * The front numbers boxes and payloads itself: a box is a slot below KEEPER_BOXES, a payload a slot below
 * KEEPER_PAYLOADS in its box. Strings in a request never become paths on the host: a mount's target is a path in the
 * box, roots are named by number, commands travel in a memfd that only the sealed payload reads. */
#ifndef CARREL_PROTO_KEEPER_H
#define CARREL_PROTO_KEEPER_H

#include <stdint.h>

#include "proto/limits.h"
#include "proto/mounts.h"
#include "proto/volumes.h"

enum {
    KEEPER_VERSION = 15,
    KEEPER_BOXES = 4096,
    KEEPER_PAYLOADS = 64,
    KEEPER_FDS = 24,
    KEEPER_HELD = 3,
    KEEPER_FAMILIES = 64,
    KEEPER_TEMPLATES = 64,        /* templates, then interpreters for packages */
    KEEPER_INLET_PORT = 807     /* of the box's 127.0.0.1; below 1024, so that its user cannot take it */
};

enum request_type {
    /* fds: for each MOUNT_HAS_FD in turn, its source in its caller's envelope (envelope.h); two for CREATE_TRUST */
    REQUEST_CREATE = 1,
    /* fds: command (command.h), stdio as flagged, then up to KEEPER_HELD that the keeper holds for the next front */
    REQUEST_START,
    REQUEST_SIGNAL,
    REQUEST_FREEZE,
    REQUEST_THAW,
    REQUEST_LIMITS,
    REQUEST_USAGE,
    REQUEST_SOCKET,      /* a socket made in the network of the box; the answer carries it */
    REQUEST_FILES,       /* fd: the file helper's socket; the helper takes a payload's slot */
    REQUEST_CLOSE_INPUT, /* closes the held copies of a payload's standard input */
    REQUEST_FORGET,      /* the front has recorded a payload's end; its slot is free again */
    REQUEST_DESTROY,
    REQUEST_STORE_REMOVE, /* the slot is ignored */
    REQUEST_FAMILY,       /* about no box; fds: the zygote's command, then its stderr if there */
    REQUEST_FAMILY_END,   /* the same */
    REQUEST_NET,          /* switches the network of a ready box on or off */
    REQUEST_METER,        /* files that count the box's use come with the answer */
    REQUEST_LAYER,        /* no box; fds: the list of packages, and a pipe that the builder writes to (layer.h) */
    REQUEST_VOLUME,       /* no box; answered when it is done */
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
    uint64_t            timeout_ms;     /* 0: none; enforced by the keeper, also while there is no front */
    uint8_t             has_stdio[3];
    uint8_t             n_held;
    uint32_t            way;            /* enum start_way */
    uint32_t            user, group;    /* 0: the box's own; else the id in the box, plus one */
};
_Static_assert(sizeof(struct request_start) == 48, "a frame has no hidden bytes");

enum start_way {
    START_EXEC,
    START_FORK, /* from the family's zygote: the child that waits already, or a new one; STARTED says which */
};

/* How a payload was started. */
enum way { WAY_EXECUTED, WAY_FORKED, WAY_PARKED /* forked before any request, and waited */ };

enum box_state { BOX_NONE, BOX_MAKING, BOX_READY, BOX_FROZEN, BOX_DEAD };

struct request_family {
    struct request_head head;
    uint64_t            token;
    struct limits       limits;         /* of the zygote and what it forks before they are in their boxes */
    uint32_t            slot;           /* below KEEPER_FAMILIES */
    uint32_t            profile;
    uint32_t            has_stderr;
    uint32_t            reserved;
    struct frame_mounts mounts;         /* of kinds that are MOUNT_OF_FAMILY */
};
_Static_assert(sizeof(struct request_family) == 40 + sizeof(struct limits) + sizeof(struct frame_mounts),
               "a frame has no hidden bytes");

struct request_family_end {
    struct request_head head;
    uint32_t            slot;
    uint32_t            reserved;
};
_Static_assert(sizeof(struct request_family_end) == 24, "a frame has no hidden bytes");

struct request_signal {
    struct request_head head;
    int32_t             signal;
    uint32_t            group;          /* 1: the payload's process group */
};
_Static_assert(sizeof(struct request_signal) == 24, "a frame has no hidden bytes");

struct request_limits {
    struct request_head head;
    struct limits       limits;
};
_Static_assert(sizeof(struct request_limits) == 16 + sizeof(struct limits), "a frame has no hidden bytes");

enum socket_use {
    /* a TCP connection, possibly still connecting, to a port of the box's loopback; -EPERM: to KEEPER_INLET_PORT */
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

struct request_volume {
    struct request_head head;
    uint64_t            volume;
    uint64_t            bytes;          /* of MAKE and GROW */
    uint32_t            operation;      /* enum volume_operation */
    uint32_t            reserved;
};
_Static_assert(sizeof(struct request_volume) == 40, "a frame has no hidden bytes");

/* Answered when the builder has started, not when it is done: the pipe has its output and shows its end. */
struct request_layer {
    struct request_head head;
    uint32_t            template;       /* the packages are for its interpreter */
    uint32_t            reserved;
    char                owner[64];      /* as packages_owner() gives it */
};
_Static_assert(sizeof(struct request_layer) == 88, "a frame has no hidden bytes");

#endif
