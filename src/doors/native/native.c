/* One table has each route's needs: a scope, a box, an exec. ask_begin() checks them in one place, so that no handler
 * can forget to; a handler starts with an identity that may do this, and with a box that this identity may see. For a
 * caller, other identities' boxes do not exist. */
#define _GNU_SOURCE
#include "doors/native/native.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "base/parse.h"
#include "doors/native/door.h"
#include "front/boxes/box_text.h"
#include "front/identity/caller.h"

/* OPEN: for every caller, also unknown ones. HELD: only for holders of a grant. KEEPER: waits for the keeper while it
 * is away; BOX implies it. */
enum { OPEN = 1, BOX = 2, EXEC = 4, KEEPER = 8, HELD = 16 };

struct endpoint {
    ask_handler *handle;
    unsigned     scope, needs;
};

#define B  "/v1/boxes"
#define BI "/v1/boxes/{id}"
#define X  "/v1/boxes/{id}/exec/{xid}"
#define K  "/v1/boxes/{id}/kernels/{context}"
#define F  "/v1/boxes/{id}/files/{path...}"
#define P  "/v1/boxes/{id}/ports/{port}/{rest...}"
#define S  "/v1/services/{service}"
#define V  "/v1/volumes/{volume...}"

/* X(method, pattern, handler, scope, needs) */
#define ROUTES(ROW)                                                                    \
    ROW("POST", B, ask_box_create, SCOPE_WRITE, KEEPER)                                \
    ROW("GET", B, ask_box_list, SCOPE_READ, KEEPER)                                    \
    ROW("GET", BI, ask_box_get, SCOPE_READ, BOX)                                       \
    ROW("PATCH", BI, ask_box_update, SCOPE_WRITE, BOX)                                 \
    ROW("DELETE", BI, ask_box_delete, SCOPE_WRITE, BOX)                                \
    ROW("POST", BI "/pause", ask_box_pause, SCOPE_WRITE, BOX)                          \
    ROW("POST", BI "/resume", ask_box_resume, SCOPE_WRITE, BOX)                        \
    ROW("POST", BI "/stop", ask_box_stop, SCOPE_WRITE, BOX)                            \
    ROW("POST", BI "/start", ask_box_start, SCOPE_WRITE, BOX)                          \
    ROW("GET", BI "/usage", ask_box_usage, SCOPE_READ, BOX)                            \
    ROW("GET", BI "/net", ask_box_net, SCOPE_READ, BOX)                                \
    ROW("GET", BI "/enforced", ask_box_enforced, SCOPE_READ, BOX)                      \
    ROW("GET", BI "/events", ask_box_events, SCOPE_READ, BOX)                          \
    ROW("GET", "/v1/events", ask_events, SCOPE_READ, 0)                                \
    ROW("POST", BI "/exec", ask_exec_start, SCOPE_EXEC, BOX)                           \
    ROW("GET", BI "/exec", ask_exec_list, SCOPE_EXEC, BOX)                             \
    ROW("GET", BI "/exec/ws", ask_exec_socket, SCOPE_EXEC, BOX)                        \
    ROW("GET", X, ask_exec_get, SCOPE_EXEC, BOX | EXEC)                                \
    ROW("DELETE", X, ask_exec_kill, SCOPE_EXEC, BOX | EXEC)                            \
    ROW("GET", X "/output", ask_exec_output, SCOPE_EXEC, BOX | EXEC)                   \
    ROW("GET", X "/attach", ask_exec_attach, SCOPE_EXEC, BOX | EXEC)                   \
    ROW("POST", X "/stdin", ask_exec_stdin, SCOPE_EXEC, BOX | EXEC)                    \
    ROW("POST", X "/resize", ask_exec_resize, SCOPE_EXEC, BOX | EXEC)                  \
    ROW("POST", X "/signal", ask_exec_signal, SCOPE_EXEC, BOX | EXEC)                  \
    ROW("POST", "/v1/run", ask_run, SCOPE_EXEC | SCOPE_WRITE, KEEPER)                  \
    ROW("POST", BI "/run", ask_run_box, SCOPE_EXEC, BOX)                               \
    ROW("GET", BI "/kernels", ask_kernel_list, SCOPE_EXEC, BOX)                        \
    ROW("POST", BI "/kernels", ask_kernel_start, SCOPE_EXEC, BOX)                      \
    ROW("GET", K, ask_kernel_get, SCOPE_EXEC, BOX)                                     \
    ROW("DELETE", K, ask_kernel_delete, SCOPE_EXEC, BOX)                               \
    ROW("POST", K "/interrupt", ask_kernel_interrupt, SCOPE_EXEC, BOX)                 \
    ROW("POST", K "/restart", ask_kernel_restart, SCOPE_EXEC, BOX)                     \
    ROW("POST", K "/input", ask_kernel_input, SCOPE_EXEC, BOX)                         \
    ROW("POST", K "/ask", ask_kernel_ask, SCOPE_EXEC, BOX)                             \
    ROW("GET", F, ask_file_get, SCOPE_FILES, BOX)                                      \
    ROW("PUT", F, ask_file_put, SCOPE_FILES, BOX)                                      \
    ROW("POST", F, ask_file_post, SCOPE_FILES, BOX)                                    \
    ROW("DELETE", F, ask_file_delete, SCOPE_FILES, BOX)                                \
    ROW("GET", BI "/archive", ask_archive_get, SCOPE_FILES, BOX)                       \
    ROW("PUT", BI "/archive", ask_archive_put, SCOPE_FILES, BOX)                       \
    ROW("GET", P, ask_port, SCOPE_PORTS, BOX)                                          \
    ROW("POST", P, ask_port, SCOPE_PORTS, BOX)                                         \
    ROW("PUT", P, ask_port, SCOPE_PORTS, BOX)                                          \
    ROW("PATCH", P, ask_port, SCOPE_PORTS, BOX)                                        \
    ROW("DELETE", P, ask_port, SCOPE_PORTS, BOX)                                       \
    ROW("OPTIONS", P, ask_port, SCOPE_PORTS, BOX)                                      \
    ROW("POST", BI "/tunnel/{port}", ask_tunnel, SCOPE_PORTS, BOX)                     \
    ROW("POST", "/v1/services", ask_service_create, SCOPE_EXEC, 0)                     \
    ROW("GET", "/v1/services", ask_service_list, SCOPE_READ, 0)                        \
    ROW("GET", S, ask_service_get, SCOPE_READ, 0)                                      \
    ROW("DELETE", S, ask_service_delete, SCOPE_EXEC, 0)                                \
    ROW("POST", S "/restart", ask_service_restart, SCOPE_EXEC, 0)                      \
    ROW("GET", S "/calls", ask_service_calls, SCOPE_READ, 0)                           \
    ROW("POST", S "/call", ask_service_call, SCOPE_EXEC, 0)                            \
    ROW("POST", "/v1/grants", ask_grant_create, SCOPE_EXEC, 0)                         \
    ROW("GET", "/v1/grants", ask_grant_list, SCOPE_READ, 0)                            \
    ROW("DELETE", "/v1/grants/{grant}", ask_grant_delete, SCOPE_EXEC, 0)               \
    ROW("GET", "/v1/grant", ask_grant_own, 0, HELD)                                    \
    ROW("POST", "/v1/grant/call", ask_grant_call, 0, HELD)                             \
    ROW("POST", "/v1/volumes", ask_volume_create, SCOPE_WRITE, KEEPER)                 \
    ROW("GET", "/v1/volumes", ask_volume_list, SCOPE_READ, KEEPER)                     \
    ROW("GET", V, ask_volume_get, SCOPE_READ, KEEPER)                                  \
    ROW("PATCH", V, ask_volume_update, SCOPE_WRITE, KEEPER)                            \
    ROW("DELETE", V, ask_volume_delete, SCOPE_WRITE, KEEPER)                           \
    ROW("GET", "/v1/layers", ask_layer_list, SCOPE_READ, KEEPER)                       \
    ROW("DELETE", "/v1/layers/{layer}", ask_layer_delete, SCOPE_WRITE, KEEPER)         \
    ROW("GET", "/v1/secrets", ask_secret_list, SCOPE_READ, 0)                          \
    ROW("PUT", "/v1/secrets/{secret}", ask_secret_put, SCOPE_WRITE, 0)                 \
    ROW("DELETE", "/v1/secrets/{secret}", ask_secret_delete, SCOPE_WRITE, 0)           \
    ROW("POST", "/v1/tokens", ask_token_create, SCOPE_ADMIN, 0)                        \
    ROW("GET", "/v1/tokens", ask_token_list, SCOPE_ADMIN, 0)                           \
    ROW("DELETE", "/v1/tokens/{token}", ask_token_delete, SCOPE_ADMIN, 0)              \
    ROW("GET", "/v1/me", ask_me, 0, 0)                                                 \
    ROW("GET", "/v1/disk", ask_disk, SCOPE_READ, 0)                                    \
    ROW("GET", "/v1/info", ask_info, 0, 0)                                             \
    ROW("GET", "/metrics", ask_metrics, SCOPE_ADMIN, 0)                                \
    ROW("GET", "/healthz", ask_health, 0, OPEN)                                        \
    ROW("GET", "/readyz", ask_ready, 0, OPEN)                                          \
    ROW("GET", "/openapi.json", ask_openapi, 0, OPEN)

