/* Request bodies are pulled. A body with a length is received straight into the handler's memory, never beyond its
 * end, so that pipelined bytes stay in the kernel; a chunked one goes through the input buffer, where bytes beyond
 * its end stay for the next request. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "http/conn.h"

#define TURN_MAX_BYTES (1u << 20)       /* of one connection in one turn of the loop */
#define COLLECT_FIRST  4096

static int wait_for_body(struct http_request_state *q)
{
    q->wants_body = true;
    q->request.conn->readable = false;
    conn_wake(q->request.conn);
    return -EAGAIN;
}

/* recv() with the common endings. Returns bytes, 0 at the end of the stream, or -EAGAIN, -EPIPE. */
static ssize_t receive(struct http_request_state *q, void *data, size_t size)
{
    struct http_conn *c = q->request.conn;
    if (q->turn_bytes >= TURN_MAX_BYTES) {      /* a fast sender must not keep the loop to itself */
        q->wants_body = true;
        c->readable = true;
        loop_task_add(c->server->loop, &c->task);
        return -EAGAIN;
    }
    ssize_t n;
    do
        n = recv(c->watch.fd, data, size, MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (n < 0 && errno == EAGAIN)
        return wait_for_body(q);
    if (n > 0) {
        q->turn_bytes += (size_t)n;
        return n;
    }
    /* A connection that epoll does not watch any more has hung up for good. */
    if (n == 0 && q->raw && q->request.may_half_close && c->watch.watching)
        c->half_closed = true;
    else
        c->gone = true;
    conn_wake(c);
    return n == 0 ? 0 : -EPIPE;
}

static ssize_t pull_buffered(struct http_request_state *q, void *data, size_t size)
{
    size_t n = q->in_end - q->in_at < size ? q->in_end - q->in_at : size;
    memcpy(data, q->in + q->in_at, n);
    q->in_at += n;
    return (ssize_t)n;
}

static ssize_t pull_raw(struct http_request_state *q, void *data, size_t size)
{
    return q->in_at < q->in_end ? pull_buffered(q, data, size) : receive(q, data, size);
}

static ssize_t pull_length(struct http_request_state *q, void *data, size_t size)
{
    if ((uint64_t)size > (uint64_t)q->body_left)
        size = (size_t)q->body_left;
    ssize_t n = pull_raw(q, data, size);
    if (n == 0)
        return -EPIPE;
    if (n > 0) {
        q->body_left -= n;
        q->body_done = q->body_left == 0;
    }
    return n;
}

/* The head must stay where it is while the request lives, so further input goes to another buffer. */
static int chunked_buffer(struct http_request_state *q)
{
    char *in = malloc(IN_MAX_BYTES);
    if (!in) {
        http_request_abort(&q->request);
        return -ENOMEM;
    }
    q->head_in = q->in;
    q->in = in;
    q->in_size = IN_MAX_BYTES;
    q->in_at = q->in_end = 0;
    return 0;
}

static ssize_t pull_chunked(struct http_request_state *q, void *data, size_t size)
{
    for (;;) {
        if (q->in_at == q->in_end) {
            if (!q->head_in && chunked_buffer(q) < 0)
                return -EPIPE;
            ssize_t n = receive(q, q->in, q->in_size);
            if (n <= 0)
                return n == 0 ? -EPIPE : n;
            q->in_at = 0;
            q->in_end = (size_t)n;
        }
        size_t taken, put;
        int r = http_chunked_decode(&q->chunked, q->in + q->in_at, q->in_end - q->in_at, data, size, &taken, &put);
        q->in_at += taken;
        if (r < 0) {
            q->body_bad = q->close_after = true;
            return -EBADMSG;
        }
        q->body_done = r == 1;
        if (put || r == 1)
            return (ssize_t)put;
    }
}

ssize_t body_pull(struct http_request_state *q, void *data, size_t size)
{
    struct http_request *r = &q->request;
    if (q->raw)
        return pull_raw(q, data, size);
    if (q->body_bad)
        return -EBADMSG;
    if (q->body_done)
        return 0;
    ssize_t n = r->head.chunked ? pull_chunked(q, data, size) : pull_length(q, data, size);
    if (n <= 0)
        return n;
    q->body_bytes += (uint64_t)n;
    q->window_bytes += (uint64_t)n;
    if (q->body_bytes > r->body_max_bytes) {
        q->close_after = true;
        return -EFBIG;
    }
    return n;
}

ssize_t http_body_read(struct http_request *r, void *data, size_t size)
{
    struct http_request_state *q = r->state;
    struct http_conn *c = r->conn;
    if (q->ended || c->gone || c->aborted)
        return -EPIPE;
    if (!q->raw && !q->body_done && r->head.length > 0 && (uint64_t)r->head.length > r->body_max_bytes) {
        q->close_after = true;      /* its length was announced as too large: nothing is read */
        return -EFBIG;
    }
    if (r->head.wants_continue && !q->sent_continue && !q->started && !q->body_done) {
        q->sent_continue = true;
        static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
        if (q->in_at == q->in_end) {        /* otherwise the client did not wait */
            /* It comes first in the buffer, so there is room. */
            memcpy(q->out + q->out_end, go_on, sizeof go_on - 1);
            q->out_end += sizeof go_on - 1;
            conn_wake(c);
        }
    }
    return body_pull(q, data, size);
}

/* ---- the whole body at once ---- */

static void collect_end(struct http_request *r, int status, const char *why)
{
    struct http_request_state *q = r->state;
    const struct http_collected b = { status, why, q->collected, q->collected_size };
    r->on_body = NULL;
    q->close_after |= status != 0;
    q->on_collected(r, &b, q->collect_arg);
}

static void collect_fail_memory(struct http_request *r, int why)
{
    collect_end(r, why == -EDQUOT ? 429 : 503, why == -EDQUOT ? SHARE_FULL : "out of memory");
}

static void collect_fail_size(struct http_request *r)
{
    const char *why = arena_printf(&r->arena, "the body may have %zu bytes here", r->state->collected_max);
    collect_end(r, 413, why ? why : "the body is too large");
}

static int collect_grow(struct http_request_state *q)
{
    int64_t length = q->request.head.length;
    size_t size = q->collected_room ? q->collected_room * 2 : length > 0 ? (size_t)length : COLLECT_FIRST;
    if (size > q->collected_max + 1)
        size = q->collected_max + 1;        /* one more byte shows that the body is too long */
    if (!share_move_bytes(&q->request.share, q->collected_room, size))
        return -EDQUOT;
    char *grown = realloc(q->collected, size + 1);
    if (!grown) {
        (void)share_move_bytes(&q->request.share, size, q->collected_room);
        return -ENOMEM;
    }
    q->collected = grown;
    q->collected_room = size;
    return 0;
}

static void collect(struct http_request *r)
{
    struct http_request_state *q = r->state;
    for (;;) {
        char probe;
        bool full = q->collected_size == q->collected_room && q->body_done;
        int grown = !full && q->collected_size == q->collected_room ? collect_grow(q) : 0;
        if (grown < 0) {
            collect_fail_memory(r, grown);
            return;
        }
        ssize_t n = full ? http_body_read(r, &probe, 1)
                         : http_body_read(r, q->collected + q->collected_size, q->collected_room - q->collected_size);
        if (n == -EAGAIN || n == -EPIPE)
            return;
        if (n == -EFBIG)
            collect_fail_size(r);
        else if (n < 0)
            collect_end(r, 400, http_fault_text(q->chunked.fault));
        if (n < 0)
            return;
        if (n == 0)
            break;
        q->collected_size += (size_t)n;
    }
    q->collected[q->collected_size] = 0;
    collect_end(r, 0, NULL);
}

void http_body_collect(struct http_request *r, size_t max_bytes, http_collect_handler *on_collected, void *arg)
{
    struct http_request_state *q = r->state;
    q->on_collected = on_collected;
    q->collect_arg = arg;
    q->collected_max = max_bytes;
    r->body_max_bytes = max_bytes;
    r->on_body = collect;
    if (r->head.length > 0 && (uint64_t)r->head.length > max_bytes) {
        collect_fail_size(r);       /* its length was announced: nothing is read */
        return;
    }
    int grown = collect_grow(q);
    if (grown < 0)
        collect_fail_memory(r, grown);
    else
        collect(r);
}

void http_body_drop(struct http_request *r)
{
    struct http_request_state *q = r->state;
    free(q->collected);
    q->collected = NULL;
    (void)share_move_bytes(&r->share, q->collected_room, 0);
    q->collected_room = q->collected_size = 0;
}
