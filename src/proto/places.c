/* A socket at a default place is trusted only if root or the caller serves it: /tmp is open to all, and a server sees
 * all that is sent to it. The server's user is checked once, and each request connects again; so no other user may be
 * able to replace the socket. A socket that was named explicitly is the caller's own choice. */
#define _GNU_SOURCE
#include "proto/places.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fd.h"

static bool is_ours(const struct stat *status)
{
    return status->st_uid == 0 || status->st_uid == geteuid();
}

static bool is_closed(const struct stat *folder)
{
    return S_ISDIR(folder->st_mode) && is_ours(folder) && !(folder->st_mode & (S_IWGRP | S_IWOTH));
}

/* In a sticky folder such as /tmp others cannot rename or remove foreign files. */
static bool keeps_ours(const struct stat *folder)
{
    return is_closed(folder) || (S_ISDIR(folder->st_mode) && is_ours(folder) && (folder->st_mode & S_ISVTX));
}

bool places_is_own_socket(const char *path)
{
    char folder[PATH_MAX];
    struct stat status;

    if (path[0] != '/' || snprintf(folder, sizeof folder, "%s", path) >= (int)sizeof folder)
        return false;
    if (lstat(folder, &status) < 0 || !S_ISSOCK(status.st_mode))
        return false;
    *strrchr(folder, '/') = '\0';
    if (!folder[0] || lstat(folder, &status) < 0 || !is_closed(&status))
        return false;
    char *slash = strrchr(folder, '/');
    slash[slash == folder] = '\0';
    return stat(folder, &status) == 0 && keeps_ours(&status);
}

/* Whether a process of root's or the caller's answers at this path. */
static bool is_served(const char *path)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    struct ucred peer;
    socklen_t size = sizeof peer;

    if (path[0] != '/' || strlen(path) >= sizeof address.sun_path)
        return false;
    memcpy(address.sun_path, path, strlen(path));
    FD fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) == 0
           && getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0
           && (peer.uid == 0 || peer.uid == geteuid());
}

bool places_run(bool is_root, const char *runtime, char *ret, size_t size)
{
    int n;

    if (is_root)
        n = snprintf(ret, size, PLACES_MACHINE_RUN);
    else if (runtime && runtime[0] == '/')
        n = snprintf(ret, size, "%s/carrel", runtime);
    else
        n = snprintf(ret, size, "/tmp/carrel-%u", (unsigned)getuid());
    return n >= 0 && n < (int)size;
}

bool places_find_server(char *ret, size_t size, char *ret_looked, size_t looked_size)
{
    char run[200], own[256] = "";

    if (geteuid() != 0 && places_run(false, getenv("XDG_RUNTIME_DIR"), run, sizeof run))
        snprintf(own, sizeof own, "%s/" PLACES_SOCKET_NAME, run);
    if (ret_looked)
        snprintf(ret_looked, looked_size, "%s%s" PLACES_MACHINE_SOCKET, own, own[0] ? " and " : "");
    if (own[0] && places_is_own_socket(own) && is_served(own))
        return snprintf(ret, size, "%s", own) < (int)size;
    return is_served(PLACES_MACHINE_SOCKET) && snprintf(ret, size, PLACES_MACHINE_SOCKET) < (int)size;
}
