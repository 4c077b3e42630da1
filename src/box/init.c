/* Init is a copy of the keeper that becomes PID 1 in the box's new namespaces. It is not exec'd: its memory then
 * belongs to the host's user namespace, so no process in the box can ever trace it or read it through /proc, even if
 * the box's own rules fail. It holds no secret: argv and environment of payloads never pass through it.
 *
 * Order: id maps -> no nested user namespaces -> the trees come from the keeper -> private propagation -> scratch and
 * root attached in the old root -> trees attached to the new root -> pivot -> root read-only -> ids and capabilities
 * dropped -> descriptors closed -> tiny filter -> report -> reap until the end. */
#define _GNU_SOURCE
#include "box/init.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/title.h"
#include "box/desk.h"
#include "box/egress.h"
#include "box/payload.h"
#include "policy/policy.h"
#include "sys/mountfd.h"
#include "sys/network.h"
#include "sys/rights.h"

#define INOTIFY_INSTANCES "32"

static int mount_overlay(const struct plan_mount *mount, const struct trees *trees, int lower, int point)
{
    char low[64], up[128], work[128];
    FD tree = -1;

    /* The lower tree is attached first, because overlayfs wants paths; the merged tree then covers it. */
    int r = mountfd_attach(lower, point, "");
    if (r < 0)
        return r;
    FD top = openat(lower, ".", O_PATH | O_CLOEXEC);
    if (top < 0)
        return -errno;
    snprintf(low, sizeof low, "/proc/self/fd/%d", top);
    snprintf(up, sizeof up, "/proc/self/fd/%d/upper-%s", trees->scratch, mount->path);
    snprintf(work, sizeof work, "/proc/self/fd/%d/work-%s", trees->scratch, mount->path);
    const char *options[] = { "lowerdir", low, "upperdir", up, "workdir", work, "userxattr", NULL, NULL };
    r = mountfd_new("overlay", options, mount->flags, &tree);
    return r < 0 ? r : mountfd_attach(tree, top, "");
}

/* Whether it contains only "." and "..". The directory is the caller's: one that cannot be listed counts as not
 * empty. */
