/* Listeners, the table of connections, draining. conn.c handles a single connection.
 *
 * An idle connection costs its struct http_conn and an epoll entry; buffers come with the first byte of a request, from
 * a short list of spares. Over max_connections a client is accepted only to get a 503. When the process has no more
 * fds, it gives up a reserve fd for a moment to accept and drop one client: otherwise the listener would stay readable
 * and the loop would spin. */
#include "http/server.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/list.h"
#include "http/conn.h"

#define ACCEPTS_PER_TURN 64
#define ACCEPT_PAUSE_MS  100

/* ---- request states ---- */

static void state_init(struct http_request_state *q)
{
    memset((char *)q + sizeof q->request, 0, offsetof(struct http_request_state, id) - sizeof q->request);
    struct http_request *r = &q->request;
    http_head_init(&r->head, false);
    memset((char *)r + sizeof r->head, 0, sizeof *r - sizeof r->head);
    arena_init(&r->arena, q->arena_first, sizeof q->arena_first);
    r->body_max_bytes = UINT64_MAX;
    r->state = q;
    r->id = q->id;
    q->id[0] = 0;
    q->in = q->in_first;
    q->in_size = sizeof q->in_first;
    q->out = q->out_first;
    q->out_size = sizeof q->out_first;
    q->headers_end = &q->headers;
    q->reply_left = -1;
}

struct http_request_state *server_state_take(struct http_server *s, struct http_conn *c)
{
    struct http_request_state *q = s->spares;
    if (q) {
        s->spares = q->next_spare;
        s->n_spares--;
    } else if (!(q = malloc(sizeof *q))) {
        return NULL;
    }
    state_init(q);
    q->request.conn = c;
    q->request.peer = &c->peer;
    q->request.server = s;
    q->request.loop = s->loop;
    return q;
}

void server_state_give(struct http_server *s, struct http_request_state *q)
{
    if (!q)
        return;
    arena_reset(&q->request.arena);
    while (q->request.n_fds > 0)
        fd_close(q->request.fds[--q->request.n_fds]);
    free(q->collected);
    if (q->in != q->in_first)
        free(q->in);
    if (q->head_in != q->in_first)
        free(q->head_in);
    if (q->out != q->out_first)
        free(q->out);
    share_leave(&q->request.share);
    if (s->n_spares == SPARE_REQUESTS) {
        free(q);
        return;
    }
    q->next_spare = s->spares;
    s->spares = q;
    s->n_spares++;
}

/* ---- the date ---- */

/* Not gmtime(): glibc's opens /etc/localtime at its first call, which a confined process may not. */
const char *server_date(struct http_server *s)
{
    static const char days[] = "ThuFriSatSunMonTueWed", months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    struct timespec now;
    clock_gettime(CLOCK_REALTIME_COARSE, &now);
    if (now.tv_sec == s->date_second)
        return s->date;
    s->date_second = now.tv_sec;
    int64_t day = now.tv_sec / 86400, second = now.tv_sec % 86400;
    /* Days since 1 March of year 0, in eras of 400 years. */
    int64_t z = day + 719468, era = z / 146097, doe = z % 146097;
    int64_t yoe = (doe - doe / 1460 + doe / 36524 - doe / 146096) / 365;
    int64_t doy = doe - (365 * yoe + yoe / 4 - yoe / 100), mp = (5 * doy + 2) / 153;
    int64_t mday = doy - (153 * mp + 2) / 5 + 1, month = mp < 10 ? mp + 2 : mp - 10;
    int64_t year = yoe + era * 400 + (month < 2);
    snprintf(s->date, sizeof s->date, "%.3s, %02u %.3s %04u %02u:%02u:%02u GMT", days + day % 7 * 3,
             (unsigned)mday & 31, months + month * 3, (unsigned)year % 10000, (unsigned)(second / 3600) & 31,
             (unsigned)(second / 60 % 60) & 63, (unsigned)(second % 60) & 63);
    return s->date;
}

/* ---- connections ---- */

static void drained(struct loop_task *t)
{
    struct http_server *s = container_of(t, struct http_server, drained_task);
    if (s->config.on_drained)
        s->config.on_drained(s->config.owner);
}

