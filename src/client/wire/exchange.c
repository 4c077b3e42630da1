/* The server may answer before it has read the whole body, and then reads no more of it. So sending checks for an
 * answer whenever it would block, and stops if there is one: otherwise both sides would wait for each other. The
 * connection is never half-closed, because the server takes that for a client that went away. */
#define _GNU_SOURCE
#include "client/wire/exchange.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/fdpass.h"
#include "client/wire/heed.h"

enum { HEAD_OUT_MAX = 64 << 10 };

/* The result of poll, > 0; or -errno. After a signal the server has one more slice of time to answer. */
static int await(const struct exchange *x, short events)
{
    for (;;) {
        struct pollfd p = { .fd = x->fd, .events = events };
        int ready = poll(&p, 1, x->heeds_signals ? HEED_SLICE_MS : -1);
        if (ready > 0)
            return p.revents;
        if (ready < 0 && errno != EINTR)
            return -errno;
        if (x->heeds_signals && heed_pending())
            return -EINTR;
        if (x->heeds_signals && x->until_us && clock_monotonic_us() >= x->until_us)
            return -ETIMEDOUT;
    }
}

static int send_all(struct exchange *x, const char *data, size_t size)
{
    while (size > 0) {
        ssize_t n = send(x->fd, data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n > 0) {
            data += n;
            size -= (size_t)n;
            continue;
        }
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EAGAIN)
            return errno == ECONNRESET ? -EPIPE : -errno;
        int r = await(x, POLLIN | POLLOUT);
        if (r < 0)
            return r;
        if (r & POLLIN)
            return -EPIPE;
    }
    return 0;
}

int exchange_open(struct exchange *x, const struct server_address *s, const char *method, const char *target,
                  const char *fields, int64_t body_size, struct err *e)
{
    return exchange_open_with(x, s, method, target, fields, body_size, NULL, 0, e);
}

int exchange_open_with(struct exchange *x, const struct server_address *s, const char *method, const char *target,
                       const char *fields, int64_t body_size, const int *fds, size_t n_fds, struct err *e)
{
    struct buf head;
    bool is_v6 = !s->is_unix && strchr(s->address, ':');

    x->begin = x->end = 0;
    x->status = 0;
    x->over = false;
    x->chunks = (struct http_chunked){ 0 };
    x->sends_chunks = body_size == EXCHANGE_CHUNKED;
    x->heeds_signals = s->heeds_signals;
    x->until_us = s->until_us;
    x->fd = server_connect(s, e);
    if (x->fd < 0)
        return -e->code;
    buf_init(&head, HEAD_OUT_MAX);
    buf_printf(&head, "%s %s HTTP/1.1\r\n", method, target);
    if (s->is_unix)
        buf_add_text(&head, "Host: localhost\r\n");
    else
        buf_printf(&head, is_v6 ? "Host: [%s]:%s\r\n" : "Host: %s:%s\r\n", s->address, s->port);
    buf_add_text(&head, "User-Agent: carrel/" CARREL_VERSION "\r\n");
    if (s->token)
        buf_printf(&head, "Authorization: Bearer %s\r\n", s->token);
    if (body_size >= 0)
        buf_printf(&head, "Content-Length: %lld\r\n", (long long)body_size);
    else if (body_size == EXCHANGE_CHUNKED)
        buf_add_text(&head, "Transfer-Encoding: chunked\r\n");
    if (fields)
        buf_add_text(&head, fields);
    buf_add_text(&head, "\r\n");
    int r = buf_error(&head) == 0 && n_fds <= EXCHANGE_FDS ? 0 : -EFBIG;
    if (r == 0 && n_fds)
        r = (int)fdpass_send(x->fd, head.data, 1, fds, n_fds, 0);       /* the first byte carries the descriptors */
    if (r >= 0)
        r = send_all(x, head.data + (n_fds > 0), head.length - (n_fds > 0));
    buf_done(&head);
    if (r < 0 && r != -EPIPE) {
        exchange_close(x);
        return err_set(e, -r, STEP_USAGE, "cannot send a request to %s: %s", s->url, strerror(-r));
    }
    return 0;
}

