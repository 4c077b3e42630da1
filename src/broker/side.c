/* Level-triggered: a side is armed for reading only while there is room, for writing only while bytes wait or TLS wants
 * it. */
#include "broker/side.h"

#include <errno.h>
#include <openssl/err.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/fd.h"

int side_open(struct side *s, struct loop *l, int fd, SSL *tls)
{
    s->tls = tls;
    s->in = NULL;
    s->in_at = s->in_end = s->out_at = 0;
    s->is_open = s->has_ended = s->is_deaf = s->is_cut = s->has_hung_up = false;
    s->wants = 0;
    buf_init(&s->out, SIDE_OUT_BYTES);
    int r = !tls || SSL_set_fd(tls, fd) != 1 ? -ENOMEM : loop_fd_add(l, &s->watch, fd, EPOLLIN | EPOLLOUT);
    s->watch.fd = fd;
    if (r < 0)
        side_close(s, l);
    return r;
}

void side_close(struct side *s, struct loop *l)
{
    loop_fd_remove(l, &s->watch);
    SSL_free(s->tls);
    s->tls = NULL;
    s->watch.fd = fd_close(s->watch.fd);
    if (s->in)
        explicit_bzero(s->in, SIDE_IN_BYTES);
    free(s->in);
    s->in = NULL;
    s->in_at = s->in_end = s->out_at = 0;
    if (s->out.data)
        explicit_bzero(s->out.data, s->out.capacity);
    buf_done(&s->out);
    buf_init(&s->out, SIDE_OUT_BYTES);
    s->has_ended = s->is_deaf = true;
}

/* What TLS waits for; false: it is broken or has ended. */
static bool note_wants(struct side *s, int result)
{
    switch (SSL_get_error(s->tls, result)) {
    case SSL_ERROR_WANT_READ:
        s->wants |= EPOLLIN;
        return true;
    case SSL_ERROR_WANT_WRITE:
        s->wants |= EPOLLOUT;
        return true;
    default:
        return false;
    }
}

bool side_shake_hands(struct side *s)
{
    if (!s->tls || s->is_open || s->has_ended)
        return false;
    s->wants = 0;
    ERR_clear_error();
    int r = SSL_do_handshake(s->tls);
    if (r == 1) {
        s->is_open = true;
        return true;
    }
    if (note_wants(s, r))
        return false;
    s->has_ended = s->is_deaf = true;
    return true;
}

bool side_flush(struct side *s)
{
    bool has_moved = false;

    while (s->is_open && !s->is_deaf && side_waiting(s) > 0) {
        ERR_clear_error();
        size_t n = 0;
        int r = SSL_write_ex(s->tls, s->out.data + s->out_at, side_waiting(s), &n);
        if (r != 1) {
            s->is_deaf = !note_wants(s, r);
            has_moved |= s->is_deaf;
            break;
        }
        s->out_at += n;
        has_moved = true;
    }
    if (s->is_deaf || side_waiting(s) == 0) {
        s->out_at = 0;
        buf_clear(&s->out);
    } else if (s->out_at >= SIDE_OUT_FULL) {
        memmove(s->out.data, s->out.data + s->out_at, side_waiting(s));
        s->out.length -= s->out_at;
        s->out_at = 0;
    }
    return has_moved;
}

static bool make_room(struct side *s)
{
    if (!s->in && !(s->in = malloc(SIDE_IN_BYTES)))
        return false;
    if (s->in_at > 0) {
        memmove(s->in, s->in + s->in_at, side_has(s));
        s->in_end -= s->in_at;
        s->in_at = 0;
    }
    return s->in_end < SIDE_IN_BYTES;
}

bool side_fill(struct side *s)
{
    bool has_moved = false;

    while (s->is_open && !s->has_ended && make_room(s)) {
        ERR_clear_error();
        size_t n = 0;
        int r = SSL_read_ex(s->tls, s->in + s->in_end, SIDE_IN_BYTES - s->in_end, &n);
        if (r != 1) {
            if (note_wants(s, r))
                break;
            s->has_ended = has_moved = true;
            s->is_cut = SSL_get_error(s->tls, r) != SSL_ERROR_ZERO_RETURN;
            break;
        }
        s->in_end += n;
        has_moved = true;
    }
    return has_moved;
}

void side_finish(struct side *s)
{
    if (!s->tls)
        return;
    ERR_clear_error();
    if (s->is_open && !s->is_deaf)
        (void)SSL_shutdown(s->tls);
    (void)shutdown(s->watch.fd, SHUT_WR);
    s->is_deaf = true;
}

void side_take(struct side *s, size_t n)
{
    s->in_at += n;
    if (s->in_at == s->in_end)
        s->in_at = s->in_end = 0;
}

void side_rest(struct side *s)
{
    if (s->in && side_has(s) == 0) {
        explicit_bzero(s->in, SIDE_IN_BYTES);
        free(s->in);
        s->in = NULL;
    }
    if (s->out.data && side_waiting(s) == 0) {
        explicit_bzero(s->out.data, s->out.capacity);
        buf_done(&s->out);
        buf_init(&s->out, SIDE_OUT_BYTES);
    }
}

void side_rearm(struct side *s, struct loop *l)
{
    uint32_t events = 0;

    if (!s->tls)
        return;
    if (!s->is_open && !s->has_ended)
        events = s->wants;
    if (s->is_open && !s->has_ended && side_has(s) < SIDE_IN_BYTES)
        events |= EPOLLIN;
    if (s->is_open && !s->is_deaf && side_waiting(s) > 0)
        events |= EPOLLOUT;
    s->wants = 0;
    /* A hung-up socket fires again and again. Only a lack of memory fails here; the timer ends such a connection. */
    if (events == 0 && s->has_hung_up)
        loop_fd_remove(l, &s->watch);
    else if (!s->watch.watching)
        (void)!loop_fd_add(l, &s->watch, s->watch.fd, events);
    else
        (void)!loop_fd_set(l, &s->watch, events);
}