void server_conn_free(struct http_conn *c)
{
    struct http_server *s = c->server;
    loop_fd_remove(s->loop, &c->watch);
    loop_timer_cancel(s->loop, &c->timer);
    loop_task_cancel(s->loop, &c->task);
    fd_close(c->watch.fd);
    server_state_give(s, c->state);
    c->next->back = c->back;
    c->back->next = c->next;
    if (c->is_refusal)
        s->n_refusals--;
    else
        s->n_conns--;
    s->n_from_inlets -= c->is_inlet && !c->is_refusal;
    share_leave(&c->source);
    share_leave(&c->caller);
    free(c);
    if (s->draining && s->n_conns + s->n_refusals == 0)
        loop_task_add(s->loop, &s->drained_task);
}

static bool is_loopback(const struct http_conn *c)
{
    const unsigned char *a = c->peer.address.sin6_addr.s6_addr;
    struct sockaddr_in v4;

    memcpy(&v4, &c->peer.address, sizeof v4);
    if (c->peer.family == AF_INET)
        return ntohl(v4.sin_addr.s_addr) >> 24 == 127;
    return IN6_IS_ADDR_LOOPBACK(&c->peer.address.sin6_addr) ||
           (IN6_IS_ADDR_V4MAPPED(&c->peer.address.sin6_addr) && a[12] == 127);
}

/* A user of this machine, an IPv4 address, or an IPv6 /64, because a site owns all addresses of its network. */
static bool count_source(struct http_conn *c)
{
    const unsigned char *a = c->peer.address.sin6_addr.s6_addr;
    char name[48];

    if (c->is_inlet) {
        snprintf(name, sizeof name, "%u", c->peer.tag);
        return share_join(&c->source, &c->server->inlets, name) == 0 && share_move(&c->source, 0, 1);
    }
    if (c->peer.family == AF_UNIX) {
        snprintf(name, sizeof name, "uid:%u", (unsigned)c->peer.credentials.uid);
    } else if (is_loopback(c)) {
        snprintf(name, sizeof name, "loopback");
    } else if (c->peer.family == AF_INET) {
        struct sockaddr_in v4;
        memcpy(&v4, &c->peer.address, sizeof v4);
        snprintf(name, sizeof name, "4:%08x", (unsigned)v4.sin_addr.s_addr);
    } else {
        int at = snprintf(name, sizeof name, "6:");
        for (int i = 0; i < (IN6_IS_ADDR_V4MAPPED(&c->peer.address.sin6_addr) ? 16 : 8); i++)
            at += snprintf(name + at, sizeof name - (size_t)at, "%02x", a[i]);
    }
    return share_join(&c->source, &c->server->sources, name) == 0 && share_move(&c->source, 0, 1);
}

bool http_request_claim(struct http_request *r, struct budgets *all, const char *owner)
{
    struct http_conn *c = r->conn;
    bool is_ours = share_is_of(&c->caller, owner) && c->caller.held;

    if (!is_ours) {
        share_leave(&c->caller);
        is_ours = share_join(&c->caller, &c->server->callers, owner) == 0 && share_move(&c->caller, 0, 1);
    }
    if (!is_ours)
        r->state->close_after = true;
    return share_join(&r->share, all, owner) == 0 && is_ours;
}

static int conn_new(struct http_listener *l, int fd, const struct sockaddr_in6 *address)
{
    struct http_server *s = l->server;
    struct ucred who = { .pid = 0, .uid = (uid_t)-1, .gid = (gid_t)-1 };
    socklen_t size = sizeof who;
    int r = l->family == AF_UNIX && getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) < 0 ? -errno : 0;
    /* Some places are reserved for root and the server's own user, because others may have taken all the rest. */
    unsigned spare = r < 0 || (who.uid != 0 && who.uid != geteuid()) ? s->config.max_connections / 100 : 0;
    bool full = s->n_conns >= s->config.max_connections - spare ||
                (l->is_inlet && s->n_from_inlets >= s->config.max_connections / 2);
    struct http_conn *c = full && s->n_refusals >= REFUSED_MAX ? NULL : calloc(1, sizeof *c);
    if (!c) {
        fd_close(fd);
        return -ENOMEM;
    }
    c->server = s;
    c->peer.family = l->family;
    c->peer.tag = l->tag;
    c->is_inlet = l->is_inlet;
    c->peer.credentials = who;
    c->timer.on_expire = conn_on_timer;
    c->task.on_run = conn_on_task;
    c->watch.on_event = conn_on_event;
    if (l->family != AF_UNIX)
        c->peer.address = *address;
    bool alone = r == 0 && !full && !count_source(c);
    if (alone && s->n_refusals >= REFUSED_MAX)
        r = -EAGAIN;
    if (r == 0)
        r = loop_fd_add(s->loop, &c->watch, fd, EPOLLIN | EPOLLRDHUP);
    if (r < 0) {
        fd_close(fd);
        share_leave(&c->source);
        free(c);
        return r;
    }
    c->is_refusal = full || alone;
    c->next = &s->conns;
    c->back = s->conns.back;
    c->back->next = c;
    s->conns.back = c;
    *(c->is_refusal ? &s->n_refusals : &s->n_conns) += 1;
    s->n_from_inlets += c->is_inlet && !c->is_refusal;
    if (full)
        conn_refuse(c, 503, "too many connections; try again");
    else if (alone)
        conn_refuse(c, 429, "you have too many connections; close some");
    else
        conn_start(c);
    return 0;
}

