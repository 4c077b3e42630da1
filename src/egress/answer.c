/* DNS queries over UDP and TCP. A name that the policy refuses is answered at once; an allowed name is looked up first,
 * so that a missing name is missing in the box, too. The answer is the address that stands for the name. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "base/list.h"
#include "proto/dns.h"
#include "egress/netbox.h"

enum {
    DATAGRAMS_PER_TURN = 32,
    QUERIES_PER_TURN = 16,
    CLIENT_IDLE_MS = 10000,
    TTL_S = 60,
    TCP_QUERY = 1024,           /* larger than any valid query */
};

/* A query that waits for a lookup: from a datagram, or from a client. */
struct answer_wait {
    struct netbox           *box;
    struct answer_wait      *next, **back;
    struct answer_client    *client;        /* NULL: UDP */
    struct sockaddr_storage  from;
    socklen_t                from_size;
    struct resolve_wait      lookup;
    struct dns_query         query;
};

/* A TCP connection; one query at a time, the others wait in the socket. */
struct answer_client {
    struct loop_fd        watch;
    struct loop_timer     idle;
    struct netbox        *box;
    struct answer_client *next, **back;
    struct answer_wait   *waits;
    size_t                n;
    uint8_t               bytes[2 + TCP_QUERY];
};

static void client_close(struct answer_client *c);

/* Only parts of arpa: home.arpa is for names of sites. */
static bool is_reverse(const char *name)
{
    static const char *const suffix[] = { ".in-addr.arpa", ".ip6.arpa" };
    size_t length = strlen(name);

    for (size_t i = 0; i < sizeof suffix / sizeof *suffix; i++) {
        size_t n = strlen(suffix[i]);
        if (length > n && strcmp(name + length - n, suffix[i]) == 0)
            return true;
    }
    return false;
}

/* --- answers --- */

static void send_answer(struct netbox *b, struct answer_client *client, const struct sockaddr_storage *to,
                        socklen_t to_size, const struct dns_query *query, enum dns_code code, const uint8_t *address)
{
    uint8_t reply[2 + DNS_REPLY];
    size_t size = dns_write(query, code, address, TTL_S, reply + 2);

    if (!client) {
        /* A program that does not read its answers loses them, as on any network. */
        (void)sendto(netbox_fd(b, EGRESS_DNS_UDP), reply + 2, size, MSG_DONTWAIT | MSG_NOSIGNAL,
                     (const struct sockaddr *)to, to_size);
        return;
    }
    reply[0] = (uint8_t)(size >> 8);
    reply[1] = (uint8_t)size;
    if (send(client->watch.fd, reply, size + 2, MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t)size + 2)
        client_close(client);
}

/* Turns the lookup's result into an answer to this query. */
static enum dns_code judge(struct netbox *b, const struct dns_query *query, const struct resolve_answer *answer,
                           uint8_t address[4], bool *ret_has_address)
{
    *ret_has_address = false;
    if (answer->status == RESOLVE_FAILED)
        return DNS_SERVFAIL;
    if (answer->status == RESOLVE_UNKNOWN)
        return DNS_NXDOMAIN;
    /* The policy may have changed meanwhile. */
    if (!b->policy || !net_resolves(b->policy, query->name))
        return DNS_BLOCKED;
    if (answer->status == RESOLVE_EMPTY || query->type != DNS_A)
        return DNS_OK;
    if (!b->names || !nametable_give(b->names, query->name, false, address))
        return DNS_SERVFAIL;
    *ret_has_address = true;
    return DNS_OK;
}

static void wait_free(struct answer_wait *w)
{
    resolver_cancel(&w->lookup);
    LIST_REMOVE(w);
    w->box->n_questions--;
    if (w->client)
        w->client->waits = NULL;
    free(w);
}

static void client_read(struct answer_client *c);