void exchange_close(struct exchange *x)
{
    x->fd = fd_close(x->fd);
}

int exchange_send(struct exchange *x, const void *data, size_t size)
{
    char line[24];
    int r = 0;

    if (size == 0)
        return 0;
    if (x->sends_chunks) {
        int n = snprintf(line, sizeof line, "%zx\r\n", size);
        r = send_all(x, line, (size_t)n);
    }
    if (r == 0)
        r = send_all(x, data, size);
    return r == 0 && x->sends_chunks ? send_all(x, "\r\n", 2) : r;
}

int exchange_send_end(struct exchange *x)
{
    return x->sends_chunks ? send_all(x, "0\r\n\r\n", 5) : 0;
}

/* Reads more bytes into the buffer. > 0, 0 at the end, -errno. */
static ssize_t fill(struct exchange *x, bool wait)
{
    if (x->begin > 0) {
        memmove(x->data, x->data + x->begin, x->end - x->begin);
        x->end -= x->begin;
        x->begin = 0;
    }
    for (;;) {
        int r = wait && x->heeds_signals ? await(x, POLLIN) : 0;
        if (r < 0)
            return r;
        ssize_t n = recv(x->fd, x->data + x->end, sizeof x->data - x->end, wait ? 0 : MSG_DONTWAIT);
        if (n > 0)
            x->end += (size_t)n;
        if (n >= 0 || errno != EINTR)
            return n < 0 ? -errno : n;
    }
}

int exchange_answer(struct exchange *x, struct err *e)
{
    for (;;) {
        http_head_init(&x->head, true);
        ssize_t size;
        while ((size = http_head_parse(&x->head, x->data + x->begin, x->end - x->begin)) == 0) {
            ssize_t n = x->end - x->begin == sizeof x->data ? -EFBIG : fill(x, true);
            if (n <= 0)
                return err_set(e, n < 0 ? (int)-n : ECONNRESET, STEP_USAGE,
                               "the server closed the connection without an answer");
        }
        if (size < 0)
            return err_set(e, EBADMSG, STEP_USAGE, "the answer is not from a carrel server");
        x->begin += (size_t)size;
        if (x->head.status >= 200 || x->head.status == 101)
            break;
    }
    x->status = x->head.status;
    x->body = x->status == 101 ? HTTP_BODY_UNTIL_CLOSE : http_head_response_body(&x->head, false);
    x->left = x->body == HTTP_BODY_LENGTH ? (uint64_t)x->head.length : 0;
    x->over = x->body == HTTP_BODY_NONE || (x->body == HTTP_BODY_LENGTH && x->left == 0);
    return 0;
}

/* Takes bytes of the body from the buffer. 0: nothing yet. */
static ssize_t take(struct exchange *x, char *data, size_t size)
{
    size_t waiting = x->end - x->begin, put = 0, taken = 0;

    if (x->body == HTTP_BODY_CHUNKED) {
        int r = http_chunked_decode(&x->chunks, x->data + x->begin, waiting, data, size, &taken, &put);
        if (r < 0)
            return r;
        x->over = r == 1;
    } else {
        put = waiting < size ? waiting : size;
        if (x->body == HTTP_BODY_LENGTH && put > x->left)
            put = (size_t)x->left;
        memcpy(data, x->data + x->begin, put);
        taken = put;
        if (x->body == HTTP_BODY_LENGTH) {
            x->left -= put;
            x->over = x->left == 0;
        }
    }
    x->begin += taken;
    return (ssize_t)put;
}

ssize_t exchange_read(struct exchange *x, void *data, size_t size, bool wait)
{
    for (;;) {
        ssize_t n = x->over ? 0 : take(x, data, size);
        if (n != 0 || x->over)
            return n;
        n = fill(x, wait);
        if (n == 0 && x->body == HTTP_BODY_UNTIL_CLOSE)
            x->over = true;
        else if (n == 0)
            return -ECONNRESET;
        else if (n < 0)
            return n;
    }
}
