/* The table of routes, and the admission of requests. A gateway's clients know only errors of the shape
 * {"reason","message"} and only the origin's root, so this door is separate from the native one and shares its
 * identities, boxes and limits. */
#define _GNU_SOURCE
#include "doors/jupyter/jupyter.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "doors/jupyter/door.h"
#include "front/identity/auth_host.h"
#include "front/identity/caller.h"
#include "front/request/body.h"

struct gateway_route {
    gateway_handler *handle;
    unsigned      scope;
};

#define K  "/api/kernels"
#define KI "/api/kernels/{id}"
#define S  "/api/sessions"
#define SI "/api/sessions/{id}"

/* ROW(method, pattern, handler, scope) */
#define ROUTES(ROW)                                                              \
    ROW("GET", "/api", handle_api, 0)                                              \
    ROW("GET", "/api/me", handle_me, 0)                                            \
    ROW("GET", "/api/status", handle_status, SCOPE_READ)                           \
    ROW("GET", "/api/kernelspecs", handle_specs, SCOPE_READ)                       \
    ROW("GET", "/api/kernelspecs/{name}", handle_spec, SCOPE_READ)                 \
    ROW("GET", "/kernelspecs/{name}/{file}", handle_resource, SCOPE_READ)          \
    ROW("GET", K, handle_kernel_list, SCOPE_READ)                                  \
    ROW("POST", K, handle_kernel_create, SCOPE_WRITE | SCOPE_EXEC)                 \
    ROW("GET", KI, handle_kernel_get, SCOPE_READ)                                  \
    ROW("DELETE", KI, handle_kernel_delete, SCOPE_WRITE)                           \
    ROW("POST", KI "/interrupt", handle_kernel_interrupt, SCOPE_EXEC)              \
    ROW("POST", KI "/restart", handle_kernel_restart, SCOPE_EXEC)                  \
    ROW("GET", KI "/channels", handle_channels, SCOPE_EXEC)                            \
    ROW("GET", S, handle_session_list, SCOPE_READ)                                 \
    ROW("POST", S, handle_session_create, SCOPE_WRITE | SCOPE_EXEC)                \
    ROW("GET", SI, handle_session_get, SCOPE_READ)                                 \
    ROW("PATCH", SI, handle_session_update, SCOPE_WRITE | SCOPE_EXEC)              \
    ROW("DELETE", SI, handle_session_delete, SCOPE_WRITE)

static void gateway_begin(struct http_request *r, const struct http_match *m, void *owner);

#define GATEWAY_ROUTE(method, pattern, handler, scope) { handler, scope },
#define ROUTE(method, pattern, handler, scope) { method, pattern, gateway_begin },
static const struct gateway_route gateway_routes[] = { ROUTES(GATEWAY_ROUTE) };
static const struct http_route routes[] = { ROUTES(ROUTE) };

/* ---- pages of other origins ---- */

/* A page may only read the answer if a header permits its origin. Only configured origins are permitted. */
static bool allow_origin(const struct front *front, struct http_request *r)
{
    struct http_text text = http_head_get(&r->head, "Origin");
    struct origin origin;
    char known[300];

    if (!text.data || origin_parse(text, &origin) < 0)
        return false;
    origin_format(&origin, known, sizeof known);
    for (uint32_t i = 0; i < front->config.n_origins; i++)
        if (strcmp(front->config.origin[i], known) == 0) {
            (void)http_reply_header(r, "Access-Control-Allow-Origin", known);
            (void)http_reply_header(r, "Vary", "Origin");
            return true;
        }
    return false;
}

static void preflight(const struct front *front, struct http_request *r)
{
    if (allow_origin(front, r)) {
        (void)http_reply_header(r, "Access-Control-Allow-Methods", "GET, POST, PATCH, DELETE, OPTIONS");
        (void)http_reply_header(r, "Access-Control-Allow-Headers", "Authorization, Content-Type, X-XSRFToken");
        (void)http_reply_header(r, "Access-Control-Max-Age", "600");
    }
    if (http_reply(r, 204, NULL, NULL, 0) < 0)
        http_request_abort(r);
}

/* ---- letting in ---- */

static void on_end(struct http_request *r, enum http_end how)
{
    struct gateway_request *c = r->owner;

    (void)how;
    if (c->wait.front)
        front_cancel_wait(&c->wait);
    if (c->on_gone)
        c->on_gone(c);
}

static bool let_in(struct gateway_request *c, unsigned scopes)
{
    struct refusal why;

    if (caller_admit(&c->in, scopes, &why))
        return true;
    answer_fail(c, why.status, "%s", why.why);
    return false;
}

static struct gateway_request *gateway_request_new(const struct open_door *d, struct http_request *r,
                                                   const struct http_match *m)
{
    struct gateway_request *c = arena_alloc(&r->arena, sizeof *c);

    if (!c) {
        http_request_abort(r);
        return NULL;
    }
    *c = (struct gateway_request){ .jupyter = d->state, .front = d->front, .r = r, .match = m };
    r->owner = c;
    r->on_end = on_end;
    return c;
}