static void on_looked_up(struct resolve_wait *lookup, const struct resolve_answer *answer)
{
    struct answer_wait *w = container_of(lookup, struct answer_wait, lookup);
    struct answer_client *client = w->client;
    uint8_t address[4];
    bool has_address;
    enum dns_code code = judge(w->box, &w->query, answer, address, &has_address);

    if (answer->status == RESOLVE_FAILED)
        netbox_refuse(w->box, EGRESS_UNRESOLVED, w->query.name, 0, NULL);
    if (client)
        client->waits = NULL;
    w->client = NULL;
    if (client)
        (void)!loop_fd_set(w->box->egress->loop, &client->watch, EPOLLIN);
    send_answer(w->box, client, &w->from, w->from_size, &w->query, code, has_address ? address : NULL);
    wait_free(w);
}

/* apt and others look up a service (_http._tcp.deb.example.org) before its host. If the host's name is allowed, the
 * service just has no record, and no refusal is reported. */
static bool is_service_of_allowed(const struct netbox *b, const char *name)
{
    const char *at = name;

    while (at[0] == '_' && strchr(at, '.'))
        at = strchr(at, '.') + 1;
    return at != name && b->policy && net_resolves(b->policy, at);
}

/* One query. Answered now, or later by on_looked_up. */
static void ask(struct netbox *b, struct answer_client *client, const struct sockaddr_storage *from,
                socklen_t from_size, const uint8_t *bytes, size_t size)
{
    struct resolver *r = b->egress->resolver;
    struct dns_query query;
    enum dns_code code;
    uint8_t address[4];
    bool has_address = false;

    switch (dns_read(bytes, size, &query, &code)) {
    case DNS_IS_NOTHING:
        if (client)
            client_close(client);
        return;
    case DNS_IS_WRONG:
        send_answer(b, client, from, from_size, &query, code, NULL);
        return;
    default:
        break;
    }
    const struct resolve_answer *known = NULL;
    struct answer_wait *w = NULL;
    bool is_allowed = b->policy && net_resolves(b->policy, query.name);
    if (is_reverse(query.name) || (!is_allowed && is_service_of_allowed(b, query.name))) {
        code = DNS_NXDOMAIN;
    } else if (!is_allowed) {
        netbox_refuse(b, EGRESS_NOT_ALLOWED, query.name, 0, NULL);
        code = DNS_BLOCKED;
    } else if ((known = resolver_recall(r, query.name))) {
        code = judge(b, &query, known, address, &has_address);
    } else if (b->n_questions >= NETBOX_QUESTIONS || !(w = calloc(1, sizeof *w))) {
        netbox_refuse(b, EGRESS_TOO_MANY_NAMES, query.name, 0, NULL);
        code = DNS_SERVFAIL;
    } else {
        *w = (struct answer_wait){ .box = b, .client = client, .from_size = from_size, .query = query,
                                   .lookup.on_done = on_looked_up };
        if (from)
            w->from = *from;
        LIST_ADD(b->questions, w);
        b->n_questions++;
        if (resolver_ask(r, query.name, &b->lookups, &w->lookup) == 0) {
            if (client) {
                client->waits = w;
                (void)!loop_fd_set(b->egress->loop, &client->watch, 0);
            }
            return;
        }
        w->client = NULL;
        wait_free(w);
        netbox_refuse(b, EGRESS_TOO_MANY_NAMES, query.name, 0, NULL);
        code = DNS_SERVFAIL;
    }
    send_answer(b, client, from, from_size, &query, code, has_address ? address : NULL);
}

/* --- UDP --- */

void answer_on_udp(struct loop_fd *w, uint32_t events)
{
    struct netbox *b = container_of(w, struct netbox_socket, watch)->box;
    uint8_t bytes[DNS_QUERY];

    (void)events;
    for (int i = 0; i < DATAGRAMS_PER_TURN; i++) {
        struct sockaddr_storage from = { 0 };
        socklen_t from_size = sizeof from;
        ssize_t n = recvfrom(w->fd, bytes, sizeof bytes, MSG_DONTWAIT, (struct sockaddr *)&from, &from_size);
        if (n < 0 && errno != EINTR)
            return;
        if (n >= 0)
            ask(b, NULL, &from, from_size, bytes, (size_t)n);
    }
}

