/* Making and ending boxes.
 *
 *   keeper                          init (PID 1)                    first payload (PID 2)
 *   clone3 ----------------------->
 *   clone into its pid namespace --------------------------------->
 *   id maps, "go" ---------------->                                 joins, makes the network namespace
 *   makes the trees -------------->  builds the file system
 *   cgroup leaf -------------------------------------------------->  joins it, gives up its rights
 *                                   "root is there" -------------->  Landlock, exec
 *                                   gives up its rights, reaps
 *
 * On v2 a process is born into its cgroup, so there the leaf comes before the payload (on a hybrid host, too, if the
 * box can be frozen). */
#define _GNU_SOURCE
#include "box/box.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/sched.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "box/egress.h"
#include "box/family/family.h"
#include "box/init.h"
#include "box/making.h"
#include "box/payload.h"
#include "box/tree.h"
#include "proto/command.h"
#include "sys/mountfd.h"

static const struct engine_box empty_box = {
    .init.pidfd = -1,
    .midwife.pidfd = -1,
    .birth = -1,
    .root = -1,
    .first = { .process.pidfd = -1, .link = -1, .terminal = -1 },
    .abandoned.pidfd = -1,
    .link = -1,
    .ns = { -1, -1, -1, -1, -1, -1 },
    .leaf = { .v2 = -1, .dir = CG_NONE, .tasks = CG_NONE },
    .scratch = -1,
    .oom = -1,
    .keeper = -1,
    .inlet = -1,
    .door = -1,
    .zygote_tasks = CG_NONE,
};

void box_clear(struct engine_box *ret)
{
    *ret = empty_box;
}

static int take_rules(struct engine_box *box, const struct plan *plan, struct err *e)
{
    size_t bytes = 0;
    for (size_t i = 0; i < plan->n_rules; i++)
        bytes += strlen(plan->rule[i].path) + 1;
    char *at = box->rule_paths = malloc(bytes);
    if (!at)
        return err_at(e, ENOMEM, STEP_MEMORY, 0, "box");
    for (size_t i = 0; i < plan->n_rules; i++) {
        size_t size = strlen(plan->rule[i].path) + 1;
        box->rule[i] =
            (struct plan_rule){ .path = memcpy(at, plan->rule[i].path, size), .rights = plan->rule[i].rights };
        at += size;
    }
    box->n_rules = plan->n_rules;
    return 0;
}

int box_open_namespaces(pid_t pid, struct box_namespaces *ns)
{
    char path[40];
    const struct {
        const char *name;
        int        *fd;
    } list[] = {
        { "user", &ns->user }, { "mnt", &ns->mount }, { "pid", &ns->pid }, { "ipc", &ns->ipc }, { "uts", &ns->uts }
    };

    snprintf(path, sizeof path, "/proc/%d/ns", (int)pid);
    FD dir = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return -errno;
    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        if ((*list[i].fd = openat(dir, list[i].name, O_RDONLY | O_CLOEXEC)) < 0)
            return -errno;
    return 0;
}

struct cgroup_limits box_leaf_limits(const struct box_host *host, const struct engine_box *box, bool freezer)
{
    return (struct cgroup_limits){
        .memory_bytes = box->limits.memory_bytes,
        .pids = box->limits.pids,
        .cpu_milli = box->limits.cpu_milli,
        .cpu_request_milli = box->limits.cpu_request_milli,
        .freezer = freezer && host->cgroups.can[CG_FREEZER],
    };
}

const struct cgroup_host *box_cgroups(const struct box_host *host, const struct engine_box *box)
{
    return box->family ? &box->family->cgroups : &host->cgroups;
}

int box_make_leaf(struct box_host *host, struct engine_box *box, const struct cgroup_limits *limits, struct err *e)
{
    if (host->cgroups.mode == CGROUP_NONE)
        return 0;
    int r = cgroup_create(box_cgroups(host, box), host->next++, limits, &box->leaf, e);
    box->has_leaf = r == 0;
    if (r == 0)
        box->oom = cgroup_watch_oom(&box->leaf);
    return r;
}

/* A program may open /dev/stdout, which is the pipe by name: it must belong to the box's user. Only anonymous pipes are
 * given away: no file or FIFO of the host. */
void box_give_pipes(const struct engine_box *box, const int stdio[3])
{
    struct statfs status;

    for (int i = 0; i < 3; i++)
        if (stdio[i] >= 0 && fstatfs(stdio[i], &status) == 0 && status.f_type == PIPEFS_MAGIC)
            (void)!fchown(stdio[i], ids_outside(&box->ids, box->uid, box->keep_own),
                          ids_outside(&box->ids, box->gid, box->keep_own));
}

