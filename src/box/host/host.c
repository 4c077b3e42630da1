/* A keeper's one-time setup: the host's cgroups, an id reserve, facts, and a janitor.
 *
 * Everything of a box except its cgroup directories ends with the keeper, because its processes get SIGKILL when their
 * parent dies, and mounts and namespaces end with the processes. The janitor is a child that waits for the keeper's
 * death and then removes those directories. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "box/box.h"
#include "box/host/rootless.h"
#include "box/host/rundir.h"
#include "sys/rights.h"

enum { JANITOR_ROUNDS = 60 };       /* each waits for at least a second, if leaves are left */

static void note_busy(const char *name, pid_t owner, int result, void *data)
{
    bool *is_busy = data;

    (void)name;
    (void)owner;
    *is_busy |= result == -EBUSY;
}

static _Noreturn void be_janitor(struct box_host *host, int pipe)
{
    char byte;
    sigset_t all;
    pid_t keeper = host->cgroups.owner.pid;     /* not getppid(): it may be dead already */

    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    for (int fd = 0; fd < 3; fd++)
        close(fd);
    ids_host_close(&host->ids);
    (void)!chdir("/");
    ssize_t n;
    while ((n = read(pipe, &byte, 1)) < 0 && errno == EINTR)
        ;
    /* Only the end of the pipe means that the keeper is gone. */
    if (n != 0)
        _exit(1);
    /* On a slow machine many processes take long to die, and no sweep follows this one. */
    bool is_busy = true;
    for (int i = 0; i < JANITOR_ROUNDS && is_busy; i++) {
        is_busy = false;
        (void)cgroup_sweep_each(&host->cgroups, keeper, note_busy, &is_busy);
    }
    _exit(0);
}

static int start_janitor(struct box_host *host, struct err *e)
{
    int pair[2];
    if (host->cgroups.mode == CGROUP_NONE)
        return 0;
    if (pipe2(pair, O_CLOEXEC) < 0)
        return err_at(e, errno, STEP_HOST, 0, "janitor");
    int r = process_clone(0, -1, -1, &host->janitor_process);
    if (r == 0) {
        close(pair[1]);
        be_janitor(host, pair[0]);
    }
    close(pair[0]);
    host->janitor = pair[1];
    return r < 0 ? err_at(e, -r, STEP_CLONE, 0, "janitor") : 0;
}

int box_host_open(struct box_host *ret, struct err *e)
{
    struct box_host *host = ret;
    uint32_t mapped = 0;
    int r;

    /* Pages of the facts' tables that are touched before the janitor is born would be copied when they are written. */
    memset(host, 0, offsetof(struct box_host, facts.tree));
    host->janitor = host->janitor_process.pidfd = host->ids.lock = -1;
    host->is_open = true;
    host->self = (int)syscall(SYS_pidfd_open, getpid(), 0);
    if (host->self < 0)
        return err_at(e, errno, STEP_HOST, 0, "pidfd_open");
    umask(0);
    process_spare_only_self();
    host->caller_uid = getuid();
    host->caller_gid = getgid();
    host->rootless = rootless_needed();
    rundir_choose();
    if ((r = cgroup_host_open(&host->cgroups, e)) < 0)
        return r;
    if (host->rootless && (r = rootless_enter(&mapped, e)) < 0)
        return r;
    host->can_setgroups = !host->rootless || mapped > 1;
    host->facts.can_mknod = host->facts.can_map_ids = !host->rootless;
    host->facts.is_rootless = host->rootless;
    const struct cgroup_host *groups = &host->cgroups;
    bool on_v1 = groups->v1[CG_MEMORY] >= 0 || groups->v1[CG_PIDS] >= 0 || groups->v1[CG_CPU] >= 0;
    host->facts.leaf = on_v1 ? LEAF_V1 : groups->v2_controllers ? LEAF_V2 : LEAF_UNSEEN;
    host->facts.landlock_abi = landlock_abi();
    if (host->facts.landlock_abi < 0)
        return err_at(e, -host->facts.landlock_abi, STEP_LANDLOCK, 0, "asking the kernel for its version");
    r = ids_host_open(&host->ids, host->rootless, mapped, e);
    return r < 0 ? r : start_janitor(host, e);
}

void box_host_close(struct box_host *host)
{
    struct process_end end;

    if (!host->is_open)
        return;
    host->is_open = false;
    if (host->janitor_process.pidfd >= 0) {
        /* The keeper's boxes are gone, so the janitor has nothing to do. */
        (void)!process_signal(&host->janitor_process, SIGKILL);
        (void)!process_reap(&host->janitor_process, 1, &end);
    }
    host->janitor = fd_close(host->janitor);
    host->self = fd_close(host->self);
    ids_host_close(&host->ids);
    cgroup_host_close(&host->cgroups);
    if (host->can_join)
        cgroup_host_close(&host->joining);
    host->joining_known = host->can_join = false;
}

struct walls_host box_host_walls(const struct box_host *host)
{
    static const enum cgroup_controller controller[WALL_LIMITS] = { CG_MEMORY, CG_PIDS, CG_CPU };
    struct walls_host walls = { .landlock_abi = (uint32_t)host->facts.landlock_abi, .n_ids = host->ids.size };

    for (enum wall_limit i = 0; i < WALL_LIMITS; i++) {
        walls.can |= (uint32_t)host->cgroups.can[controller[i]] << i;
        walls.is_v2 |= (uint32_t)(host->cgroups.v1[controller[i]] < 0) << i;
    }
    return walls;
}
