/* The table of boxes. A box is known as soon as its sockets or its policy have come, in either order, and forgotten
 * when both are gone. */
#define _GNU_SOURCE
#include "egress/netbox.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "base/list.h"
#include "proto/broker.h"

enum { TICK_MS = 1000 };

/* The required type of each socket; an on_event of NULL is only written to. */
static const struct {
    int  domain, type, protocol;
    bool listens;
    void (*on_event)(struct loop_fd *w, uint32_t events);
} kinds[NETBOX_SOCKETS] = {
    { AF_INET, SOCK_DGRAM, IPPROTO_UDP, false, answer_on_udp },
    { AF_INET, SOCK_STREAM, IPPROTO_TCP, true, answer_on_tcp },
    { AF_INET, SOCK_STREAM, IPPROTO_TCP, true, carry_on_accept },
    { AF_INET6, SOCK_STREAM, IPPROTO_TCP, true, carry_on_accept },
    { AF_NETLINK, SOCK_RAW, NETLINK_NETFILTER, false, hold_on_syn },
    { AF_INET, SOCK_RAW, -1, false, NULL },
    { AF_INET6, SOCK_RAW, -1, false, NULL },
};

static struct netbox **bucket_of(struct egress *e, uint64_t id)
{
    return &e->bucket[(id * UINT64_C(0x9e3779b97f4a7c15) >> 40) % NETBOX_BUCKETS];
}

struct netbox *netbox_find(struct egress *e, uint64_t id)
{
    struct netbox *b = *bucket_of(e, id);

    while (b && b->id != id)
        b = b->next;
    return b;
}

struct netbox *netbox_get(struct egress *e, uint64_t id)
{
    struct netbox *b = netbox_find(e, id);

    if (b || e->n_boxes == NETBOX_MOST || !(b = calloc(1, sizeof *b)))
        return b;
    b->egress = e;
    b->id = id;
    b->connections = NETBOX_CONNECTIONS;
    b->descriptors.pool = &e->descriptors;
    b->lookups.pool = &e->lookups;
    b->usage.head = (struct egress_head){ .type = EGRESS_USAGE, .box = id };
    b->usage.since_ms = loop_now_ms();
    for (size_t i = 0; i < NETBOX_SOCKETS; i++)
        b->socket[i] = (struct netbox_socket){ .watch = { .fd = -1 }, .box = b };
    pump_bucket_set(&b->rate, e->loop, 0);
    LIST_ADD(*bucket_of(e, id), b);
    e->n_boxes++;
    return b;
}

int netbox_fd(const struct netbox *b, enum egress_socket which)
{
    return b->socket[__builtin_ctz(which)].watch.fd;
}

int netbox_accept(struct egress *e, int listener)
{
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK), code = errno;

    if (fd >= 0)
        return fd;
    if ((code == EMFILE || code == ENFILE) && e->spare_fd >= 0) {
        e->spare_fd = fd_close(e->spare_fd);
        fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        /* The queue is empty: the next call will fail, too. */
        if (fd < 0)
            code = errno;
        else
            pump_close_resets(fd, true);
        fd_close(fd);
        e->spare_fd = dup(listener);
    }
    return -code;
}

/* --- sockets --- */

static int option(int fd, int name)
{
    int value = -1;
    socklen_t size = sizeof value;

    return getsockopt(fd, SOL_SOCKET, name, &value, &size) < 0 ? -1 : value;
}

static bool is_right(int fd, size_t kind)
{
    return option(fd, SO_DOMAIN) == kinds[kind].domain && option(fd, SO_TYPE) == kinds[kind].type &&
           (kinds[kind].protocol < 0 || option(fd, SO_PROTOCOL) == kinds[kind].protocol) &&
           (option(fd, SO_ACCEPTCONN) == 1) == kinds[kind].listens;
}

static void close_sockets(struct netbox *b)
{
    answer_end_all(b);
    carry_end_all(b);
    for (size_t i = 0; i < NETBOX_SOCKETS; i++) {
        loop_fd_remove(b->egress->loop, &b->socket[i].watch);
        b->egress->descriptors.used -= b->socket[i].watch.fd >= 0;
        b->socket[i].watch.fd = fd_close(b->socket[i].watch.fd);
    }
    b->has = 0;
    b->keeper = NULL;
}

/* The front's frames come first: it tells that a command begins before the command's program can connect. */
static void on_socket(struct loop_fd *w, uint32_t events)
{
    struct netbox_socket *s = container_of(w, struct netbox_socket, watch);

    if (!link_has_frame(s->box->egress->front))
        kinds[s - s->box->socket].on_event(w, events);
}

/* -EPROTO: a socket has the wrong type for its place. */
static int take_socket(struct netbox *b, size_t kind, int fd)
{
    struct netbox_socket *s = &b->socket[kind];
    int flags = fcntl(fd, F_GETFL);

    s->watch.fd = fd;
    b->egress->descriptors.used++;
    s->watch.on_event = on_socket;
    if (!is_right(fd, kind))
        return -EPROTO;
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
        return -errno;
    return kinds[kind].on_event ? loop_fd_add(b->egress->loop, &s->watch, fd, EPOLLIN) : 0;
}

int netbox_attach(struct netbox *b, struct link *keeper, const struct egress_box *frame, const int *fds, size_t n)
{
    size_t at = 0;
    int r = 0;

    close_sockets(b);
    for (size_t i = 0; i < NETBOX_SOCKETS && r == 0; i++)
        if (frame->has & 1u << i && at < n)
            r = take_socket(b, i, fds[at++]);
    while (at < n)
        fd_close(fds[at++]);
    if (r == 0 && !b->names && !(b->names = nametable_new()))
        r = -ENOMEM;
    if (r < 0) {
        close_sockets(b);
        return r;
    }
    b->keeper = keeper;
    b->way = frame->way;
    b->usage.way = frame->way + 1;
    b->has = frame->has;
    return 0;
}

