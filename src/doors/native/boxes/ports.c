/* Ports of a box: HTTP and WebSockets through the proxy, raw bytes through a tunnel. The connection is made first, so
 * that a failure is answered like every other error. The caller's credentials are not passed to the box. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "base/list.h"
#include "doors/native/door.h"
#include "front/identity/token.h"
#include "front/ports/box_port.h"
#include "http/proxy.h"

struct port_request {
    struct box_port at;
    struct ask     *ask;
    int             fd;     /* owned until the proxy takes it */
};

static bool read_port(struct ask *a, uint16_t *ret)
{
    struct http_text text = http_match_get(a->match, "port");
    uint32_t port = 0;

    bool good = text.size >= 1 && text.size <= 5 && text.data[0] != '0';
    for (size_t i = 0; i < text.size && good; i++) {
        good = text.data[i] >= '0' && text.data[i] <= '9';
        port = port * 10 + (uint32_t)(text.data[i] - '0');
    }
    if (!good || port > UINT16_MAX)
        reply_fail(a, 400, "invalid", "the port must be a number from 1 to 65535");
    *ret = (uint16_t)port;
    return good && port <= UINT16_MAX;
}

static void refuse(struct ask *a, uint32_t port, const struct err *e)
{
    a->on_end = NULL;
    if (e->step != STEP_NETWORK)
        reply_err(a, e);
    else if (e->code == ECONNREFUSED)
        reply_fail(a, 502, "connection_refused",
                   "nothing listens on port %u in the box; is the server there started, and on 127.0.0.1?", port);
    else if (e->code == ETIMEDOUT)
        reply_fail(a, 504, "timeout", "port %u of the box did not answer in time", port);
    else
        reply_fail(a, 502, "connection_failed", "port %u of the box: %s", port, strerror(e->code));
}

/* ---- HTTP ---- */

static void port_on_end(struct ask *a, enum http_end how)
{
    struct port_request *p = a->work;

    (void)how;
    box_port_close(&p->at);
}

static void give(struct http_proxy *proxy, void *owner)
{
    struct port_request *p = owner;
    http_proxy_connected(proxy, TAKE_FD(p->fd));
}

/* The query without our own token: a server in the box may use the same name for its own token, which is kept. */
static const char *clean_query(struct ask *a, bool *ret_good)
{
    struct http_text query = a->r->head.query, name, value, plain;
    struct buf out;

    *ret_good = true;
    if (!query.data)
        return NULL;
    buf_init(&out, HTTP_TARGET_MAX_BYTES);
    while (http_query_next(&query, &name, &value)) {
        bool ours = http_text_is(name, "token") && http_unescape(&a->r->arena, value, true, &plain) == 0
                    && token_is_sound(plain);
        if (ours)
            continue;
        if (out.length)
            buf_add_char(&out, '&');
        buf_add(&out, name.data, name.size);
        if (value.data && value.data != name.data + name.size)
            buf_add_char(&out, '=');
        if (value.size)
            buf_add(&out, value.data, value.size);
    }
    const char *text = buf_error(&out) < 0 ? NULL : arena_copy(&a->r->arena, buf_string(&out), out.length);
    *ret_good = text != NULL;
    buf_done(&out);
    return text;
}

static bool authorization_is_ours(const struct ask *a)
{
    struct http_text field = http_head_get(&a->r->head, "Authorization"), token;

    return field.data && token_from_field(field, &token) == 0 && token_is_sound(token);
}

/* Some programs know the path under which they are reached, build all links from it, and expect it in requests
 * (JupyterLab's base_url): the label carrel/keep-prefix names their ports, "8888" or "8888,9000". */
static bool keeps_prefix(const struct box *box, uint32_t port)
{
    const char *at = json_string_value(json_object_get(box->settings.labels, "carrel/keep-prefix"));
    char text[16];
    int size = snprintf(text, sizeof text, "%u", port);

    for (; at && *at; at += strspn(at, ", ")) {
        size_t length = strcspn(at, ", ");
        if (length == (size_t)size && memcmp(at, text, length) == 0)
            return true;
        at += length;
    }
    return false;
}