/* Clones a payload. On v1 the leaf may still be missing (wait_join); on v2 it must be there. */
static int spawn(struct engine_box *box, const struct start *start, int gate, bool make_net, bool wait_join,
                 struct payload *ret, struct err *e)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_at(e, errno, STEP_CLONE, 0, "payload link");
    FD ours = pair[0], theirs = pair[1];

    struct process child = { .pidfd = -1 };
    int r = process_clone(0, box->leaf.v2, box->ns.pid, &child);
    if (r < 0)
        return err_at(e, -r, STEP_CLONE, 0, "payload");
    if (r == 0) {
        ours = fd_close(ours);
        payload_run(&(struct payload_job){
            .box = box, .start = start, .link = theirs, .gate = gate, .make_net = make_net, .wait_join = wait_join });
    }
    *ret = (struct payload){ .process = child, .link = TAKE_FD(ours), .terminal = -1, .waiting = !start };
    return 0;
}

static int map_ids(const struct box_host *host, const struct engine_box *box, struct err *e)
{
    char uids[IDS_MAP_TEXT], gids[IDS_MAP_TEXT];

    ids_map_text(&box->ids, box->uid, box->keep_own, 0, uids);
    ids_map_text(&box->ids, box->gid, box->keep_own, 0, gids);
    int r = process_map_ids(box->init.pid, uids, gids, !host->can_setgroups);
    return r < 0 ? err_at(e, -r, STEP_IDMAP, 0, uids) : 0;
}

static int send_leaf(struct engine_box *box, struct err *e)
{
    struct order order = { .kind = ORDER_JOIN };
    int fds[CG_CONTROLLERS];
    size_t n = 0;

    for (size_t i = 0; i < CG_CONTROLLERS; i++)
        if (box->leaf.tasks[i] >= 0)
            fds[n++] = box->leaf.tasks[i];
    int r = link_send(box->first.link, &order, sizeof order, fds, n);
    return r < 0 ? err_at(e, -r, STEP_CGROUP, 0, "handing over the cgroup") : 0;
}

/* Everything after init's birth. */
static int raise_box(struct box_host *host, const struct plan *plan, struct engine_box *box, const struct start *start,
                     bool freezer, int gate, struct err *e)
{
    struct cgroup_limits limits = box_leaf_limits(host, box, freezer);
    bool born_inside = cgroup_needs_birth(&host->cgroups, &limits);
    int r = box_open_namespaces(box->init.pid, &box->ns);

    if (r < 0)
        return err_at(e, -r, STEP_JOIN, 0, "init's namespaces");
    /* A payload that is born in its cgroup waits for nothing, so everything that it needs must be ready. The other kind
     * starts early and waits for its cgroup. */
    if (born_inside && ((r = box_make_leaf(host, box, &limits, e)) < 0 || (r = map_ids(host, box, e)) < 0))
        return r;
    if ((r = spawn(box, start, gate, true, !born_inside, &box->first, e)) < 0)
        return r;
    if (!born_inside && ((r = map_ids(host, box, e)) < 0 || (r = box_make_leaf(host, box, &limits, e)) < 0 ||
                         (r = send_leaf(box, e)) < 0))
        return r;
    if (send(box->link, "g", 1, MSG_NOSIGNAL) < 0)
        return err_at(e, errno, STEP_CLONE, 0, "init");
    return trees_give(host, plan, box, e);
}

/* Init's report: 1 ready, 0 nothing yet, -errno with the reason; -ECHILD if it ended without one. */
int box_init_report(struct engine_box *box, bool block, struct err *e)
{
    struct note note;
    int fds[EGRESS_FDS];
    int r = link_receive(box->link, &note, sizeof note, fds, EGRESS_FDS, block);

    /* The egress sockets come first, then the result. */
    if (r == 1 && note.kind == NOTE_EGRESS) {
        egress_sockets_close(&box->egress);
        box->egress = (struct egress_sockets){ .way = note.way, .has = note.has };
        while (box->egress.n < EGRESS_FDS && fds[box->egress.n] >= 0) {
            box->egress.fd[box->egress.n] = fds[box->egress.n];
            box->egress.n++;
        }
        r = link_receive(box->link, &note, sizeof note, NULL, 0, block);
    }
    if (r == 1 && note.kind == NOTE_FAILED) {
        *e = note.err;
        return -note.err.code;
    }
    if (r < 0)
        return err_at(e, ECHILD, STEP_CLONE, 0, "init ended");
    return r;
}

