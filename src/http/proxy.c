/* CONNECTING ─ fd → HEAD ─ answer's head → BODY ─ its end → OVER
 *                             └─ 101 → TUNNEL ──────────────┘
 *
 * run() moves bytes up (head, then the client's body) and down (the answer). Both directions read to the stack and send
 * at once; bytes that the other side does not take are kept, and that direction reads nothing more until they are sent.
 * So TCP slows a fast server behind a slow client, and the other way round. One upstream connection serves one request.
 * proxy_head.c makes the two heads. */
#include "http/proxy.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/list.h"
#include "http/proxy_private.h"

#define PIECE_BYTES 65536
#define TURN_PIECES 16
#define IN_FIRST    4096

static void proxy_over(struct http_proxy *p)
{
    p->phase = PROXY_OVER;
    loop_timer_cancel(p->request->loop, &p->timer);
    loop_fd_remove(p->request->loop, &p->up);
    p->fd = fd_close(p->fd);
}

static void fail(struct http_proxy *p, int status, const char *text)
{
    bool too_late = p->phase >= PROXY_BODY;
    proxy_over(p);
    if (too_late || http_reply_error(p->request, status, text) < 0)
        http_request_abort(p->request);
}

/* ---- up: head and body of the request ---- */

/* Sends, and keeps the unsent rest. 0, or -errno of a broken connection. */
static int send_up(struct http_proxy *p, const char *data, size_t size)
{
    ssize_t n = send(p->fd, data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno != EAGAIN && errno != EINTR)
        return -errno;
    size_t sent = n > 0 ? (size_t)n : 0;
    if (sent == size)
        return 0;
    p->rest = malloc(size - sent);
    if (!p->rest)
        return -ENOMEM;
    memcpy(p->rest, data + sent, size - sent);
    p->rest_at = 0;
    p->rest_size = size - sent;
    return 0;
}

static int send_rest(struct http_proxy *p)
{
    ssize_t n = send(p->fd, p->rest + p->rest_at, p->rest_size - p->rest_at, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno != EAGAIN && errno != EINTR)
        return -errno;
    p->rest_at += n > 0 ? (size_t)n : 0;
    if (p->rest_at == p->rest_size) {
        free(p->rest);
        p->rest = NULL;
    }
    return 0;
}

/* One piece of the client's body. Returns 1 if there may be more at once, 0 if not, -errno of the upstream
 * connection. */
static int pump_piece_up(struct http_proxy *p)
{
    char piece[PIECE_BYTES + 16];
    char *data = piece + 12;
    ssize_t n = http_body_read(p->request, data, PIECE_BYTES);
    if (n == -EAGAIN || n == -EPIPE)
        return 0;
    if (n < 0) {
        fail(p, n == -EFBIG ? 413 : 400, n == -EFBIG ? "the request body is too large" : "malformed request body");
        return 0;
    }
    size_t size = (size_t)n;
    if (n == 0) {
        p->sent_all = true;
        if (p->phase == PROXY_TUNNEL || !p->request->head.chunked)
            return 0;
        return send_up(p, "0\r\n\r\n", 5);
    }
    if (p->request->head.chunked && p->phase != PROXY_TUNNEL) {
        static const char digits[] = "0123456789abcdef";
        memcpy(data + size, "\r\n", 2);
        *--data = '\n';
        *--data = '\r';
        for (size_t left = size; left; left >>= 4)
            *--data = digits[left & 15];
        size = (size_t)(piece + 12 + size + 2 - data);
    }
    int r = send_up(p, data, size);
    return r < 0 ? r : 1;
}

static void pump_up(struct http_proxy *p)
{
    int r = 1;
    if (p->rest)
        r = send_rest(p) < 0 ? -EPIPE : 1;
    for (int i = 0; r > 0 && !p->rest && !p->sent_all && p->phase != PROXY_OVER; i++) {
        if (i == TURN_PIECES) {
            loop_task_add(p->request->loop, &p->task);
            break;
        }
        r = pump_piece_up(p);
    }
    if (r < 0) {        /* it may have answered before it closed: the answer decides */
        p->sent_all = true;
        free(p->rest);
        p->rest = NULL;
    }
}

/* ---- down: the answer ---- */

