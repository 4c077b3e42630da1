/* The life of one connection.
 *
 *   IDLE ─ first byte → HEAD ─ head complete → ACTIVE ─ answer sent → IDLE, or HEAD if pipelined bytes wait
 *                        └ refused → ACTIVE (the answer is ours)  ├→ DISCARD (unread body) → IDLE
 *                                                                 └→ LINGER (we close; let the client read) → DEAD
 *
 * conn_run() does all the work until it would block; conn_arm() then sets epoll and the timer for the next event.
 * Functions that handlers call only record work and wake the connection, so a handler is never called from inside its
 * own call and may do anything in a callback.
 *
 * While a request is answered the socket is not read, but EPOLLRDHUP stays armed, so that a client that vanishes is
 * noticed at once, even behind pipelined bytes. Half-closed counts as gone, because TCP cannot distinguish it from
 * closed. Only a handler of an upgraded connection may accept it (may_half_close): the client is then gone when it
 * hangs up or resets our data. EPOLLIN stays armed until it fires unwanted, which saves two epoll_ctl calls in an
 * ordinary request. */
#include "base/fd.h"
#include "base/fdpass.h"
#include "base/list.h"
#include "http/conn.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SCRATCH_BYTES 16384

static bool state_has_output(const struct http_request_state *q)
{
    return q->out_at < q->out_end;
}

void conn_wake(struct http_conn *c)
{
    if (!c->running)
        loop_task_add(c->server->loop, &c->task);
}

/* ---- the end of a request ---- */

/* Calls on_end() and the log, once. */
static void finish_request(struct http_conn *c, enum http_end how)
{
    struct http_request_state *q = c->state;
    struct http_request *r = &q->request;
    struct http_server *s = c->server;
    if (q->told)
        return;
    q->ended = q->told = true;
    if (s->config.on_access) {
        struct http_access a = {
            .id = r->id, .peer = &c->peer, .method = r->head.method, .target = r->head.target, .status = q->status,
            .how = how, .body_bytes = q->body_bytes, .sent_bytes = q->sent_bytes,
            .duration_us = q->start_us ? loop_now_us() - q->start_us : 0,
        };
        s->config.on_access(&a, s->config.owner);
    }
    if (r->on_end)
        r->on_end(r, how);
}

void conn_close(struct http_conn *c, enum http_end how)
{
    if (c->state && c->phase == CONN_ACTIVE)
        finish_request(c, how);
    c->phase = CONN_DEAD;
}

/* Closing at once with unread input makes the kernel send a reset, which can discard the answer before the client reads
 * it. */
static void begin_linger(struct http_conn *c)
{
    server_state_give(c->server, c->state);
    c->state = NULL;
    c->phase = CONN_LINGER;
    c->readable = true;
    if (shutdown(c->watch.fd, SHUT_WR) < 0)
        c->phase = CONN_DEAD;
}

/* Keeps what was received beyond the request, drops everything else. */
static void next_request(struct http_conn *c)
{
    struct http_request_state *old = c->state;
    size_t left = old->in_end - old->in_at;
    c->phase = CONN_IDLE;
    c->wait = WAIT_NOTHING;
    c->state = NULL;
    if (left) {
        struct http_request_state *q = server_state_take(c->server, c);
        if (q && left > q->in_size) {       /* only after a head that outgrew the first buffer */
            char *in = malloc(IN_MAX_BYTES);
            if (in) {
                q->in = in;
                q->in_size = IN_MAX_BYTES;
            } else {
                server_state_give(c->server, q);
                q = NULL;
            }
        }
        if (q) {
            memcpy(q->in, old->in + old->in_at, left);
            q->in_end = left;
        }
        c->state = q;
        c->phase = q ? CONN_HEAD : CONN_DEAD;
    }
    server_state_give(c->server, old);
}

static void request_done(struct http_conn *c)
{
    struct http_request_state *q = c->state;
    finish_request(c, HTTP_END_DONE);
    bool close = q->close_after || q->raw || !q->request.head.keep_alive || c->server->draining;
    if (!close && !q->body_done && (q->body_bad || (q->request.head.wants_continue && !q->sent_continue) ||
                                    q->body_left > DISCARD_MAX_BYTES))
        close = true;
    if (close)
        begin_linger(c);
    else if (!q->body_done)
        c->phase = CONN_DISCARD;
    else
        next_request(c);
}

