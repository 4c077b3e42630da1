/* Egress and the front talk over a pair of sockets that the keeper has made. When either dies the pair ends; over a new
 * one every policy is sent again, because the new egress knows none. Until then boxes reach nothing.
 *
 * Only a few policies fit into the pair at a time. The rest waits in a queue of box numbers; a frame is made when it is
 * sent, so that it has the newest policy.
 *
 * Egress is trusted about connections only: sizes and texts are checked. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "base/fdpass.h"
#include "base/list.h"
#include "front/boxes/box_parts.h"
#include "front/front.h"
#include "front/keys/keys.h"
#include "front/net/box_net.h"

enum {
    FLOWS_MOST = 4096,          /* in one answer; a hostile egress must not fill our memory */
    HEARD_AT_ONCE = 1024,       /* more than fit into the pair of sockets */
    SHOW_MS = 3000,
    SHOWS_MOST = 256,           /* that wait for an answer */
};

/* A frame to send. */
struct word {
    struct word *next;
    uint32_t     type, serial;
    uint64_t     token;
    int          fd;            /* owned: of BROKER; -1 */
};

struct show {
    struct show      *next;
    struct front_net *net;
    struct loop_timer late;
    uint32_t          serial;
    uint64_t          token;
    net_shown        *call;
    void             *arg;
    json_t           *connections;      /* owned */
};

