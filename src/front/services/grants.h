/* Grants: the right to call named functions of one service, held by a box (its code uses it at the inlet) or as a
 * token, with an expiry and a number of calls. Only this file decides whether a function may be called. */
#ifndef CARREL_FRONT_SERVICES_GRANTS_H
#define CARREL_FRONT_SERVICES_GRANTS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct box;
struct box_part;
struct front;
struct grant_holder;         /* request/admitted.h */
struct service;

enum { GRANTS_PER_OWNER = 1024 };

struct grant {
    struct grant   *next, **back;
    struct front   *front;
    struct service *service;            /* outlives it */
    struct box     *box;                /* uses it at its inlet; NULL: it is a token */
    char            id[16], token[16];  /* token: its id, or "" */
    char           *owner;              /* owned */
    json_t         *functions;          /* owned: array of names; NULL: all functions */
    int64_t         created_ms, expires_ms;     /* expires 0: never */
    uint64_t        max_calls, used;    /* max 0: no bound */
};

struct grant_options {
    const char *owner;
    json_t     *functions;      /* borrowed, checked by the caller; or NULL */
    struct box *box;            /* or NULL */
    int64_t     expires_ms;
    uint64_t    max_calls;
};

/* Makes it; a token's secret is in ret_secret (TOKEN_SECRET_SIZE), else "". The caller opens a box's inlet. */
MUST_CHECK int grant_create(struct service *s, const struct grant_options *o, char *ret_secret, struct grant **ret,
                            struct err *e);
/* owner NULL: any. */
struct grant  *grant_find(struct front *front, const char *owner, const char *id);
void           grant_delete(struct grant *g);
json_t        *grant_json(const struct grant *g);

/* Whether the holder may call the function now. service NULL: the one that has it. -ENOENT: not granted, or missing
 * (indistinguishable on purpose); -EPERM: expired or used up; -EINVAL: several services have it. */
MUST_CHECK int grant_check(struct front *front, const struct grant_holder *h, const char *service,
                           const char *function, struct grant **ret, struct err *e);
/* Counts a call. */
void           grant_use(struct grant *g);
/* The functions that the holder may call: array of {service, functions, expires_at, calls_left}. */
json_t        *grants_of(struct front *front, const struct grant_holder *h);

/* The functions of this service that the holder may call, each once (a new reference); NULL: it has no grant for it. */
json_t        *grants_functions(struct front *front, const struct grant_holder *h, const char *service);
bool           grants_name_service(struct front *front, const struct grant_holder *h, const char *service);

/* ---- called by the front's other parts ---- */
MUST_CHECK int grants_load(struct front *front, struct err *e);
void           grants_on_service_end(struct service *s);
void           grants_free(struct front *front);
extern const struct box_part grants_part;

#endif
