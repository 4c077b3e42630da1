/* Makes a box of a family.
 *
 *   keeper                     midwife                              init
 *   trees, cgroup leaf
 *   clone into the family's
 *   pid namespace ----------->  joins the family's user namespace
 *                               new mount namespace, builds the root
 *                               becomes Z, the zygote's user
 *                               opens the `tasks` files
 *                               clone3, CLONE_PARENT ------------->
 *                               writes the id maps
 *   takes init and files <----  exits
 *   "go" --------------------------------------------------------->  own /proc, loopback up
 *   requests the first payload, unless                               drops its rights, reaps
 *   the box is to be blank
 *
 * The keeper does not wait for the midwife: family_box_create() ends with its clone, and its report comes on
 * box->birth. A process with the zygote's own uid outside may stop or kill a midwife at any moment, also between init's
 * birth and that report. So its end is watched as well as its report, and an unreported init is searched for: it is the
 * child of ours whose root is the box's.
 *
 * The clone by Z makes Z the owner of the box's user namespace, and that lets the zygote, which has no capability, join
 * the box. Because the midwife's mount namespace belongs to the family and init's copy of it does not, all mounts of
 * the midwife are locked: even a process that joins the box and has every capability there cannot make a read-only tree
 * writable. The midwife writes the maps because only a member of the family's user namespace may; so it must be able to
 * open init's files in /proc, and init is dumpable until it has its maps. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <linux/securebits.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/title.h"
#include "box/family/family_impl.h"
#include "box/leafview.h"
#include "box/making.h"
#include "box/payload.h"
#include "box/tree.h"
#include "sys/mountfd.h"
#include "sys/rights.h"

struct birth {
    const struct box_host *host;
    const struct family   *family;
    const struct engine_box      *box;
    const struct plan     *plan;
    struct trees          *trees;
    int                    link;        /* init's, to the keeper */
    int                    door;        /* init's: for payloads' listeners */
    int                    report;      /* the midwife's, to the keeper */
};

/* The midwife's last message carries init's pidfd and the `tasks` files; the pidfd also if the birth has failed. */
enum { BIRTH_INIT, BIRTH_TASKS, BIRTH_FDS = BIRTH_TASKS + CG_CONTROLLERS };

/* Ids as seen in the family. The capabilities in the family's user namespace stay. */
static int change_ids(uid_t uid, gid_t gid)
{
    if (prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP, 0, 0, 0) < 0)
        return -errno;
    /* Raw calls: a libc's wrappers would first look for other threads. */
    if (syscall(SYS_setresgid, -1, gid, -1) < 0 || syscall(SYS_setresuid, -1, uid, -1) < 0)
        return -errno;
    return 0;
}

static int write_maps(const struct birth *b, pid_t init)
{
    const struct engine_box *box = b->box;
    char uids[IDS_MAP_TEXT], gids[IDS_MAP_TEXT];
    uint32_t shift = ids_family_shift(&b->host->ids, b->family->box.uid);

    ids_map_text(&box->ids, box->uid, box->keep_own, shift, uids);
    shift = ids_family_shift(&b->host->ids, b->family->box.gid);
    ids_map_text(&box->ids, box->gid, box->keep_own, shift, gids);
    return process_map_ids(init, uids, gids, !b->host->can_setgroups);
}

/* A `tasks` file can move the processes that its opener could move: opened by Z, only the zygote's own. */
static int open_tasks(const struct cgroup *leaf, int *fds, size_t *n)
{
    for (size_t i = 0; i < CG_CONTROLLERS; i++) {
        if (leaf->tasks[i] < 0)
            continue;
        if ((fds[*n] = openat(leaf->dir[i], "tasks", O_WRONLY | O_CLOEXEC)) < 0)
            return -errno;
        ++*n;
    }
    return 0;
}