static bool is_below(struct http_text path, const char *root)
{
    size_t n = strlen(root);

    return path.size >= n && memcmp(path.data, root, n) == 0 && (path.size == n || path.data[n] == '/');
}

static void on_keeper(struct keeper_wait *w)
{
    struct gateway_request *c = container_of(w, struct gateway_request, wait);

    if (c->front->ready) {
        gateway_routes[c->match->route - routes].handle(c);
        return;
    }
    (void)http_reply_header(c->r, "Retry-After", "1");
    answer_fail(c, 503, "this server cannot reach its boxes now, so it does not know its kernels; try again");
}

static void gateway_begin(struct http_request *r, const struct http_match *m, void *owner)
{
    const struct gateway_route *route = &gateway_routes[m->route - routes];
    struct gateway_request *c = gateway_request_new(owner, r, m);

    if (!c)
        return;
    (void)allow_origin(c->front, r);
    if (!let_in(c, route->scope))
        return;
    /* A client gives a kernel up when it gets a 404. A new front learns of its kernels a moment after its start, so
     * such requests wait. */
    if (!c->front->ready && (is_below(r->head.path, K) || is_below(r->head.path, S)))
        front_wait_for_keeper(c->front, &c->wait, on_keeper);
    else
        route->handle(c);
}

/* ---- bodies ---- */

static void on_json(void *owner, json_t *root)
{
    struct gateway_request *c = owner;

    c->on_body(c, root);
}

static void on_fail(void *owner, int status, const char *code, const char *why)
{
    bool is_json = strcmp(code, "invalid_json") == 0;

    answer_fail(owner, status, "%s%s", is_json ? "Invalid JSON in body of request: " : "", why);
}

void gateway_body(struct gateway_request *c, void (*handler)(struct gateway_request *c, json_t *root))
{
    static const struct body_reader reader = { .on_json = on_json, .on_fail = on_fail, .null_is_empty = true };

    c->on_body = handler;
    body_read(c->r, BODY_MOST, &reader);
}

/* ---- kernels ---- */

bool kernel_is_ours(const struct kernel *k)
{
    return json_object_get(k->box->settings.labels, JUPYTER_LABEL) != NULL;
}

static struct kernel *find_any(struct gateway_request *c, const char *id)
{
    struct kernel *k = kernel_find(c->front, c->who.name, id);

    if (!k && (c->who.scopes & SCOPE_ADMIN))
        k = kernel_find(c->front, NULL, id);
    return k;
}

struct kernel *gateway_find_kernel(struct gateway_request *c, const char *id)
{
    struct kernel *k = find_any(c, id);
    return k && kernel_is_ours(k) ? k : NULL;
}

struct kernel *gateway_any_kernel(struct gateway_request *c)
{
    const char *id = http_match_get(c->match, "id").data;
    struct kernel *k = find_any(c, id);

    if (!k)
        answer_unknown(c, id);
    return k;
}

struct kernel *gateway_kernel(struct gateway_request *c)
{
    const char *id = http_match_get(c->match, "id").data;
    struct kernel *k = gateway_find_kernel(c, id);

    if (!k)
        answer_unknown(c, id);
    return k;
}

/* ---- the door itself ---- */

static bool dispatch(struct open_door *d, struct http_request *r)
{
    if (http_text_is(r->head.method, "OPTIONS")) {
        preflight(d->front, r);
        return true;
    }
    struct http_match *m = arena_alloc(&r->arena, sizeof *m);
    int status = m ? http_router_find(d->router, &r->arena, r->head.method, r->head.path, m) : 500;
    if (status == 200) {
        m->route->handle(r, m, d);
        return true;
    }
    struct gateway_request *c = gateway_request_new(d, r, m);
    if (c && status == 405)
        (void)http_reply_header(r, "Allow", m->allow);
    if (c)
        answer_fail(c, status, "%s", "");
    return true;
}

static int open_jupyter(struct open_door *d, struct err *e)
{
    struct jupyter *j = calloc(1, sizeof *j);

    if (!j)
        return err_at(e, ENOMEM, STEP_MEMORY, 0, "the Jupyter door");
    *j = (struct jupyter){ .front = d->front, .config = d->config, .tables = d->tables };
    d->state = j;
    records_open(j);
    return sessions_load(j, e);
}

static void close_jupyter(struct open_door *d)
{
    struct jupyter *j = d->state;

    if (!j)
        return;
    records_free(j);
    sessions_free(j);
    free(j);
}

static const char *const under[] = { "/api", "/kernelspecs", NULL };

const struct door jupyter_door = {
    .name = "jupyter",
    .under = under,
    .config = &jupyter_settings,
    .schema = &session_schema,
    .routes = routes,
    .n_routes = sizeof routes / sizeof *routes,
    .open = open_jupyter,
    .dispatch = dispatch,
    .close = close_jupyter,
};
