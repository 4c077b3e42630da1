/* Requests a payload from a zygote.
 *
 *   keeper                     zygote                   helper                     child
 *   request, with the box's
 *   namespaces and a link ---> clones, CLONE_PARENT ---> cgroup, six setns
 *                                                        clones, CLONE_PARENT ---> seals itself like every payload
 *   reaps the helper                                     exits
 *   checks the child <--------------------------------------------------------- "ready" on the link
 *   the command ----------------------------------------------------------------> runs
 *
 * The keeper knows the child by the credentials that the kernel adds to its message. Nothing is answered on the control
 * socket, so a zygote cannot hold the keeper up: a request is sent without blocking, and the link is polled with a
 * deadline. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "box/family/family_impl.h"
#include "box/making.h"
#include "box/payload.h"

void family_reap(struct family *family)
{
    siginfo_t info;

    /* By its own pid first: it joins the group only with its setsid, and one that ended before is not found by the
     * group. */
    if (family->zygote.pidfd >= 0)
        (void)!process_reap(&family->zygote, 0, &family->zygote_end);
    for (;;) {
        info.si_pid = 0;
        if (family->group == 0)
            return;
        if (waitid(P_PGID, (id_t)family->group, &info, WEXITED | WNOHANG | WNOWAIT | __WALL) < 0) {
            /* The group is empty, so its number may be reused. */
            if (family->zygote.pidfd < 0)
                family->group = 0;
            return;
        }
        if (!info.si_pid)
            return;
        if (info.si_pid == family->zygote.pid)
            (void)!process_reap(&family->zygote, 0, &family->zygote_end);
        else
            (void)waitid(P_PID, (id_t)info.si_pid, &info, WEXITED | WNOHANG | __WALL);
    }
}

static int fill_request(const struct engine_box *box, struct zygote_request *q, struct err *e)
{
    size_t used = 0;

    *q = (struct zygote_request){
        .version = ZYGOTE_VERSION,
        .profile = box->profile,
        .shares = box->shares,
        .files_usual = box->files.usual,
        .files_most = box->files.most,
        .uid = box->uid,
        .gid = box->gid,
        .can_setgroups = box->can_setgroups,
        .landlock_abi = box->landlock_abi,
        .wait_join = box->leaf.v2 >= 0,
        .n_rules = (uint32_t)box->n_rules,
    };
    for (size_t i = 0; i < box->n_rules; i++) {
        size_t size = strlen(box->rule[i].path) + 1;
        if (size > sizeof q->paths - used)
            return err_at(e, E2BIG, STEP_USAGE, 0, "the box has too many or too long writable places for a zygote");
        memcpy(q->paths + used, box->rule[i].path, size);
        used += size;
        q->rights[i] = (uint8_t)box->rule[i].rights;
    }
    return 0;
}

int family_fork(struct engine_box *box, struct payload *ret, struct err *e)
{
    struct family *family = box->family;
    struct zygote_request request;
    int pair[2], on = 1, fds[ZYGOTE_FDS];
    size_t n = ZYGOTE_TASKS;

    family_reap(family);
    if (family->zygote.pidfd < 0 || family->control < 0)
        return err_at(e, ECHILD, STEP_CLONE, 0, "the zygote has ended");
    int r = fill_request(box, &request, e);
    if (r < 0)
        return r;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_at(e, errno, STEP_CLONE, 0, "payload link");
    FD ours = pair[0], theirs = pair[1];
    /* A child that does not read must not block the keeper. */
    if (setsockopt(ours, SOL_SOCKET, SO_PASSCRED, &on, sizeof on) < 0 || fcntl(ours, F_SETFL, O_NONBLOCK) < 0)
        return err_at(e, errno, STEP_CLONE, 0, "payload link");

    fds[ZYGOTE_USER] = box->ns.user;
    fds[ZYGOTE_MOUNT] = box->ns.mount;
    fds[ZYGOTE_PID] = box->ns.pid;
    fds[ZYGOTE_IPC] = box->ns.ipc;
    fds[ZYGOTE_UTS] = box->ns.uts;
    fds[ZYGOTE_NET] = box->ns.net;
    fds[ZYGOTE_LINK] = theirs;
    for (size_t i = 0; i < CG_CONTROLLERS; i++)
        if (box->zygote_tasks[i] >= 0)
            fds[n++] = box->zygote_tasks[i];
    request.n_tasks = (uint32_t)(n - ZYGOTE_TASKS);
    if (box->door >= 0) {
        fds[n++] = box->door;
        request.has_door = 1;
    }
    r = link_send(family->control, &request, sizeof request, fds, n);
    if (r < 0)
        return r == -EPIPE || r == -ECONNRESET ? err_at(e, ECHILD, STEP_CLONE, 0, "the zygote has ended")
               : err_at(e, -r, STEP_CLONE, 0, r == -EAGAIN ? "the zygote does not take requests" : "the zygote");
    *ret = (struct payload){ .process.pidfd = -1, .link = TAKE_FD(ours), .terminal = -1, .waiting = true };
    return 0;
}

