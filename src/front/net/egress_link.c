/* Egress and the front speak over a pair of sockets that the keeper has made for them. When either dies the pair ends;
 * with a new one every policy is sent again, because the new egress knows none. Until then boxes reach nothing.
 *
 * What egress says is believed about connections, and about nothing else: sizes and texts are checked. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "base/fdpass.h"
#include "base/list.h"
#include "front/boxes/box_private.h"
#include "front/front.h"
#include "front/net/box_net.h"

struct show {
    struct show *next;
    uint32_t     serial;
    uint64_t     token;
    net_shown   *call;
    void        *arg;
    json_t      *connections;       /* owned */
};

struct front_net {
    struct front  *front;
    struct loop_fd link;            /* fd -1: there is no egress */
    uint32_t       serial;
    struct show   *shows;
};

static struct box *find_box(const struct front *front, uint64_t token)
{
    for (struct box *b = front->boxes.first; b; b = b->next)
        if (box_token(b) == token && box_is_alive(b))
            return b;
    return NULL;
}

static void unlist_show(struct front_net *net, const struct show *s)
{
    struct show **at = &net->shows;

    while (*at && *at != s)
        at = &(*at)->next;
    if (*at)
        *at = s->next;
}

/* It is in no list any more. */
static void end_show(struct show *s, struct box *b, const struct err *e)
{
    if (s->call && b)
        s->call(b, e ? NULL : box_net_json(b, json_incref(s->connections)), e, s->arg);
    json_decref(s->connections);
    free(s);
}

static void lose_link(struct front_net *net)
{
    struct err e;

    loop_fd_remove(net->front->loop, &net->link);
    net->link.fd = fd_close(net->link.fd);
    (void)err_set(&e, ECONNRESET, STEP_NETWORK, "the network of boxes is being restarted; try again in a moment");
    for (struct show *s; (s = net->shows);) {
        net->shows = s->next;
        end_show(s, find_box(net->front, s->token), &e);
    }
}

/* False: there is no egress. A box that it is not told of reaches nothing, so a full queue costs the link. */
static bool tell(struct front_net *net, const void *frame, size_t size)
{
    if (net->link.fd < 0)
        return false;
    if (fdpass_send(net->link.fd, frame, size, NULL, 0, MSG_DONTWAIT) == (ssize_t)size)
        return true;
    front_log("error", "egress does not take its policies; its link is closed", NULL);
    lose_link(net);
    return false;
}

void net_box_tell(struct box *b)
{
    static struct egress_policy frame;
    const struct config *config = &b->front->config;

    if (!b->has_network || !b->front->net || b->front->net->link.fd < 0)
        return;
    frame.head = (struct egress_head){ .type = EGRESS_POLICY, .box = box_token(b) };
    frame.connections = config->network_connections;
    frame.bytes_per_second = config->network_bandwidth;
    net_policy_of(config, b->settings.net, b->owner_uid != (uid_t)-1, &frame.policy);
    (void)tell(b->front->net, &frame, egress_policy_size(&frame));
}

static struct show *find_show(struct front_net *net, uint32_t serial)
{
    struct show *s = net->shows;

    while (s && s->serial != serial)
        s = s->next;
    return s;
}

static void take_flow(struct front_net *net, struct egress_flow *flow)
{
    struct show *s = find_show(net, flow->head.serial);

    flow->what[sizeof flow->what - 1] = flow->address[sizeof flow->address - 1] = '\0';
    front_make_utf8(flow->what);
    front_make_utf8(flow->address);
    if (s)
        json_array_append_new(s->connections,
                              json_pack("{s:s,s:i,s:s,s:I,s:I,s:I}", "name", flow->what, "port", (int)flow->port,
                                        "address", flow->address, "bytes_sent", (json_int_t)flow->sent,
                                        "bytes_received", (json_int_t)flow->received, "age_ms",
                                        (json_int_t)flow->age_ms));
}