struct front_net {
    struct front  *front;
    struct loop_fd link;            /* fd -1: there is no egress */
    uint32_t       serial;
    unsigned       n_shows;
    struct show   *shows;
    struct word   *words, **last_word;
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

/* Drops a frame that was not sent yet. */
static void forget_word(struct front_net *net, uint32_t serial)
{
    for (struct word **at = &net->words, *w; (w = *at); at = &w->next)
        if (w->type == EGRESS_SHOW && w->serial == serial) {
            *at = w->next;
            if (!*at)
                net->last_word = at;
            free(w);
            return;
        }
}

/* It is in no list any more. */
static void end_show(struct show *s, struct box *b, const struct err *e)
{
    if (s->call && b)
        s->call(b, e ? NULL : box_net_json(b, json_incref(s->connections)), e, s->arg);
    loop_timer_cancel(s->net->front->loop, &s->late);
    s->net->n_shows--;
    json_decref(s->connections);
    free(s);
}

/* It hangs, or has no turn on this machine. */
static void on_late(struct loop_timer *t)
{
    struct show *s = container_of(t, struct show, late);
    struct err e;

    (void)err_set(&e, ECONNREFUSED, STEP_NETWORK,
                  "carrel-egress has not answered for %d seconds; if that goes on, end it: the server starts another",
                  SHOW_MS / 1000);
    unlist_show(s->net, s);
    forget_word(s->net, s->serial);
    end_show(s, find_box(s->net->front, s->token), &e);
}

static void free_word(struct word *w)
{
    fd_close(w->fd);
    free(w);
}

static void drop_words(struct front_net *net)
{
    for (struct word *w; (w = net->words);) {
        net->words = w->next;
        free_word(w);
    }
    net->last_word = &net->words;
}

static void lose_link(struct front_net *net)
{
    struct err e;

    drop_words(net);
    loop_fd_remove(net->front->loop, &net->link);
    net->link.fd = fd_close(net->link.fd);
    (void)err_set(&e, ECONNRESET, STEP_NETWORK, "the network of boxes is being restarted; try again in a moment");
    for (struct show *s; (s = net->shows);) {
        net->shows = s->next;
        end_show(s, find_box(net->front, s->token), &e);
    }
}

static int send_brokered(struct front_net *net, const struct word *w)
{
    static struct egress_brokered frame;
    const struct box *b = find_box(net->front, w->token);

    if (!b)
        return 0;
    frame.head = (struct egress_head){ .type = w->type, .box = w->token };
    keys_list_hosts(b->settings.keys, &frame);
    ssize_t n = fdpass_send(net->link.fd, &frame, sizeof frame, NULL, 0, MSG_DONTWAIT);
    return n < 0 ? (int)n : 0;
}

/* 0, also if there is nothing to send any more; or -errno. */
static int send_word(struct front_net *net, const struct word *w)
{
    static struct egress_policy frame;
    struct net_bounds bounds;
    const struct config *config = &net->front->config;
    const struct box *b = w->type == EGRESS_POLICY ? find_box(net->front, w->token) : NULL;

    frame.head = (struct egress_head){ .type = w->type, .serial = w->serial, .box = w->token };
    size_t size = sizeof frame.head;
    if (w->type == EGRESS_POLICY) {
        if (!b)
            return 0;
        net_bounds_of(config, b->settings.net, &bounds);
        frame.connections = bounds.connections;
        frame.bytes_per_second = bounds.bytes_per_second;
        net_policy_of(config, b->settings.net, b->settings.keys, b->owner_uid != (uid_t)-1, &frame.policy);
        size = egress_policy_size(&frame);
    }
    ssize_t n = fdpass_send(net->link.fd, &frame, size, &w->fd, w->fd >= 0, MSG_DONTWAIT);
    return n < 0 ? (int)n : 0;
}

/* Sends queued frames, as far as egress takes them. */
static void send_words(struct front_net *net)
{
    int r = 0;

    while (net->words && (r = net->words->type == EGRESS_BROKERED ? send_brokered(net, net->words)
                                                                 : send_word(net, net->words)) == 0) {
        struct word *w = net->words;
        net->words = w->next;
        if (!net->words)
            net->last_word = &net->words;
        free_word(w);
    }
    if (r == 0 || r == -EAGAIN)
        r = loop_fd_set(net->front->loop, &net->link, net->words ? EPOLLIN | EPOLLOUT : EPOLLIN);
    if (r == 0)
        return;
    front_log("error", "the link to egress has failed", "why", strerror(-r), NULL);
    lose_link(net);
}

/* False: memory is short. */
static bool add_word(struct front_net *net, const struct word *word)
{
    struct word *w = malloc(sizeof *w);

    if (!w)
        return false;
    *w = *word;
    *net->last_word = w;
    net->last_word = &w->next;
    if (net->words == w)
        send_words(net);
    return true;
}

/* False: there is no egress, or memory is short. */
static bool tell(struct front_net *net, uint32_t type, uint64_t token, uint32_t serial)
{
    if (!net || net->link.fd < 0)
        return false;
    for (struct word *w = net->words; w && (type == EGRESS_POLICY || type == EGRESS_BROKERED); w = w->next)
        if (w->type == type && w->token == token)
            return true;
    return add_word(net, &(struct word){ .type = type, .serial = serial, .token = token, .fd = -1 }) &&
           net->link.fd >= 0;
}

void net_give_broker(struct front *front, int fd)
{
    FD given = fd;
    struct front_net *net = front->net;

    if (net && net->link.fd >= 0 && add_word(net, &(struct word){ .type = EGRESS_BROKER, .fd = given }))
        (void)TAKE_FD(given);
}
void net_box_tell(struct box *b)
{
    if (!b->has_network)
        return;
    if (b->settings.keys)
        (void)tell(b->front->net, EGRESS_BROKERED, box_token(b), 0);
    (void)tell(b->front->net, EGRESS_POLICY, box_token(b), 0);
}

void box_net_renew(struct box *b)
{
    (void)tell(b->front->net, EGRESS_COMMAND, box_token(b), 0);
}

void net_box_free(struct box *b)
{
    /* The keeper sends this, too. But its frame may arrive before our last policy, which would then stay for ever. */
    if (b->has_network)
        (void)tell(b->front->net, EGRESS_GONE, box_token(b), 0);
    free(b->net);
    b->net = NULL;
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
    if (s && json_array_size(s->connections) < FLOWS_MOST)
        json_array_append_new(s->connections,
                              json_pack("{s:s,s:i,s:s,s:I,s:I,s:I}", "name", flow->what, "port", (int)flow->port,
                                        "address", flow->address, "bytes_sent", (json_int_t)flow->sent,
                                        "bytes_received", (json_int_t)flow->received, "age_ms",
                                        (json_int_t)flow->age_ms));
}

static void take_usage(struct front_net *net, struct box *b, const struct egress_usage *usage)
{
    struct show *s = usage->head.serial ? find_show(net, usage->head.serial) : NULL;

    box_net_took(b, usage);
    if (s) {
        unlist_show(net, s);
        end_show(s, b, NULL);
    }
}

/* False: nothing more to read, or the link is gone. */
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
    for (int i = 0; i < HEARD_AT_ONCE && front->net && hear_one(front->net); i++)
        ;
}

static void on_link(struct loop_fd *w, uint32_t events)
{
    struct front_net *net = container_of(w, struct front_net, link);

    if (events & EPOLLOUT)
        send_words(net);
    net_hear(net->front);
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
    struct show *s = net->n_shows < SHOWS_MOST ? calloc(1, sizeof *s) : NULL;

    if (!s)
        return err_set(e, EAGAIN, STEP_NETWORK, "too many callers ask for the network of boxes at once; try again");
    *s = (struct show){ .serial = ++net->serial ? net->serial : ++net->serial, .token = box_token(b), .call = call,
                        .arg = arg, .connections = json_array(), .net = net, .late.on_expire = on_late };
    s->next = net->shows;
    net->shows = s;
    net->n_shows++;
    loop_timer_set(b->front->loop, &s->late, SHOW_MS);
    const uint32_t serial = s->serial;
    if (tell(net, EGRESS_SHOW, s->token, serial))
        return 0;
    /* If the link was lost just now, that has ended it already. */
    if (find_show(net, serial)) {
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
    front->net->last_word = &front->net->words;
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
    drop_words(net);
    loop_fd_remove(front->loop, &net->link);
    fd_close(net->link.fd);
    free(net);
    front->net = NULL;
}