static bool is_empty(int point)
{
    char entries[1024];
    FD dir = openat(point, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    long n = 0, at = 0;

    while (dir >= 0 && (n = syscall(SYS_getdents64, dir, entries, sizeof entries)) > 0)
        for (at = 0; at < n;) {
            const char *entry = entries + at, *name = entry + offsetof(struct dirent, d_name);
            unsigned short size;
            if (strcmp(name, ".") != 0 && strcmp(name, "..") != 0)
                return false;
            memcpy(&size, entry + offsetof(struct dirent, d_reclen), sizeof size);
            at += size;
        }
    return dir >= 0 && n == 0;
}

static int attach(const struct plan *plan, const struct trees *trees, size_t i)
{
    const struct plan_mount *mount = &plan->mount[i];
    FD made = -1;
    int r = 0;

    FD point = mountfd_open_plain(trees->root, mount->target);
    if (point < 0)
        return ((point == -ENOENT || point == -ELOOP) && mount->optional) || mount->fills_gap ? 0 : point;
    if (mount->fills_gap && !is_empty(point))
        return 0;

    switch (mount->source) {
    case FROM_HOST:
        if (trees->mount[i] < 0 && mount->optional)
            return 0;
        return mountfd_attach(trees->mount[i], point, "");
    case FROM_DEVICE:
    case FROM_CALLER:
    case FROM_LAYER:
    case FROM_VOLUME:
    case FROM_NODE:
    case FROM_MEMORY:
        return mountfd_attach(trees->mount[i], point, "");
    case FROM_LEAF:
        return trees->mount[i] < 0 ? 0 : mountfd_attach(trees->mount[i], point, "");
    case FROM_OVERLAY:
        return mount_overlay(mount, trees, trees->mount[i], point);
    case FROM_SCRATCH:
        r = mountfd_clone(trees->scratch, mount->path, false, mount->flags, &made);
        break;
    case FROM_ROOT:
        if (trees->mount[i] >= 0)
            return mountfd_attach(trees->mount[i], point, "");
        r = mountfd_clone(trees->root, mount->path, false, mount->flags, &made);
        break;
    case FROM_PROC: {
        const char *options[] = { mount->path ? "subset" : NULL, "pid", NULL };
        r = mountfd_new("proc", options, mount->flags, &made);
        break;
    }
    case FROM_DEVPTS: {
        static const char *const options[] = { "newinstance", NULL, "ptmxmode", "0666", "mode", "0620",
                                               "max", "64", NULL };     /* the host has 4096 in all */
        r = mountfd_new("devpts", options, mount->flags, &made);
        if (r < 0 && mount->optional)
            return 0;       /* a host without them: fatal only if a terminal was requested */
        break;
    }
    }
    return r < 0 ? r : mountfd_attach(made, point, "");
}

static const char *const sources[] = { ".nothing", ".empty", ".meminfo", ".cpuinfo", ".resolv.conf", ".passwd",
                                       ".group" };
enum { N_SOURCES = sizeof sources / sizeof *sources };

static int unlink_sources(int root)
{
    for (size_t i = 0; i < N_SOURCES; i++)
        if (unlinkat(root, sources[i], i == 0 ? AT_REMOVEDIR : 0) < 0 && errno != ENOENT)
            return -errno;
    return 0;
}

/* Sources that are attached later need a name until then. Below the mount point of /proc no process finds them. */
static int hide_sources(int root)
{
    char hidden[32];

    for (size_t i = 0; i < N_SOURCES; i++) {
        snprintf(hidden, sizeof hidden, "proc/%s", sources[i]);
        if (renameat(root, sources[i], root, hidden) < 0 && errno != ENOENT)
            return -errno;
    }
    return 0;
}

static int forbid_nesting(struct err *e)
{
    /* Counted per user namespace: this one may have no child, and only a capability could lift that. */
    int r = fd_write_file(AT_FDCWD, "/proc/sys/user/max_user_namespaces", "0");
    if (r < 0)
        return err_at(e, -r, STEP_NESTING, 0, "user.max_user_namespaces");
    /* These are also counted for the owner of the namespace, who may be the caller and have 128 in all. */
    r = fd_write_file(AT_FDCWD, "/proc/sys/user/max_inotify_instances", INOTIFY_INSTANCES);
    return r < 0 && r != -ENOENT ? err_at(e, -r, STEP_NESTING, 0, "user.max_inotify_instances") : 0;
}

/* Mounts that init must make in the box's own namespaces, or that can be undone there without harm. The rest of a
 * family's box is attached earlier. */
static bool is_late(const struct plan_mount *mount)
{
    return mount->source == FROM_PROC || mount->source == FROM_DEVPTS || mount->source == FROM_LEAF
        || (mount->source == FROM_ROOT && strcmp(mount->path, "dev") != 0);
}

static int attach_which(const struct plan *plan, const struct trees *trees, bool early, bool late, struct err *e)
{
    for (size_t i = 0; i < plan->n_mounts; i++) {
        bool wanted = is_late(&plan->mount[i]) ? late : early;
        int r = wanted ? attach(plan, trees, i) : 0;
        if (r < 0)
            return err_set(e, -r, STEP_MOUNT, "/%s", plan->mount[i].target);
    }
    return 0;
}

static int attach_root(const struct trees *trees, struct err *e)
{
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return err_at(e, errno, STEP_MOUNT, 0, "private propagation");

    /* Over a folder of the old root and not over the old root itself: a payload that joins this mount namespace
     * meanwhile would start on top of the stack and stay there when the root is exchanged. Both disappear with the old
     * root. */
    int r = mountfd_attach(trees->scratch, AT_FDCWD, "/dev");
    if (r == 0)
        r = mountfd_attach(trees->root, AT_FDCWD, "/dev");
    return r < 0 ? err_at(e, -r, STEP_MOUNT, 0, "root") : 0;
}

static int exchange_root(const struct plan *plan, const struct trees *trees, struct err *e)
{
    int r = mountfd_pivot(trees->root);
    if (r < 0)
        return err_at(e, -r, STEP_PIVOT, 0, "/");
    if ((r = mountfd_restrict(trees->root, false, plan->writable_root ? TREE_NODEV : TREE_NODEV | TREE_READONLY)) < 0)
        return err_at(e, -r, STEP_ROOT, 0, "read-only root");
    return 0;
}

int init_build_early(const struct plan *plan, struct trees *trees, struct err *e)
{
    int r = attach_root(trees, e);

    if (r == 0)
        r = attach_which(plan, trees, true, false, e);
    /* Covers for parts of /proc, cloned while the root is still accessible. */
    for (size_t i = 0; r == 0 && i < plan->n_mounts; i++) {
        const struct plan_mount *mount = &plan->mount[i];
        if (mount->source == FROM_ROOT && mount->path[0] == '.' &&
            (r = mountfd_clone(trees->root, mount->path, false, mount->flags, &trees->mount[i])) < 0)
            return err_at(e, -r, STEP_MOUNT, i, mount->path);
    }
    if (r == 0 && (r = hide_sources(trees->root)) < 0)
        return err_at(e, -r, STEP_ROOT, 0, "/");
    /* The kernel lets init mount a /proc only if a complete one is visible already. This one shows the family's
     * processes. */
    if (r == 0) {
        FD proc = -1;
        r = mountfd_new("proc", NULL, TREE_NOSUID | TREE_NODEV | TREE_NOEXEC, &proc);
        if (r == 0)
            r = mountfd_attach(proc, trees->root, "proc");
        if (r < 0)
            return err_at(e, -r, STEP_MOUNT, 0, "/proc of the family");
    }
    return r < 0 ? r : exchange_root(plan, trees, e);
}

static int build_late(const struct init_job *job, struct err *e)
{
    struct trees trees = *job->trees;
    int r = forbid_nesting(e);

    if (r < 0)
        return r;
    /* Before the box's own /proc covers this one. */
    FD proc_sys = open("/proc/sys", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if ((r = proc_sys < 0 ? -errno : network_bound_buffers(proc_sys)) < 0)
        return err_at(e, -r, STEP_NETWORK, 0, "bounding the buffers of sockets (/proc/sys/net)");
    FD root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root < 0)
        return err_at(e, errno, STEP_ROOT, 0, "/");
    trees.root = root;
    if ((r = attach_which(job->plan, &trees, false, true, e)) < 0)
        return r;
    r = network_loopback_up();
    return r < 0 ? err_at(e, -r, STEP_NETWORK, 0, "loopback") : 0;
}

static int wait_joined(int gate)
{
    char byte;
    ssize_t n;

    while ((n = recv(gate, &byte, 1, 0)) < 0 && errno == EINTR)
        ;
    return n == 1 ? 0 : n < 0 ? -errno : -ECHILD;
}

static int build(const struct init_job *job, struct err *e)
{
    const struct plan *plan = job->plan;
    int r = 0;

    if (job->stage == INIT_LATE) {
        r = build_late(job, e);
    } else {
        if (job->stage == INIT_WHOLE)
            r = forbid_nesting(e);
        if (r == 0 && job->trees_come)
            r = trees_receive(job->link, plan->n_mounts, job->trees, e);
        if (r == 0)
            r = attach_root(job->trees, e);
        if (r == 0)
            r = attach_which(plan, job->trees, true, true, e);
        if (r == 0 && (r = unlink_sources(job->trees->root)) < 0)
            r = err_at(e, -r, STEP_ROOT, 0, "/");
        /* pivot_root moves the processes that are in this mount namespace. A payload in the middle of its setns would
         * stay on the host's root, so it must have reported that it is inside. */
        if (r == 0 && job->gate >= 0 && (r = wait_joined(job->gate)) < 0)
            r = err_at(e, -r, STEP_WAIT, 0, "the first payload");
        if (r == 0)
            r = exchange_root(plan, job->trees, e);
    }
    if (r == 0 && sethostname(plan->hostname, strlen(plan->hostname)) < 0)
        r = err_at(e, errno, STEP_ROOT, 0, "host name");
    return r;
}

static int drop(const struct init_job *job, struct err *e)
{
    int r;

    /* Another user than the payload's, if there is one: then even limits and priorities of init are out of its
     * reach. */
    if ((r = rights_become(job->one_id ? job->plan->uid : 0, job->one_id ? job->plan->gid : 0, job->can_setgroups)) < 0)
        return err_at(e, -r, STEP_RIGHTS, 0, "ids of init");
    if ((r = rights_keep_capabilities(0)) < 0 || (r = rights_no_new_privileges()) < 0)
        return err_at(e, -r, STEP_RIGHTS, 0, "capabilities of init");
    if ((r = rights_hide()) < 0 || (r = rights_die_with(job->keeper)) < 0)
        return err_at(e, -r, STEP_RIGHTS, 0, "hiding init");
    return 0;
}

static int confine(const struct init_job *job, const struct init_desk *desk, struct err *e)
{
    const struct policy_filter *filter = policy_init_filter(job->door >= 0);
    const int keep[] = { job->link, job->gate, desk->door, desk->events, desk->signals, desk->census,
                         desk->resolver };
    /* The keeper filled 0, 1 and 2 before it opened anything, so our descriptors have other numbers. */
    int r = syscall(SYS_close_range, 0, 2, 0) < 0 ? err_at(e, errno, STEP_STDIO, 0, "descriptors of init")
                                                  : payload_keep_only(keep, sizeof keep / sizeof *keep, e);

    if (r < 0)
        return r;
    r = rights_filter_calls(filter->code, filter->length);
    return r < 0 ? err_at(e, -r, STEP_SECCOMP, 0, "the filter of init") : 0;
}

/* Before the box is ready, so that its first command has its egress. */
static int open_way_out(const struct init_job *job, struct err *e)
{
    struct egress_sockets sockets;
    struct note note = { .kind = NOTE_EGRESS };
    int r = egress_prepare(&sockets, e);

    note.way = sockets.way;
    note.has = sockets.has;
    if (r == 0 && (r = link_send(job->link, &note, sizeof note, sockets.fd, sockets.n)) < 0)
        r = err_at(e, -r, STEP_NETWORK, 0, "the keeper");
    egress_sockets_close(&sockets);
    return r;
}

/* The first payload makes the box's network, unless init was born in it. */
static int enter_network(const struct init_job *job, struct err *e)
{
    char byte;
    FD net = -1;

    if (job->gate < 0)
        return 0;
    int r = link_receive(job->gate, &byte, 1, &net, 1, true);
    if (r < 0 || net < 0)
        return err_at(e, r == -EPIPE ? ECHILD : r < 0 ? -r : EPROTO, STEP_WAIT, 0, "the first payload");
    return setns(net, CLONE_NEWNET) < 0 ? err_at(e, errno, STEP_NETWORK, 0, "entering the box's network") : 0;
}

static int wait_go(int link, struct err *e)
{
    char byte;
    ssize_t n;
    while ((n = recv(link, &byte, 1, 0)) < 0 && errno == EINTR)
        ;
    return n == 1 ? 0 : err_at(e, n == 0 ? EPIPE : errno, STEP_IDMAP, 0, "the keeper's word to go on");
}

static int become(const struct init_job *job, struct init_desk *desk, struct err *e)
{
    int r = rights_die_with(job->keeper);

    if (r < 0)
        return err_at(e, -r, STEP_RIGHTS, 0, "parent death signal of init");
    /* Until an unprivileged keeper has opened our namespaces we must stay dumpable. */
    if (job->wait_maps)
        r = wait_go(job->link, e);
    if (r == 0 && (r = rights_hide()) < 0)
        r = err_at(e, -r, STEP_RIGHTS, 0, "hiding init");
    /* An overlay works with the rights of its mounter, so that must be an id that the box's files know. */
    if (r == 0 && job->plan->writable_root && job->stage == INIT_WHOLE &&
        (r = rights_become(0, 0, job->can_setgroups)) < 0)
        r = err_at(e, -r, STEP_RIGHTS, 0, "ids of init");
    if (r == 0)
        r = build(job, e);
    if (r == 0 && !job->wait_maps)
        r = wait_go(job->link, e);
    if (r == 0 && (job->door >= 0 || job->plan->has_network))
        r = enter_network(job, e);
    if (r == 0 && job->plan->has_network)
        r = open_way_out(job, e);
    if (r == 0 && job->door >= 0)
        r = desk_open(job->door, job->plan->has_network, desk, e);
    if (r == 0)
        r = drop(job, e);
    if (r == 0)
        r = confine(job, desk, e);
    return r;
}

/* Reports only when no step of init's set-up can fail any more: a command must not run for a moment in a box that is
 * then refused. The first payload waits at the gate for its root, the keeper for its report. */
static int tell(const struct init_job *job, struct note *note)
{
    if (note->kind == NOTE_READY && job->gate >= 0 &&
        write(job->gate, &job->trees->device, sizeof job->trees->device) < 0) {
        note->kind = NOTE_FAILED;
        (void)err_at(&note->err, errno, STEP_WAIT, 0, "the first payload");
    }
    if ((note->kind == NOTE_FAILED || !job->quiet) && send(job->link, note, sizeof *note, MSG_NOSIGNAL) < 0)
        return -errno;
    return note->kind == NOTE_FAILED ? -ECANCELED : 0;
}

_Noreturn void init_run(const struct init_job *job)
{
    struct note note = { .kind = NOTE_READY };
    struct init_desk desk = { .door = -1, .events = -1, .signals = -1, .census = -1, .resolver = -1 };
    sigset_t all;

    title_set("init");
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    if (become(job, &desk, &note.err) < 0)
        note.kind = NOTE_FAILED;
    if (tell(job, &note) < 0)
        _exit(note.err.step);

    if (desk.door >= 0) {
        fd_close(job->link);
        fd_close(job->gate);
        desk_serve(&desk);
    }
    /* A failure here could not be reported, and is not worth a box: two sockets that only init has would stay open. */
    (void)syscall(SYS_close_range, 0, ~0u, 0);
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    for (;;) {
        while (waitpid(-1, NULL, WNOHANG) > 0)
            ;
        sigwaitinfo(&child, NULL);
    }
}