void conn_refuse(struct http_conn *c, int status, const char *text)
{
    if (!c->state)
        c->state = server_state_take(c->server, c);
    if (!c->state) {
        c->phase = CONN_DEAD;
        return;
    }
    struct http_request *r = &c->state->request;
    c->phase = CONN_ACTIVE;
    c->state->close_after = true;
    c->state->body_done = true;
    if (status == 503 || status == 429)
        (void)http_reply_header(r, "Retry-After", "1");
    if (http_reply_error(r, status, text) < 0)
        c->aborted = true;
    conn_wake(c);
}

/* ---- phases; each returns whether another can run at once ---- */

static void start_request(struct http_conn *c, size_t head_size)
{
    static const char digits[] = "0123456789abcdef";
    struct http_request_state *q = c->state;
    struct http_server *s = c->server;
    uint64_t id = s->id_base + s->id_next++ * UINT64_C(0x9E3779B97F4A7C15);     /* odd: never the same twice */
    for (int i = 15; i >= 0; i--, id >>= 4)
        q->id[i] = digits[id & 15];
    q->id[16] = 0;
    q->start_us = loop_now_us();
    q->in_at = head_size;
    q->body_left = q->request.head.chunked ? 0 : q->request.head.length;
    q->body_done = !q->request.head.chunked && q->request.head.length <= 0;
    c->phase = CONN_ACTIVE;
    s->config.on_request(&q->request, s->config.owner);
}

static int grow_input(struct http_request_state *q)
{
    if (q->in_end < q->in_size)
        return 0;
    size_t size = q->in_size * 4 < IN_MAX_BYTES ? q->in_size * 4 : IN_MAX_BYTES;
    char *in = malloc(size);
    if (!in)
        return -ENOMEM;
    memcpy(in, q->in, q->in_end);
    if (q->in != q->in_first)
        free(q->in);
    q->in = in;
    q->in_size = size;
    return 0;
}

/* As recv(); a local client may pass descriptors with its head. Surplus ones are closed. */
static ssize_t receive_with_fds(struct http_conn *c, void *data, size_t size)
{
    struct http_request *r = &c->state->request;
    struct fdpass passed;
    ssize_t n = fdpass_receive(c->watch.fd, data, size, MSG_DONTWAIT, &passed);

    if (n < 0) {
        errno = (int)-n;
        return -1;
    }
    if (passed.n > 0)
        r->n_fds += (unsigned)fdpass_take(&passed, r->fds + r->n_fds, HTTP_FDS_MAX - r->n_fds);
    return n;
}

static bool receive_head(struct http_conn *c)
{
    struct http_request_state *q = c->state;
    if (!q && !(q = c->state = server_state_take(c->server, c))) {
        c->phase = CONN_DEAD;
        return true;
    }
    if (grow_input(q) < 0) {
        c->phase = CONN_DEAD;
        return true;
    }
    size_t room = q->in_size - q->in_end;
    ssize_t n = c->peer.family == AF_UNIX ? receive_with_fds(c, q->in + q->in_end, room)
                                          : recv(c->watch.fd, q->in + q->in_end, room, MSG_DONTWAIT);
    if (n < 0 && errno == EINTR)
        return true;
    if (n < 0 && errno == EAGAIN) {
        c->readable = false;
        if (q->in_end == 0) {
            server_state_give(c->server, q);
            c->state = NULL;
        }
        return false;
    }
    if (n <= 0) {
        c->phase = CONN_DEAD;
        return true;
    }
    if ((size_t)n < room)
        c->readable = false;
    q->in_end += (size_t)n;
    c->phase = CONN_HEAD;
    return true;
}

