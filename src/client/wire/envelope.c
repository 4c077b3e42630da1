#define _GNU_SOURCE
#include "client/wire/envelope.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "base/fd.h"

int envelope_make(int fd, int *ret)
{
    union {
        struct cmsghdr header;
        char           space[CMSG_SPACE(sizeof(int))];
    } control = { 0 };
    char byte = 0;
    struct iovec part = { .iov_base = &byte, .iov_len = 1 };
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control.space
    };
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &fd, sizeof fd);
    int r = sendmsg(pair[0], &message, MSG_NOSIGNAL) < 0 ? -errno : 0;
    fd_close(pair[0]);
    *ret = r < 0 ? fd_close(pair[1]) : pair[1];
    return r;
}
