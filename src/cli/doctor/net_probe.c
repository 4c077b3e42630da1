/* `carrel doctor --net-probe`: runs in a box. It tries to reach each target and prints one line with the result. The
 * doctor outside judges. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/fd.h"
#include "cli/doctor/net.h"

enum { PATIENCE_S = 20 };

/* The server's word; "" and errno: nothing was read. */
static const char *read_token(int fd, char token[NET_TOKEN])
{
    size_t n = 0;

    for (ssize_t got = 1; got > 0 && n < NET_TOKEN - 1; n += got > 0 ? (size_t)got : 0)
        got = read(fd, token + n, NET_TOKEN - 1 - n);
    token[n] = '\0';
    return token;
}

static void try_address(const struct addrinfo *to, int type)
{
    const struct timeval patience = { .tv_sec = PATIENCE_S };
    char token[NET_TOKEN];
    FD fd = socket(to->ai_family, type | SOCK_CLOEXEC, 0);

    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) < 0 ||
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience) < 0 ||
        connect(fd, to->ai_addr, to->ai_addrlen) < 0 || (type == SOCK_DGRAM && send(fd, "?", 1, 0) < 0))
        printf("failed %s\n", strerror(errno));
    else
        printf("reached %s\n", type == SOCK_DGRAM ? "" : read_token(fd, token));
}

/* "tcp:NAME:PORT", "tcp:[IPV6]:PORT", "udp:NAME:PORT". */
static void try_one(char *target)
{
    char *name = strchr(target, ':'), *port = strrchr(target, ':');
    int type = target[0] == 'u' ? SOCK_DGRAM : SOCK_STREAM;
    struct addrinfo hints = { .ai_family = AF_INET, .ai_socktype = type }, *found;

    if (!name || port == name) {
        puts("failed not understood");
        return;
    }
    *name++ = *port++ = '\0';
    if (name[0] == '[' && port - name > 2) {
        hints.ai_family = AF_INET6;
        name++;
        port[-2] = '\0';
    }
    int r = getaddrinfo(name, port, &hints, &found);
    if (r != 0) {
        printf("failed %s\n", gai_strerror(r));
        return;
    }
    try_address(found, type);
    freeaddrinfo(found);
}

int net_probe(int n, char **targets)
{
    for (int i = 0; i < n; i++)
        try_one(targets[i]);
    return fflush(stdout) == 0 ? 0 : 1;
}
