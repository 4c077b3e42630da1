#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "base/fdpass.h"
#include "box/payload.h"

int link_send(int link, const void *data, size_t size, const int *fds, size_t n_fds)
{
    ssize_t n = fdpass_send(link, data, size, fds, n_fds, 0);
    return n < 0 ? (int)n : 0;
}

static ssize_t receive(int link, int flags, void *data, size_t size, struct fdpass *ret)
{
    ssize_t n;

    /* If a peer ended without reading everything, the kernel reports a reset, once, before the peer's own messages. */
    while ((n = fdpass_receive(link, data, size, MSG_DONTWAIT | flags, ret)) == -ECONNRESET)
        ;
    return n;
}

static ssize_t receive_message(int link, int flags, void *data, size_t size, struct fdpass *ret)
{
    ssize_t n = receive(link, flags, data, size, ret);

    if (n == 0 && ret->n == 0) {
        /* The kernel checks for a message first and for the end afterwards. If the peer sent its last message and ended
         * in between, the end is reported before that message; reported twice it is the end. (Nothing at all: the first
         * was an empty message.) */
        n = receive(link, flags, data, size, ret);
        if (n == -EAGAIN)
            return 0;
    }
    return n;
}

ssize_t link_receive_message(int link, void *data, size_t size, struct fdpass *ret)
{
    return receive_message(link, 0, data, size, ret);
}

static ssize_t receive_any(int link, int flags, void *data, size_t size, int *ret_fds, size_t n_fds, size_t *ret_n)
{
    struct fdpass passed = { 0 };

    for (size_t i = 0; i < n_fds; i++)
        ret_fds[i] = -1;
    ssize_t n = receive_message(link, flags, data, size, &passed);
    bool good = n >= 0 && !passed.cut;
    *ret_n = fdpass_take(&passed, ret_fds, good ? n_fds : 0);
    return n < 0 ? n : good ? n : -EPROTO;
}

ssize_t link_receive_any(int link, void *data, size_t size, int *ret_fds, size_t n_fds, size_t *ret_n)
{
    return receive_any(link, 0, data, size, ret_fds, n_fds, ret_n);
}

ssize_t link_peek_any(int link, void *data, size_t size, int *ret_fds, size_t n_fds, size_t *ret_n)
{
    return receive_any(link, MSG_PEEK, data, size, ret_fds, n_fds, ret_n);
}

/* Returns 1 with a message, 0 if there is none and !block, -EPIPE at the end, -EPROTO for a message of another size. */
int link_receive(int link, void *data, size_t size, int *ret_fds, size_t n_fds, bool block)
{
    struct pollfd ready = { .fd = link, .events = POLLIN };
    size_t got;
    ssize_t n;

    do {
        while (block && poll(&ready, 1, -1) < 0 && errno == EINTR)
            ;
        n = link_receive_any(link, data, size, ret_fds, n_fds, &got);
    } while (n == -EAGAIN && block);
    if (n == (ssize_t)size)
        return 1;
    while (got > 0) {
        --got;
        ret_fds[got] = fd_close(ret_fds[got]);
    }
    return n == -EAGAIN ? 0 : n == 0 ? -EPIPE : n < 0 ? (int)n : -EPROTO;
}
