/* Answers. Small pieces are gathered in the output buffer and sent when the handler returns to the loop; a large piece
 * is sent straight from the handler's memory, and only the part that the kernel does not take is copied. The buffer
 * holds at most the high-water mark and one piece more; beyond it the handler gets -EAGAIN. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/jsonout.h"
#include "http/conn.h"

#define DIRECT_BYTES    16384       /* from here on, sending beats copying */
#define PIECES_MAX      16
#define EXACT_BYTES     (1 << 20)   /* a larger buffer gets exactly the needed size */
#define KEPT_BYTES      65536       /* a larger one is freed once it is empty */

/* ---- the output buffer ---- */

static int out_reserve(struct http_request_state *q, size_t size)
{
    if (q->out_size - q->out_end >= size)
        return 0;
    size_t pending = q->out_end - q->out_at;
    if (q->out_at && q->out_size - pending >= size) {
        memmove(q->out, q->out + q->out_at, pending);
    } else {
        size_t room = q->out_size;
        while (room - pending < size && room < EXACT_BYTES)
            room *= 2;
        if (room - pending < size)
            room = pending + size + DIRECT_BYTES;
        /* Over the caller's budget the connection is cut, as if memory were short: part of the answer may be sent
         * already. */
        bool may = share_move_bytes(&q->request.share, q->out_size, room);
        char *grown = may ? malloc(room) : NULL;
        if (!grown) {
            if (may)
                (void)share_move_bytes(&q->request.share, room, q->out_size);
            http_request_abort(&q->request);
            return -ENOMEM;
        }
        memcpy(grown, q->out + q->out_at, pending);
        if (q->out != q->out_first)
            free(q->out);
        q->out = grown;
        q->out_size = room;
    }
    q->out_at = 0;
    q->out_end = pending;
    return 0;
}

static int out_put(struct http_request_state *q, const void *data, size_t size)
{
    int r = out_reserve(q, size);
    if (r == 0 && size) {
        memcpy(q->out + q->out_end, data, size);
        q->out_end += size;
    }
    return r;
}

static int out_text(struct http_request_state *q, const char *text)
{
    return out_put(q, text, strlen(text));
}

static int out_field(struct http_request_state *q, const char *name, const char *value)
{
    size_t name_size = strlen(name), value_size = strlen(value);
    int r = out_reserve(q, name_size + value_size + 4);
    if (r < 0)
        return r;
    char *at = q->out + q->out_end;
    memcpy(at, name, name_size);
    memcpy(at + name_size, ": ", 2);
    memcpy(at + name_size + 2, value, value_size);
    memcpy(at + name_size + 2 + value_size, "\r\n", 2);
    q->out_end += name_size + value_size + 4;
    return 0;
}

