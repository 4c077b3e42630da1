/* A box after it was made: limits, freezing, usage, its end. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "base/fd.h"
#include "box/box.h"
#include "box/egress.h"
#include "box/family/family.h"
#include "box/making.h"
#include "sys/network.h"

enum { STRANGERS_MS = 50 };      /* after this time a plain box's end is checked for unknown children */

int box_check_limits(const struct box_host *host, const struct limits *limits, struct err *e)
{
    const struct {
        uint64_t               wanted;
        enum cgroup_controller controller;
        const char            *what;
    } list[] = { { limits->memory_bytes, CG_MEMORY, "memory" }, { limits->pids, CG_PIDS, "the number of processes" },
                 { limits->cpu_milli, CG_CPU, "processor time" } };

    if (limits->cpu_request_milli && !host->cgroups.can[CG_CPU])
        return err_set(e, ENOTSUP, STEP_USAGE, "cannot guarantee processor time: %s", host->cgroups.why[CG_CPU]);
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if (list[i].wanted && !host->cgroups.can[list[i].controller])
            return err_set(e, ENOTSUP, STEP_USAGE, "cannot limit %s: %s", list[i].what,
                           host->cgroups.why[list[i].controller]);
    return 0;
}

int box_freeze(struct engine_box *box, uint64_t wait_us, struct err *e)
{
    if (box->state != BOX_READY)
        return err_at(e, EBUSY, STEP_USAGE, 0, "only a running box can be frozen");
    int r = cgroup_freeze_step(&box->leaf, wait_us, e);
    if (r > 0)
        box->state = BOX_FROZEN;
    return r;
}

int box_thaw(struct engine_box *box, struct err *e)
{
    int r = cgroup_freeze(&box->leaf, false, e);
    if (r == 0 && box->state == BOX_FROZEN)
        box->state = BOX_READY;
    return r;
}

int box_update_limits(struct box_host *host, struct engine_box *box, const struct limits *limits, struct err *e)
{
    struct cgroup_limits change = { .memory_bytes = limits->memory_bytes,
                                    .pids = limits->pids,
                                    .cpu_milli = limits->cpu_milli,
                                    .cpu_request_milli = limits->cpu_request_milli };

    if (limits->disk_bytes)
        return err_at(e, ENOTSUP, STEP_USAGE, 0, "the disk limit of a live box cannot change");
    int r = cgroup_update(box_cgroups(host, box), &box->leaf, &change, e);
    if (r < 0)
        return r;
    if (limits->memory_bytes)
        box->limits.memory_bytes = limits->memory_bytes;
    if (limits->pids)
        box->limits.pids = limits->pids;
    if (limits->cpu_milli)
        box->limits.cpu_milli = limits->cpu_milli;
    if (limits->cpu_request_milli)
        box->limits.cpu_request_milli = limits->cpu_request_milli;
    return family_bound_pids(box, box->limits.pids, e);
}

static void read_disk(const struct engine_box *box, struct box_usage *ret)
{
    struct statfs fs;

    if (box->scratch < 0) {
        ret->disk_bytes = box->disk_bytes;
        ret->disk_full = box->disk_full;
    } else if (fstatfs(box->scratch, &fs) == 0) {
        /* A file system keeps some blocks for its own metadata, and refuses before it has none left. */
        uint64_t kept = box->on_store ? fs.f_blocks / 512 + 16 : 0;
        ret->disk_bytes = (uint64_t)(fs.f_blocks - fs.f_bfree) * (uint64_t)fs.f_bsize;
        ret->disk_full = fs.f_bavail <= kept || fs.f_ffree == 0;
    }
}

void box_usage_read(const struct engine_box *box, struct box_usage *ret)
{
    *ret = (struct box_usage){ 0 };
    if (box->has_leaf)
        cgroup_usage_read(&box->leaf, &ret->cgroup);
    read_disk(box, ret);
}

void box_peaks_read(const struct engine_box *box, struct box_usage *ret)
{
    *ret = (struct box_usage){ 0 };
    if (box->has_leaf)
        cgroup_peaks_read(&box->leaf, &ret->cgroup);
    read_disk(box, ret);
}

enum outcome box_outcome(const struct process_end *end, enum outcome cause, const struct box_usage *usage)
{
    bool failed = end->signal != 0 || end->code != 0;

    if (cause != OUTCOME_NONE)
        return cause;
    if (usage->cgroup.oom_kills > 0)
        return OUTCOME_OOM;
    if (!failed)
        return OUTCOME_OK;
    if (usage->disk_full)
        return OUTCOME_DISK;
    if (usage->cgroup.pids_refused > 0)
        return OUTCOME_PIDS;
    return end->signal != 0 ? OUTCOME_KILLED : OUTCOME_ERROR;
}

