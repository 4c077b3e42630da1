/* Looks up names with the host's resolver settings, without blocking: c-ares on the loop. Answers are cached for their
 * TTL, but 5 to 60 seconds; questions for a name that is being looked up join that lookup. */
#ifndef CARREL_EGRESS_RESOLVE_H
#define CARREL_EGRESS_RESOLVE_H

#include "base/err.h"
#include "egress/fair.h"
#include "http/loop.h"
#include "proto/net.h"

enum {
    RESOLVE_NAMES = 8192,       /* kept or under way at a time */
    RESOLVE_UNDER_WAY = 4096,   /* of all boxes */
    RESOLVE_BY_BOX = 64,        /* under way that one box began */
    RESOLVE_ADDRESSES = 16,     /* of a name; more are ignored */
};

enum resolve_status {
    RESOLVE_FOUND,
    RESOLVE_EMPTY,              /* the name exists and has no address */
    RESOLVE_UNKNOWN,            /* no such name */
    RESOLVE_FAILED,             /* no server answered, or one reported a failure */
};

struct resolve_answer {
    enum resolve_status status;
    size_t              n;
    struct net_address  address[RESOLVE_ADDRESSES];
};

/* Embedded in the waiting struct. Zeroed = not waiting. on_done comes from the loop, once. */
struct resolve_wait {
    void (*on_done)(struct resolve_wait *w, const struct resolve_answer *answer);
    struct resolve_wait *next, **back;
};

struct resolver;

MUST_CHECK int resolver_new(struct loop *l, struct resolver **ret);
void           resolver_free(struct resolver *r);

/* The cached answer, or NULL. Valid until control returns to the loop. */
const struct resolve_answer *resolver_recall(struct resolver *r, const char *name);
/* -EAGAIN: too many names are being looked up. A lookup counts in the share of the box that began it until it is
 * answered, also if that box cancels it. */
MUST_CHECK int resolver_ask(struct resolver *r, const char *name, struct fair_share *share, struct resolve_wait *w);
void           resolver_cancel(struct resolve_wait *w);
/* The box is removed: its lookups are charged to no share. */
void           resolver_disown(struct resolver *r, struct fair_share *share);

#endif