static void take_usage(struct front_net *net, struct box *b, const struct egress_usage *usage)
{
    struct show *s = usage->head.serial ? find_show(net, usage->head.serial) : NULL;
    struct box_net *its = box_net_of(b);

    if (its)
        its->usage = *usage;
    if (s) {
        unlist_show(net, s);
        end_show(s, b, NULL);
    }
}

/* False: nothing more is there, or the link is gone. */
static bool hear_one(struct front_net *net)
{
    union {
        struct egress_head    head;
        struct egress_refused refused;
        struct egress_flow    flow;
        struct egress_usage   usage;
    } word;
    struct fdpass passed = { 0 };

    if (net->link.fd < 0)
        return false;
    ssize_t n = fdpass_receive(net->link.fd, &word, sizeof word, MSG_DONTWAIT, &passed);
    if (n == -EAGAIN)
        return false;
    (void)!fdpass_take(&passed, NULL, 0);
    struct box *b = n >= (ssize_t)sizeof word.head ? find_box(net->front, word.head.box) : NULL;
    if (n <= 0)
        lose_link(net);
    else if (b && n == sizeof word.refused && word.head.type == EGRESS_REFUSED)
        box_net_refused(b, &word.refused);
    else if (n == sizeof word.flow && word.head.type == EGRESS_FLOW)
        take_flow(net, &word.flow);
    else if (b && n == sizeof word.usage && word.head.type == EGRESS_USAGE)
        take_usage(net, b, &word.usage);
    return n > 0;
}

void net_hear(struct front *front)
{
    while (front->net && hear_one(front->net))
        ;
}

static void on_link(struct loop_fd *w, uint32_t events)
{
    (void)events;
    net_hear(container_of(w, struct front_net, link)->front);
}

void net_on_link(struct front *front, int fd)
{
    struct front_net *net = front->net;

    if (!net) {
        fd_close(fd);
        return;
    }
    if (net->link.fd >= 0)
        lose_link(net);
    net->link.on_event = on_link;
    if (loop_fd_add(front->loop, &net->link, fd, EPOLLIN) < 0) {
        net->link.fd = fd_close(fd);
        return;
    }
    net->link.fd = fd;
    for (struct box *b = front->boxes.first; b; b = b->next)
        if (box_is_alive(b))
            net_box_tell(b);
}

int net_box_show(struct box *b, net_shown *call, void *arg, struct err *e)
{
    struct front_net *net = b->front->net;
    struct show *s = calloc(1, sizeof *s);

    if (!s)
        return err_at(e, ENOMEM, STEP_MEMORY, 0, "net");
    *s = (struct show){ .serial = ++net->serial ? net->serial : ++net->serial, .token = box_token(b), .call = call,
                        .arg = arg, .connections = json_array() };
    s->next = net->shows;
    net->shows = s;
    const struct egress_head ask = { .type = EGRESS_SHOW, .serial = s->serial, .box = s->token };
    if (tell(net, &ask, sizeof ask))
        return 0;
    /* If the link was lost just now, that has ended it already. */
    if (find_show(net, ask.serial)) {
        unlist_show(net, s);
        end_show(s, NULL, NULL);
    }
    return err_set(e, ECONNREFUSED, STEP_NETWORK, "the network of boxes is being restarted; try again in a moment");
}

void net_cancel(struct front *front, void *arg)
{
    for (struct show *s = front->net ? front->net->shows : NULL; s; s = s->next)
        if (s->arg == arg)
            s->call = NULL;
}

void net_init(struct front *front)
{
    front->net = calloc(1, sizeof *front->net);
    if (!front->net)
        return;
    front->net->front = front;
    front->net->link.fd = -1;
}

void net_free(struct front *front)
{
    struct front_net *net = front->net;

    if (!net)
        return;
    for (struct show *s; (s = net->shows);) {
        net->shows = s->next;
        end_show(s, NULL, NULL);
    }
    loop_fd_remove(front->loop, &net->link);
    fd_close(net->link.fd);
    free(net);
    front->net = NULL;
}
