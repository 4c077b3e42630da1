#define _GNU_SOURCE
#include "base/fdpass.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

#include "base/fd.h"

ssize_t fdpass_send(int socket, const void *data, size_t size, const int *fds, size_t n, int flags)
{
    union {
        struct cmsghdr header;
        char           space[CMSG_SPACE(FDPASS_MAX * sizeof(int))];
    } control;
    struct iovec part = { .iov_base = (void *)(uintptr_t)data, .iov_len = size };
    struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
    ssize_t sent;

    if (n > FDPASS_MAX)
        return -EINVAL;
    if (n > 0) {
        memset(&control, 0, sizeof control);
        message.msg_control = &control;
        message.msg_controllen = (socklen_t)CMSG_SPACE(n * sizeof(int));
        control.header.cmsg_level = SOL_SOCKET;
        control.header.cmsg_type = SCM_RIGHTS;
        control.header.cmsg_len = (socklen_t)CMSG_LEN(n * sizeof(int));
        memcpy(CMSG_DATA(&control.header), fds, n * sizeof(int));
    }
    while ((sent = sendmsg(socket, &message, MSG_NOSIGNAL | flags)) < 0 && errno == EINTR)
        ;
    return sent < 0 ? -errno : sent;
}

ssize_t fdpass_receive(int socket, void *data, size_t size, int flags, struct fdpass *ret)
{
    union {
        struct cmsghdr header;
        char           space[CMSG_SPACE(FDPASS_MAX * sizeof(int)) + CMSG_SPACE(sizeof(struct ucred))];
    } control;
    struct iovec part = { .iov_base = data, .iov_len = size };
    struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control };
    ssize_t n;

    do
        message.msg_controllen = sizeof control;
    while ((n = recvmsg(socket, &message, MSG_CMSG_CLOEXEC | flags)) < 0 && errno == EINTR);
    if (n < 0)
        return -errno;
    ret->n = 0;
    ret->sender = 0;
    ret->cut = message.msg_flags & (MSG_TRUNC | MSG_CTRUNC);
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
        if (c->cmsg_level != SOL_SOCKET)
            continue;
        if (c->cmsg_type == SCM_CREDENTIALS) {
            struct ucred who;
            memcpy(&who, CMSG_DATA(c), sizeof who);
            ret->sender = who.pid;
        } else if (c->cmsg_type == SCM_RIGHTS) {
            /* If no credentials came, their room may hold more descriptors. */
            size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
            for (size_t i = 0; i < count; i++) {
                int fd;
                memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
                if (ret->n < FDPASS_MAX) {
                    ret->fd[ret->n++] = fd;
                } else {
                    ret->cut = true;
                    fd_close(fd);
                }
            }
        }
    }
    return n;
}

size_t fdpass_take(struct fdpass *p, int *fds, size_t most)
{
    size_t taken = 0;

    for (size_t i = 0; i < p->n; i++)
        if (taken < most)
            fds[taken++] = p->fd[i];
        else
            fd_close(p->fd[i]);
    p->n = 0;
    return taken;
}
