/* Mounts are opened here, with the caller's rights, and passed to the server. A server that is root must not open files
 * for a caller that only root may open. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/parse.h"
#include "client/client.h"
#include "client/wire/envelope.h"

void handover_init(struct handover *h)
{
    *h = (struct handover){ .list = json_array() };
}

void handover_done(struct handover *h)
{
    while (h->n > 0)
        fd_close(h->fd[--h->n]);
    json_decref(h->list);
    h->list = NULL;
}

/* Whether the descriptor is at this path, without a link in between. */
static bool is_at(int fd, const char *path)
{
    char name[40], found[PATH_MAX];

    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(name, found, sizeof found);
    return n >= 0 && (size_t)n < sizeof found && strlen(path) == (size_t)n && memcmp(found, path, (size_t)n) == 0;
}

static int add(struct handover *h, const char *what, const char *source, const char *target, bool writable, bool again,
               struct err *e)
{
    char path[PATH_MAX];

    if (h->n == EXCHANGE_FDS)
        return err_set(e, EINVAL, STEP_USAGE, "a box may have %d mounts", EXCHANGE_FDS);
    FD fd = realpath(source, path) ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY) : -1;
    if (fd < 0)
        return err_set(e, errno, STEP_USAGE, "%s: %s", what, strerror(errno));
    if (again && !is_at(fd, source))
        return err_set(e, ELOOP, STEP_USAGE,
                       "%s is or lies below a symbolic link now; restore the directory, or make a new box",
                       what);
    json_t *mount =
        json_pack("{s:s,s:s,s:b,s:i}", "source", path, "target", target, "writable", writable, "fd", (int)h->n);
    if (!mount)
        return err_set(e, EINVAL, STEP_USAGE, "%s: not UTF-8", what);
    int r = envelope_make(fd, &h->fd[h->n]);
    if (r < 0) {
        json_decref(mount);
        return err_set(e, -r, STEP_USAGE, "%s: %s", what, strerror(-r));
    }
    h->n++;
    return json_array_append_new(h->list, mount);
}

int handover_add(struct handover *h, const char *what, const char *source, const char *target, bool writable,
                 struct err *e)
{
    return add(h, what, source, target, writable, false, e);
}

int handover_add_again(struct handover *h, const char *what, const char *source, const char *target, bool writable,
                       struct err *e)
{
    return add(h, what, source, target, writable, true, e);
}
