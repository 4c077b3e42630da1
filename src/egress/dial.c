/* The kernel decides where an address leads: a UDP socket that is connected to it sends nothing, and gets the address
 * from which the host would send. If that is the address itself, or a loopback address, the address is the host's own.
 * After a connection is made both its ends are compared again. */
#define _GNU_SOURCE
#include "egress/dial.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/list.h"

enum {
    NEXT_MS = 250,
    ALL_MS = 15000,
};

void dial_fill(const struct net_address *address, uint16_t port, struct sockaddr_storage *ret, socklen_t *ret_size)
{
    memset(ret, 0, sizeof *ret);
    if (address->size == 4) {
        struct sockaddr_in *v4 = (void *)ret;
        v4->sin_family = AF_INET;
        v4->sin_port = htons(port);
        memcpy(&v4->sin_addr, address->byte, 4);
        *ret_size = sizeof *v4;
        return;
    }
    struct sockaddr_in6 *v6 = (void *)ret;
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(port);
    memcpy(&v6->sin6_addr, address->byte, 16);
    *ret_size = sizeof *v6;
}

bool dial_read(const struct sockaddr_storage *from, struct net_address *ret, uint16_t *ret_port)
{
    static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

    if (from->ss_family == AF_INET) {
        const struct sockaddr_in *v4 = (const void *)from;
        *ret = (struct net_address){ .size = 4 };
        memcpy(ret->byte, &v4->sin_addr, 4);
        *ret_port = ntohs(v4->sin_port);
        return true;
    }
    if (from->ss_family != AF_INET6)
        return false;
    const struct sockaddr_in6 *v6 = (const void *)from;
    bool is_mapped = memcmp(&v6->sin6_addr, mapped, sizeof mapped) == 0;
    *ret = (struct net_address){ .size = is_mapped ? 4 : 16 };
    memcpy(ret->byte, (const uint8_t *)&v6->sin6_addr + (is_mapped ? 12 : 0), ret->size);
    *ret_port = ntohs(v6->sin6_port);
    return true;
}

static bool is_same(const struct net_address *a, const struct net_address *b)
{
    return a->size == b->size && memcmp(a->byte, b->byte, a->size) == 0;
}

/* The address of this end; false if there is none. */
static bool own_end(int fd, struct net_address *ret)
{
    struct sockaddr_storage name = { 0 };
    socklen_t size = sizeof name;
    uint16_t port;

    return getsockname(fd, (struct sockaddr *)&name, &size) == 0 && dial_read(&name, ret, &port);
}

static bool is_loopback(const struct net_address *address)
{
    static const uint8_t one[16] = { [15] = 1 };

    return address->size == 4 ? address->byte[0] == 127 : memcmp(address->byte, one, 16) == 0;
}

/* False: the host has no route to it. */
static bool look_up_route(const struct net_address *address, bool *ret_is_own)
{
    struct sockaddr_storage to;
    struct net_address from;
    socklen_t size;

    dial_fill(address, 9, &to, &size);
    FD fd = socket(to.ss_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, size) < 0 || !own_end(fd, &from))
        return false;
    *ret_is_own = is_same(&from, address) || is_loopback(&from);
    return true;
}

/* Also if it is written in IPv6 and a translator would lead back to the host. */
static bool is_own_unwrapped(const struct net_address *address)
{
    struct net_address bare = net_address_unwrap(address);
    bool is_own = false;

    return bare.size != address->size && look_up_route(&bare, &is_own) && is_own;
}

/* IPv6 and IPv4 in turn, IPv6 first, each in the order of the answer. */
static void put_in_turn(const struct net_address *from, size_t n, struct dialing *d)
{
    size_t at[2] = { 0, 0 };
    const uint8_t sizes[2] = { 16, 4 };

    d->n = 0;
    for (size_t turn = 0; d->n < DIALING_ADDRESSES && (at[0] < n || at[1] < n); turn ^= 1) {
        while (at[turn] < n && from[at[turn]].size != sizes[turn])
            at[turn]++;
        if (at[turn] < n)
            d->address[d->n++] = from[at[turn]++];
    }
}

size_t dialing_choose(struct dialing *d, const struct net_policy *policy, enum net_reach reach,
                      const struct net_address *from, size_t n, uint16_t port, struct net_address *ret_refused)
{
    struct net_address accepted[RESOLVE_ADDRESSES];
    size_t n_accepted = 0;

    *ret_refused = (struct net_address){ 0 };
    d->own_is_accepted = false;
    for (size_t i = 0; i < n && i < RESOLVE_ADDRESSES; i++) {
        bool is_own = false, has_route = look_up_route(&from[i], &is_own);
        is_own |= is_own_unwrapped(&from[i]);
        if (!net_judge_address(policy, reach, &from[i], port, is_own))
            *ret_refused = from[i];
        else if (has_route)
            accepted[n_accepted++] = from[i];
        if (is_own && n_accepted > 0 && is_same(&accepted[n_accepted - 1], &from[i]))
            d->own_is_accepted = true;
    }
    d->port = port;
    put_in_turn(accepted, n_accepted, d);
    return d->n;
}

