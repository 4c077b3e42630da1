/* One connection of a box.
 *
 *   name?  --lookup-->  addresses  --policy-->  dial  -->  [EGRESS_HOLD: accept]  -->  flow
 *
 * With EGRESS_HOLD the box's connect() waits until the dial has succeeded; otherwise its connection was accepted
 * before, and a failure resets it, or answers in the program's own protocol. The first bytes of a connection to a name
 * are held until it is clear that they do not request another name from a TLS server; the server's bytes are never
 * held. */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/list.h"
#include "egress/netbox.h"

enum {
    READY_MS = 5000,            /* for a handshake within the box */
    INSPECT_MS = 30000,         /* for a ClientHello */
    PARTING_MS = 2000,
    HELD_BYTES = 64 << 10,
    HELD_BY_BOX = 4 << 20,      /* for all connections of a box: it must not fill our memory with incomplete
                                 * ClientHellos */
    IDLE_S = 60,
    BETWEEN_S = 20,
    SIDE_BYTES = 128 << 10,     /* the buffers of a connection's side in the box */
    SIDE_LEAST = 16 << 10,
    SIDES_BYTES = 8 << 20,      /* of all its connections, about */
    ACCEPTS_PER_TURN = 64,
    WINDOW_LEAST = 64 << 10,
    WINDOWS_BYTES = 32 << 20,
};

static void free_lookups(struct carry *c)
{
    if (c->is_question)
        c->box->n_questions--;
    c->is_question = false;
    resolver_cancel(&c->lookup);
    if (c->dialing)
        dialing_stop(c->dialing);
    free(c->dialing);
    c->dialing = NULL;
}

static void free_inspection(struct carry *c)
{
    if (c->hello)
        hello_done(c->hello);
    free(c->hello);
    c->hello = NULL;
    c->box->held_bytes -= c->held.length;
    buf_done(&c->held);
    loop_timer_cancel(c->box->egress->loop, &c->timer);
}

/* Releases everything. with_reset: both peers see an error. */
static void end(struct carry *c, bool with_reset)
{
    struct loop *l = c->box->egress->loop;

    if (c->state == CARRY_FLOW) {
        c->box->usage.sent += c->pump.side[0].bytes;
        c->box->usage.received += c->pump.side[1].bytes;
        pump_stop(&c->pump, with_reset);
    }
    free_lookups(c);
    free_inspection(c);
    if (c->has_share)
        fair_give(&c->box->descriptors, 2);
    loop_fd_remove(l, &c->parting);
    loop_timer_cancel(l, &c->timer);
    hold_remove(c);
    LIST_REMOVE(c);
    c->box->usage.live--;
    netbox_changed(c->box);
    if (!c->box->carried)
        netbox_tell_usage(c->box);
    if (c->client >= 0 && with_reset)
        pump_close_resets(c->client, true);
    fd_close(c->client);
    fd_close(c->upstream);
    free(c->syn);
    free(c->name);
    free(c);
}

/* --- refusing --- */

static void on_parting(struct loop_fd *w, uint32_t events)
{
    struct carry *c = container_of(w, struct carry, parting);
    char ignored[4096];
    ssize_t n = recv(w->fd, ignored, sizeof ignored, MSG_DONTWAIT);

    (void)events;
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
        end(c, false);
}

static void on_parting_timer(struct loop_timer *t)
{
    end(container_of(t, struct carry, timer), true);
}

/* The connection is open, so the refusal can be sent in the program's protocol; the connection is closed when the
 * program has read it. */
static bool part_with(struct carry *c, const void *words, size_t size)
{
    struct loop *l = c->box->egress->loop;

    if (send(c->client, words, size, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)size ||
        shutdown(c->client, SHUT_WR) < 0)
        return false;
    pump_close_resets(c->client, false);
    free_lookups(c);
    c->state = CARRY_PARTING;
    c->parting.on_event = on_parting;
    c->timer.on_expire = on_parting_timer;
    loop_timer_set(l, &c->timer, PARTING_MS);
    return loop_fd_add(l, &c->parting, c->client, EPOLLIN) == 0;
}

static bool part(struct carry *c, const char *what)
{
    static const uint8_t access_denied[] = { 0x15, 3, 1, 0, 2, 2, 49 };
    char body[NET_NAME_SIZE + 80], page[sizeof body + 200];

    if (!c->has_share)
        return false;
    if (c->ends.to_port == 443)
        return part_with(c, access_denied, sizeof access_denied);
    if (c->ends.to_port != 80)
        return false;
    int length = snprintf(body, sizeof body, "%s is not allowed by the network policy of this box\n", what);
    int size = snprintf(page, sizeof page,
                        "HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n"
                        "Connection: close\r\n\r\n%s", length, body);
    return part_with(c, page, (size_t)size);
}

