#define _GNU_SOURCE
#include "server/listen.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fd.h"

enum { BACKLOG = 1024 };

static int listen_at_path(const char *path, int type, mode_t mode, int *ret, struct err *e)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    struct stat there;

    if (strlen(path) >= sizeof address.sun_path)
        return err_set(e, ENAMETOOLONG, STEP_USAGE, "--socket %s", path);
    memcpy(address.sun_path, path, strlen(path));
    /* Packets go between processes of one server, whose state we have locked: another listener there is a child of an
     * earlier server that has not ended yet. */
    FD probe = type == SOCK_SEQPACKET ? -1 : socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
    if (probe >= 0 && connect(probe, (struct sockaddr *)&address, sizeof address) == 0)
        return err_set(e, EADDRINUSE, STEP_HOST, "a server is running at %s already", path);
    FD fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (lstat(path, &there) == 0 && !S_ISSOCK(there.st_mode))
        return err_set(e, EEXIST, STEP_USAGE, "%s is there already, and is no socket", path);
    (void)unlink(path);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) < 0 ||
        chmod(path, mode) < 0 || listen(fd, BACKLOG) < 0)
        return err_set(e, errno, STEP_HOST, "listening at %s", path);
    *ret = TAKE_FD(fd);
    return 0;
}

int listen_unix(const char *path, mode_t mode, int *ret, struct err *e)
{
    return listen_at_path(path, SOCK_STREAM, mode, ret, e);
}

int listen_packets(const char *path, int *ret, struct err *e)
{
    return listen_at_path(path, SOCK_SEQPACKET, 0600, ret, e);
}

int listen_tcp(const char *address, int *ret, struct err *e)
{
    char host[128];
    const char *colon = strrchr(address, ':');
    struct addrinfo hints = { .ai_flags = AI_PASSIVE | AI_NUMERICHOST | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM },
                    *found = NULL;
    int one = 1;

    if (!colon)
        return err_set(e, EINVAL, STEP_USAGE, "--listen wants ADDRESS:PORT, not %s", address);
    const char *start = address[0] == '[' ? address + 1 : address;
    snprintf(host, sizeof host, "%.*s", (int)(colon - start - (address[0] == '[')), start);
    if (getaddrinfo(host, colon + 1, &hints, &found) != 0)
        return err_set(e, EINVAL, STEP_USAGE, "--listen %s: not an address", address);
    FD fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int r = 0;
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) < 0 ||
        bind(fd, found->ai_addr, found->ai_addrlen) < 0 || listen(fd, BACKLOG) < 0)
        r = err_set(e, errno, STEP_HOST, "listening at %s", address);
    freeaddrinfo(found);
    if (r == 0)
        *ret = TAKE_FD(fd);
    return r;
}
