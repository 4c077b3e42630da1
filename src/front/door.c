#include "front/door.h"

#include <errno.h>
#include <string.h>

#include "base/parse.h"
#include "front/front.h"
#include "front/identity/auth_host.h"
#include "front/request/error.h"
#include "front/services/inlets.h"

int doors_configure(const struct door *const *list, struct config *config, struct err *e)
{
    int r = 0;

    for (; *list && r == 0; list++)
        if ((*list)->config)
            r = config_add_section(config, (*list)->config, e);
    return r;
}

const char *door_address(const struct door *door, const struct config *config)
{
    return door->listen ? door->listen(door->config ? config_section_values(config, door->config) : NULL) : "";
}

int doors_check(const struct door *const *list, const struct config *config, struct err *e)
{
    for (; *list; list++) {
        const char *address = door_address(*list, config);
        struct host host;

        if (!address[0] || address[0] == '/')
            continue;
        if (host_parse((struct http_text){ address, strlen(address) }, &host) < 0 || host.port < 0)
            return err_set(e, EINVAL, STEP_USAGE, "the door '%s' cannot listen at '%s', which is not ADDRESS:PORT",
                           (*list)->name, parse_quote(address).text);
        if (config->allow_anonymous && !host_is_loopback(&host))
            return err_set(e, EINVAL, STEP_USAGE,
                           "allow_anonymous is not possible with the door '%s' at '%s', which other machines can "
                           "reach; use 127.0.0.1 or tokens",
                           (*list)->name, parse_quote(address).text);
    }
    return 0;
}

static int open_door(struct open_door *d, struct err *e)
{
    const struct door *door = d->door;

    if (door->config)
        d->config = config_section_values(&d->front->config, door->config);
    int r = door->schema ? db_tables_open(d->front->db, door->schema, &d->tables, e) : 0;
    if (r == 0 && door->routes && (r = http_router_new(door->routes, door->n_routes, &d->router)) < 0)
        r = err_set(e, -r, STEP_HOST, "the routes of the door '%s'", door->name);
    return r < 0 || !door->open ? r : door->open(d, e);
}

int doors_open(struct doors *doors, const struct door *const *list, struct front *front, struct err *e)
{
    int r = 0;

    for (; *list && r == 0; list++) {
        if (doors->n == DOORS_MOST)
            return err_set(e, E2BIG, STEP_HOST, "there are more than %d doors", DOORS_MOST);
        struct open_door *d = &doors->open[doors->n++];
        *d = (struct open_door){ .door = *list, .front = front };
        r = open_door(d, e);
    }
    return r;
}

void doors_close(struct doors *doors)
{
    while (doors->n > 0) {
        struct open_door *d = &doors->open[--doors->n];
        if (d->door->close)
            d->door->close(d);
        http_router_free(d->router);
        db_tables_close(d->tables);
    }
}

bool door_route(struct open_door *d, struct http_request *r)
{
    struct http_match *m = arena_alloc(&r->arena, sizeof *m);
    int status = m ? http_router_find(d->router, &r->arena, r->head.method, r->head.path, m) : 500;

    if (status == 404)
        return false;
    if (status == 200)
        m->route->handle(r, m, d);
    else if (status == 405 && http_reply_header(r, "Allow", m->allow) == 0)
        error_reply(r, 405, "method_not_allowed", "this path has other methods; see the field Allow", NULL);
    else
        http_request_abort(r);
    return true;
}

static bool is_under(const struct door *door, struct http_text path)
{
    bool is_it = !door->under;

    for (const char *const *root = door->under; root && *root && !is_it; root++) {
        size_t n = strlen(*root);
        is_it = path.size >= n && memcmp(path.data, *root, n) == 0 && (path.size == n || path.data[n] == '/');
    }
    return is_it;
}

static bool dispatch(struct open_door *d, struct http_request *r, struct box *inlet)
{
    const struct door *door = d->door;

    if (!is_under(door, r->head.path))
        return false;
    if (inlet)
        return door->dispatch_inlet && door->dispatch_inlet(d, r, inlet);
    return door->dispatch ? door->dispatch(d, r) : d->router && door_route(d, r);
}

void doors_dispatch(struct doors *doors, const struct door *only, struct http_request *r)
{
    struct box *box = NULL;

    if (doors->n > 0 && !only && inlet_is(r->peer)) {
        box = inlet_box(doors->open[0].front, r->peer);
        if (!box) {
            http_request_abort(r);
            return;
        }
    }
    for (size_t i = 0; i < doors->n; i++)
        if ((!only || doors->open[i].door == only) && dispatch(&doors->open[i], r, box))
            return;
    error_reply(r, 404, "not_found", "there is nothing at this path", NULL);
}