static ssize_t receive(struct http_proxy *p, void *data, size_t size)
{
    ssize_t n;
    do
        n = recv(p->fd, data, size, MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : n;
}

static int grow_in(struct http_proxy *p)
{
    if (p->in_end < p->in_size)
        return 0;
    size_t size = p->in_size ? p->in_size * 4 : IN_FIRST;
    char *grown = realloc(p->in, size);     /* the parser refuses a head before this grows far */
    if (!grown)
        return -ENOMEM;
    p->in = grown;
    p->in_size = size;
    return 0;
}

/* Called with a whole head of head_size bytes in p->in. */
static void take_head(struct http_proxy *p, size_t head_size)
{
    int status = p->head.status;
    if (status < 200 && status != 101) {        /* 100, 103: not passed on */
        memmove(p->in, p->in + head_size, p->in_end - head_size);
        p->in_end -= head_size;
        http_head_init(&p->head, true);
        return;
    }
    p->in_at = head_size;
    loop_timer_cancel(p->request->loop, &p->timer);
    if (status == 101) {
        struct http_text protocol = http_head_get(&p->head, "Upgrade");
        if (!p->upgrading || !protocol.size) {
            fail(p, 502, "the server behind switched protocols unasked");
            return;
        }
        if (proxy_head_down(p) < 0) {
            fail(p, 502, "cannot hand the answer on");
            return;
        }
        p->phase = PROXY_TUNNEL;
        p->sent_all = false;
        p->kind = HTTP_BODY_UNTIL_CLOSE;
        p->request->no_body_deadline = true;
        return;
    }
    p->kind = http_head_response_body(&p->head, http_text_is(p->request->head.method, "HEAD"));
    p->left = p->kind == HTTP_BODY_LENGTH ? p->head.length : 0;
    if (proxy_head_down(p) < 0) {
        fail(p, 502, "cannot hand the answer on");
        return;
    }
    p->phase = PROXY_BODY;
}

/* Returns 1 to go on, 0 to wait. */
static int pump_head_down(struct http_proxy *p)
{
    if (p->in_end > p->head.scanned || p->in_end == 0) {
        ssize_t size = p->in_end ? http_head_parse(&p->head, p->in, p->in_end) : 0;
        if (size < 0) {
            fail(p, 502, "the server behind gave a malformed answer");
            return 0;
        }
        if (size > 0) {
            take_head(p, (size_t)size);
            return 1;
        }
    }
    if (grow_in(p) < 0) {
        fail(p, 503, "out of memory");
        return 0;
    }
    ssize_t n = receive(p, p->in + p->in_end, p->in_size - p->in_end);
    if (n == -EAGAIN)
        return 0;
    if (n <= 0) {
        fail(p, 502, n == -ECONNREFUSED ? "nothing listens there" : "the server behind closed without an answer");
        return 0;
    }
    p->in_end += (size_t)n;
    return 1;
}

static void finish_down(struct http_proxy *p)
{
    proxy_over(p);
    http_reply_finish(p->request);
}

/* Passes on n bytes of the answer, as far as they belong to it. */
static void hand_down(struct http_proxy *p, char *data, size_t n)
{
    bool at_end = false;
    if (p->kind == HTTP_BODY_LENGTH) {
        if ((uint64_t)n > (uint64_t)p->left)
            n = (size_t)p->left;        /* the rest answers nothing that we sent */
        p->left -= (int64_t)n;
        at_end = p->left == 0;
    } else if (p->kind == HTTP_BODY_CHUNKED) {
        size_t taken, put;              /* decoding in place only ever moves bytes towards the front */
        int r = http_chunked_decode(&p->chunked, data, n, data, n, &taken, &put);
        if (r < 0) {
            fail(p, 502, "malformed answer");
            return;
        }
        n = put;
        at_end = r == 1;
    }
    if (n && http_reply_write(p->request, data, n) < 0) {
        fail(p, 502, "cannot hand the answer on");
        return;
    }
    if (at_end)
        finish_down(p);
}

/* Returns 1 to go on, 0 to wait. */
static int pump_body_down(struct http_proxy *p)
{
    if (p->kind == HTTP_BODY_NONE || (p->kind == HTTP_BODY_LENGTH && p->left == 0)) {
        finish_down(p);
        return 0;
    }
    if (http_reply_room(p->request) == 0) {
        p->held_back = true;            /* on_writable() will come */
        return 0;
    }
    if (p->in) {
        if (p->in_at < p->in_end)
            hand_down(p, p->in + p->in_at, p->in_end - p->in_at);
        free(p->in);
        p->in = NULL;
        return 1;
    }
    char piece[PIECE_BYTES];
    ssize_t n = receive(p, piece, sizeof piece);
    if (n == -EAGAIN)
        return 0;
    if (n > 0) {
        hand_down(p, piece, (size_t)n);
        return 1;
    }
    if (n == 0 && p->kind == HTTP_BODY_UNTIL_CLOSE)
        finish_down(p);
    else
        fail(p, 502, "the server behind broke off");
    return 0;
}

static void pump_down(struct http_proxy *p)
{
    int r = 1;
    p->held_back = false;
    for (int i = 0; r > 0; i++) {
        if (p->phase == PROXY_OVER)
            return;
        if (i == TURN_PIECES) {
            loop_task_add(p->request->loop, &p->task);
            return;
        }
        r = p->phase == PROXY_HEAD ? pump_head_down(p) : pump_body_down(p);
    }
}

/* ---- events ---- */

static void run(struct http_proxy *p)
{
    if (p->phase == PROXY_CONNECTING || p->phase == PROXY_OVER)
        return;
    bool was_sending = !p->sent_all || p->rest;
    pump_up(p);
    if (p->phase != PROXY_OVER)
        pump_down(p);
    if (p->phase == PROXY_TUNNEL && p->sent_all == false && !p->rest)
        pump_up(p);                     /* bytes that came with the upgrade */
    if (p->phase == PROXY_OVER)
        return;
    if (p->phase == PROXY_HEAD && was_sending)
        loop_timer_set(p->request->loop, &p->timer, p->reply_ms);
    uint32_t needed = (p->held_back ? 0 : EPOLLIN) | (p->rest ? EPOLLOUT : 0);
    if (p->up.watching && loop_fd_set(p->request->loop, &p->up, needed) < 0)
        fail(p, 502, "cannot watch the server behind");
}

static void on_up_event(struct loop_fd *w, uint32_t events)
{
    struct http_proxy *p = container_of(w, struct http_proxy, up);
    if ((events & (EPOLLHUP | EPOLLERR)) && p->held_back)
        loop_fd_remove(p->request->loop, w);    /* cannot be masked; the rest is read when there is room */
    run(p);
}

static void on_task(struct loop_task *t)
{
    run(container_of(t, struct http_proxy, task));
}

static void on_timer(struct loop_timer *t)
{
    struct http_proxy *p = container_of(t, struct http_proxy, timer);
    bool connecting = p->phase == PROXY_CONNECTING;
    if (connecting && p->config.cancel)
        p->config.cancel(p, p->config.owner);
    fail(p, 504, connecting ? "the server behind could not be reached in time"
                            : "the server behind did not answer in time");
}

static void on_request_event(struct http_request *r)
{
    run(r->owner);
}

static void on_end(struct http_request *r, enum http_end how)
{
    struct http_proxy *p = r->owner;
    if (p->phase == PROXY_CONNECTING) {
        if (p->config.cancel)
            p->config.cancel(p, p->config.owner);
    }
    proxy_over(p);
    loop_task_cancel(r->loop, &p->task);
    if (p->config.on_end)
        p->config.on_end(r, how, p->config.owner);
    free(p->rest);
    free(p->in);
    free(p);
}

int http_proxy_start(struct http_request *r, const struct http_proxy_config *config)
{
    struct http_proxy *p = calloc(1, sizeof *p);
    if (!p)
        return -ENOMEM;
    p->request = r;
    p->config = *config;
    p->fd = -1;
    p->reply_ms = config->reply_ms ? config->reply_ms : 300000;
    p->timer.on_expire = on_timer;
    p->task.on_run = on_task;
    p->up.on_event = on_up_event;
    http_head_init(&p->head, true);
    int result = proxy_head_up(p);
    if (result < 0) {
        free(p->rest);
        free(p);
        return result;
    }
    r->owner = p;
    r->on_body = r->on_writable = on_request_event;
    r->on_end = on_end;
    loop_timer_set(r->loop, &p->timer, config->connect_ms ? config->connect_ms : 10000);
    config->connect(p, config->owner);
    return 0;
}

void http_proxy_connected(struct http_proxy *p, int fd)
{
    p->fd = fd;
    p->phase = PROXY_HEAD;
    if (loop_fd_add(p->request->loop, &p->up, fd, EPOLLIN) < 0) {
        fail(p, 502, "cannot watch the server behind");
        return;
    }
    loop_timer_set(p->request->loop, &p->timer, p->reply_ms);
    run(p);
}

void http_proxy_failed(struct http_proxy *p, int status, const char *text)
{
    fail(p, status, text);
}