/* The port's path as the client wrote it: with the box's id or its name, possibly escaped. */
static const char *own_path(struct ask *a)
{
    struct http_text path = a->r->head.path;

    path.size -= a->match->raw_rest.size;
    if (path.data[path.size - 1] == '/')
        path.size--;
    return arena_copy(&a->r->arena, path.data, path.size);
}

static void proxy(struct box_port *at, int fd)
{
    static const char *const secrets[] = { "Authorization", NULL };
    /* A box has one path, not the origin: it may not send fields that apply to all of the origin. */
    static const char *const of_the_origin[] = { "Service-Worker-Allowed", "Clear-Site-Data",
                                                 "Strict-Transport-Security", "Alt-Svc", "NEL", "Report-To", NULL };
    struct port_request *p = container_of(at, struct port_request, at);
    struct ask *a = p->ask;
    struct http_text rest = a->match->raw_rest;
    bool good;
    const char *query = clean_query(a, &good);
    struct http_text path = a->r->head.path;
    const char *prefix = arena_printf(&a->r->arena, "/v1/boxes/%s/ports/%u", a->box->id, at->port);
    const char *here = own_path(a);
    const char *target =
        keeps_prefix(a->box, at->port)
            ? arena_printf(&a->r->arena, "%.*s%s%s", HTTP_TEXT_FORMAT(path), query ? "?" : "", query ? query : "")
            : arena_printf(&a->r->arena, "/%.*s%s%s", HTTP_TEXT_FORMAT(rest), query ? "?" : "", query ? query : "");
    const struct http_proxy_field add[] = { { "X-Forwarded-Prefix", prefix }, { NULL, NULL } };
    const struct http_proxy_config config = {
        .target = target, .drop = authorization_is_ours(a) ? secrets : NULL, .drop_reply = of_the_origin,
        .cookie_path = here, .cookie_alias = prefix, .add = add, .owner = p, .connect = give,
    };

    p->fd = fd;
    a->on_end = NULL;
    if (!good || !target || !prefix || !here || http_proxy_start(a->r, &config) < 0) {
        p->fd = fd_close(p->fd);
        reply_fail(a, 400, "invalid", "the request cannot be handed on");
    }
}

static void port_failed(struct box_port *at, const struct err *e)
{
    refuse(container_of(at, struct port_request, at)->ask, at->port, e);
}

void ask_port(struct ask *a)
{
    struct port_request *p = arena_alloc(&a->r->arena, sizeof *p);
    struct err e = { 0 };
    uint16_t port;

    if (!p) {
        http_request_abort(a->r);
        return;
    }
    if (!read_port(a, &port))
        return;
    *p = (struct port_request){ .ask = a, .fd = -1 };
    a->work = p;
    a->on_end = port_on_end;
    if (box_port_open(&p->at, a->box, port, proxy, port_failed, &e) < 0)
        refuse(a, port, &e);
}

/* ---- tunnels ---- */

enum { PIECE_BYTES = 65536, TURN_PIECES = 16 };

struct tunnel {
    struct box_port  at;
    struct ask      *ask;
    struct loop_fd   up;
    struct loop_task task;
    int              fd;                /* owned */
    char             rest[PIECE_BYTES]; /* from the client, not yet taken by the box */
    size_t           rest_at, rest_size;
    bool             client_done, over, held_back;
};

static void tunnel_over(struct tunnel *t)
{
    struct ask *a = t->ask;

    if (t->over)
        return;
    t->over = true;
    loop_fd_remove(a->r->loop, &t->up);
    loop_task_cancel(a->r->loop, &t->task);
    t->fd = fd_close(t->fd);
    http_reply_finish(a->r);
}

