/* Patterns become a tree of segments. A node has literal children, at most one parameter child and at most one "rest";
 * the handlers of a node are the routes that end there, by method. A lookup tries literal, parameter, rest in this
 * order and backtracks if a branch has no end; the longest pattern bounds depth and work. */
#include "http/router.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ROUTES_MAX_PER_NODE 10

struct node {
    struct http_text segment;               /* a literal */
    struct node *child, *next;              /* literal children, and the next one of the same parent */
    struct node *parameter, *rest;
    const struct http_route *routes[ROUTES_MAX_PER_NODE];
    unsigned n_routes;
};

struct http_router {
    struct node root;
};

static struct http_text cut_segment(struct http_text *path)
{
    const char *slash = memchr(path->data, '/', path->size);
    size_t n = slash ? (size_t)(slash - path->data) : path->size;
    struct http_text segment = { path->data, n };
    path->data += n + (slash != NULL);
    path->size -= n + (slash != NULL);
    return segment;
}

static bool same(struct http_text a, struct http_text b)
{
    return a.size == b.size && memcmp(a.data, b.data, a.size) == 0;
}

/* ---- building ---- */

static bool is_parameter(struct http_text s, bool *ret_rest, struct http_text *ret_name)
{
    if (s.size < 3 || s.data[0] != '{' || s.data[s.size - 1] != '}')
        return false;
    *ret_name = (struct http_text){ s.data + 1, s.size - 2 };
    *ret_rest = ret_name->size > 3 && memcmp(s.data + s.size - 4, "...", 3) == 0;
    if (*ret_rest)
        ret_name->size -= 3;
    return true;
}

static struct node *node_step(struct node *at, struct http_text segment)
{
    bool rest;
    struct http_text name;
    struct node **place;
    if (is_parameter(segment, &rest, &name)) {
        place = rest ? &at->rest : &at->parameter;
    } else {
        place = &at->child;
        while (*place && !same((*place)->segment, segment))
            place = &(*place)->next;
    }
    if (!*place && (*place = calloc(1, sizeof **place)))
        (*place)->segment = segment;
    return *place;
}

static int route_add(struct http_router *t, const struct http_route *route)
{
    struct http_text path = { route->pattern, strlen(route->pattern) }, name;
    struct node *at = &t->root;
    unsigned parameters = 0;
    bool rest = false;
    if (!path.size || path.data[0] != '/')
        return -EINVAL;
    (void)cut_segment(&path);
    for (bool more = true; more;) {
        more = memchr(path.data, '/', path.size) != NULL;
        if (rest)
            return -EINVAL;         /* something after "{name...}" */
        struct http_text segment = cut_segment(&path);
        parameters += is_parameter(segment, &rest, &name);
        at = node_step(at, segment);
        if (!at)
            return -ENOMEM;
    }
    if (parameters > HTTP_PARAMETERS_MAX || at->n_routes == ROUTES_MAX_PER_NODE)
        return -EINVAL;
    for (unsigned i = 0; i < at->n_routes; i++)
        if (strcmp(at->routes[i]->method, route->method) == 0)
            return -EINVAL;
    at->routes[at->n_routes++] = route;
    return 0;
}

static void node_free_below(struct node *n)
{
    while (n->child) {
        struct node *child = n->child;
        n->child = child->next;
        node_free_below(child);
        free(child);
    }
    if (n->parameter)
        node_free_below(n->parameter);
    if (n->rest)
        node_free_below(n->rest);
    free(n->parameter);
    free(n->rest);
}

int http_router_new(const struct http_route *routes, size_t n, struct http_router **ret)
{
    struct http_router *t = calloc(1, sizeof *t);
    if (!t)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++) {
        int r = route_add(t, &routes[i]);
        if (r < 0) {
            http_router_free(t);
            return r;
        }
    }
    *ret = t;
    return 0;
}

void http_router_free(struct http_router *t)
{
    if (!t)
        return;
    node_free_below(&t->root);
    free(t);
}

/* ---- finding ---- */

/* path is the part after a slash; more: there was a slash. An escaped literal ("/v%31") does not match: a route has one
 * spelling. */
static const struct node *node_find(const struct node *at, struct http_text path, bool more)
{
    if (!more)
        return at->n_routes ? at : at->rest && at->rest->n_routes ? at->rest : NULL;
    struct http_text left = path;
    bool goes_on = memchr(path.data, '/', path.size) != NULL;
    struct http_text segment = cut_segment(&left);
    for (const struct node *c = at->child; c; c = c->next)
        if (same(c->segment, segment)) {
            const struct node *found = node_find(c, left, goes_on);
            if (found)
                return found;
        }
    if (at->parameter && segment.size) {
        const struct node *found = node_find(at->parameter, left, goes_on);
        if (found)
            return found;
    }
    return at->rest && at->rest->n_routes ? at->rest : NULL;
}

static const struct http_route *node_route(const struct node *n, struct http_text method)
{
    for (unsigned i = 0; i < n->n_routes; i++)
        if (http_text_is(method, n->routes[i]->method))
            return n->routes[i];
    return http_text_is(method, "HEAD") ? node_route(n, (struct http_text){ "GET", 3 }) : NULL;
}

static const char *node_allow(const struct node *n, struct arena *a)
{
    const char *text = "";
    for (unsigned i = 0; text && i < n->n_routes; i++) {
        const char *method = n->routes[i]->method;
        bool get = strcmp(method, "GET") == 0;
        text = arena_printf(a, "%s%s%s%s", text, *text ? ", " : "", method, get ? ", HEAD" : "");
    }
    return text;
}

static int take_parameters(const struct http_route *route, struct arena *a, struct http_text path, struct http_match *m)
{
    struct http_text pattern = { route->pattern, strlen(route->pattern) };
    while (pattern.size) {
        bool rest;
        struct http_text name, part = cut_segment(&pattern), raw = path;
        if (!is_parameter(part, &rest, &name)) {
            (void)cut_segment(&path);
            continue;
        }
        if (rest)
            m->raw_rest = raw;
        else
            raw = cut_segment(&path);
        if (!(m->name[m->n] = arena_copy(a, name.data, name.size)) || http_unescape(a, raw, false, &m->value[m->n]) < 0)
            return 500;
        m->n++;
    }
    return 200;
}

int http_router_find(const struct http_router *t, struct arena *a, struct http_text method, struct http_text path,
                     struct http_match *ret)
{
    memset(ret, 0, sizeof *ret);
    if (!path.size || path.data[0] != '/')
        return 404;
    const struct node *n = node_find(&t->root, (struct http_text){ path.data + 1, path.size - 1 }, true);
    if (!n)
        return 404;
    ret->route = node_route(n, method);
    if (!ret->route) {
        ret->allow = node_allow(n, a);
        return ret->allow ? 405 : 500;
    }
    return take_parameters(ret->route, a, path, ret);
}

struct http_text http_match_get(const struct http_match *m, const char *name)
{
    for (unsigned i = 0; i < m->n; i++)
        if (strcmp(m->name[i], name) == 0)
            return m->value[i];
    return (struct http_text){ "", 0 };
}