static void finish(struct dialing *d, int fd, const struct net_address *address)
{
    dialing_stop(d);
    d->on_done(d, fd, address);
}

static void begin_next(struct dialing *d);

static unsigned count_open(const struct dialing *d)
{
    unsigned n = 0;

    for (size_t i = 0; i < d->begun; i++)
        n += d->attempt[i].watch.fd >= 0;
    return n;
}

static void close_attempt(struct dialing_attempt *a)
{
    struct dialing *d = a->dialing;

    loop_fd_remove(d->loop, &a->watch);
    a->watch.fd = fd_close(a->watch.fd);
    for (unsigned n = count_open(d); d->n_extra > 0 && d->n_extra >= n; d->n_extra--)
        fair_give(d->share, 1);
}

/* One attempt has failed: the next at once, or the end if it was the last. */
static void fail_attempt(struct dialing_attempt *a, int code)
{
    struct dialing *d = a->dialing;

    d->failure = code;
    close_attempt(a);
    if (d->begun < d->n) {
        begin_next(d);
        return;
    }
    if (count_open(d) > 0)
        return;
    /* Deferred, because dialing_start may be the caller. */
    loop_task_add(d->loop, &d->fail);
}

static void on_fail(struct loop_task *t)
{
    struct dialing *d = container_of(t, struct dialing, fail);

    finish(d, d->failure, NULL);
}

static void on_attempt(struct loop_fd *w, uint32_t events)
{
    struct dialing_attempt *a = container_of(w, struct dialing_attempt, watch);
    struct dialing *d = a->dialing;
    struct net_address own, address = d->address[a - d->attempt];
    int code = 0;
    socklen_t size = sizeof code;

    (void)events;
    if (getsockopt(w->fd, SOL_SOCKET, SO_ERROR, &code, &size) < 0)
        code = errno;
    /* A route to the host itself that appeared only now. */
    if (code == 0 && own_end(w->fd, &own) && is_same(&own, &address) && !d->own_is_accepted)
        code = EHOSTUNREACH;
    if (code != 0) {
        fail_attempt(a, -code);
        return;
    }
    loop_fd_remove(d->loop, w);
    int fd = TAKE_FD(w->fd);
    finish(d, fd, &address);
}

static int open_socket(int family, int window)
{
    const int yes = 1, send_bytes = window / 2, receive_bytes = window / 2, idle_s = 60, between_s = 20;
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return -errno;
    /* Failures of these do not matter. */
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &send_bytes, sizeof send_bytes);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_WINDOW_CLAMP, &window, sizeof window);
    /* The kernel lets a window grow again unless the buffer is fixed; a fixed one is small wherever net.core.rmem_max
     * is, so only boxes with many connections get it. */
    if (window < DIALING_WINDOW)
        (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &between_s, sizeof between_s);
    return fd;
}

static void begin_next(struct dialing *d)
{
    struct dialing_attempt *a = &d->attempt[d->begun];
    struct sockaddr_storage to;
    socklen_t size;

    /* A box whose share is used up tries its addresses one after the other. */
    if (count_open(d) > 0) {
        if (!fair_take(d->share, 1)) {
            loop_timer_set(d->loop, &d->next, NEXT_MS);
            return;
        }
        d->n_extra++;
    }
    dial_fill(&d->address[d->begun++], d->port, &to, &size);
    a->dialing = d;
    a->watch = (struct loop_fd){ .fd = -1, .on_event = on_attempt };
    int fd = open_socket(to.ss_family, d->window_bytes);
    if (fd < 0) {
        fail_attempt(a, fd);
        return;
    }
    int r = connect(fd, (struct sockaddr *)&to, size) < 0 && errno != EINPROGRESS ? -errno : 0;
    if (r == 0)
        r = loop_fd_add(d->loop, &a->watch, fd, EPOLLOUT);
    a->watch.fd = fd;
    if (r < 0)
        fail_attempt(a, r);
    else if (d->begun < d->n)
        loop_timer_set(d->loop, &d->next, NEXT_MS);
}

static void on_next(struct loop_timer *t)
{
    struct dialing *d = container_of(t, struct dialing, next);

    if (d->begun < d->n)
        begin_next(d);
}

static void on_all(struct loop_timer *t)
{
    finish(container_of(t, struct dialing, all), -ETIMEDOUT, NULL);
}

void dialing_start(struct dialing *d, struct loop *l)
{
    d->loop = l;
    d->begun = 0;
    d->failure = -EHOSTUNREACH;
    d->next.on_expire = on_next;
    d->all.on_expire = on_all;
    d->fail.on_run = on_fail;
    loop_timer_set(l, &d->all, ALL_MS);
    if (d->n > 0)
        begin_next(d);
    else
        loop_task_add(l, &d->fail);
}

void dialing_stop(struct dialing *d)
{
    if (!d->loop)
        return;
    loop_timer_cancel(d->loop, &d->next);
    loop_timer_cancel(d->loop, &d->all);
    loop_task_cancel(d->loop, &d->fail);
    for (size_t i = 0; i < d->begun; i++)
        close_attempt(&d->attempt[i]);
}
