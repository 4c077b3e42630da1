/* What v2 does by itself with memory.oom.group. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/fd.h"
#include "sys/cgroup_impl.h"

int cgroup_watch_oom(const struct cgroup *leaf)
{
    char text[32];
    int dir = leaf->dir[CG_MEMORY];

    if (dir < 0)
        return -1;
    FD event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    FD control = openat(dir, "memory.oom_control", O_RDONLY | O_CLOEXEC);
    if (event < 0 || control < 0)
        return -1;
    snprintf(text, sizeof text, "%d %d", event, control);
    return fd_write_file(dir, "cgroup.event_control", text) < 0 ? -1 : TAKE_FD(event);
}

void cgroup_kill_members(const struct cgroup *leaf)
{
    /* A process that forks meanwhile may get away with one child: two rounds, and what is left meets the same limit
     * again. */
    for (int i = 0; i < 2 && cgroup_kill_pass(leaf) > 0; i++)
        ;
}
