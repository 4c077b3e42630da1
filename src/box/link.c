#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "box/payload.h"

enum { LINK_FDS = 32 };

int link_send(int link, const void *data, size_t size, const int *fds, size_t n_fds)
{
    union {
        struct cmsghdr header;
        char           space[CMSG_SPACE(LINK_FDS * sizeof(int))];
    } control = { 0 };
    struct iovec part = { .iov_base = (void *)(uintptr_t)data, .iov_len = size };
    struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };

    if (n_fds > LINK_FDS)
        return -EINVAL;
    if (n_fds > 0) {
        message.msg_control = &control;
        message.msg_controllen = (socklen_t)CMSG_SPACE(n_fds * sizeof(int));
        control.header.cmsg_level = SOL_SOCKET;
        control.header.cmsg_type = SCM_RIGHTS;
        control.header.cmsg_len = (socklen_t)CMSG_LEN(n_fds * sizeof(int));
        memcpy(CMSG_DATA(&control.header), fds, n_fds * sizeof(int));
    }
    for (;;) {
        if (sendmsg(link, &message, MSG_NOSIGNAL) >= 0)
            return 0;
        if (errno != EINTR)
            return -errno;
    }
}

static ssize_t receive(int link, struct msghdr *message, int flags)
{
    ssize_t n;

    /* A peer that ended without reading all is told as a reset, once, before what it said itself. */
    while ((n = recvmsg(link, message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT | flags)) < 0 &&
           (errno == EINTR || errno == ECONNRESET))
        ;
    return n < 0 ? -errno : n;
}

static ssize_t receive_any(int link, int flags, void *data, size_t size, int *ret_fds, size_t n_fds, size_t *ret_n)
{
    union {
        struct cmsghdr header;
        char           space[CMSG_SPACE(LINK_FDS * sizeof(int))];
    } control;
    struct iovec part = { .iov_base = data, .iov_len = size };
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control
    };

    *ret_n = 0;
    for (size_t i = 0; i < n_fds; i++)
        ret_fds[i] = -1;
    ssize_t n = receive(link, &message, flags);
    if (n == 0 && message.msg_controllen == 0) {
        /* The kernel looks for a message first and for the end afterwards. If the peer said its last word and ended in
         * between, the end is told before that word; told twice it is the end. (Nothing at all: the first was an empty
         * message.) */
        message.msg_controllen = sizeof control;
        n = receive(link, &message, flags);
        if (n == -EAGAIN)
            return 0;
    }
    if (n < 0)
        return n;

    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (header && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS) {
        size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        int fds[LINK_FDS];
        memcpy(fds, CMSG_DATA(header), count * sizeof(int));
        for (size_t i = 0; i < count; i++)
            if (*ret_n < n_fds)
                ret_fds[(*ret_n)++] = fds[i];
            else
                fd_close(fds[i]);
    }
    if (!(message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)))
        return n;
    while (*ret_n > 0) {
        --*ret_n;
        ret_fds[*ret_n] = fd_close(ret_fds[*ret_n]);
    }
    return -EPROTO;
}

ssize_t link_receive_any(int link, void *data, size_t size, int *ret_fds, size_t n_fds, size_t *ret_n)
{
    return receive_any(link, 0, data, size, ret_fds, n_fds, ret_n);
}

ssize_t link_peek_any(int link, void *data, size_t size, int *ret_fds, size_t n_fds, size_t *ret_n)
{
    return receive_any(link, MSG_PEEK, data, size, ret_fds, n_fds, ret_n);
}

/* Returns 1 with a message, 0 if nothing is there and !block, -EPIPE at the end, -EPROTO for a message of another size.
 */
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
