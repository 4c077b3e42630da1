/* Frames of keeper and front (proto/egress.h). An invalid frame is dropped with a line on standard error: its sender is
 * a program of ours, and the connections of other boxes must not end because of it. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "base/fdpass.h"
#include "base/list.h"
#include "egress/netbox.h"
#include "proto/broker.h"

enum { FRAMES_PER_TURN = 32, QUEUE_MOST = 4096, LINKS_MOST = 64 };

struct link_frame {
    struct link_frame *next;
    size_t           size;
    char             bytes[];
};

struct link {
    struct loop_fd   watch;
    struct egress   *egress;
    struct link     *next, **back;
    bool             is_keeper, is_front;
    struct link_frame *first, **last;
    unsigned         n_queued;
};

static union {
    struct egress_head   head;
    struct egress_box    box;
    struct egress_policy policy;
    struct egress_brokered brokered;
} frame;

static void close_link(struct link *l);

static void complain(const struct link *l, const char *what)
{
    fprintf(stderr, "carrel-egress: a frame of the %s is dropped: %s (type %u, box %llu)\n",
            l->is_keeper ? "keeper" : "front", what, frame.head.type, (unsigned long long)frame.head.box);
}

/* --- sending --- */

static void flush(struct link *l)
{
    while (l->first) {
        struct link_frame *o = l->first;
        if (send(l->watch.fd, o->bytes, o->size, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
            break;
        l->first = o->next;
        if (!l->first)
            l->last = &l->first;
        l->n_queued--;
        free(o);
    }
    (void)!loop_fd_set(l->egress->loop, &l->watch, l->first ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

bool link_tell(struct link *l, const void *data, size_t size)
{
    const struct egress_head *head = data;
    bool is_awaited = head->type == EGRESS_USAGE && head->serial;

    if (!l->first && send(l->watch.fd, data, size, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
        return true;
    /* The end of an answer is queued in any case: the front waits for it, and has few requests at once. */
    struct link_frame *o = l->n_queued < QUEUE_MOST || is_awaited ? malloc(sizeof *o + size) : NULL;
    if (!o)
        return false;
    o->next = NULL;
    o->size = size;
    memcpy(o->bytes, data, size);
    *l->last = o;
    l->last = &o->next;
    l->n_queued++;
    (void)!loop_fd_set(l->egress->loop, &l->watch, EPOLLIN | EPOLLOUT);
    return true;
}

bool link_wants_usage(const struct link *l)
{
    return !l->is_keeper;       /* `carrel run` only reads at the end */
}

/* --- frames --- */

static void on_box(struct link *l, int *fds, size_t n)
{
    uint32_t all = (1u << NETBOX_SOCKETS) - 1;
    struct netbox *b = NULL;

    if (frame.box.way > EGRESS_TPROXY || frame.box.has & ~all || (size_t)__builtin_popcount(frame.box.has) != n)
        complain(l, "its sockets are not those that it says");
    else if (!(b = netbox_get(l->egress, frame.head.box)))
        complain(l, "there are too many boxes");
    if (!b) {
        for (size_t i = 0; i < n; i++)
            fd_close(fds[i]);
        return;
    }
    int r = netbox_attach(b, l, &frame.box, fds, n);
    if (r < 0)
        complain(l, strerror(-r));
}

static void on_front(struct link *l, int *fds, size_t n)
{
    struct egress *e = l->egress;

    if (n != 1 || frame.head.box != 0) {
        complain(l, "a link to a front must come with it");
        for (size_t i = 0; i < n; i++)
            fd_close(fds[i]);
        return;
    }
    if (e->front && !e->front->is_keeper)
        close_link(e->front);
    int r = link_open(e, fds[0], false, true);
    if (r < 0)
        complain(l, strerror(-r));
}

static void on_broker(struct link *l, int *fds, size_t n)
{
    struct egress *e = l->egress;

    if (n != 1 || frame.head.box != 0) {
        complain(l, "a link to a broker must come with it");
        for (size_t i = 0; i < n; i++)
            fd_close(fds[i]);
        return;
    }
    fd_close(e->broker_fd);
    e->broker_fd = fds[0];
}

int link_tell_broker(struct egress *e, uint64_t box, const char *host, const int fds[2])
{
    struct broker_connection said = { .head = { .type = BROKER_CONNECTION, .box = box } };

    if (e->broker_fd < 0)
        return -ENOTCONN;
    snprintf(said.host, sizeof said.host, "%s", host);
    ssize_t n = fdpass_send(e->broker_fd, &said, sizeof said, fds, 2, MSG_DONTWAIT);
    if (n == -EPIPE || n == -ECONNRESET)
        e->broker_fd = fd_close(e->broker_fd);
    return n < 0 ? (int)n : 0;
}

static void on_brokered(struct link *l)
{
    struct netbox *b = NULL;
    bool is_sane = frame.brokered.n <= EGRESS_BROKERED_MOST;

    for (size_t i = 0; is_sane && i < frame.brokered.n; i++)
        is_sane = memchr(frame.brokered.name[i], 0, sizeof frame.brokered.name[i]) != NULL;
    if (!is_sane)
        complain(l, "no list that could have been written");
    else if (!(b = netbox_get(l->egress, frame.head.box)))
        complain(l, "there are too many boxes");
    if (b && netbox_set_brokered(b, &frame.brokered) < 0)
        complain(l, "memory is short");
}

static void on_policy(struct link *l)
{
    struct netbox *b = NULL;

    if (!net_policy_is_sane(&frame.policy.policy))
        complain(l, "no policy that could have been written");
    else if (!(b = netbox_get(l->egress, frame.head.box)))
        complain(l, "there are too many boxes");
    if (b && netbox_set_policy(b, &frame.policy) < 0)
        complain(l, "memory is short");
}

static void on_show(struct link *l)
{
    struct netbox *b = netbox_find(l->egress, frame.head.box);
    struct egress_usage none = { .head = { .type = EGRESS_USAGE, .serial = frame.head.serial, .box = frame.head.box } };

    if (b)
        netbox_show(b, l, frame.head.serial);
    else
        (void)link_tell(l, &none, sizeof none);
}

/* A policy's frame ends after its last rule. */
static bool is_of_size(uint32_t type, size_t size)
{
    static const size_t sizes[] = { [EGRESS_BOX] = sizeof frame.box,
                                    [EGRESS_GONE] = sizeof frame.head,
                                    [EGRESS_FRONT] = sizeof frame.head,
                                    [EGRESS_POLICY] = offsetof(struct egress_policy, policy.rule),
                                    [EGRESS_SHOW] = sizeof frame.head,
                                    [EGRESS_BROKER] = sizeof frame.head,
                                    [EGRESS_BROKERED] = sizeof frame.brokered,
                                    [EGRESS_COMMAND] = sizeof frame.head };

    if (type >= sizeof sizes / sizeof *sizes || sizes[type] == 0 || size < sizes[type])
        return false;
    if (type != EGRESS_POLICY)
        return size == sizes[type];
    return frame.policy.policy.n_rules <= NET_RULES && size == egress_policy_size(&frame.policy);
}

/* Takes over the descriptors. */
static void on_frame(struct link *l, size_t size, int *fds, size_t n)
{
    uint32_t type = size >= sizeof frame.head ? frame.head.type : 0;
    bool takes_fds = type == EGRESS_BOX || type == EGRESS_FRONT || type == EGRESS_BROKER;
    bool may_come = type == EGRESS_BROKER ? l->is_front : takes_fds ? l->is_keeper
                    : type == EGRESS_GONE ? true : l->is_front;

    if (!is_of_size(type, size) || (n > 0 && !takes_fds) || !may_come) {
        complain(l, "not one that may come here");
        for (size_t i = 0; i < n; i++)
            fd_close(fds[i]);
        return;
    }
    struct netbox *b;
    switch (type) {
    case EGRESS_BOX:
        on_box(l, fds, n);
        break;
    case EGRESS_GONE:
        if ((b = netbox_find(l->egress, frame.head.box)))
            netbox_remove(b);
        break;
    case EGRESS_FRONT:
        on_front(l, fds, n);
        break;
    case EGRESS_POLICY:
        on_policy(l);
        break;
    case EGRESS_BROKER:
        on_broker(l, fds, n);
        break;
    case EGRESS_BROKERED:
        on_brokered(l);
        break;
    case EGRESS_COMMAND:
        if ((b = netbox_find(l->egress, frame.head.box)))
            netbox_begin_command(b);
        break;
    default:
        on_show(l);
    }
}

/* --- links --- */

/* Boxes die with their keeper; a policy without sockets belongs to a box that a new front will send again. */
static void forget_boxes(struct egress *e, const struct link *keeper)
{
    for (size_t i = 0; i < NETBOX_BUCKETS; i++)
        for (struct netbox *b = e->bucket[i], *next; b; b = next) {
            next = b->next;
            if (keeper ? b->keeper == keeper : !b->keeper)
                netbox_remove(b);
        }
}

static void close_link(struct link *l)
{
    struct egress *e = l->egress;

    loop_fd_remove(e->loop, &l->watch);
    fd_close(l->watch.fd);
    LIST_REMOVE(l);
    if (e->front == l)
        e->front = NULL;
    forget_boxes(e, l->is_keeper ? l : NULL);
    if (l->is_keeper && l->is_front)
        loop_stop(e->loop);
    while (l->first) {
        struct link_frame *o = l->first;
        l->first = o->next;
        free(o);
    }
    free(l);
}

static void on_link(struct loop_fd *w, uint32_t events)
{
    struct link *l = container_of(w, struct link, watch);
    struct fdpass passed;

    if (events & EPOLLOUT)
        flush(l);
    /* A frame of the keeper may replace a front's link here; the links themselves only close below. */
    for (int i = 0; i < FRAMES_PER_TURN && events & (EPOLLIN | EPOLLHUP | EPOLLERR); i++) {
        memset(&frame.head, 0, sizeof frame.head);
        ssize_t n = fdpass_receive(w->fd, &frame, sizeof frame, MSG_DONTWAIT, &passed);
        if (n == -EAGAIN)
            return;
        if (n <= 0) {
            close_link(l);
            return;
        }
        int fds[FDPASS_MAX];
        size_t n_fds = fdpass_take(&passed, fds, FDPASS_MAX);
        if (passed.cut)
            n = 0;
        on_frame(l, (size_t)n, fds, n_fds);
    }
}

bool link_has_frame(const struct link *l)
{
    char byte;

    return l && recv(l->watch.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

int link_open(struct egress *e, int fd, bool is_keeper, bool is_front)
{
    unsigned n = 0;
    int type = 0;
    socklen_t size = sizeof type;
    struct link *l = NULL;

    for (struct link *other = e->links; other; other = other->next)
        n++;
    int r = getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) < 0 || type != SOCK_SEQPACKET ? -EPROTO
            : n >= LINKS_MOST                                                              ? -EMFILE
            : !(l = calloc(1, sizeof *l))                                                  ? -ENOMEM
                                                                                           : 0;
    if (r == 0) {
        *l = (struct link){ .watch.on_event = on_link, .egress = e, .is_keeper = is_keeper, .is_front = is_front };
        l->last = &l->first;
        r = loop_fd_add(e->loop, &l->watch, fd, EPOLLIN);
    }
    if (r < 0) {
        free(l);
        fd_close(fd);
        return r;
    }
    LIST_ADD(e->links, l);
    if (is_front)
        e->front = l;
    return 0;
}

void link_close_all(struct egress *e)
{
    for (struct link *l = e->links, *next; l; l = next) {
        next = l->next;
        close_link(l);
    }
    forget_boxes(e, NULL);
}