static int enter_family(const struct birth *b, struct err *e)
{
    uint32_t root = b->box->ids.base + ids_family_shift(&b->host->ids, b->family->box.uid);
    int r = 0;

    if (setns(b->family->box.ns.user, CLONE_NEWUSER) < 0)
        return err_at(e, errno, STEP_JOIN, 0, "the family's user namespace");
    if (unshare(CLONE_NEWNS) < 0)
        return err_at(e, errno, STEP_JOIN, 0, "mount namespace");
    /* An overlay works with the rights of its mounter, so that must be an id that the box's files know. */
    if (b->plan->writable_root && (r = change_ids(root, root)) < 0)
        return err_at(e, -r, STEP_RIGHTS, 0, "ids of the midwife");
    return 0;
}

static int give_birth(struct birth *b, int *fds, size_t *n, struct err *e)
{
    const uint64_t namespaces = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWNET;
    struct process init = { .pidfd = -1 };
    int r = enter_family(b, e);

    if (r == 0)
        r = init_build_early(b->plan, b->trees, e);
    if (r < 0)
        return r;
    if ((r = change_ids(b->family->box.uid, b->family->box.gid)) < 0)
        return err_at(e, -r, STEP_RIGHTS, 0, "ids of the midwife");
    *n = BIRTH_TASKS;
    if ((r = open_tasks(&b->box->leaf, fds, n)) < 0)
        return err_at(e, -r, STEP_CGROUP, 0, "tasks");
    if (prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0)
        return err_at(e, errno, STEP_RIGHTS, 0, "dumpable");
    r = process_clone(namespaces | CLONE_PARENT, -1, -1, &init);
    if (r == 0)
        init_run(&(struct init_job){ .stage = INIT_LATE,
                                     .plan = b->plan,
                                     .trees = b->trees,
                                     .link = b->link,
                                     .gate = -1,
                                     .door = b->door,
                                     .keeper = b->host->self,
                                     .wait_maps = true,
                                     .can_setgroups = b->host->can_setgroups,
                                     .one_id = b->host->ids.size == 1 });
    if (r < 0)
        return err_at(e, -r, STEP_CLONE, 0, "namespaces");
    fds[BIRTH_INIT] = init.pidfd;
    r = write_maps(b, init.pid);
    if (r < 0) {
        (void)!process_signal(&init, SIGKILL);
        return err_at(e, -r, STEP_IDMAP, 0, "the box's ids");
    }
    return 0;
}

static _Noreturn void midwife_run(struct birth *b)
{
    struct note note = { .kind = NOTE_READY };
    int fds[BIRTH_FDS];
    size_t n = 0;

    title_set("midwife");
    fds[BIRTH_INIT] = -1;
    if (give_birth(b, fds, &n, &note.err) < 0) {
        note.kind = NOTE_FAILED;
        n = fds[BIRTH_INIT] >= 0;
    }
    _exit(link_send(b->report, &note, sizeof note, fds, n) < 0);
}

/* The pid of a process whose descriptor came from another pid namespace. */
static pid_t pid_of(int pidfd)
{
    char path[40], text[512];

    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", pidfd);
    if (fd_read_file(AT_FDCWD, path, text, sizeof text) < 0)
        return 0;
    const char *line = strstr(text, "\nPid:");
    return line ? (pid_t)strtol(line + 5, NULL, 10) : 0;
}

/* Reads the midwife's report: 1 if it succeeded, 0 if there is none, -errno. */
static int take_birth(struct engine_box *box, struct err *e)
{
    struct note note;
    int fds[BIRTH_FDS];
    int r = link_receive(box->birth, &note, sizeof note, fds, BIRTH_FDS, false);

    if (r == 0)
        return 0;
    if (r < 0)
        return err_at(e, ECHILD, STEP_CLONE, 0, "the midwife ended");
    box->init = (struct process){ .pidfd = fds[BIRTH_INIT], .pid = pid_of(fds[BIRTH_INIT]) };
    if (note.kind == NOTE_FAILED) {
        *e = note.err;
        return -note.err.code;
    }
    memcpy(box->zygote_tasks, fds + BIRTH_TASKS, sizeof box->zygote_tasks);
    return box->init.pid > 0 ? 1 : err_at(e, ESRCH, STEP_CLONE, 0, "init");
}