static bool run_head(struct http_conn *c)
{
    struct http_request_state *q = c->state;
    if (c->aborted || (c->server->draining && c->phase == CONN_IDLE)) {
        c->phase = CONN_DEAD;
        return true;
    }
    if (c->timed_out) {
        c->timed_out = false;
        if (c->phase == CONN_IDLE)
            c->phase = CONN_DEAD;
        else
            conn_refuse(c, 408, "the request head took too long");
        return true;
    }
    if (q && q->request.head.scanned < q->in_end) {
        ssize_t n = http_head_parse(&q->request.head, q->in, q->in_end);
        if (n > 0)
            start_request(c, (size_t)n);
        else if (n < 0)
            conn_refuse(c, http_fault_status(q->request.head.fault), http_fault_text(q->request.head.fault));
        if (n)
            return true;
    }
    return c->readable && receive_head(c);
}

/* The client is too slow. First the handler's request ends; then, if no answer has begun, the client gets 408. */
static bool run_timeout(struct http_conn *c)
{
    struct http_request_state *q = c->state;
    c->timed_out = false;
    if (c->wait == WAIT_BODY && !q->started) {
        q->status = 408;
        finish_request(c, HTTP_END_TIMEOUT);
        q->ended = false;       /* for our own answer */
        q->wants_body = q->wants_writable = false;
        conn_refuse(c, 408, "the request body came too slowly");
        return true;
    }
    conn_close(c, HTTP_END_TIMEOUT);
    return true;
}

static bool run_active(struct http_conn *c)
{
    struct http_request_state *q = c->state;
    struct http_request *r = &q->request;
    if (c->aborted || c->gone) {
        conn_close(c, c->aborted ? HTTP_END_ABORTED : HTTP_END_GONE);
        return true;
    }
    if (c->timed_out)
        return run_timeout(c);
    if (q->wants_body && c->readable) {
        q->wants_body = false;
        if (r->on_body)
            r->on_body(r);
    }
    int flushed = reply_flush(q);
    if (flushed == -EPIPE || flushed == -EIO) {
        conn_close(c, flushed == -EIO ? HTTP_END_ABORTED : HTTP_END_GONE);
        return true;
    }
    if (q->wants_writable && q->out_end - q->out_at < c->server->config.low_water_bytes && !q->finished) {
        q->wants_writable = false;
        if (r->on_writable)
            r->on_writable(r);
        loop_task_add(c->server->loop, &c->task);       /* what it wrote is sent next turn; others come first */
        return false;
    }
    if (c->aborted || c->gone)
        return true;
    if (q->finished && !state_has_output(q)) {
        request_done(c);
        return true;
    }
    return false;
}

