/* A family from its creation to its end.
 *
 * It is made like a box: keeper, detached trees, clone3, init. Three things differ. Its user namespace may have
 * children, its boxes. Its id map covers, besides a range of its own, the whole reserve, so that every box can have a
 * range that no other box of the host has. And its only payload is the zygote, which is sealed in another way
 * (family_zygote.c).
 *
 * All processes are the keeper's own children: init and zygote because it cloned them, boxes' inits and payloads
 * because they are born with CLONE_PARENT. So the zygote's end changes nothing for its children, only the keeper learns
 * how a payload ended, and it finds and reaps every child that a hostile zygote creates in that way. */
#define _GNU_SOURCE
#include "box/family/family.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/sched.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "box/family/family_impl.h"
#include "box/making.h"
#include "box/payload.h"
#include "box/tree.h"

enum { CONTROL_BYTES = 8 << 20, PIDS_MOST = 4194304 /* the kernel accepts no larger limit */ };

void family_plan(struct plan *plan)
{
    size_t n = 0;

    for (size_t i = 0; i < plan->n_mounts; i++) {
        struct plan_mount *mount = &plan->mount[i];
        if (mount->source == FROM_ROOT && strcmp(mount->path, "dev") != 0)
            continue;
        if (mount->source == FROM_PROC)
            mount->path = NULL;
        plan->mount[n++] = *mount;
    }
    plan->n_mounts = n;
}

static int map_family(const struct box_host *host, const struct engine_box *box, struct err *e)
{
    char uids[IDS_MAP_TEXT], gids[IDS_MAP_TEXT];

    ids_family_text(&host->ids, &box->ids, box->uid, uids);
    ids_family_text(&host->ids, &box->ids, box->gid, gids);
    int r = process_map_ids(box->init.pid, uids, gids, !host->can_setgroups);
    return r < 0 ? err_at(e, -r, STEP_IDMAP, 0, "the family's ids") : 0;
}

static int make_tree(struct box_host *host, const struct plan *plan, struct engine_box *box, struct err *e)
{
    struct trees trees = { .root = -1, .scratch = -1 };
    int link[2] = { -1, -1 };

    int r = box_begin(host, plan, box, e);
    /* Only its program may be mounted in it, and no user of the family owns that. */
    box->keep_own = host->ids.size == 1;
    box_settle_files(box);
    if (r == 0)
        r = trees_make(host, plan, &box->ids, box->keep_own, &trees, e);
    if (r < 0)
        return r;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, link) < 0)
        r = err_at(e, errno, STEP_CLONE, 0, "init's link");
    if (r == 0) {
        r = process_clone_for(host->rootless ? 0 : box->ids.base,
                              CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS, &box->init, e);
        if (r == 0)
            init_run(&(struct init_job){ .stage = INIT_FAMILY,
                                         .plan = plan,
                                         .trees = &trees,
                                         .link = link[1],
                                         .gate = -1,
                                         .door = -1,
                                         .keeper = host->self,
                                         .wait_maps = host->rootless,
                                         .can_setgroups = host->can_setgroups, .one_id = box->ids.size == 1 });
        r = r < 0 ? r : 0;
    }
    box->link = link[0];
    fd_close(link[1]);
    box->scratch = TAKE_FD(trees.scratch);
    trees_close(&trees, plan->n_mounts);
    return r;
}

static int raise_tree(struct box_host *host, struct engine_box *box, struct err *e)
{
    struct cgroup_limits limits = box_leaf_limits(host, box, false);
    int r = box_open_namespaces(box->init.pid, &box->ns);

    if (r < 0)
        return err_at(e, -r, STEP_JOIN, 0, "init's namespaces");
    if ((r = map_family(host, box, e)) < 0)
        return r;
    if (send(box->link, "g", 1, MSG_NOSIGNAL) < 0)
        return err_at(e, errno, STEP_CLONE, 0, "init");
    if ((r = box_make_leaf(host, box, &limits, e)) < 0)
        return r;
    r = box_init_report(box, true, e);
    if (r < 0)
        return r;
    box->link = fd_close(box->link);
    box->state = BOX_READY;
    return 0;
}

/* On v1 the leaf's pids directory bounds the whole family. The zygote has its own below it, with its given limit, and
 * so has every box. */
static int make_bound(struct box_host *host, struct family *family, struct err *e)
{
    struct cgroup *leaf = &family->box.leaf;

    family->cgroups = host->can_join ? host->joining : host->cgroups;
    if (leaf->dir[CG_PIDS] < 0)
        return 0;
    family->cgroups.v1[CG_PIDS] = leaf->dir[CG_PIDS];
    struct cgroup_host inside = family->cgroups;
    inside.mode = CGROUP_V1;
    inside.v2 = -1;
    inside.v2_controllers = false;
    int r = cgroup_create(&inside, host->next++, &(struct cgroup_limits){ .pids = family->box.limits.pids },
                          &family->own, e);
    if (r < 0)
        return r;
    fd_close(leaf->tasks[CG_PIDS]);
    leaf->tasks[CG_PIDS] = TAKE_FD(family->own.tasks[CG_PIDS]);
    family->pids = family->box.limits.pids;
    return 0;
}

int family_bound_pids(struct engine_box *box, uint32_t pids, struct err *e)
{
    struct family *family = box->family;

    if (!family || family->pids == 0 || pids == box->family_pids)
        return 0;
    family->pids += pids;
    family->pids -= box->family_pids;
    box->family_pids = pids;
    struct cgroup_limits sum = { .pids = family->pids < PIDS_MOST ? (uint32_t)family->pids : PIDS_MOST };
    return cgroup_update(&family->cgroups, &family->box.leaf, &sum, e);
}

