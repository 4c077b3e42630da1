/* What holds a box, and by which means: the same words in the report of `carrel run` and in the API. */
#ifndef CARREL_PROTO_WALLS_H
#define CARREL_PROTO_WALLS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/jsonout.h"
#include "proto/limits.h"
#include "proto/names.h"

/* Limits that a cgroup holds, as bits of struct walls_host and indexes of struct walls. */
enum wall_limit { WALL_MEMORY, WALL_PIDS, WALL_CPUS, WALL_LIMITS };

/* What the host is able to do; a keeper tells its front in HELLO. */
struct walls_host {
    uint32_t can;               /* which limits it can hold at all */
    uint32_t is_v2;             /* which of them by cgroup v2; else v1 */
    uint32_t landlock_abi;      /* 0: none */
    uint32_t n_ids;             /* of a box's user namespace */
};

struct walls {
    struct walls_host host;
    const char       *why[WALL_LIMITS];     /* why the host cannot; NULL: it is not known here */
    struct limits     limits;
    enum profile      profile;
    bool              writable_root, no_proc, on_disk, has_network;
};

/* Writes two members, "enforced" and "not_enforced", into the object that is open. */
void walls_write(struct jsonout *j, const struct walls *w);

#endif