/* The policy refuses. The reason is reported before the program gets its answer. */
static void refuse(struct carry *c, enum egress_why why, const char *other)
{
    char what[NET_NAME_SIZE];

    if (c->name)
        snprintf(what, sizeof what, "%s", c->name);
    else
        net_address_show(&c->ends.to, what);
    netbox_refuse(c->box, why, what, c->ends.to_port, other);
    if (c->syn && c->state != CARRY_FLOW)
        hold_answer(c->box, c->syn, HOLD_PROHIBITED);
    else if (c->state != CARRY_FLOW && part(c, what))
        return;
    end(c, true);
}

/* The connection outside failed. */
static void fail(struct carry *c, int code)
{
    if (c->syn && c->state != CARRY_FLOW)
        hold_answer(c->box, c->syn, code == -ECONNREFUSED ? HOLD_REFUSED : HOLD_UNREACHABLE);
    end(c, true);
}

/* --- inspecting --- */

static void on_inspect_timer(struct loop_timer *t)
{
    end(container_of(t, struct carry, timer), true);
}

/* Passes all held bytes on. */
static void pass_held(struct carry *c, bool is_all)
{
    int r = pump_pass(&c->pump, c->held.data, c->held.length);

    if (r < 0) {
        end(c, true);
        return;
    }
    c->box->held_bytes -= c->held.length;
    buf_clear(&c->held);
    loop_timer_cancel(c->box->egress->loop, &c->timer);
    if (!is_all)
        return;
    free_inspection(c);
    pump_release(&c->pump);
}

static void on_held(struct pump *p)
{
    struct carry *c = container_of(p, struct carry, pump);
    uint8_t bytes[16384];
    ssize_t n = recv(p->side[0].watch.fd, bytes, sizeof bytes, MSG_DONTWAIT);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n < 0 || (n == 0 && c->held.length > 0)) {
        end(c, true);
        return;
    }
    if (n == 0) {
        pass_held(c, true);     /* the pump reads the end again */
        return;
    }
    if (c->held.limit == 0)
        buf_init(&c->held, HELD_BYTES);
    size_t before = c->held.length;
    buf_add(&c->held, bytes, (size_t)n);
    c->box->held_bytes += c->held.length - before;
    if (c->box->held_bytes > HELD_BY_BOX) {
        end(c, true);
        return;
    }
    enum hello_verdict verdict =
        buf_error(&c->held) < 0 ? HELLO_WRONG : hello_feed(c->hello, c->name, bytes, (size_t)n);
    switch (verdict) {
    case HELLO_MORE:
        c->timer.on_expire = on_inspect_timer;
        if (!c->timer.armed)
            loop_timer_set(c->box->egress->loop, &c->timer, INSPECT_MS);
        return;
    case HELLO_SO_FAR:
    case HELLO_PASS:
        pass_held(c, verdict == HELLO_PASS);
        return;
    default:
        refuse(c, EGRESS_OTHER_NAME, verdict == HELLO_OTHER ? c->hello->other : "?");
    }
}

/* --- the flow --- */

static void on_pump_end(struct pump *p, int code)
{
    (void)code;
    end(container_of(p, struct carry, pump), false);
}

/* This connection's part of a resource that a box's connections share. Earlier connections have more: full buffers are
 * not taken back. */
static size_t carry_part(const struct carry *c, size_t least, size_t most, size_t all)
{
    size_t part = all / (c->box->usage.live ? c->box->usage.live : 1);

    return part < least ? least : part > most ? most : part;
}

/* Hands the upstream to the broker; what the pump sends then goes there. False: the broker cannot take it. */
static bool pass_to_broker(struct carry *c)
{
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
        return false;
    const int fds[2] = { pair[1], c->upstream };
    int r = link_tell_broker(c->box->egress, c->box->id, c->name, fds);
    fd_close(pair[1]);
    if (r < 0) {
        fd_close(pair[0]);
        return false;
    }
    fd_close(c->upstream);
    c->upstream = pair[0];
    return true;
}