static void ask_begin(struct http_request *r, const struct http_match *m, void *owner);

#define ENDPOINT(method, pattern, handler, scope, needs) { handler, scope, needs },
#define ROUTE(method, pattern, handler, scope, needs) { method, pattern, ask_begin },

/* Two tables in the same order: the router's, and ours. */
static const struct endpoint endpoints[] = { ROUTES(ENDPOINT) };
static const struct http_route routes[] = { ROUTES(ROUTE) };

static void on_end(struct http_request *r, enum http_end how)
{
    struct ask *a = r->owner;

    if (a->wait.front)
        front_cancel_wait(&a->wait);
    if (a->on_end)
        a->on_end(a, how);
}

static bool refused(struct ask *a, const struct refusal *why)
{
    reply_fail(a, why->status, why->code, "%s", why->why);
    return false;
}

static bool let_in(struct ask *a, const struct endpoint *endpoint)
{
    struct refusal why;

    if (endpoint->needs & OPEN)
        return true;
    if (endpoint->needs & HELD)
        return caller_admit_holder(&a->in, &why) || refused(a, &why);
    return caller_admit(&a->in, endpoint->scope, &why) || refused(a, &why);
}

static bool find_box(struct ask *a)
{
    const char *id = http_match_get(a->match, "id").data;

    a->box = boxes_find(a->front, a->who.name, id);
    if (!a->box && (a->who.scopes & SCOPE_ADMIN))
        a->box = boxes_find(a->front, NULL, id);
    /* A name may be reused; a dead box is found by its id only. */
    const struct box *gone = a->box && a->box->phase == PHASE_DELETED && strcmp(a->box->id, id) != 0 ? a->box : NULL;
    if (gone)
        reply_fail(a, 404, "not_found", "there is no box '%.63s' any more: %s was %s", id, gone->id,
                   box_show_phase(gone).text);
    else if (!a->box)
        reply_fail(a, 404, "not_found", "there is no box '%s'", parse_quote(id).text);
    if (gone)
        a->box = NULL;
    return a->box != NULL;
}