/* Sockets have buffers that no cgroup counts, so descriptors are few. The kernel counts descriptors in flight per user,
 * and a user whose RLIMIT_NOFILE is below that count cannot send any (ETOOMANYREFS). A user with the usual limit of
 * 1,024 must remain able to, however many a box has in flight: FILES_SHARED, and one message of 253 beyond. */
enum { FILES_USUAL = 1024, FILES_MOST = 4096, FILES_SHARED = 512 };

void box_settle_files(struct engine_box *box)
{
    bool is_shared = box_shares_user(box);

    box->files.usual = is_shared ? FILES_SHARED : FILES_USUAL;
    box->files.most = is_shared ? FILES_SHARED : FILES_MOST;
    if (box->limits.nofile)
        box->files.usual = box->files.most = box->limits.nofile;
}

/* Limits can only be lowered, because the box's processes inherit ours. */
static int check_files(const struct engine_box *box, struct err *e)
{
    struct rlimit own = { .rlim_max = 0 };

    if (box_shares_user(box) && box->limits.nofile > FILES_SHARED)
        return err_set(e, ENOTSUP, STEP_USAGE,
                       "nofile may be %d here: the box's user is the caller's own, and files in flight count for both",
                       FILES_SHARED);
    if (box->limits.nofile && (getrlimit(RLIMIT_NOFILE, &own) < 0 || box->limits.nofile > own.rlim_max))
        return err_set(e, ENOTSUP, STEP_USAGE,
                       "nofile may be %llu: carrel itself has no more (ulimit -Hn, LimitNOFILE= of a service)",
                       (unsigned long long)own.rlim_max);
    return 0;
}

int box_begin(struct box_host *host, const struct plan *plan, struct engine_box *ret, struct err *e)
{
    struct engine_box *box = ret;

    *box = empty_box;
    box->state = BOX_MAKING;
    box->keeper = host->self;
    box->profile = plan->profile;
    box->uid = plan->uid;
    box->gid = plan->gid;
    box->limits = plan->limits;
    box->has_network = plan->has_network;
    box->on_store = plan->store >= 0;
    box->landlock_abi = plan->landlock_abi;
    box->can_setgroups = host->can_setgroups;
    box->keep_own = host->ids.size == 1;
    for (size_t i = 0; i < plan->n_mounts; i++)
        if (plan->mount[i].source == FROM_CALLER || plan->mount[i].source == FROM_NODE) {
            box->keep_own |= host->rootless;
            box->shares |= plan->mount[i].source == FROM_CALLER && !(plan->mount[i].flags & TREE_READONLY);
        }

    int r = take_rules(box, plan, e);
    if (r == 0)
        r = ids_take(&host->ids, &box->ids, e);
    box_settle_files(box);
    if (r == 0)
        r = check_files(box, e);
    if (r == 0 && !(ids_holds(&box->ids, plan->uid) && ids_holds(&box->ids, plan->gid)))
        r = err_set(e, EINVAL, STEP_USAGE,
                    "an ordinary user's box has the ids 0 to %u and 65534; --user %u:%u is not among them",
                    box->ids.size - 2, plan->uid, plan->gid);
    if (r == 0 && plan->writable_root && host->rootless && plan->root[1] == '\0')
        r = err_set(e, ENOTSUP, STEP_USAGE,
                    "--writable-root with the host's own root is for root only: its files have no owner in an "
                    "ordinary user's box");
    if (r == 0 && plan->writable_root && box->ids.size == 1 && plan->uid != 0)
        r = err_set(e, ENOTSUP, STEP_USAGE,
                    "a writable root needs more than the user's own id: give the user a range in /etc/subuid, or take "
                    "--user 0");
    return r;
}

int box_make_door(struct engine_box *box, int *ret_init, struct err *e)
{
    int pair[2];

    *ret_init = -1;
    if (box->profile == PROFILE_STRICT)
        return 0;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_at(e, errno, STEP_CLONE, 0, "init's door");
    box->door = pair[0];
    *ret_init = pair[1];
    return 0;
}

/* If init or the first payload failed, our own error is a consequence: theirs is the cause. */
static void find_cause(struct engine_box *box, int *r, struct err *e)
{
    struct err cause = { 0 };
    struct note note;
    int found = box->init.pidfd >= 0 ? box_init_report(box, false, &cause) : 0;

    /* Init only waits for the payload: if that failed, the payload's error is the cause. */
    if (found < 0 && found != -ECHILD) {
        *e = cause;
        *r = found;
    }
    if ((found == 0 || found == -ECHILD || cause.step == STEP_WAIT) && box->first.link >= 0 &&
        link_receive(box->first.link, &note, sizeof note, NULL, 0, false) == 1 && note.kind == NOTE_FAILED) {
        *e = note.err;
        *r = -note.err.code;
    }
}