static int start_zygote(struct family *family, const struct start *start, struct err *e)
{
    int link[2], control[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, link) < 0)
        return err_at(e, errno, STEP_CLONE, 0, "zygote's link");
    family->zygote_link = link[0];
    FD their_link = link[1];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, control) < 0)
        return err_at(e, errno, STEP_CLONE, 0, "zygote's control");
    family->control = control[0];
    FD their_control = control[1];
    /* Many boxes may be requested at once, and a request has 8 KiB. If this is not permitted, the size stays. */
    int queue = CONTROL_BYTES;
    if (setsockopt(family->control, SOL_SOCKET, SO_SNDBUFFORCE, &queue, sizeof queue) < 0)
        (void)setsockopt(family->control, SOL_SOCKET, SO_SNDBUF, &queue, sizeof queue);
    /* A zygote that does not read must not stop the keeper. */
    if (fcntl(family->control, F_SETFL, O_NONBLOCK) < 0)
        return err_at(e, errno, STEP_CLONE, 0, "zygote's control");

    int r = process_clone(0, family->box.leaf.v2, family->box.ns.pid, &family->zygote);
    if (r < 0)
        return err_at(e, -r, STEP_CLONE, 0, "zygote");
    if (r == 0) {
        link[0] = fd_close(family->zygote_link);
        control[0] = fd_close(family->control);
        zygote_run(&(struct zygote_job){
            .family = &family->box, .start = start, .link = their_link, .control = their_control });
    }
    family->group = family->zygote.pid;
    return 0;
}

int family_create(struct box_host *host, const struct plan *plan, const struct start *zygote, struct family *ret,
                  struct err *e)
{
    struct family *family = ret;

    *family = (struct family){ .zygote.pidfd = -1, .zygote_link = -1, .control = -1,
                               .own = { .v2 = -1, .dir = CG_NONE, .tasks = CG_NONE } };
    if (!host->joining_known) {
        host->joining_known = true;
        host->can_join = cgroup_host_for_joining(&host->cgroups, &host->joining);
    }
    int r = make_tree(host, plan, &family->box, e);
    if (r == 0)
        r = raise_tree(host, &family->box, e);
    if (r == 0)
        r = make_bound(host, family, e);
    if (r == 0)
        r = start_zygote(family, zygote, e);
    if (r < 0) {
        struct err cause;
        int init =
            family->box.init.pidfd >= 0 && family->box.link >= 0 ? box_init_report(&family->box, false, &cause) : 0;
        if (init < 0 && init != -ECHILD) {
            *e = cause;
            r = init;
        }
        family_destroy(host, family);
        return r;
    }
    /* A sealed child inherits our filters; the zygote's and the payload's come on top. */
    unsigned own = family_count_filters();
    family->filters = own == UINT_MAX ? 0 : own + 2;
    return 0;
}

/* Whether its program was exec'd. */
static int zygote_started(struct family *family, struct err *e)
{
    struct note note;
    int r = link_receive(family->zygote_link, &note, sizeof note, NULL, 0, false);

    if (r == 0)
        return 0;
    family->zygote_link = fd_close(family->zygote_link);
    if (r == -EPIPE)
        return 1;
    if (r == 1 && note.kind == NOTE_FAILED && note.err.code > 0) {
        *e = note.err;
        return -note.err.code;
    }
    return err_at(e, EPROTO, STEP_PROTOCOL, 0, "zygote");
}

int family_ready(struct family *family, int timeout_ms, struct err *e)
{
    uint64_t end = clock_monotonic_us() + (uint64_t)timeout_ms * 1000;
    struct zygote_hello hello;

    for (;;) {
        int r = family->zygote_link >= 0 ? zygote_started(family, e) : 1;
        if (r < 0)
            return r;
        r = r ? link_receive(family->control, &hello, sizeof hello, NULL, 0, false) : 0;
        if (r == 1 && hello.version == ZYGOTE_VERSION)
            return 1;
        if (r == -EPIPE)
            return err_at(e, ECHILD, STEP_CLONE, 0, "the zygote ended before it was ready");
        if (r != 0)
            return err_at(e, EPROTO, STEP_PROTOCOL, 0, "the zygote's first word");
        uint64_t now = clock_monotonic_us();
        if (now >= end)
            return 0;
        struct pollfd list[2] = { { .fd = family->control, .events = POLLIN },
                                  { .fd = family->zygote_link, .events = POLLIN } };
        if (poll(list, 2, (int)((end - now + 999) / 1000)) < 0 && errno != EINTR)
            return err_at(e, errno, STEP_WAIT, 0, "poll");
    }
}

void family_stop(struct family *family)
{
    (void)!process_signal(&family->zygote, SIGKILL);
    family->control = fd_close(family->control);
    family->zygote_link = fd_close(family->zygote_link);
}

void family_kill(struct family *family)
{
    family_stop(family);
    box_kill(&family->box);
}

/* Init ends when everything in its pid namespace has been reaped, and children born with CLONE_PARENT wait for us. */
int family_release(struct box_host *host, struct family *family)
{
    struct process_end end;

    family_reap(family);
    if (family->box.init.pidfd >= 0 && process_reap(&family->box.init, 0, &end) == 0) {
        family_sweep(&family->box);
        return 0;
    }
    if (family->own.dir[CG_PIDS] >= 0)
        (void)!cgroup_remove(&family->cgroups, &family->own);
    box_release(host, &family->box);
    return 1;
}

void family_destroy(struct box_host *host, struct family *family)
{
    family_kill(family);
    if (family->zygote.pidfd >= 0)
        (void)!process_reap(&family->zygote, 1, &family->zygote_end);
    while (family_release(host, family) == 0) {
        struct pollfd ended = { .fd = family->box.init.pidfd, .events = POLLIN };
        (void)poll(&ended, 1, 5);
    }
}