static ssize_t send_pieces(struct http_request_state *q, struct iovec *v, int n)
{
    struct msghdr message = { .msg_iov = v, .msg_iovlen = (size_t)n };
    ssize_t sent;
    do
        sent = sendmsg(q->request.conn->watch.fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (sent < 0 && errno == EINTR);
    if (sent < 0)
        return errno == EAGAIN ? -EAGAIN : -EPIPE;
    if (sent > 0)
        q->progressed = true;
    q->sent_bytes += (uint64_t)sent;
    return sent;
}

int reply_flush(struct http_request_state *q)
{
    if (q->out_at < q->out_end) {
        struct iovec v = { q->out + q->out_at, q->out_end - q->out_at };
        ssize_t sent = send_pieces(q, &v, 1);
        if (sent < 0)
            return (int)sent;
        q->out_at += (size_t)sent;
        if (q->out_at < q->out_end)
            return -EAGAIN;
        q->out_at = q->out_end = 0;
        /* Neither a WebSocket nor a stream that is quiet should keep a large buffer. */
        if (q->out != q->out_first && (q->raw || q->out_size > KEPT_BYTES)) {
            free(q->out);
            (void)share_move_bytes(&q->request.share, q->out_size, 0);
            q->out = q->out_first;
            q->out_size = sizeof q->out_first;
        }
    }
    return 0;
}

/* ---- heads ---- */

static bool may_act(const struct http_request *r)
{
    return !r->state->ended && !r->conn->gone && !r->conn->aborted;
}

int http_reply_header(struct http_request *r, const char *name, const char *value)
{
    struct http_request_state *q = r->state;
    struct http_text n = { name, strlen(name) }, v = { value, strlen(value) };
    if (q->started)
        return -EALREADY;
    if (!http_is_token(n) || !http_is_field_value(v))
        return -EINVAL;
    struct http_header *h = arena_alloc(&r->arena, sizeof *h);
    if (!h || !(h->name = arena_copy(&r->arena, n.data, n.size)) || !(h->value = arena_copy(&r->arena, v.data, v.size)))
        return -ENOMEM;
    h->next = NULL;
    *q->headers_end = h;
    q->headers_end = &h->next;
    return 0;
}

static int put_status(struct http_request_state *q, int status)
{
    char line[64];
    int size = snprintf(line, sizeof line, "HTTP/1.1 %d %s\r\n", status, http_status_text(status));
    int r = out_put(q, line, (size_t)size);
    if (r == 0)
        r = out_field(q, "Date", server_date(q->request.server));
    if (r == 0 && q->id[0])
        r = out_field(q, "X-Request-Id", q->id);
    for (struct http_header *h = q->headers; r == 0 && h; h = h->next)
        r = out_field(q, h->name, h->value);
    q->status = status;
    q->started = true;
    return r;
}

int http_reply_start(struct http_request *r, int status, int64_t size)
{
    struct http_request_state *q = r->state;
    if (!may_act(r))
        return -EPIPE;
    if (q->started)
        return -EALREADY;
    if (status < 200 || status > 599 || size < HTTP_CHUNKED)
        return -EINVAL;
    int result = put_status(q, status);
    bool bodiless = status == 204 || status == 304;
    q->swallow = bodiless || http_text_is(r->head.method, "HEAD");
    q->reply_left = size;
    if (result == 0 && !bodiless && size >= 0) {
        char number[24];
        snprintf(number, sizeof number, "%lld", (long long)size);
        result = out_field(q, "Content-Length", number);
    } else if (result == 0 && !bodiless && r->head.minor == 1) {
        q->reply_chunked = true;
        result = out_text(q, "Transfer-Encoding: chunked\r\n");
    } else if (!bodiless) {
        q->close_after = true;      /* HTTP/1.0: the end of the connection is the end of the body */
    }
    if (r->head.wants_continue && !q->sent_continue && !q->body_done)
        q->close_after = true;      /* the client may or may not send the body now */
    if (result == 0 && (q->close_after || !r->head.keep_alive || r->server->draining))
        result = out_text(q, "Connection: close\r\n");
    if (result == 0)
        result = out_text(q, "\r\n");
    conn_wake(r->conn);
    return result;
}

int http_reply_upgrade(struct http_request *r, const char *protocol)
{
    struct http_request_state *q = r->state;
    if (!may_act(r))
        return -EPIPE;
    if (q->started)
        return -EALREADY;
    if (!q->body_done || r->head.minor == 0 || !http_is_field_value((struct http_text){ protocol, strlen(protocol) }))
        return -EINVAL;
    int result = put_status(q, 101);
    if (result == 0)
        result = out_field(q, "Upgrade", protocol);
    if (result == 0)
        result = out_text(q, "Connection: Upgrade\r\n\r\n");
    q->raw = true;
    conn_wake(r->conn);
    return result;
}

/* ---- bodies ---- */

size_t http_reply_room(struct http_request *r)
{
    struct http_request_state *q = r->state;
    size_t pending = q->out_end - q->out_at, high = r->server->config.high_water_bytes;
    if (!may_act(r))
        return 0;
    if (pending >= high)
        q->wants_writable = true;
    return pending < high ? high - pending : 0;
}

size_t http_reply_pending(const struct http_request *r)
{
    return r->state->out_end - r->state->out_at;
}

/* Sends the pieces after the pending bytes; copies what the kernel does not take. */
static int put_pieces(struct http_request_state *q, const struct iovec *v, int n, size_t size)
{
    size_t skip = 0;
    if (size >= DIRECT_BYTES) {
        struct iovec all[PIECES_MAX + 3];
        size_t pending = q->out_end - q->out_at;
        all[0] = (struct iovec){ q->out + q->out_at, pending };
        memcpy(all + 1, v, (size_t)n * sizeof *v);
        ssize_t sent = send_pieces(q, all, n + 1);
        if (sent == -EPIPE) {
            q->request.conn->gone = true;
            return -EPIPE;
        }
        skip = sent > 0 ? (size_t)sent : 0;
        size_t of_pending = skip < pending ? skip : pending;
        q->out_at += of_pending;
        skip -= of_pending;
        if (q->out_at == q->out_end)
            q->out_at = q->out_end = 0;
    }
    int r = 0;
    for (int i = 0; r == 0 && i < n; i++) {
        size_t done = skip < v[i].iov_len ? skip : v[i].iov_len;
        skip -= done;
        r = out_put(q, (const char *)v[i].iov_base + done, v[i].iov_len - done);
    }
    return r;
}

int http_reply_writev(struct http_request *r, const struct iovec *v, int n)
{
    struct http_request_state *q = r->state;
    if (!may_act(r))
        return -EPIPE;
    if ((!q->started) || q->finished || n < 0 || n > PIECES_MAX)
        return -EINVAL;
    size_t size = 0;
    for (int i = 0; i < n; i++)
        size += v[i].iov_len;
    if (size == 0)
        return 0;           /* an empty chunk would end the body */
    if (http_reply_room(r) == 0)
        return -EAGAIN;
    if (!q->raw && q->reply_left >= 0) {
        if (size > (uint64_t)q->reply_left)
            return -EMSGSIZE;
        q->reply_left -= (int64_t)size;
    }
    if (q->swallow)
        return 0;
    struct iovec framed[PIECES_MAX + 2];
    char chunk[20];
    int pieces = 0;
    if (q->reply_chunked)
        framed[pieces++] = (struct iovec){ chunk, (size_t)snprintf(chunk, sizeof chunk, "%zx\r\n", size) };
    memcpy(framed + pieces, v, (size_t)n * sizeof *v);
    pieces += n;
    if (q->reply_chunked)
        framed[pieces++] = (struct iovec){ (void *)(uintptr_t)"\r\n", 2 };
    int result = put_pieces(q, framed, pieces, size);
    conn_wake(r->conn);
    return result;
}

int http_reply_write(struct http_request *r, const void *data, size_t size)
{
    struct iovec v = { (void *)(uintptr_t)data, size };
    return http_reply_writev(r, &v, 1);
}

void http_reply_finish(struct http_request *r)
{
    struct http_request_state *q = r->state;
    if (!may_act(r) || q->finished)
        return;
    if (!q->started || (!q->raw && !q->swallow && q->reply_left > 0)) {
        http_request_abort(r);
        return;
    }
    if (q->reply_chunked && !q->swallow && out_text(q, "0\r\n\r\n") < 0)
        return;
    q->finished = true;
    conn_wake(r->conn);
}

void http_request_abort(struct http_request *r)
{
    r->conn->aborted = true;
    conn_wake(r->conn);
}

/* ---- whole answers ---- */

int http_reply(struct http_request *r, int status, const char *type, const void *data, size_t size)
{
    int result = type ? http_reply_header(r, "Content-Type", type) : 0;
    if (result == 0)
        result = http_reply_start(r, status, (int64_t)size);
    if (result == 0 && !r->state->swallow && size) {
        struct iovec v = { (void *)(uintptr_t)data, size };
        r->state->reply_left = 0;
        result = put_pieces(r->state, &v, 1, size);
    }
    if (result == 0)
        http_reply_finish(r);
    return result;
}

int http_reply_text(struct http_request *r, int status, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    int size = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (size < 0)
        return -EINVAL;
    size_t length = (size_t)size < sizeof text ? (size_t)size : sizeof text - 1;
    return http_reply(r, status, "text/plain; charset=utf-8", text, length);
}

static const char *code_of(int status)
{
    switch (status) {
    case 400: return "invalid";
    case 404: return "not_found";
    case 405: return "method_not_allowed";
    case 408: return "timeout";
    case 413: case 414: case 431: return "too_large";
    case 417: case 501: case 505: return "not_implemented";
    case 426: return "upgrade_required";
    case 429: return "too_many";
    case 502: return "bad_gateway";
    case 503: return "unavailable";
    case 504: return "timeout";
    default:  return status < 500 ? "invalid" : "internal";
    }
}

int http_reply_error(struct http_request *r, int status, const char *text)
{
    char storage[1024];
    struct buf out;
    struct jsonout j;

    buf_init_fixed(&out, storage, sizeof storage);
    jsonout_init(&j, &out);
    jsonout_open_object(&j, NULL);
    jsonout_open_object(&j, "error");
    jsonout_string(&j, "code", code_of(status));
    jsonout_string(&j, "message", text);
    jsonout_open_object(&j, "details");
    jsonout_close(&j);
    jsonout_close(&j);
    jsonout_close(&j);
    int result = jsonout_finish(&j);
    return result < 0 ? result : http_reply(r, status, "application/json", out.data, out.length);
}
