/* Looking up names with the host's resolver settings, without waiting: c-ares on the loop. Answers are kept for as long
 * as they say, from 5 to 60 seconds; questions for a name that is being looked up join it. */
#ifndef CARREL_EGRESS_RESOLVE_H
#define CARREL_EGRESS_RESOLVE_H

#include "base/err.h"
#include "http/loop.h"
#include "proto/net.h"

enum {
    RESOLVE_NAMES = 1024,       /* kept or under way at a time */
    RESOLVE_ADDRESSES = 16,     /* of a name; more are not looked at */
};

enum resolve_status {
    RESOLVE_FOUND,
    RESOLVE_EMPTY,              /* the name exists and has no address */
    RESOLVE_UNKNOWN,            /* no such name */
    RESOLVE_FAILED,             /* no server answered, or one said that it failed */
};

struct resolve_answer {
    enum resolve_status status;
    size_t              n;
    struct net_address  address[RESOLVE_ADDRESSES];
};

/* Embedded in what waits. Zeroed = not waiting. on_done comes from the loop, once. */
struct resolve_wait {
    void (*on_done)(struct resolve_wait *w, const struct resolve_answer *answer);
    struct resolve_wait *next, **back;
};

struct resolver;

MUST_CHECK int resolver_new(struct loop *l, struct resolver **ret);
void           resolver_free(struct resolver *r);

/* What is known by now, or NULL. Valid until control returns to the loop. */
const struct resolve_answer *resolver_recall(struct resolver *r, const char *name);
/* -EAGAIN: too many names are being looked up. */
MUST_CHECK int resolver_ask(struct resolver *r, const char *name, struct resolve_wait *w);
void           resolver_cancel(struct resolve_wait *w);

#endif