/* 1: continue; 0: wait; -1: the box's side is broken. */
static int pump_up(struct tunnel *t)
{
    if (t->rest_at == t->rest_size && !t->client_done) {
        ssize_t n = http_body_read(t->ask->r, t->rest, sizeof t->rest);
        if (n == 0) {
            t->client_done = true;
            (void)shutdown(t->fd, SHUT_WR);
        }
        if (n <= 0)
            return 0;
        t->rest_at = 0;
        t->rest_size = (size_t)n;
    }
    if (t->rest_at == t->rest_size)
        return 0;
    ssize_t n = send(t->fd, t->rest + t->rest_at, t->rest_size - t->rest_at, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -1;
    t->rest_at += (size_t)n;
    return t->rest_at == t->rest_size;
}

static int pump_down(struct tunnel *t)
{
    char data[PIECE_BYTES];

    t->held_back = http_reply_room(t->ask->r) == 0;
    if (t->held_back)
        return 0;
    ssize_t n = recv(t->fd, data, sizeof data, MSG_DONTWAIT);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -1;
    if (n == 0 || http_reply_write(t->ask->r, data, (size_t)n) < 0)
        return -1;
    return 1;
}

static void tunnel_run(struct tunnel *t)
{
    int up = 1, down = 1;

    for (int i = 0; (up > 0 || down > 0) && !t->over; i++) {
        if (i == TURN_PIECES) {
            loop_task_add(t->ask->r->loop, &t->task);
            break;
        }
        up = up > 0 ? pump_up(t) : up;
        down = down > 0 ? pump_down(t) : down;
        if (up < 0 || down < 0)
            tunnel_over(t);
    }
    if (t->over)
        return;
    uint32_t events = (t->held_back ? 0 : EPOLLIN) | (t->rest_at < t->rest_size ? EPOLLOUT : 0);
    if (t->up.watching && loop_fd_set(t->ask->r->loop, &t->up, events) < 0)
        tunnel_over(t);
}

static void tunnel_on_up(struct loop_fd *w, uint32_t events)
{
    struct tunnel *t = container_of(w, struct tunnel, up);

    if ((events & EPOLLERR) && t->held_back) {
        tunnel_over(t);
        return;
    }
    /* EPOLLHUP cannot be masked and would fire again and again. Both sides are shut down, so the rest can be read
     * without waiting, when there is room. */
    if ((events & EPOLLHUP) && t->held_back)
        loop_fd_remove(t->ask->r->loop, w);
    tunnel_run(t);
}

static void tunnel_on_task(struct loop_task *task)
{
    tunnel_run(container_of(task, struct tunnel, task));
}

static void tunnel_on_request(struct http_request *r)
{
    tunnel_run(((struct ask *)r->owner)->work);
}

static void tunnel_on_end(struct ask *a, enum http_end how)
{
    struct tunnel *t = a->work;

    (void)how;
    box_port_close(&t->at);
    loop_fd_remove(a->r->loop, &t->up);
    loop_task_cancel(a->r->loop, &t->task);
    t->fd = fd_close(t->fd);
}

static void tunnel_open(struct box_port *at, int fd)
{
    struct tunnel *t = container_of(at, struct tunnel, at);
    struct ask *a = t->ask;

    t->fd = fd;
    a->on_end = tunnel_on_end;
    if (loop_fd_add(a->r->loop, &t->up, fd, EPOLLIN) < 0 || http_reply_upgrade(a->r, "carrel-tunnel") < 0) {
        http_request_abort(a->r);
        return;
    }
    a->r->no_body_deadline = a->r->may_half_close = true;
    a->r->on_body = a->r->on_writable = tunnel_on_request;
    loop_task_add(a->r->loop, &t->task);
}

static void tunnel_failed(struct box_port *at, const struct err *e)
{
    refuse(container_of(at, struct tunnel, at)->ask, at->port, e);
}

void ask_tunnel(struct ask *a)
{
    struct err e = { 0 };
    uint16_t port;

    if (!a->r->head.wants_upgrade || !http_list_has(http_head_get(&a->r->head, "Upgrade"), "carrel-tunnel")) {
        (void)http_reply_header(a->r, "Upgrade", "carrel-tunnel");
        reply_fail(a, 426, "upgrade_required",
                   "a tunnel is opened with Connection: Upgrade and Upgrade: carrel-tunnel");
        return;
    }
    struct tunnel *t = arena_alloc(&a->r->arena, sizeof *t);
    if (!t) {
        http_request_abort(a->r);
        return;
    }
    if (!read_port(a, &port))
        return;
    *t = (struct tunnel){ .ask = a, .fd = -1, .up.on_event = tunnel_on_up, .task.on_run = tunnel_on_task };
    a->work = t;
    a->on_end = tunnel_on_end;
    if (box_port_open(&t->at, a->box, port, tunnel_open, tunnel_failed, &e) < 0)
        refuse(a, port, &e);
}