/* ---- listeners ---- */

static void listeners_watch(struct http_server *s, uint32_t events)
{
    for (struct http_listener *l = s->listeners; l; l = l->next)
        if (loop_fd_set(s->loop, &l->watch, events) < 0)
            continue;       /* cannot fail for a watched fd; if it did, the next accept would notice */
}

static void on_accept_pause_over(struct loop_timer *t)
{
    struct http_server *s = container_of(t, struct http_server, accept_timer);
    listeners_watch(s, EPOLLIN);
}

/* Out of fds or memory: drops one client with the reserve fd, or stops watching for a moment. */
static void accept_in_need(struct http_server *s, int listener)
{
    s->reserve = fd_close(s->reserve);
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    fd_close(fd);
    s->reserve = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (fd < 0 || s->reserve < 0) {
        listeners_watch(s, 0);
        loop_timer_set(s->loop, &s->accept_timer, ACCEPT_PAUSE_MS);
    }
}

static void on_acceptable(struct loop_fd *w, uint32_t events)
{
    struct http_listener *l = (struct http_listener *)w;    /* its first member */
    struct http_server *s = l->server;
    (void)events;
    for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
        struct sockaddr_in6 address = { 0 };
        socklen_t size = sizeof address;
        struct sockaddr *where = l->family == AF_UNIX ? NULL : (struct sockaddr *)&address;
        int fd = accept4(w->fd, where, where ? &size : NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0) {
            if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
                accept_in_need(s, w->fd);
            else if (errno == ECONNABORTED || errno == EINTR)
                continue;
            return;
        }
        (void)conn_new(l, fd, &address);
    }
}

static int listener_prepare(int fd, int *ret_family)
{
    struct sockaddr_storage name = { 0 };
    socklen_t size = sizeof name, int_size = sizeof(int);
    int type = 0, listening = 0;
    if (getsockname(fd, (struct sockaddr *)&name, &size) < 0 ||
        getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &int_size) < 0 ||
        getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &int_size) < 0)
        return -errno;
    int family = name.ss_family;
    if (type != SOCK_STREAM || !listening || (family != AF_UNIX && family != AF_INET && family != AF_INET6))
        return -EINVAL;
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
        return -errno;
    if (family != AF_UNIX) {    /* accepted sockets inherit these */
        int yes = 1, idle_s = 60, interval_s = 15, probes = 4;
        if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes) < 0 ||
            setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes) < 0 ||
            setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s) < 0 ||
            setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof interval_s) < 0 ||
            setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes) < 0)
            return -errno;
    }
    *ret_family = family;
    return 0;
}

static int listen_on(struct http_server *s, int fd, unsigned tag, bool is_inlet)
{
    int family = AF_UNSPEC;
    int r = listener_prepare(fd, &family);
    struct http_listener *l = r < 0 ? NULL : calloc(1, sizeof *l);
    if (l) {
        l->server = s;
        l->family = family;
        l->tag = tag;
        l->is_inlet = is_inlet;
        l->watch.on_event = on_acceptable;
        r = loop_fd_add(s->loop, &l->watch, fd, EPOLLIN);
    } else if (r == 0) {
        r = -ENOMEM;
    }
    if (r < 0 || !l) {
        free(l);
        fd_close(fd);
        return r;
    }
    l->next = s->listeners;
    s->listeners = l;
    return 0;
}

int http_server_listen(struct http_server *s, int fd, unsigned tag)
{
    return listen_on(s, fd, tag, false);
}

int http_server_listen_inlet(struct http_server *s, int fd, unsigned tag)
{
    return listen_on(s, fd, tag, true);
}

