#define _GNU_SOURCE
#include "client/wire/envelope.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "base/fdpass.h"

int envelope_make(int fd, int *ret)
{
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    ssize_t r = fdpass_send(pair[0], "", 1, &fd, 1, 0);
    fd_close(pair[0]);
    *ret = r < 0 ? fd_close(pair[1]) : pair[1];
    return r < 0 ? (int)r : 0;
}
