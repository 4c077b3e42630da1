/* Grants: the right to call named functions of one service, held by a box (whose code reaches them at its inlet) or as
 * a token, with an end and a number of calls. Whether a function may be called is decided here, and nowhere else. */
#ifndef CARREL_FRONT_SERVICES_GRANTS_H
#define CARREL_FRONT_SERVICES_GRANTS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct box;
struct front;
struct service;

enum { GRANTS_PER_OWNER = 1024 };

struct grant {
    struct grant   *next, **back;
    struct front   *front;
    struct service *service;            /* outlives it */
    struct box     *box;                /* whose inlet it is for; NULL: it is a token */
    char            id[16], token[16];  /* token: its id, or "" */
    char           *owner;              /* owned */
    json_t         *functions;          /* owned: array of names; NULL: all that there are */
    int64_t         created_ms, expires_ms;     /* expires 0: never */
    uint64_t        max_calls, used;    /* max 0: no bound */
};

/* Who wants to call: exactly one of them. */
struct grant_holder {
    struct box *box;
    const char *id;             /* of the grant, as the token's identity says */
};

struct grant_options {
    const char *owner;
    json_t     *functions;      /* borrowed, checked by the caller; or NULL */
    struct box *box;            /* or NULL */
    int64_t     expires_ms;
    uint64_t    max_calls;
};

/* Makes it; of a token the secret is in ret_secret (TOKEN_SECRET_SIZE), else "". A box's inlet is the caller's
 * to open. */
MUST_CHECK int grant_create(struct service *s, const struct grant_options *o, char *ret_secret, struct grant **ret,
                            struct err *e);
/* owner NULL: anybody's. */
struct grant  *grant_find(struct front *front, const char *owner, const char *id);
void           grant_delete(struct grant *g);
json_t        *grant_json(const struct grant *g);

/* Whether the holder may call it now. service NULL: the one that has it. -ENOENT: not granted, or not there (the two
 * look the same); -EPERM: expired or used up; -EINVAL: several services have it. */
MUST_CHECK int grant_check(struct front *front, const struct grant_holder *h, const char *service,
                           const char *function, struct grant **ret, struct err *e);
/* A call is made. */
void           grant_use(struct grant *g);
/* What the holder may call: array of {service, functions, expires_at, calls_left}. */
json_t        *grants_of(struct front *front, const struct grant_holder *h);

/* The functions of this service that the holder may call, each once (a new reference); NULL: it has no grant of it. */
json_t        *grants_functions(struct front *front, const struct grant_holder *h, const char *service);
bool           grants_name_service(struct front *front, const struct grant_holder *h, const char *service);

/* ---- called by the front's other parts ---- */
MUST_CHECK int grants_load(struct front *front, struct err *e);
void           grants_on_service_end(struct service *s);
void           grants_on_box_end(struct box *box, bool stays);
void           grants_free(struct front *front);

#endif