void http_server_unlisten(struct http_server *s, unsigned tag)
{
    for (struct http_listener **at = &s->listeners, *l; (l = *at);) {
        if (l->tag != tag) {
            at = &l->next;
            continue;
        }
        *at = l->next;
        loop_fd_remove(s->loop, &l->watch);
        fd_close(l->watch.fd);
        free(l);
    }
    for (struct http_conn *c = s->conns.next; c != &s->conns; c = c->next)
        if (c->peer.tag == tag) {
            c->aborted = true;
            conn_wake(c);
        }
}

static void listeners_close(struct http_server *s)
{
    while (s->listeners) {
        struct http_listener *l = s->listeners;
        s->listeners = l->next;
        loop_fd_remove(s->loop, &l->watch);
        fd_close(l->watch.fd);
        free(l);
    }
    loop_timer_cancel(s->loop, &s->accept_timer);
}

/* ---- the server ---- */

static void on_drain_deadline(struct loop_timer *t)
{
    struct http_server *s = container_of(t, struct http_server, drain_timer);
    for (struct http_conn *c = s->conns.next, *next; c != &s->conns; c = next) {
        next = c->next;
        c->aborted = true;
        conn_wake(c);
    }
}

static void apply_defaults(struct http_server_config *c)
{
    struct { uint32_t *value, preset; } fields[] = {
        { &c->max_connections, 10000 }, { &c->max_from_inlet, 1024 }, { &c->idle_ms, 75000 },
        { &c->head_ms, 10000 }, { &c->body_ms, 30000 },
        { &c->body_min_bytes, 1024 }, { &c->send_ms, 60000 }, { &c->high_water_bytes, 262144 },
        { &c->low_water_bytes, 65536 },
    };
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (!*fields[i].value)
            *fields[i].value = fields[i].preset;
    if (c->low_water_bytes > c->high_water_bytes)
        c->low_water_bytes = c->high_water_bytes;
    if (!c->max_from_one)
        c->max_from_one = c->max_connections / 2 + c->max_connections % 2;
}

int http_server_new(struct loop *l, const struct http_server_config *config, struct http_server **ret)
{
    struct sigaction pipe_action;
    if (sigaction(SIGPIPE, NULL, &pipe_action) < 0)
        return -errno;
    if (pipe_action.sa_handler != SIG_IGN || !config->on_request)
        return -EINVAL;
    struct http_server *s = calloc(1, sizeof *s);
    if (!s)
        return -ENOMEM;
    s->loop = l;
    s->config = *config;
    apply_defaults(&s->config);
    s->conns.next = s->conns.back = &s->conns;
    s->sources.most = s->callers.most = s->config.max_from_one;
    s->inlets.most = s->config.max_from_inlet;
    s->drain_timer.on_expire = on_drain_deadline;
    s->accept_timer.on_expire = on_accept_pause_over;
    s->drained_task.on_run = drained;
    s->date_second = -1;
    if (getrandom(&s->id_base, sizeof s->id_base, 0) != (ssize_t)sizeof s->id_base)
        s->id_base = (uint64_t)getpid() << 32;      /* ids must differ, they need not be secret */
    s->reserve = open("/dev/null", O_RDONLY | O_CLOEXEC);
    *ret = s;
    return 0;
}

void http_server_drain(struct http_server *s, uint64_t grace_ms)
{
    if (s->draining)
        return;
    s->draining = true;
    listeners_close(s);
    loop_timer_set(s->loop, &s->drain_timer, grace_ms);
    for (struct http_conn *c = s->conns.next; c != &s->conns; c = c->next)
        if (c->phase == CONN_IDLE)
            conn_wake(c);
    if (s->n_conns + s->n_refusals == 0)
        loop_task_add(s->loop, &s->drained_task);
}

void http_server_free(struct http_server *s)
{
    if (!s)
        return;
    listeners_close(s);
    s->draining = false;
    for (struct http_conn *c = s->conns.next, *next; c != &s->conns; c = next) {
        next = c->next;
        c->running = true;      /* callbacks of on_end() must not start anything */
        conn_close(c, HTTP_END_ABORTED);
        server_conn_free(c);
    }
    loop_timer_cancel(s->loop, &s->drain_timer);
    loop_task_cancel(s->loop, &s->drained_task);
    while (s->spares) {
        struct http_request_state *q = s->spares;
        s->spares = q->next_spare;
        free(q);
    }
    fd_close(s->reserve);
    free(s);
}

unsigned http_server_connections(const struct http_server *s)
{
    return s->n_conns;
}
