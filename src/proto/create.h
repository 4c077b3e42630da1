/* The frame that asks the keeper for a box. */
#ifndef CARREL_PROTO_CREATE_H
#define CARREL_PROTO_CREATE_H

#include <stddef.h>

#include "proto/keeper.h"
#include "proto/mounts.h"

enum {
    KEEPER_MOUNTS = 16,                 /* of MOUNT_HOST */
    KEEPER_DEVICES = 8,                 /* of MOUNT_DEVICE */
    KEEPER_LIST = KEEPER_MOUNTS + KEEPER_DEVICES + 3,   /* and the root, a template, a place to write to */
};

/* One entry of the list of mounts. There is at most one root, one template and one place to write to. */
struct frame_mount {
    /* ROOT: 0 the host's /usr, else a root that the keeper's configuration names. LAYER: a template that it names; all
     * its layers. STORE: the store's number, made if there is none. */
    uint64_t number;
    char     target[247];   /* of a HOST: absolute, NUL-terminated; of a DEVICE: its name, "vendor.com/class=device" */
    uint8_t  kind;          /* enum mount_kind */
    uint8_t  writable;
    uint8_t  is_file;       /* filled in by the keeper */
    uint8_t  reserved[6];
};
_Static_assert(sizeof(struct frame_mount) == 264, "a frame has no hidden bytes");

enum { CREATE_TERMINAL = 1, CREATE_NETWORK = 2 };

struct request_create {
    struct request_head head;
    uint64_t            token;          /* the front's own name for the box, told again to the next front */
    struct limits limits;
    uint32_t            profile, flags, uid, gid;
    uint32_t            owner_uid, owner_gid;   /* filled in by the keeper: who made the envelopes */
    uint32_t            n_mounts;
    uint32_t            family;         /* 0: none; else a family's slot + 1: the first payload is forked and waits */
    char                hostname[65];
    uint8_t             reserved[7];
    struct frame_mount  mount[KEEPER_LIST];
};

/* The next entry of a list that has room for it. */
static inline struct frame_mount *frame_mount_add(struct request_create *q, enum mount_kind kind, uint64_t number)
{
    struct frame_mount *mount = &q->mount[q->n_mounts++];

    mount->kind = (uint8_t)kind;
    mount->number = number;
    return mount;
}

/* How many entries of a kind there are; and of the first of them the number (0: there is none). */
static inline size_t frame_mount_count(const struct request_create *q, enum mount_kind kind)
{
    size_t n = 0;

    for (size_t i = 0; i < q->n_mounts && i < KEEPER_LIST; i++)
        n += q->mount[i].kind == kind;
    return n;
}

static inline uint64_t frame_mount_number(const struct request_create *q, enum mount_kind kind)
{
    for (size_t i = 0; i < q->n_mounts && i < KEEPER_LIST; i++)
        if (q->mount[i].kind == kind)
            return q->mount[i].number;
    return 0;
}

#endif