static bool find_exec(struct ask *a)
{
    a->exec = exec_find(a->box, http_match_get(a->match, "xid").data);
    if (!a->exec)
        reply_fail(a, 404, "not_found", "there is no such command in this box");
    return a->exec != NULL;
}

bool ask_find_again(struct ask *a)
{
    return (!a->box || find_box(a)) && (!a->exec || find_exec(a));
}

static void find_and_handle(struct ask *a)
{
    const struct endpoint *endpoint = &endpoints[a->match->route - routes];

    if ((!(endpoint->needs & BOX) || find_box(a)) && (!(endpoint->needs & EXEC) || find_exec(a)))
        endpoint->handle(a);
}

static void on_keeper(struct keeper_wait *w)
{
    find_and_handle(container_of(w, struct ask, wait));
}

/* inlet: the box whose inlet the request came over; NULL: it came over another listener. */
static void begin(const struct open_door *door, struct http_request *r, const struct http_match *m, struct box *inlet)
{
    const struct endpoint *endpoint = &endpoints[m->route - routes];
    struct ask *a = arena_alloc(&r->arena, sizeof *a);

    if (!a) {
        http_request_abort(r);
        return;
    }
    *a = (struct ask){ .native = door->state, .front = door->front, .r = r, .match = m, .holder.box = inlet };
    r->owner = a;
    r->on_end = on_end;
    if (endpoint->needs & OPEN && share_join(&r->share, &a->front->memory, "") < 0) {   /* all unknown callers share one
                                                                                         * budget */
        http_request_abort(r);
        return;
    }
    if (!let_in(a, endpoint))
        return;
    if (endpoint->needs & (KEEPER | BOX) && !a->front->ready)
        front_wait_for_keeper(a->front, &a->wait, on_keeper);
    else
        find_and_handle(a);
}

static void ask_begin(struct http_request *r, const struct http_match *m, void *owner)
{
    begin(owner, r, m, NULL);
}

/* Over an inlet, a box reaches only the routes for holders of grants. */
static bool dispatch_inlet(struct open_door *d, struct http_request *r, struct box *box)
{
    struct http_match *m = arena_alloc(&r->arena, sizeof *m);
    int status = m ? http_router_find(d->router, &r->arena, r->head.method, r->head.path, m) : 500;

    if (status == 500)
        http_request_abort(r);
    else if (status == 200 && endpoints[m->route - routes].needs & HELD)
        begin(d, r, m, box);
    else
        error_reply(r, 404, "not_found", "here are only GET /v1/grant, POST /v1/grant/call and /mcp/services/NAME",
                    NULL);
    return true;
}

static bool dispatch(struct open_door *d, struct http_request *r)
{
    if (!door_route(d, r))
        error_reply(r, 404, "not_found", "there is nothing at this path; /openapi.json describes all paths", NULL);
    return true;
}

static int open_native(struct open_door *d, struct err *e)
{
    d->state = calloc(1, sizeof(struct native));
    return d->state ? 0 : err_at(e, ENOMEM, STEP_MEMORY, 0, "the native door");
}

static void close_native(struct open_door *d)
{
    if (d->state)
        shown_free(d->state);
    free(d->state);
}

const struct door native_door = {
    .name = "native",
    .routes = routes,
    .n_routes = sizeof routes / sizeof *routes,
    .open = open_native,
    .dispatch = dispatch,
    .dispatch_inlet = dispatch_inlet,
    .close = close_native,
};