int box_create(struct box_host *host, const struct plan *plan, const struct start *start, bool freezer,
               struct engine_box *ret, struct err *e)
{
    struct engine_box *box = ret;
    struct trees trees;
    int link[2] = { -1, -1 }, gate[2] = { -1, -1 }, door = -1;
    struct process_end end;

    int r = box_begin(host, plan, box, e);
    if (r < 0) {
        box_destroy(host, box, &end);
        return r;
    }
    if (start)
        box_give_pipes(box, start->stdio);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, link) < 0
        || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, gate) < 0)
        r = err_at(e, errno, STEP_CLONE, 0, "init's links");
    if (r == 0)
        r = box_make_door(box, &door, e);
    if (r == 0) {
        r = process_clone_for(host->rootless ? 0 : box->ids.base,
                              CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS, &box->init, e);
        if (r == 0) {
            /* Init must not hold the other ends, or it would never see them close. */
            fd_close(link[0]);
            fd_close(gate[0]);
            fd_close(box->door);
            init_run(&(struct init_job){ .plan = plan,
                                         .trees = &trees,
                                         .trees_come = true,
                                         .link = link[1],
                                         .gate = gate[1],
                                         .door = door,
                                         .keeper = host->self,
                                         .wait_maps = true,
                                         .can_setgroups = host->can_setgroups,
                                         .one_id = box->ids.size == 1,
                                         .quiet = start != NULL });
        }
        r = r < 0 ? r : 0;
    }
    box->link = link[0];
    fd_close(link[1]);
    fd_close(gate[1]);
    fd_close(door);
    if (r == 0)
        r = raise_box(host, plan, box, start, freezer, gate[0], e);
    fd_close(gate[0]);
    if (r < 0) {
        find_cause(box, &r, e);
        box_destroy(host, box, &end);
    }
    return r;
}

int box_check_making(struct engine_box *box, struct err *e)
{
    int r = box_init_report(box, false, e);
    if (r == -ECHILD) {
        /* Init closes the link when it has nothing to report; if it is dead instead, so is the payload, and that is
         * seen there. */
        box->link = fd_close(box->link);
        return 0;
    }
    return r < 0 && e->step != STEP_WAIT ? r : 0;
}

/* If the link closes without a message, init is exiting; its status has the reason. */
static int init_ended(const struct engine_box *box, bool block, struct err *e)
{
    enum { PATIENCE_MS = 1000, GLANCE_MS = 20 };    /* non-blocking callers wait 20 ms for init's exit status */
    struct pollfd ended = { .fd = box->init.pidfd, .events = POLLIN };
    siginfo_t info = { 0 };

    if (poll(&ended, 1, block ? PATIENCE_MS : GLANCE_MS) < 0 ||
        waitid(P_PIDFD, (id_t)box->init.pidfd, &info, WEXITED | WNOHANG | WNOWAIT | __WALL) < 0 || info.si_pid == 0)
        return err_at(e, ECHILD, STEP_CLONE, 0, "init closed its link");
    return err_set(e, ECHILD, STEP_CLONE,
                   info.si_code == CLD_EXITED ? "init ended with status %d" : "init was ended by signal %d",
                   info.si_status);
}

int box_ready(struct engine_box *box, bool block, struct err *e)
{
    struct note note;
    int r;

    if (box->birth >= 0 && (r = family_box_wait_born(box, block, e)) <= 0)
        return r;
    /* Init's report first: without it, the payload's would mean a box without a file system. */
    if (box->link >= 0) {
        r = box_init_report(box, block, e);
        if (r == -ECHILD)
            r = init_ended(box, block, e);
        if (r == -ECHILD || (r < 0 && e->step == STEP_WAIT))
            find_cause(box, &r, e);
        if (r <= 0)
            return r;
        box->link = fd_close(box->link);
    }
    if (box->is_blank) {
        box->state = BOX_READY;
        return 1;
    }
    if (box->family)
        return family_box_forked(box, block, e);
    r = link_receive(box->first.link, &note, sizeof note, &box->ns.net, 1, block);
    if (r == 0)
        return 0;
    if (r == 1 && note.kind == NOTE_FAILED) {
        *e = note.err;
        return -note.err.code;
    }
    if (r < 0)
        return err_at(e, ECHILD, STEP_CLONE, 0, "the waiting payload ended");
    box->state = BOX_READY;
    return 1;
}