/* Receives a message of the child, or of the helper before it, and its sender. 1, 0 if there is none, -errno. */
static int listen_to(int link, struct note *note, pid_t *ret_pid)
{
    struct fdpass passed;
    ssize_t n = link_receive_message(link, note, sizeof *note, &passed);

    *ret_pid = 0;
    if (n < 0)
        return n == -EAGAIN ? 0 : (int)n;
    (void)!fdpass_take(&passed, NULL, 0);
    *ret_pid = passed.sender;
    if (n == 0)
        return -EPIPE;
    return (size_t)n == sizeof *note && !passed.cut ? 1 : -EPROTO;
}

/* For hosts where a process can only be born into its cgroup, or moved by us. */
static int put_into_cgroup(const struct engine_box *box, int link, pid_t helper, struct err *e)
{
    struct order order = { .kind = ORDER_JOIN };
    char text[16];

    if (box->leaf.v2 < 0 || helper <= 0 || family_is_child(helper) < 0)
        return err_at(e, EPERM, STEP_CGROUP, 0, "the zygote's helper was refused: it is not the keeper's child");
    snprintf(text, sizeof text, "%d", (int)helper);
    int r = fd_write_file(box->leaf.v2, "cgroup.procs", text);
    if (r == 0)
        r = link_send(link, &order, sizeof order, NULL, 0);
    return r < 0 ? err_at(e, -r, STEP_CGROUP, 0, "moving the zygote's helper") : 0;
}

/* 1: sealed and verified; 0: nothing decisive yet. */
static int take_word(struct engine_box *box, struct payload *payload, struct err *e)
{
    struct note note;
    pid_t pid;
    int r = listen_to(payload->link, &note, &pid);

    if (r == 0)
        return 0;
    if (r == -EPIPE) {
        family_reap(box->family);
        return err_at(e, ECHILD, STEP_CLONE, 0,
                      box->family->zygote.pidfd < 0 ? "the zygote has ended" : "the zygote gave no child");
    }
    if (r < 0)
        return err_at(e, EPROTO, STEP_PROTOCOL, 0, "the zygote's child");
    if (note.kind == NOTE_BORN && !payload->born) {
        payload->born = true;
        return put_into_cgroup(box, payload->link, pid, e);
    }
    if (note.kind == NOTE_FAILED && note.err.code > 0 && note.err.step < STEP_COUNT) {
        *e = note.err;
        e->what[sizeof e->what - 1] = '\0';
        return -note.err.code;
    }
    if (note.kind != NOTE_READY)
        return err_at(e, EPROTO, STEP_PROTOCOL, 0, "the zygote's child");
    r = family_check(box, pid, &payload->process, e);
    if (r < 0)
        return r;
    int off = 0;
    (void)setsockopt(payload->link, SOL_SOCKET, SO_PASSCRED, &off, sizeof off);
    return 1;
}

int family_forked(struct engine_box *box, struct payload *payload, int timeout_ms, struct err *e)
{
    uint64_t now, end = clock_monotonic_us() + (uint64_t)timeout_ms * 1000;
    int r;

    while ((r = take_word(box, payload, e)) == 0 && (now = clock_monotonic_us()) < end) {
        struct pollfd link = { .fd = payload->link, .events = POLLIN };
        if (poll(&link, 1, (int)((end - now + 999) / 1000)) < 0 && errno != EINTR)
            return err_at(e, errno, STEP_WAIT, 0, "poll");
    }
    /* The helper has exited or is about to; as a zombie it would count in the box. */
    if (r > 0)
        family_reap(box->family);
    return r;
}

int family_box_forked(struct engine_box *box, bool block, struct err *e)
{
    int r = family_forked(box, &box->first, block ? FAMILY_FORK_MS : 0, e);

    if (r == 0 && block)
        return err_at(e, ETIMEDOUT, STEP_CLONE, 0, "the zygote gave no child in time");
    if (r <= 0)
        return r;
    box->state = BOX_READY;
    return 1;
}

int family_order(const struct engine_box *box, struct payload *payload, const struct start *start, struct err *e)
{
    box_give_pipes(box, start->stdio);
    int r = box_order_start(payload, start, e);
    if (r == 0)
        payload->waiting = false;
    return r;
}

void family_box_sweep(struct engine_box *box)
{
    if (box->family)
        family_reap(box->family);
    family_sweep(box);
}
