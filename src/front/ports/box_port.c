/* The keeper makes the socket in the box's network and begins to connect; loopback usually is connected by then. A
 * server may listen on 127.0.0.1 or ::1 only, so both are tried. */
#define _GNU_SOURCE
#include "front/ports/box_port.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "base/list.h"
#include "front/keeper_link.h"

enum { CONNECT_MS = 10000 };

static void ask_keeper(struct link *l);

static void refused(struct link *l, int code)
{
    struct ask *a = l->ask;

    link_done(l);
    a->on_end = NULL;
    if (code == ECONNREFUSED)
        reply_fail(a, 502, "connection_refused",
                   "nothing listens on port %u in the box; is the server there started, and on 127.0.0.1?", l->port);
    else if (code == ETIMEDOUT)
        reply_fail(a, 504, "timeout", "port %u of the box did not answer in time", l->port);
    else
        reply_fail(a, 502, "connection_failed", "port %u of the box: %s", l->port, strerror(code));
}

static void failed(struct link *l, int code)
{
    l->fd = fd_close(l->fd);
    if (code == ECONNREFUSED && !l->ipv6) {
        l->ipv6 = true;
        ask_keeper(l);
        return;
    }
    refused(l, code == EAFNOSUPPORT || code == EADDRNOTAVAIL ? ECONNREFUSED : code);
}

/* The socket is connected, or has failed. */
static void settle(struct link *l)
{
    int code = 0;
    socklen_t size = sizeof code;

    loop_fd_remove(l->ask->r->loop, &l->watch);
    if (getsockopt(l->fd, SOL_SOCKET, SO_ERROR, &code, &size) < 0)
        code = errno;
    if (code) {
        failed(l, code);
        return;
    }
    int fd = TAKE_FD(l->fd);
    link_done(l);
    l->on_connected(l, fd);
}

static void on_event(struct loop_fd *w, uint32_t events)
{
    (void)events;
    settle(container_of(w, struct link, watch));
}

static void on_timer(struct loop_timer *t)
{
    refused(container_of(t, struct link, timer), ETIMEDOUT);
}

static void on_answer(const struct event *event, int *fds, size_t n_fds, void *arg)
{
    struct link *l = arg;

    l->serial = 0;
    if (event->result < 0 || n_fds < 1) {
        if (event->err.step == STEP_NETWORK) {
            failed(l, event->err.code);
            return;
        }
        struct ask *a = l->ask;
        struct err e = event->err;
        link_done(l);
        a->on_end = NULL;
        reply_err(a, &e);
        return;
    }
    l->fd = TAKE_FD(fds[0]);
    struct pollfd ready = { .fd = l->fd, .events = POLLOUT };
    if (poll(&ready, 1, 0) > 0)
        settle(l);
    else if (loop_fd_add(l->ask->r->loop, &l->watch, l->fd, EPOLLOUT) < 0)
        refused(l, ENOMEM);
}

static void ask_keeper(struct link *l)
{
    struct request_connect q = { .head = { .type = REQUEST_CONNECT, .box = l->ask->box->slot },
                                 .port = l->port,
                                 .ipv6 = l->ipv6 };

    l->serial = keeper_link_request(l->ask->front->keeper, &q, sizeof q, NULL, 0, on_answer, l);
}

static bool read_port(struct ask *a, uint32_t *ret)
{
    struct http_text text = http_match_get(a->match, "port");
    uint32_t port = 0;

    bool good = text.size >= 1 && text.size <= 5 && text.data[0] != '0';
    for (size_t i = 0; i < text.size && good; i++) {
        good = text.data[i] >= '0' && text.data[i] <= '9';
        port = port * 10 + (uint32_t)(text.data[i] - '0');
    }
    if (!good || port > 65535)
        reply_fail(a, 400, "invalid", "the port must be a number from 1 to 65535");
    *ret = port;
    return good && port <= 65535;
}

void link_open(struct link *l, struct ask *a, void (*on_connected)(struct link *l, int fd))
{
    uint32_t port;

    *l = (struct link){
        .ask = a, .fd = -1, .on_connected = on_connected, .watch.on_event = on_event, .timer.on_expire = on_timer
    };
    if (!read_port(a, &port)) {
        a->on_end = NULL;
        return;
    }
    l->port = port;
    if (a->box->phase != PHASE_RUNNING) {
        a->on_end = NULL;
        reply_fail(a, 409, "wrong_phase", "the box is %s; only a running one has ports", phase_names[a->box->phase]);
        return;
    }
    box_touch(a->box);
    loop_timer_set(a->r->loop, &l->timer, CONNECT_MS);
    ask_keeper(l);
}

void link_done(struct link *l)
{
    struct loop *loop = l->ask->r->loop;

    loop_timer_cancel(loop, &l->timer);
    loop_fd_remove(loop, &l->watch);
    if (l->serial)
        keeper_link_cancel(l->ask->front->keeper, l->serial);
    l->serial = 0;
    l->fd = fd_close(l->fd);
}