int box_order_start(struct payload *payload, const struct start *start, struct err *e)
{
    struct order order = { .kind = ORDER_START };
    int fds[ORDER_FDS];
    size_t n = 1;
    FD command = -1;

    int r = start->command ? command_pack(start->command, &command, e) : 0;
    if (r < 0)
        return r;
    fds[0] = start->command ? command : start->packed;
    for (int i = 0; i < 3; i++)
        if (start->stdio[i] >= 0) {
            order.has_stdio[i] = 1;
            fds[n++] = start->stdio[i];
        }
    r = link_send(payload->link, &order, sizeof order, fds, n);
    return r < 0 ? err_at(e, -r, STEP_CLONE, 0, "payload") : 0;
}

/* The box as a payload with another of its users sees it. */
static int become_other(const struct engine_box *box, const struct start *start, struct engine_box *ret, struct err *e)
{
    bool is_known = box->ids.size > 1 ? ids_holds(&box->ids, start->uid) && ids_holds(&box->ids, start->gid)
                                      : start->uid == box->uid && start->gid == box->gid;

    if (!is_known)
        return err_set(e, EINVAL, STEP_USAGE, "the box has no user %u or no group %u", start->uid, start->gid);
    *ret = *box;
    ret->uid = start->uid;
    ret->gid = start->gid;
    ret->keep_own = box->keep_own && (box->ids.size == 1 || (start->uid == box->uid && start->gid == box->gid));
    return 0;
}

/* Kills a payload that did not get its command. It may take a while to die. */
static void abandon(struct engine_box *box, struct payload *payload)
{
    struct process_end end;

    (void)!process_signal(&payload->process, SIGKILL);
    if (box->abandoned.pidfd >= 0)
        (void)!process_reap(&box->abandoned, 1, &end);
    box->abandoned = payload->process;
    payload->process = (struct process){ .pidfd = -1 };
    payload_done(payload);
}

int box_start_payload(struct engine_box *box, const struct start *start, struct payload *ret, struct err *e)
{
    struct payload next = empty_box.first;
    struct engine_box other;
    struct engine_box *as = box;
    int r = 0;

    if (box->state != BOX_READY)
        return err_at(e, EBUSY, STEP_USAGE, 0, "the box is not ready");
    if (start->other_user) {
        if ((r = become_other(box, start, &other, e)) < 0)
            return r;
        as = &other;
    }
    box_give_pipes(as, start->stdio);
    if (box->first.waiting && !start->fresh && !start->other_user) {
        next = box->first;
        box->first = empty_box.first;
    } else {
        r = spawn(as, NULL, -1, false, false, &next, e);
    }
    if (r == 0 && (r = box_order_start(&next, start, e)) < 0)
        abandon(box, &next);
    if (r < 0)
        return r;
    next.waiting = false;
    *ret = next;
    return 0;
}

/* Accepts the master side of a PTY only, and nothing else that a payload could send. */
static bool is_terminal(int fd)
{
    struct stat status;
    return fd >= 0 && fstat(fd, &status) == 0 && S_ISCHR(status.st_mode) && status.st_rdev == makedev(5, 2);
}

int payload_started(struct payload *payload, struct err *e)
{
    struct note note;
    int fd = -1;
    int r = link_receive(payload->link, &note, sizeof note, &fd, 1, false);

    if (r == 0)
        return 0;
    /* Each message once: repeated ones would fill our descriptor table, or keep us busy. */
    if (r == 1 && note.kind == NOTE_TERMINAL && payload->terminal < 0 && is_terminal(fd)) {
        payload->terminal = fd;
        return 0;
    }
    fd_close(fd);
    if (r == 1 && note.kind == NOTE_READY && !payload->ready) {
        payload->ready = true;
        return 0;       /* sealed, and about to read its command */
    }
    payload->link = fd_close(payload->link);
    if (r == 1 && note.kind == NOTE_STARTED)
        return 1;       /* no exec: a child of a zygote runs */
    if (r == 1 && note.kind == NOTE_FAILED && note.err.code > 0) {
        *e = note.err;
        e->what[sizeof e->what - 1] = '\0';
        return -note.err.code;
    }
    return r == -EPIPE ? 1 : err_at(e, r < 0 ? -r : EPROTO, STEP_PROTOCOL, 0, "payload");
}

int payload_reap(struct payload *payload, struct process_end *ret)
{
    return process_reap(&payload->process, 0, ret);
}

void payload_done(struct payload *payload)
{
    payload->link = fd_close(payload->link);
    payload->terminal = fd_close(payload->terminal);
    payload->process.pidfd = fd_close(payload->process.pidfd);
    payload->process.pid = 0;
}
