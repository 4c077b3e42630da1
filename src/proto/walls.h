/* What confines a box, and by which means: the same words in the report of `carrel run` and in the API. */
#ifndef CARREL_PROTO_WALLS_H
#define CARREL_PROTO_WALLS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/jsonout.h"
#include "proto/limits.h"
#include "proto/names.h"

/* Limits that a cgroup enforces, as bits of struct walls_host and indexes of struct walls. */
enum wall_limit { WALL_MEMORY, WALL_PIDS, WALL_CPUS, WALL_LIMITS };

/* The host's abilities; a keeper sends them to its front in HELLO. */
struct walls_host {
    uint32_t can;               /* which limits it can enforce at all */
    uint32_t is_v2;             /* which of them by cgroup v2; else v1 */
    uint32_t landlock_abi;      /* 0: none */
    uint32_t n_ids;             /* of a box's user namespace */
};

/* How a box's network rules are enforced. */
enum wall_network {
    WALL_NET_NONE,          /* the box has no network */
    WALL_NET_HOLD,          /* these two: enum egress_way + 1 */
    WALL_NET_TPROXY,
    WALL_NET_UNKNOWN,       /* there is no egress now, so the box reaches nothing until there is one */
};

/* How the sizes of a box's volumes are enforced. */
enum wall_volumes { WALL_VOLUMES_NONE, WALL_VOLUMES_LIMITED, WALL_VOLUMES_FREE };

struct walls {
    struct walls_host host;
    const char       *why[WALL_LIMITS];     /* why the host cannot; NULL: unknown here */
    struct limits     limits;
    enum profile      profile;
    bool              writable_root, no_proc, on_disk;
    enum wall_network network;
    enum wall_volumes volumes;
};

/* Writes two members, "enforced" and "not_enforced", into the open object. */
void walls_write(struct jsonout *j, const struct walls *w);

#endif
