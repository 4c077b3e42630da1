/* Memory that ran out: does on v1 what v2 does with memory.oom.group, and reads the counters. */
#define _GNU_SOURCE
#include <errno.h>
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
    /* A process that forks meanwhile may leave one child behind: two rounds, and a survivor meets the same limit
     * again. */
    for (int i = 0; i < 2 && cgroup_kill_pass(leaf) > 0; i++)
        ;
}

bool cgroup_kills_together(const struct cgroup *leaf)
{
    return leaf->dir[CG_MEMORY] < 0 && leaf->v2 >= 0;
}

bool cgroup_is_empty(const struct cgroup *leaf)
{
    char one[2];
    int dir = leaf->dir[CG_MEMORY] >= 0 ? leaf->dir[CG_MEMORY] : leaf->v2;

    if (dir < 0)
        return true;
    ssize_t n = fd_read_file(dir, "cgroup.procs", one, sizeof one);
    return n == 0 || (n < 0 && n != -EFBIG);
}