void netbox_remove(struct netbox *b)
{
    struct egress *e = b->egress;

    close_sockets(b);
    resolver_disown(e->resolver, &b->lookups);
    pump_bucket_done(&b->rate);
    nametable_free(b->names);
    refusallog_done(&b->refused);
    free(b->policy);
    free(b->brokered);
    LIST_REMOVE(b);
    e->n_boxes--;
    free(b);
}

/* --- policy --- */

/* Names in the policy get their addresses at once, so that a program that remembers one can continue after a restart of
 * egress. */
static void pin_names(struct netbox *b)
{
    uint8_t ignored[4];

    if (!b->names && !(b->names = nametable_new()))
        return;
    nametable_unpin(b->names);
    for (uint32_t i = 0; i < b->policy->n_rules; i++) {
        const struct net_rule *rule = &b->policy->rule[i];
        if (rule->kind == NET_NAME && !rule->denies)
            (void)nametable_give(b->names, rule->name, true, ignored);
    }
}

int netbox_set_policy(struct netbox *b, const struct egress_policy *frame)
{
    size_t size = offsetof(struct net_policy, rule) + frame->policy.n_rules * sizeof(struct net_rule);
    struct net_policy *policy = malloc(size);

    if (!policy)
        return -ENOMEM;
    memcpy(policy, &frame->policy, size);
    free(b->policy);
    b->policy = policy;
    b->connections = frame->connections == 0 ? NETBOX_CONNECTIONS
                     : frame->connections > NETBOX_CONNECTIONS_MOST ? NETBOX_CONNECTIONS_MOST
                                                                    : frame->connections;
    pump_bucket_set(&b->rate, b->egress->loop, frame->bytes_per_second);
    pin_names(b);
    netbox_begin_command(b);
    carry_judge_all(b);
    return 0;
}

int netbox_set_brokered(struct netbox *b, const struct egress_brokered *frame)
{
    struct egress_brokered *list = malloc(sizeof *list);

    if (!list)
        return -ENOMEM;
    *list = *frame;
    free(b->brokered);
    b->brokered = list;
    return 0;
}

bool netbox_is_brokered(const struct netbox *b, const char *name, uint16_t port)
{
    bool is_found = false;

    for (size_t i = 0; b->brokered && port == BROKER_PORT && i < b->brokered->n && !is_found; i++)
        is_found = strcmp(b->brokered->name[i], name) == 0;
    return is_found;
}

/* --- reports --- */

static void tell_refusals(struct netbox *b)
{
    uint64_t now_us = loop_now_us();
    struct refusallog_entry *entry;

    while ((entry = refusallog_due(&b->refused, now_us))) {
        entry->frame.head.box = b->id;
        if (!b->egress->front || !link_tell(b->egress->front, &entry->frame, sizeof entry->frame))
            return;
        refusallog_told(&b->refused, entry, now_us);
    }
}

/* Older refusals that were not reported yet are now, with their times, so that they are not taken for the command's.
 * They count before it. */
void netbox_begin_command(struct netbox *b)
{
    refusallog_renew(&b->refused);
    tell_refusals(b);
    refusallog_renew(&b->refused);
}

static void need_tick(struct egress *e)
{
    if (!e->tick.armed)
        loop_timer_set(e->loop, &e->tick, TICK_MS);
}

void netbox_refuse(struct netbox *b, enum egress_why why, const char *what, uint16_t port, const char *other)
{
    b->usage.refusals++;
    refusallog_note(&b->refused, why, what, port, other, loop_now_us());
    tell_refusals(b);
    netbox_changed(b);
}

void netbox_changed(struct netbox *b)
{
    b->usage_changed = true;
    need_tick(b->egress);
}

/* Including connections that are still open. */
static struct egress_usage usage_of(const struct netbox *b)
{
    struct egress_usage usage = b->usage;

    for (const struct carry *c = b->carried; c; c = c->next)
        if (c->state == CARRY_FLOW) {
            usage.sent += c->pump.side[0].bytes;
            usage.received += c->pump.side[1].bytes;
        }
    return usage;
}

void netbox_show(struct netbox *b, struct link *to, uint32_t serial)
{
    struct egress_usage usage = usage_of(b);

    unsigned shown = 0;
    for (const struct carry *c = b->carried; c && shown < NETBOX_SHOWN; c = c->next, shown++) {
        struct egress_flow flow = { .head = { .type = EGRESS_FLOW, .serial = serial, .box = b->id } };
        carry_show(c, &flow);
        (void)link_tell(to, &flow, sizeof flow);
    }
    usage.head.serial = serial;
    (void)link_tell(to, &usage, sizeof usage);
}

void netbox_tell_usage(struct netbox *b)
{
    if (b->egress->front && link_wants_usage(b->egress->front)) {
        struct egress_usage usage = usage_of(b);
        b->usage_changed = !link_tell(b->egress->front, &usage, sizeof usage);
    }
}

/* Returns whether more will have to be reported later. */
static bool tick_box(struct netbox *b)
{
    tell_refusals(b);
    if (b->usage_changed)
        netbox_tell_usage(b);
    /* Bytes of a connection count while it is open. */
    b->usage_changed |= b->carried != NULL;
    return b->usage_changed || refusallog_wait(&b->refused);
}

void netbox_on_tick(struct loop_timer *t)
{
    struct egress *e = container_of(t, struct egress, tick);
    bool again = false;

    for (size_t i = 0; i < NETBOX_BUCKETS; i++)
        for (struct netbox *b = e->bucket[i]; b; b = b->next)
            again |= tick_box(b);
    if (again)
        need_tick(e);
}