/* Reads and discards. 1: at the end of input, 0: would block. */
static int read_away(struct http_conn *c)
{
    char scratch[SCRATCH_BYTES];
    for (int i = 0; i < 64; i++) {
        ssize_t n = recv(c->watch.fd, scratch, sizeof scratch, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
            return 1;
        if (n < 0)
            break;
    }
    c->readable = false;
    return 0;
}

static bool run_linger(struct http_conn *c)
{
    if (!c->timed_out && !c->aborted && (!c->readable || !read_away(c)))
        return false;
    c->phase = CONN_DEAD;
    return true;
}

static bool run_discard(struct http_conn *c)
{
    struct http_request_state *q = c->state;
    char scratch[SCRATCH_BYTES];
    if (c->timed_out || c->aborted || c->gone) {
        c->phase = CONN_DEAD;
        return true;
    }
    q->request.body_max_bytes = UINT64_MAX;
    ssize_t n = body_pull(q, scratch, sizeof scratch);
    if (n == -EAGAIN)
        return false;
    if (n > 0 && (q->discarded += (size_t)n) <= DISCARD_MAX_BYTES)
        return true;
    if (n == 0 && q->body_done)
        next_request(c);
    else
        begin_linger(c);
    return true;
}

/* ---- waiting ---- */

static void set_wait(struct http_conn *c, enum conn_wait wait)
{
    const struct http_server_config *config = &c->server->config;
    uint32_t ms = 0;
    if (c->wait == wait)
        return;
    c->wait = wait;
    switch (wait) {
    case WAIT_NOTHING: return;      /* the timer may fire without effect */
    case WAIT_IDLE:    ms = config->idle_ms; break;
    case WAIT_HEAD:    ms = config->head_ms; break;
    case WAIT_BODY:    ms = config->body_ms; c->state->window_bytes = 0; break;
    case WAIT_SEND:    ms = config->send_ms; break;
    case WAIT_LINGER:  ms = LINGER_MS; break;
    }
    loop_timer_set(c->server->loop, &c->timer, ms);
}

static void conn_arm(struct http_conn *c, uint32_t fired)
{
    struct http_request_state *q = c->state;
    uint32_t needed = EPOLLRDHUP;
    switch (c->phase) {
    case CONN_IDLE:
        needed |= EPOLLIN;
        set_wait(c, WAIT_IDLE);
        break;
    case CONN_HEAD:
        needed |= EPOLLIN;
        set_wait(c, WAIT_HEAD);
        break;
    case CONN_ACTIVE:
        if (q->wants_body)
            needed |= EPOLLIN;
        if (q->out_at < q->out_end)
            needed |= EPOLLOUT;
        if (q->progressed && c->wait == WAIT_SEND)
            c->wait = WAIT_NOTHING;
        q->progressed = false;
        if ((needed & EPOLLOUT) || (c->at_end && !q->request.may_half_close))
            set_wait(c, WAIT_SEND);
        else
            set_wait(c, q->wants_body && !q->request.no_body_deadline && !q->raw ? WAIT_BODY : WAIT_NOTHING);
        /* Raw and not reading now, in which case its next read finds out; or everything was read. */
        if (c->at_end || c->half_closed)
            needed &= ~(uint32_t)(EPOLLRDHUP | EPOLLIN);
        break;
    default:
        needed |= EPOLLIN;
        set_wait(c, WAIT_LINGER);
    }
    if (c->watch.watching && ((needed & ~c->watch.events) || (fired & c->watch.events & ~needed)))
        if (loop_fd_set(c->server->loop, &c->watch, needed) < 0) {
            c->aborted = true;
            conn_wake(c);
        }
}

static void conn_run(struct http_conn *c, uint32_t fired)
{
    bool again = true;
    c->running = true;
    if (c->state)
        c->state->turn_bytes = 0;
    while (again) {
        if (!c->state && (c->phase == CONN_ACTIVE || c->phase == CONN_DISCARD))
            c->phase = CONN_DEAD;       /* unreachable; for readers and for the analyzer */
        switch (c->phase) {
        case CONN_IDLE:
        case CONN_HEAD:    again = run_head(c); break;
        case CONN_ACTIVE:  again = run_active(c); break;
        case CONN_DISCARD: again = run_discard(c); break;
        case CONN_LINGER:  again = run_linger(c); break;
        case CONN_DEAD:    again = false; break;
        }
    }
    c->running = false;
    if (c->phase == CONN_DEAD)
        server_conn_free(c);
    else
        conn_arm(c, fired);
}

void conn_start(struct http_conn *c)
{
    conn_arm(c, 0);
}

void conn_on_task(struct loop_task *t)
{
    conn_run(container_of(t, struct http_conn, task), 0);
}

void conn_on_event(struct loop_fd *w, uint32_t events)
{
    struct http_conn *c = (struct http_conn *)w;        /* its first member */
    bool raw = c->phase == CONN_ACTIVE && c->state->raw;
    if (events & EPOLLIN)
        c->readable = true;
    if (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) {
        if (c->phase == CONN_ACTIVE && (!raw || (events & EPOLLERR) || (c->half_closed && (events & EPOLLHUP))))
            c->gone = true;
        c->readable = true;
        if (raw && !c->state->wants_body && !c->half_closed) {
            c->at_end = true;
            if (events & EPOLLHUP)      /* cannot be masked */
                loop_fd_remove(c->server->loop, w);
        }
    }
    conn_run(c, events);
}

void conn_on_timer(struct loop_timer *t)
{
    struct http_conn *c = container_of(t, struct http_conn, timer);
    if (c->wait == WAIT_NOTHING)
        return;
    if (c->wait == WAIT_BODY && c->state->window_bytes >= c->server->config.body_min_bytes) {
        c->wait = WAIT_NOTHING;         /* fast enough; the next window begins */
        conn_arm(c, 0);
        return;
    }
    c->timed_out = true;
    conn_run(c, 0);
}