/* --- TCP --- */

static void client_close(struct answer_client *c)
{
    struct loop *l = c->box->egress->loop;

    if (c->waits)
        wait_free(c->waits);
    loop_fd_remove(l, &c->watch);
    loop_timer_cancel(l, &c->idle);
    fd_close(c->watch.fd);
    LIST_REMOVE(c);
    c->box->n_clients--;
    fair_give(&c->box->descriptors, 1);
    free(c);
}

static void on_idle(struct loop_timer *t)
{
    client_close(container_of(t, struct answer_client, idle));
}

/* Handles the query that was read. The client may be gone afterwards. */
static void ask_first(struct answer_client *c, size_t size)
{
    uint8_t bytes[TCP_QUERY];

    memcpy(bytes, c->bytes + 2, size);
    memmove(c->bytes, c->bytes + 2 + size, c->n - 2 - size);
    c->n -= 2 + size;
    loop_timer_set(c->box->egress->loop, &c->idle, CLIENT_IDLE_MS);
    ask(c->box, c, NULL, 0, bytes, size);
}

/* Reads exactly one query's bytes, so that the buffer never holds a second one. */
static void client_read(struct answer_client *c)
{
    size_t size = c->n < 2 ? 0 : (size_t)(c->bytes[0] << 8 | c->bytes[1]), want = c->n < 2 ? 2 : 2 + size;

    if (c->n >= 2 && (size == 0 || size > TCP_QUERY)) {
        client_close(c);
        return;
    }
    ssize_t n = recv(c->watch.fd, c->bytes + c->n, want - c->n, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        client_close(c);
        return;
    }
    c->n += (size_t)n;
    if (c->n >= 2 && c->n == 2u + (size_t)(c->bytes[0] << 8 | c->bytes[1]) && c->n > 2)
        ask_first(c, c->n - 2);
}

static void on_client(struct loop_fd *w, uint32_t events)
{
    struct answer_client *c = container_of(w, struct answer_client, watch);

    if (c->waits && events & (EPOLLERR | EPOLLHUP))
        client_close(c);
    else if (!c->waits)
        client_read(c);
}

void answer_on_tcp(struct loop_fd *w, uint32_t events)
{
    struct netbox *b = container_of(w, struct netbox_socket, watch)->box;

    (void)events;
    for (int i = 0; i < QUERIES_PER_TURN; i++) {
        FD fd = netbox_accept(b->egress, w->fd);
        if (fd == -EMFILE || fd == -ENFILE)
            continue;
        if (fd < 0)
            return;
        struct answer_client *c = b->n_clients < NETBOX_TCP_QUESTIONERS ? calloc(1, sizeof *c) : NULL;
        if (!c || !fair_take(&b->descriptors, 1)) {
            free(c);
            continue;
        }
        c->box = b;
        c->watch.on_event = on_client;
        c->idle.on_expire = on_idle;
        if (loop_fd_add(b->egress->loop, &c->watch, fd, EPOLLIN) < 0) {
            fair_give(&b->descriptors, 1);
            free(c);
            continue;
        }
        (void)TAKE_FD(fd);
        LIST_ADD(b->clients, c);
        b->n_clients++;
        loop_timer_set(b->egress->loop, &c->idle, CLIENT_IDLE_MS);
    }
}

void answer_end_all(struct netbox *b)
{
    for (struct answer_client *c = b->clients, *next; c; c = next) {
        next = c->next;
        client_close(c);
    }
    for (struct answer_wait *w = b->questions, *next; w; w = next) {
        next = w->next;
        wait_free(w);
    }
}
