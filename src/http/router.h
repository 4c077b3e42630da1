/* From method and path to a handler. Patterns: "/v1/boxes/{id}/exec"; "{name}" takes one whole segment, a last
 * "{name...}" takes the rest, which may be empty. A literal segment wins over a parameter, a parameter over the rest.
 * HEAD finds GET. */
#ifndef CARREL_HTTP_ROUTER_H
#define CARREL_HTTP_ROUTER_H

#include "http/server.h"

#define HTTP_PARAMETERS_MAX 8

struct http_match;

struct http_route {
    const char *method, *pattern;
    void (*handle)(struct http_request *r, const struct http_match *m, void *owner);
};

struct http_match {
    const struct http_route *route;
    unsigned n;
    const char *name[HTTP_PARAMETERS_MAX];
    struct http_text value[HTTP_PARAMETERS_MAX];    /* unescaped (also slashes), NUL-terminated, in the arena */
    struct http_text raw_rest;                      /* the part that "{name...}" took, still escaped; points into the
                                                     * path */
    const char *allow;                              /* with 405: "GET, HEAD, POST" */
};

struct http_router;

/* The table must outlive the router. -EINVAL for a malformed or doubled pattern, -ENOMEM. */
int  http_router_new(const struct http_route *routes, size_t n, struct http_router **ret) MUST_CHECK;
void http_router_free(struct http_router *t);

/* path as in struct http_head. Returns 200, 404, 405 (m->allow is set) or 500 (out of memory). */
int  http_router_find(const struct http_router *t, struct arena *a, struct http_text method, struct http_text path,
                      struct http_match *ret) MUST_CHECK;

/* The parameter's value; an empty text if the pattern has none of that name. */
struct http_text http_match_get(const struct http_match *m, const char *name);

#endif