/* init is our child although the midwife clones it, and so is the midwife. */
static int send_midwife(struct birth *b, struct engine_box *box, struct err *e)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_at(e, errno, STEP_CLONE, 0, "midwife's link");
    FD theirs = pair[1];

    box->birth = pair[0];
    b->report = theirs;
    int r = process_clone(0, -1, b->family->box.ns.pid, &box->midwife);
    if (r == 0)
        midwife_run(b);
    return r < 0 ? err_at(e, -r, STEP_CLONE, 0, "midwife") : 0;
}

/* The `tasks` files belong to Z, who opens them. */
static int lend_leaf(struct box_host *host, const struct family *family, struct engine_box *box, bool freezer,
                     struct err *e)
{
    struct cgroup_limits limits = box_leaf_limits(host, box, freezer);
    uint32_t owner = ids_outside(&family->box.ids, family->box.uid, family->box.keep_own);
    int r = box_make_leaf(host, box, &limits, e);

    if (r == 0)
        r = family_bound_pids(box, box->limits.pids, e);
    for (size_t i = 0; r == 0 && i < CG_CONTROLLERS; i++)
        if (box->leaf.tasks[i] >= 0 && fchownat(box->leaf.dir[i], "tasks", owner, (gid_t)-1, 0) < 0)
            r = err_at(e, errno, STEP_CGROUP, i, "tasks");
    return r;
}

static int open_network(struct engine_box *box, struct err *e)
{
    char path[40];

    snprintf(path, sizeof path, "/proc/%d/ns/net", (int)box->init.pid);
    box->ns.net = open(path, O_RDONLY | O_CLOEXEC);
    return box->ns.net < 0 ? err_at(e, errno, STEP_JOIN, 0, "network") : 0;
}

/* Everything after init's birth. */
static int raise_box(struct engine_box *box, struct err *e)
{
    int r = box_open_namespaces(box->init.pid, &box->ns);

    if (r < 0)
        return err_at(e, -r, STEP_JOIN, 0, "init's namespaces");
    if ((r = open_network(box, e)) < 0)
        return r;
    if (send(box->link, "g", 1, MSG_NOSIGNAL) < 0)
        return err_at(e, errno, STEP_CLONE, 0, "init");
    return box->is_blank ? 0 : family_fork(box, &box->first, e);
}

/* Waits at most wait_ms; -1: unlimited. */
static bool midwife_has_ended(const struct engine_box *box, int wait_ms)
{
    struct pollfd ended = { .fd = box->midwife.pidfd, .events = POLLIN };
    int r = 1;

    while (ended.fd >= 0 && (r = poll(&ended, 1, wait_ms)) < 0 && errno == EINTR)
        ;
    return r != 0;
}

static void close_birth(struct engine_box *box)
{
    box->birth = fd_close(box->birth);
    box->root = fd_close(box->root);
}

/* The birth failed, and the midwife has reported or exited: no further process is born. An existing one is our child
 * and keeps its pid until we reap it. */
static void give_up(struct engine_box *box)
{
    pid_t init = box->init.pidfd < 0 && box->root >= 0 ? family_find_init(box->root_device) : 0;
    int pidfd = init > 0 ? (int)syscall(SYS_pidfd_open, init, 0) : -1;

    if (pidfd >= 0)
        box->init = (struct process){ .pid = init, .pidfd = pidfd };
    else if (init > 0)
        kill(init, SIGKILL);        /* no descriptor is left for it; it is reaped as an unknown child */
    (void)!process_signal(&box->init, SIGKILL);
    close_birth(box);
}