int box_socket(const struct engine_box *box, int family, int type, struct err *e)
{
    int fd = network_socket_in(box->ns.net, family, type | SOCK_NONBLOCK);
    return fd < 0 ? err_at(e, -fd, STEP_NETWORK, 0, "a socket in the box's network") : fd;
}

/* Closes our copies while init still holds the files. The last holder takes the mounts down, and for a store the kernel
 * then flushes everything, which may take long: that must be a process whose end we poll for, and not us. */
static void leave_files(struct engine_box *box)
{
    struct box_usage usage = { 0 };

    read_disk(box, &usage);
    box->disk_bytes = usage.disk_bytes;
    box->disk_full = usage.disk_full;
    box->scratch = fd_close(box->scratch);
    box->ns.mount = fd_close(box->ns.mount);
}

void box_kill(struct engine_box *box)
{
    if (box->state == BOX_FROZEN) {
        struct err ignored;
        /* On v1 a frozen process does not even die. */
        (void)!box_thaw(box, &ignored);
    }
    if (box->scratch >= 0)
        leave_files(box);
    (void)!process_signal(&box->init, SIGKILL);
    (void)!process_signal(&box->midwife, SIGKILL);
    if (box->first.waiting && box->first.process.pidfd >= 0)
        (void)!process_signal(&box->first.process, SIGKILL);
}

static void close_all(int *const *fds, size_t n)
{
    for (size_t i = 0; i < n; i++)
        *fds[i] = fd_close(*fds[i]);
}

void box_release(struct box_host *host, struct engine_box *box)
{
    int *const fds[] = { &box->link,   &box->ns.user, &box->ns.mount, &box->ns.pid, &box->ns.ipc,
                         &box->ns.uts, &box->ns.net,  &box->scratch,  &box->oom,    &box->abandoned.pidfd,
                         &box->inlet,  &box->door,   &box->birth,   &box->root,     &box->midwife.pidfd };

    egress_sockets_close(&box->egress);
    /* All of the box's own processes have ended; a zygote's process that moved itself there would keep the leaf, and us
     * waiting. */
    if (box->has_leaf && box->family)
        cgroup_kill_members(&box->leaf);
    if (box->has_leaf)
        (void)!cgroup_remove(box_cgroups(host, box), &box->leaf);
    box->has_leaf = false;
    struct err ignored;
    (void)!family_bound_pids(box, 0, &ignored);
    payload_done(&box->first);
    for (size_t i = 0; i < CG_CONTROLLERS; i++)
        box->zygote_tasks[i] = fd_close(box->zygote_tasks[i]);
    close_all(fds, sizeof fds / sizeof *fds);
    ids_release(&host->ids, &box->ids);
    free(TAKE_PTR(box->rule_paths));
    box->state = BOX_DEAD;
}

/* Init ends when everything in its pid namespace has been reaped. Children born there with CLONE_PARENT wait for us,
 * and neither a zygote nor another process that could make them reports them. A plain box should have none. */
void box_reap_init(struct engine_box *box, struct process_end *ret)
{
    struct pollfd ended = { .fd = box->init.pidfd, .events = POLLIN };

    if (!box->family)
        (void)poll(&ended, 1, STRANGERS_MS);
    while (box->init.pidfd >= 0 && process_reap(&box->init, 0, ret) == 0) {
        family_box_sweep(box);
        (void)poll(&ended, 1, box->family ? 5 : STRANGERS_MS);
    }
}

void box_destroy(struct box_host *host, struct engine_box *box, struct process_end *ret_init)
{
    struct process_end end;

    *ret_init = (struct process_end){ 0 };
    box_kill(box);
    if (box->midwife.pidfd >= 0) {
        (void)!family_box_call_off(box, true);
        (void)!process_reap(&box->midwife, 1, &end);
    }
    if (box->first.process.pidfd >= 0) {
        (void)!process_signal(&box->first.process, SIGKILL);
        (void)!process_reap(&box->first.process, 1, &end);
    }
    if (box->abandoned.pidfd >= 0)
        (void)!process_reap(&box->abandoned, 1, &end);
    /* While init takes the namespaces down, we take the cgroup down; if that takes long, after init has ended. */
    if (box->has_leaf && cgroup_remove_early(box_cgroups(host, box), &box->leaf) != -EBUSY)
        box->has_leaf = false;
    box_reap_init(box, ret_init);
    box_release(host, box);
}
