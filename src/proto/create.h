/* The frame by which the front requests a box. */
#ifndef CARREL_PROTO_CREATE_H
#define CARREL_PROTO_CREATE_H

#include "proto/keeper.h"
#include "proto/mounts.h"

/* CREATE_TRUST: after the descriptors of mounts come two sealed files with certificates of the box's own, as PEM and as
 * a truststore of Java (proto/broker.h). CREATE_AHEAD: no caller waits for the box yet, so callers' boxes are born
 * first. CREATE_BLANK: a box of a family that is complete without a payload: the first one is forked on request. */
enum {
    CREATE_TERMINAL = 1,
    CREATE_NETWORK = 2,
    CREATE_TRUST = 4,
    CREATE_AHEAD = 8,
    CREATE_BLANK = 16,
    CREATE_FLAGS = 31,          /* all of them */
    CREATE_TRUST_FDS = 2
};

struct request_create {
    struct request_head head;
    uint64_t            token;          /* the front's own id of the box, repeated to the next front */
    struct limits       limits;
    uint32_t            profile, flags, uid, gid;
    uint32_t            owner_uid, owner_gid;   /* filled in by the keeper: the maker of the envelopes */
    uint32_t            family;         /* 0: none; else a family's slot + 1: the first payload is forked and waits,
                                         * unless CREATE_BLANK */
    char                hostname[65];
    uint8_t             reserved[3];
    struct frame_mounts mounts;
};
_Static_assert(sizeof(struct request_create) == 120 + sizeof(struct limits) + sizeof(struct frame_mounts),
               "a frame has no hidden bytes");

#endif