int family_box_born(struct engine_box *box, struct err *e)
{
    int r = take_birth(box, e);

    if (r == 0) {
        if (!midwife_has_ended(box, 0))
            return 0;
        /* A message from before its end can still be read. */
        if ((r = take_birth(box, e)) == 0)
            r = err_at(e, ECHILD, STEP_CLONE, 0, "the midwife ended");
    }
    if (r < 0) {
        give_up(box);
        return r;
    }
    close_birth(box);
    r = raise_box(box, e);
    return r < 0 ? r : 1;
}

int family_box_call_off(struct engine_box *box, bool block)
{
    struct err ignored;

    if (!midwife_has_ended(box, block ? -1 : 0))
        return 0;
    if (box->birth >= 0 && box->init.pidfd < 0)
        (void)!take_birth(box, &ignored);
    give_up(box);
    return 1;
}

int family_box_wait_born(struct engine_box *box, bool block, struct err *e)
{
    uint64_t now = clock_monotonic_us(), end = now + FAMILY_FORK_MS * UINT64_C(1000);
    struct process_end how;
    int r;

    while ((r = family_box_born(box, e)) == 0 && block && (now = clock_monotonic_us()) < end) {
        struct pollfd list[2] = { { .fd = box->birth, .events = POLLIN },
                                  { .fd = box->midwife.pidfd, .events = POLLIN } };
        if (poll(list, 2, (int)((end - now + 999) / 1000)) < 0 && errno != EINTR)
            return err_at(e, errno, STEP_WAIT, 0, "poll");
    }
    if (r == 0 && block)
        return err_at(e, ETIMEDOUT, STEP_CLONE, 0, "the box was not born in time");
    /* It is done and will exit. */
    if (r > 0)
        (void)!process_reap(&box->midwife, block, &how);
    return r;
}

int family_box_create(struct box_host *host, struct family *family, const struct plan *plan, bool freezer,
                      struct engine_box *ret, struct err *e)
{
    struct engine_box *box = ret;
    struct trees trees = { .root = -1, .scratch = -1 };
    struct process_end end;
    int link[2] = { -1, -1 }, door = -1;

    family_reap(family);
    if (family->zygote.pidfd < 0)
        return err_at(e, ECHILD, STEP_CLONE, 0, "the zygote has ended");
    int r = box_begin(host, plan, box, e);
    box->family = family;
    if (r == 0 && plan->profile != family->box.profile)
        r = err_at(e, EINVAL, STEP_USAGE, 0, "a box must have the profile of its family");
    if (r == 0 && plan->limits.nofile > family->box.files.most)
        r = err_set(e, ENOTSUP, STEP_USAGE, "nofile may be %u here: a zygote's children have no more than the zygote",
                    family->box.files.most);
    if (r == 0)
        r = trees_make(host, plan, &box->ids, box->keep_own, &trees, e);
    if (r < 0) {
        box_destroy(host, box, &end);
        return r;
    }
    box->root_device = trees.device;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, link) < 0)
        r = err_at(e, errno, STEP_CLONE, 0, "init's link");
    if (r == 0)
        r = box_make_door(box, &door, e);
    box->link = link[0];
    box->scratch = fcntl(trees.scratch, F_DUPFD_CLOEXEC, 3);
    struct birth birth = {
        .host = host, .family = family, .box = box, .plan = plan, .trees = &trees, .link = link[1],
        .door = door,
    };
    if (r == 0)
        r = lend_leaf(host, family, box, freezer, e);
    if (r == 0)
        leafview_add(plan, &box->leaf, &trees);
    if (r == 0)
        r = send_midwife(&birth, box, e);
    fd_close(link[1]);
    fd_close(door);
    box->root = TAKE_FD(trees.root);
    trees_close(&trees, plan->n_mounts);
    if (r < 0)
        box_destroy(host, box, &end);
    return r;
}
