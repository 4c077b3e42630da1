/* The keeper makes the socket in the box's network and begins to connect; loopback usually is connected by then. A
 * server may listen on 127.0.0.1 or ::1 only, so both are tried. */
#define _GNU_SOURCE
#include "front/ports/box_port.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "base/list.h"
#include "front/boxes/boxes.h"
#include "front/front.h"
#include "front/keeper_link.h"

enum { CONNECT_MS = 10000 };

static void ask_keeper(struct box_port *p);

static void fail(struct box_port *p, const struct err *e)
{
    const struct err why = *e;

    box_port_close(p);
    p->on_failed(p, &why);
}

static void refused(struct box_port *p, int code)
{
    struct err e = { 0 };

    (void)err_set(&e, code, STEP_NETWORK, "port %u of the box", p->port);
    fail(p, &e);
}

static void failed(struct box_port *p, int code)
{
    p->fd = fd_close(p->fd);
    if (code == ECONNREFUSED && !p->ipv6) {
        p->ipv6 = true;
        ask_keeper(p);
        return;
    }
    refused(p, code == EAFNOSUPPORT || code == EADDRNOTAVAIL ? ECONNREFUSED : code);
}

/* The socket is connected, or has failed. */
static void settle(struct box_port *p)
{
    int code = 0;
    socklen_t size = sizeof code;

    loop_fd_remove(p->front->loop, &p->watch);
    if (getsockopt(p->fd, SOL_SOCKET, SO_ERROR, &code, &size) < 0)
        code = errno;
    if (code) {
        failed(p, code);
        return;
    }
    int fd = TAKE_FD(p->fd);
    box_port_close(p);
    p->on_connected(p, fd);
}

static void on_event(struct loop_fd *w, uint32_t events)
{
    (void)events;
    settle(container_of(w, struct box_port, watch));
}

static void on_timer(struct loop_timer *t)
{
    refused(container_of(t, struct box_port, timer), ETIMEDOUT);
}

static void on_answer(const union event *event, int *fds, size_t n_fds, void *arg)
{
    struct box_port *p = arg;
    const struct err *e = event_failure(event);

    p->serial = 0;
    if (e && e->step == STEP_NETWORK) {
        failed(p, e->code);
        return;
    }
    if (e || n_fds < 1) {
        fail(p, e ? e : &(struct err){ .code = EPROTO });
        return;
    }
    p->fd = TAKE_FD(fds[0]);
    struct pollfd ready = { .fd = p->fd, .events = POLLOUT };
    if (poll(&ready, 1, 0) > 0)
        settle(p);
    else if (loop_fd_add(p->front->loop, &p->watch, p->fd, EPOLLOUT) < 0)
        refused(p, ENOMEM);
}

static void ask_keeper(struct box_port *p)
{
    struct request_socket q = { .head = { .type = REQUEST_SOCKET, .box = p->box->slot },
                                .use = SOCKET_CONNECT,
                                .port = p->port,
                                .ipv6 = p->ipv6 };

    p->serial = keeper_link_request(p->front->keeper, &q, sizeof q, NULL, 0, on_answer, p);
}

int box_port_open(struct box_port *p, struct box *box, uint16_t port,
                  void (*on_connected)(struct box_port *p, int fd),
                  void (*on_failed)(struct box_port *p, const struct err *e), struct err *e)
{
    *p = (struct box_port){ .front = box->front, .box = box, .port = port, .fd = -1, .on_connected = on_connected,
                            .on_failed = on_failed, .watch.on_event = on_event, .timer.on_expire = on_timer };
    if (box->phase != PHASE_RUNNING)
        return err_set(e, EBUSY, STEP_USAGE, "the box is %s; only a running one has ports", phase_names[box->phase]);
    box_touch(box);
    loop_timer_set(box->front->loop, &p->timer, CONNECT_MS);
    ask_keeper(p);
    return 0;
}

void box_port_close(struct box_port *p)
{
    struct loop *loop = p->front->loop;

    loop_timer_cancel(loop, &p->timer);
    loop_fd_remove(loop, &p->watch);
    if (p->serial)
        keeper_link_cancel(p->front->keeper, p->serial);
    p->serial = 0;
    p->fd = fd_close(p->fd);
}
