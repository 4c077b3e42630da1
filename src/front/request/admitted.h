/* A request that a door has admitted: the state that every door needs. Doors embed it in their own struct, in the
 * request's arena; identity/caller.h fills in the caller's identity. */
#ifndef CARREL_FRONT_REQUEST_ADMITTED_H
#define CARREL_FRONT_REQUEST_ADMITTED_H

#include "front/front.h"
#include "front/identity/auth.h"
#include "http/router.h"
#include "http/server.h"

/* Holder of grants: at most one of the two is set. */
struct grant_holder {
    struct box *box;            /* the request came over its inlet, and ends with the inlet, before the box */
    const char *id;             /* of the grant whose token the request has; points into who.name */
};

#define ADMITTED_FIELDS \
    struct front            *front; \
    struct http_request     *r; \
    const struct http_match *match;     /* NULL: the door has no table of routes */ \
    struct identity          who; \
    struct grant_holder      holder; \
    struct keeper_wait       wait;      /* if there is no keeper yet */

struct admitted {
    ADMITTED_FIELDS
};

/* Embeds it as a member whose fields are the outer struct's own; functions take it as .in. */
#define EMBED_ADMITTED \
    union { \
        struct admitted in; \
        struct { \
            ADMITTED_FIELDS \
        }; \
    }

/* Whether the caller has no identity but a grant's, or its box's. */
static inline bool admitted_is_holder(const struct admitted *a)
{
    return a->holder.box || a->holder.id;
}

#endif