static void start_flow(struct carry *c)
{
    struct egress *e = c->box->egress;
    const int bytes = (int)carry_part(c, SIDE_LEAST, SIDE_BYTES, SIDES_BYTES);
    const int yes = 1, idle_s = IDLE_S, between_s = BETWEEN_S;

    (void)setsockopt(c->client, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
    (void)setsockopt(c->client, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    (void)setsockopt(c->client, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    /* A program that closed its socket looks like one that only stopped sending. If the server does not close either,
     * keepalive tells them apart: the box's kernel forgets the closed one after a minute. */
    (void)setsockopt(c->client, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
    (void)setsockopt(c->client, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    (void)setsockopt(c->client, IPPROTO_TCP, TCP_KEEPINTVL, &between_s, sizeof between_s);
    if (c->is_brokered && !pass_to_broker(c)) {
        netbox_refuse(c->box, EGRESS_NO_BROKER, c->name, c->ends.to_port, NULL);
        end(c, true);
        return;
    }
    if (c->name && !(c->hello = calloc(1, sizeof *c->hello))) {
        end(c, true);
        return;
    }
    hold_remove(c);
    free(c->syn);
    c->syn = NULL;
    c->state = CARRY_FLOW;
    c->pump = (struct pump){ .loop = e->loop, .pipes = &e->pipes, .bucket = &c->box->rate, .on_held = on_held,
                             .on_end = on_pump_end };
    loop_timer_cancel(e->loop, &c->timer);
    c->box->usage.connections++;
    int client = TAKE_FD(c->client), upstream = TAKE_FD(c->upstream);
    if (pump_start(&c->pump, client, upstream, c->hello != NULL) < 0)
        end(c, true);
}

static void on_ready_timer(struct loop_timer *t)
{
    end(container_of(t, struct carry, timer), true);
}

static void on_dialled(struct dialing *d, int fd, const struct net_address *address)
{
    struct carry *c = d->owner;

    if (fd >= 0)
        c->address = *address;
    free_lookups(c);
    if (fd < 0) {
        fail(c, fd);
        return;
    }
    c->upstream = fd;
    if (c->client >= 0) {
        start_flow(c);
        return;
    }
    c->state = CARRY_READY;
    c->timer.on_expire = on_ready_timer;
    loop_timer_set(c->box->egress->loop, &c->timer, READY_MS);
    hold_answer(c->box, c->syn, HOLD_GO_ON);
}

/* --- opening --- */

static void dial(struct carry *c, const struct net_address *addresses, size_t n)
{
    struct net_address refused;
    char text[NET_ADDRESS_TEXT];

    c->dialing = calloc(1, sizeof *c->dialing);
    if (!c->dialing) {
        fail(c, -ENOMEM);
        return;
    }
    c->dialing->owner = c;
    c->dialing->share = &c->box->descriptors;
    c->dialing->window_bytes = (int)carry_part(c, WINDOW_LEAST, DIALING_WINDOW, WINDOWS_BYTES);
    c->dialing->on_done = on_dialled;
    if (dialing_choose(c->dialing, c->box->policy, c->reach, addresses, n, c->ends.to_port, &refused) == 0 &&
        refused.size > 0) {
        net_address_show(&refused, text);
        refuse(c, c->name ? EGRESS_BAD_ADDRESS : EGRESS_NOT_ALLOWED, c->name ? text : NULL);
        return;
    }
    c->state = CARRY_DIAL;
    c->is_own = c->dialing->own_is_accepted;
    dialing_start(c->dialing, c->box->egress->loop);
}

static void on_looked_up(struct resolve_wait *w, const struct resolve_answer *answer)
{
    struct carry *c = container_of(w, struct carry, lookup);

    free_lookups(c);
    if (answer->status == RESOLVE_FOUND) {
        dial(c, answer->address, answer->n);
        return;
    }
    if (answer->status == RESOLVE_FAILED)
        netbox_refuse(c->box, EGRESS_UNRESOLVED, c->name, c->ends.to_port, NULL);
    fail(c, -EHOSTUNREACH);
}

static void look_up(struct carry *c)
{
    struct resolver *r = c->box->egress->resolver;
    const struct resolve_answer *known = resolver_recall(r, c->name);

    if (known) {
        struct resolve_answer answer = *known;
        on_looked_up(&c->lookup, &answer);
        return;
    }
    c->lookup.on_done = on_looked_up;
    int code = -EAGAIN;
    if (c->box->n_questions < NETBOX_QUESTIONS)
        code = resolver_ask(r, c->name, &c->box->lookups, &c->lookup);
    if (code < 0) {
        netbox_refuse(c->box, EGRESS_TOO_MANY_NAMES, c->name, c->ends.to_port, NULL);
        fail(c, code);
        return;
    }
    c->is_question = true;
    c->box->n_questions++;
}

/* Finds the name that the address stands for. False: refused. */
static bool find_name(struct carry *c)
{
    struct netbox *b = c->box;

    if (!net_address_is_stand_in(&c->ends.to))
        return true;
    const char *name = b->names ? nametable_find(b->names, c->ends.to.byte) : NULL;
    if (!name || !(c->name = strdup(name))) {
        refuse(c, EGRESS_NOT_ALLOWED, NULL);
        return false;
    }
    c->is_brokered = netbox_is_brokered(b, c->name, c->ends.to_port);
    c->reach = net_judge_name(b->policy, c->name, c->ends.to_port);
    if (c->reach != NET_REFUSED)
        return true;
    refuse(c, EGRESS_NOT_ALLOWED, NULL);
    return false;
}

void carry_open(struct netbox *b, const struct packet_ends *ends, int client, const struct packet_syn *syn)
{
    struct carry *c = calloc(1, sizeof *c);

    if (!c) {
        fd_close(client);
        return;
    }
    *c = (struct carry){ .box = b, .ends = *ends, .client = client, .upstream = -1, .since_ms = loop_now_ms() };
    LIST_ADD(b->carried, c);
    b->usage.live++;
    if (syn) {
        c->syn = malloc(sizeof *syn);
        if (!c->syn) {
            end(c, true);
            return;
        }
        *c->syn = *syn;
        hold_add(c);
    }
    c->has_share = b->usage.live <= b->connections && fair_take(&b->descriptors, 2);
    if (!b->policy)
        refuse(c, EGRESS_NOT_ALLOWED, NULL);
    else if (!find_name(c))
        return;
    else if (!c->has_share)
        refuse(c, EGRESS_TOO_MANY, NULL);
    else if (c->name)
        look_up(c);
    else
        dial(c, &c->ends.to, 1);
}

static bool read_ends(int fd, struct packet_ends *ret)
{
    struct sockaddr_storage from = { 0 }, to = { 0 };
    socklen_t from_size = sizeof from, to_size = sizeof to;

    memset(ret, 0, sizeof *ret);
    return getpeername(fd, (struct sockaddr *)&from, &from_size) == 0 &&
           getsockname(fd, (struct sockaddr *)&to, &to_size) == 0 && dial_read(&from, &ret->from, &ret->from_port) &&
           dial_read(&to, &ret->to, &ret->to_port);
}

static void take_accepted(struct netbox *b, int fd)
{
    struct packet_ends ends;

    /* If we die before it is connected further, its program must not take that for an end either. */
    pump_close_resets(fd, true);
    if (!read_ends(fd, &ends)) {
        fd_close(fd);
        return;
    }
    if (b->way != EGRESS_HOLD) {
        carry_open(b, &ends, fd, NULL);
        return;
    }
    struct carry *c = hold_find(b, &ends);
    if (!c || c->state != CARRY_READY) {
        fd_close(fd);
        return;
    }
    c->client = fd;
    start_flow(c);
}

void carry_on_accept(struct loop_fd *w, uint32_t events)
{
    struct netbox *b = container_of(w, struct netbox_socket, watch)->box;

    (void)events;
    for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
        int fd = netbox_accept(b->egress, w->fd);
        if (fd >= 0)
            take_accepted(b, fd);
        else if (fd != -EINTR && fd != -ECONNABORTED && fd != -EMFILE && fd != -ENFILE)
            return;
    }
}

/* --- all connections of a box --- */

static bool is_allowed(const struct carry *c)
{
    const struct net_policy *policy = c->box->policy;
    enum net_reach reach = NET_REFUSED;

    if (!policy || c->state == CARRY_PARTING)
        return c->state == CARRY_PARTING;
    if (c->name && (reach = net_judge_name(policy, c->name, c->ends.to_port)) == NET_REFUSED)
        return false;
    if (c->state == CARRY_LOOKUP)
        return true;
    /* Every address of the dialing, because any may be used. */
    for (size_t i = 0; c->state == CARRY_DIAL && i < c->dialing->n; i++)
        if (!net_judge_address(policy, reach, &c->dialing->address[i], c->ends.to_port, c->is_own))
            return false;
    return c->state == CARRY_DIAL || net_judge_address(policy, reach, &c->address, c->ends.to_port, c->is_own);
}

void carry_judge_all(struct netbox *b)
{
    for (struct carry *c = b->carried, *next; c; c = next) {
        next = c->next;
        if (c->state == CARRY_LOOKUP && c->name && b->policy)
            c->reach = net_judge_name(b->policy, c->name, c->ends.to_port);
        if (!is_allowed(c))
            refuse(c, EGRESS_NOT_ALLOWED, NULL);
    }
}

void carry_drop(struct carry *c)
{
    end(c, true);
}

void carry_end_all(struct netbox *b)
{
    for (struct carry *c = b->carried, *next; c; c = next) {
        next = c->next;
        end(c, true);
    }
}

void carry_show(const struct carry *c, struct egress_flow *ret)
{
    if (c->name)
        snprintf(ret->what, sizeof ret->what, "%s", c->name);
    else
        net_address_show(&c->ends.to, ret->what);
    if (c->address.size > 0)
        net_address_show(&c->address, ret->address);
    ret->sent = c->pump.side[0].bytes;
    ret->received = c->pump.side[1].bytes;
    ret->age_ms = loop_now_ms() - c->since_ms;
    ret->port = c->ends.to_port;
}
