/* One epoll loop. The keeper's children are the inits and the payloads of its boxes; each is watched through its pidfd.
 * If the front goes away the boxes live on, and their slots keep what the next front must know (unless this is a
 * private keeper, which ends with its front). */
#define _GNU_SOURCE
#include "keeper/create.h"
#include "keeper/families.h"
#include "keeper/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "box/payload.h"
#include "keeper/egress.h"
#include "keeper/later.h"
#include "keeper/layers.h"
#include "keeper/memory.h"
#include "keeper/opener.h"
#include "keeper/trust.h"
#include "keeper/volumes.h"

enum { EVENTS = 64, FRAME_MAX = sizeof(struct request_create), FRONT_PATIENCE_S = 5 };
enum { DRAIN_MAX = 8, CATCH_UP_MAX = 256 };

static uint64_t key(enum watch_kind what, uint32_t box, uint32_t payload)
{
    return (uint64_t)what << 48 | (uint64_t)box << 16 | payload;
}

int keeper_watch(struct keeper *keeper, int fd, enum watch_kind what, uint32_t box, uint32_t payload)
{
    struct epoll_event event = { .events = EPOLLIN, .data.u64 = key(what, box, payload) };
    int r = epoll_ctl(keeper->epoll, EPOLL_CTL_ADD, fd, &event);

    /* A waiting payload that got its command is now watched as that. */
    if (r < 0 && errno == EEXIST)
        r = epoll_ctl(keeper->epoll, EPOLL_CTL_MOD, fd, &event);
    return r < 0 ? -errno : 0;
}

void keeper_unwatch(struct keeper *keeper, int fd)
{
    if (fd >= 0)
        (void)epoll_ctl(keeper->epoll, EPOLL_CTL_DEL, fd, NULL);
}

/* As process_reap without waiting, for a process whose pidfd is watched. */
static int reap_watched(struct keeper *keeper, struct process *process, enum watch_kind what, uint32_t box,
                        uint32_t payload, struct process_end *ret)
{
    keeper_unwatch(keeper, process->pidfd);
    int r = process_reap(process, 0, ret);
    if (r == -ECHILD) {
        /* Another part has reaped it: its status is lost, and its pid may be reused. */
        *ret = (struct process_end){ .code = -1, .signal = SIGKILL };
        process->pidfd = fd_close(process->pidfd);
        process->pid = 0;
        r = 1;
    }
    if (r <= 0 && process->pidfd >= 0)
        (void)!keeper_watch(keeper, process->pidfd, what, box, payload);
    return r;
}

static void drop_front(struct keeper *keeper)
{
    keeper_unwatch(keeper, keeper->front);
    keeper->front = fd_close(keeper->front);
    keeper_forget_held(keeper);
    keeper_egress_front_gone(keeper);
    keeper->stopping |= keeper->end_with_front;
}

bool keeper_tell(struct keeper *keeper, const void *event, size_t size, const int *fds, size_t n_fds)
{
    const struct event_head *head = event;
    struct err e;

    if (keeper->front < 0)
        return true;
    /* The socket blocks for a while, so that no event is lost silently; a front that does not read for that long is
     * dropped. */
    int r = link_send(keeper->front, event, size, fds, n_fds);
    /* The kernel counts descriptors in flight per user, and a box of that user may have used up the limit. */
    bool whole = r != -ETOOMANYREFS;
    if (!whole && head->serial) {
        (void)err_at(&e, ETOOMANYREFS, STEP_PROTOCOL, 0, "descriptors");
        keeper_tell_done(keeper, head->box, head->serial, &e);
        return false;
    }
    if (!whole)
        r = link_send(keeper->front, event, size, NULL, 0);
    /* A closed front may have sent requests before: they are handled first, then the end is read. */
    if (r < 0 && r != -EPIPE && r != -ECONNRESET)
        drop_front(keeper);
    return whole;
}

void keeper_tell_done(struct keeper *keeper, uint32_t box, uint32_t serial, const struct err *e)
{
    struct event_done done = { .head = { .type = EVENT_DONE, .box = box, .serial = serial, .result = -e->code },
                               .err = *e };

    keeper_tell(keeper, &done, sizeof done, NULL, 0);
}

void keeper_tell_end(struct keeper *keeper, const struct kept_payload *p)
{
    bool has_failed = p->end.head.type == EVENT_FAILED;

    keeper_tell(keeper, &p->end, has_failed ? sizeof p->end.failed : sizeof p->end.ended, NULL, 0);
}

void keeper_fill_usage(const struct box_usage *full, struct frame_usage *ret)
{
    const struct cgroup_usage *c = &full->cgroup;
    *ret = (struct frame_usage){
        .memory_bytes = c->memory_bytes,
        .memory_peak_bytes = c->memory_peak_bytes,
        .cpu_us = c->cpu_us,
        .disk_bytes = full->disk_bytes,
        .pids = c->pids,
        .pids_peak = c->pids_peak,
        .oom_kills = (uint32_t)c->oom_kills,
        .pids_refused = (uint32_t)c->pids_refused,
        .disk_full = full->disk_full,
        .measured = (c->has_memory ? USAGE_MEMORY : 0u) | (c->has_cpu ? USAGE_CPU : 0u) |
                    (c->has_pids ? USAGE_PIDS : 0u) | (c->has_pids_peak ? USAGE_PIDS_PEAK : 0u),
    };
}

void keeper_usage(const struct engine_box *box, struct frame_usage *ret, struct box_usage *ret_full)
{
    box_usage_read(box, ret_full);
    keeper_fill_usage(ret_full, ret);
}

void keeper_free_payload(struct keeper *keeper, struct kept_box *box, unsigned slot)
{
    struct kept_payload *p = box->payload[slot];

    keeper_cancel_fork(keeper, p);
    keeper_unwatch(keeper, p->payload.link);
    keeper_unwatch(keeper, p->payload.process.pidfd);
    payload_done(&p->payload);
    for (int i = 0; i < p->n_held; i++)
        fd_close(p->held[i]);
    free(p);
    box->payload[slot] = NULL;
}

void keeper_end_box(struct keeper *keeper, struct kept_box *box, const struct err *cause)
{
    struct err going = { 0 };

    if (box->dying)
        return;
    keeper_freeze_cancel(keeper, box, true);
    box->dying = true;
    box->deadline_us = 0;
    keeper->n_dying++;
    if (cause)
        box->cause = *cause;
    keeper_settle_end(keeper, box);
    (void)err_at(&going, ECANCELED, STEP_WAIT, 0, "the box is going");
    for (unsigned i = 0; i < KEEPER_PAYLOADS; i++)
        if (box->payload[i] && box->payload[i]->forking)
            keeper_fork_failed(keeper, box, i, &going);
    /* Its messages are no longer read. */
    keeper_unwatch(keeper, box->box.link);
    keeper_unwatch(keeper, box->box.first.link);
    keeper_unwatch(keeper, box->box.birth);
    if (!box->waiting)
        box_kill(&box->box);
    else if (box->waiting->job.process.pidfd >= 0)
        (void)!process_signal(&box->waiting->job.process, SIGKILL);
    else if (box->waiting->opener && box->waiting->deadline_us)     /* afterwards the opener has the last copies: see
                                                                     * opener.c */
        (void)!process_signal(&box->waiting->opener->process, SIGKILL);
    else
        keeper->look_at_line = true;
    if (box->box.first.waiting)
        keeper_reap_later(keeper, &box->box.first.process);
    /* During a birth the midwife's end decides which processes must end (keeper_birth_goes_on). */
    if (box->box.birth < 0)
        keeper_reap_later(keeper, &box->box.midwife);
    for (unsigned i = 0; i < KEEPER_PAYLOADS; i++)
        if (box->payload[i] && box->payload[i]->is_helper && !box->payload[i]->ended)
            (void)!process_signal(&box->payload[i]->payload.process, SIGKILL);
}

/* All processes of the box are gone. Reports their ends before the box's. */
void keeper_bury_box(struct keeper *keeper, struct kept_box *box)
{
    struct event_gone gone = { .head = { .type = EVENT_GONE, .box = box->slot, .serial = box->destroy_serial },
                               .token = box->token, .cause = box->cause };

    keeper_unwatch(keeper, box->box.oom);
    keeper_unwatch(keeper, box->box.door);
    keeper_egress_box_gone(keeper, box);
    box_release(&keeper->host, &box->box);
    keeper_leave_family(box);
    if (!box->cause.code)
        (void)err_at(&box->cause, ECANCELED, STEP_WAIT, 0, "the box is going");
    if (box->create_serial)
        keeper_tell_done(keeper, box->slot, box->create_serial, &box->cause);
    for (unsigned i = 0; i < KEEPER_PAYLOADS; i++)
        if (box->payload[i])
            keeper_free_payload(keeper, box, i);
    keeper->box[box->slot] = NULL;
    keeper->n_boxes--;
    keeper->n_dying -= box->dying;
    keeper_tell(keeper, &gone, sizeof gone, NULL, 0);
    keeper_release_layer(box->layer);
    keeper_drop_trust(&box->trust);
    free(box);
}

static bool has_running_payload(const struct kept_box *box)
{
    for (unsigned i = 0; i < KEEPER_PAYLOADS; i++)
        if (box->payload[i] && !box->payload[i]->ended)
            return true;
    return false;
}

static void init_ended(struct keeper *keeper, struct kept_box *box)
{
    struct process_end end;

    if (reap_watched(keeper, &box->box.init, WATCH_INIT, box->slot, 0, &end) <= 0)
        return;
    if (!box->dying) {
        struct err cause = { 0 };
        (void)err_set(&cause, ECHILD, end.code > 0 && end.code < STEP_COUNT ? (enum step)end.code : STEP_WAIT,
                      "init ended on its own");
        keeper_end_box(keeper, box, &cause);
    }
    /* Init waits for everything in its namespace, but a payload is our child and may still have to be reaped by us. */
    if (!has_running_payload(box))
        keeper_bury_box(keeper, box);
}

static void box_speaks(struct keeper *keeper, struct kept_box *box)
{
    struct err e;

    if (box->dying || box->waiting || box->box.birth >= 0 || box->box.state != BOX_MAKING)
        return;
    keeper_unwatch(keeper, box->box.link);
    int r = box_ready(&box->box, false, &e);
    /* The first payload's message is useless before init's, and would wake us until then. */
    int next = box->box.link >= 0 ? box->box.link : box->box.first.link;
    if (r == 0 && keeper_watch(keeper, next, WATCH_BOX_LINK, box->slot, 0) < 0)
        r = err_at(&e, ENOMEM, STEP_MEMORY, 0, "watching the box");
    if (r < 0) {
        keeper_judge_fork(keeper, box, &e);
        keeper_end_box(keeper, box, &e);
    } else if (r > 0) {
        struct event_head ready = { .type = EVENT_READY, .box = box->slot, .serial = box->create_serial };
        box->create_serial = 0;
        box->deadline_us = 0;
        keeper_reap_later(keeper, &box->box.midwife);
        /* A forked one is known only now. A child that cannot be watched is still reaped when the box ends. */
        if (box->family && !box->box.is_blank) {
            box->family->n_late = 0;
            (void)!keeper_watch(keeper, box->box.first.process.pidfd, WATCH_FIRST_END, box->slot, 0);
        }
        /* From now on only its end matters; it is reaped with the box, or when it gets a command. */
        keeper_unwatch(keeper, box->box.first.link);
        keeper_egress_box_ready(keeper, box);
        if (box->box.door >= 0)
            (void)!keeper_watch(keeper, box->box.door, WATCH_DOOR, box->slot, 0);
        keeper_tell(keeper, &ready, sizeof ready, NULL, 0);
    }
}

/* The payload that waits for a command has ended: it or init was killed, and init's own end waits until we have reaped
 * the payload. */
static void first_ended(struct keeper *keeper, struct kept_box *box)
{
    struct process_end end;
    struct err cause = { 0 };

    if (!box->box.first.waiting || box->box.first.process.pidfd < 0
        || reap_watched(keeper, &box->box.first.process, WATCH_FIRST_END, box->slot, 0, &end) <= 0)
        return;
    if (box->box.state == BOX_MAKING)
        return;     /* its last message, or init's, says why */
    if (box->family) {
        /* The zygote can fork another. */
        payload_done(&box->box.first);
        box->box.first.waiting = false;
        return;
    }
    (void)err_set(&cause, ECHILD, STEP_WAIT, "the waiting payload was killed");
    keeper_end_box(keeper, box, &cause);
}

static void payload_speaks(struct keeper *keeper, struct kept_box *box, unsigned slot)
{
    struct kept_payload *p = box->payload[slot];
    struct event_started started = { .head = { .type = EVENT_STARTED, .box = box->slot, .payload = (uint16_t)slot },
                                     .token = p->token, .cpu_before_us = p->cpu_before_us, .way = p->way };
    struct event_failed failed = { .head = { .type = EVENT_FAILED, .box = box->slot, .payload = (uint16_t)slot },
                                   .token = p->token };

    keeper_unwatch(keeper, p->payload.link);
    int r = payload_started(&p->payload, &failed.err);
    if (p->payload.link >= 0)
        (void)!keeper_watch(keeper, p->payload.link, WATCH_PAYLOAD_LINK, box->slot, slot);
    if (r == 0)
        return;
    if (r > 0 && keeper_tell(keeper, &started, sizeof started, &p->payload.terminal, p->payload.terminal >= 0))
        return;
    if (r > 0) {    /* without the front's copy of the terminal its output would be lost */
        (void)err_at(&failed.err, ETOOMANYREFS, STEP_STDIO, 0, "handing the terminal over");
        (void)!process_signal(&p->payload.process, SIGKILL);
    }
    p->end.failed = failed;
}

static void payload_ended(struct keeper *keeper, struct kept_box *box, unsigned slot)
{
    struct kept_payload *p = box->payload[slot];
    struct process_end end;

    if (reap_watched(keeper, &p->payload.process, WATCH_PAYLOAD_END, box->slot, slot, &end) <= 0)
        return;
    /* Reads its messages up to the end of the link: the last one may be why it never ran. */
    for (int i = 0; i < DRAIN_MAX && p->payload.link >= 0; i++)
        payload_speaks(keeper, box, slot);
    /* Another process that holds the other end may not speak for it. */
    keeper_unwatch(keeper, p->payload.link);
    p->payload.link = fd_close(p->payload.link);
    p->ended = true;
    p->deadline_us = 0;
    keeper_door_speaks(keeper, box);
    if (end.code != 0 && !p->is_helper)
        keeper_count_unrouted(keeper, box);
    if (p->end.head.type != EVENT_FAILED) {
        p->end.ended = (struct event_ended){
            .head = { .type = EVENT_ENDED, .box = box->slot, .payload = (uint16_t)slot },
            .token = p->token,
            .end = { .wall_us = clock_monotonic_us() - p->started_us, .cpu_us = end.cpu_us,
                     .peak_bytes = end.peak_bytes, .code = end.code, .signal = end.signal },
        };
        p->how = end;
        keeper_command_ended(keeper, box, p);
    } else {
        keeper_tell_end(keeper, p);
    }
    if (box->dying && box->box.init.pidfd < 0 && !has_running_payload(box))
        keeper_bury_box(keeper, box);
}

static void front_speaks(struct keeper *keeper)
{
    static _Alignas(16) char frame[FRAME_MAX + 1];
    int fds[KEEPER_FDS];
    size_t n_fds;
    ssize_t size = link_receive_any(keeper->front, frame, sizeof frame, fds, KEEPER_FDS, &n_fds);

    if (size == -EAGAIN)
        return;
    /* An empty frame looks like the end, but may carry descriptors. */
    for (size_t i = 0; i < n_fds && size <= 0; i++)
        fds[i] = fd_close(fds[i]);
    if (size <= 0 || !keeper_request(keeper, frame, (size_t)size, fds, n_fds))
        drop_front(keeper);
}

/* The last front may be gone unnoticed: handles its last requests, and frees its place. */
static void notice_gone_front(struct keeper *keeper)
{
    struct pollfd front = { .fd = keeper->front };

    while (keeper->front >= 0 && poll(&front, 1, 0) > 0 && (front.revents & POLLHUP))
        front_speaks(keeper);
}

static int set_patience(int front)
{
    struct timeval patience = { .tv_sec = FRONT_PATIENCE_S };
    return setsockopt(front, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience) < 0 ? -errno : 0;
}

static void front_connects(struct keeper *keeper)
{
    struct ucred peer;
    socklen_t size = sizeof peer;
    FD fd = accept4(keeper->listener, NULL, NULL, SOCK_CLOEXEC);

    if (fd < 0 || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0)
        return;
    notice_gone_front(keeper);
    /* One front at a time, and only our own user's; root may replace it. */
    if ((peer.uid != keeper->front_uid && peer.uid != 0) || keeper->front >= 0)
        return;
    if (set_patience(fd) < 0 || keeper_watch(keeper, fd, WATCH_FRONT, 0, 0) < 0)
        return;
    keeper->front = TAKE_FD(fd);
    keeper_tell_all(keeper);
}

static void dispatch(struct keeper *keeper, uint64_t what)
{
    struct kept_box *box = keeper->box[what >> 16 & 0xffff & (KEEPER_BOXES - 1)];
    unsigned slot = (unsigned)(what & 0xffff);

    switch ((enum watch_kind)(what >> 48)) {
    case WATCH_LISTENER:
        front_connects(keeper);
        break;
    case WATCH_FRONT:
        front_speaks(keeper);
        break;
    case WATCH_INIT:
        if (box)
            init_ended(keeper, box);
        break;
    case WATCH_FIRST_END:
        if (box)
            first_ended(keeper, box);
        break;
    case WATCH_BIRTH:
        if (box)
            keeper_birth_goes_on(keeper, box);
        break;
    case WATCH_BOX_LINK:
        if (box)
            box_speaks(keeper, box);
        break;
    case WATCH_PAYLOAD_LINK:
        if (box && box->payload[slot] && box->payload[slot]->forking)
            keeper_fork_speaks(keeper, box, slot);
        else if (box && box->payload[slot] && box->payload[slot]->payload.link >= 0)
            payload_speaks(keeper, box, slot);
        break;
    case WATCH_PAYLOAD_END:
        if (box && box->payload[slot] && !box->payload[slot]->ended)
            payload_ended(keeper, box, slot);
        break;
    case WATCH_STORE:
        if (box && box->waiting && box->waiting->job.process.pidfd >= 0)
            keeper_store_ended(keeper, box);
        break;
    case WATCH_MOUNTS:
        if (box && box->waiting && box->waiting->deadline_us)
            keeper_mounts_opened(keeper, box);
        break;
    case WATCH_OPENER:
        keeper_opener_ended(keeper, slot);
        break;
    case WATCH_FAMILY:
        keeper_look_at_families(keeper);
        break;
    case WATCH_MEMORY:
        if (box)
            keeper_memory_ran_out(keeper, box);
        break;
    case WATCH_DOOR:
        if (box)
            keeper_door_speaks(keeper, box);
        break;
    case WATCH_EGRESS:
        keeper_egress_ended(keeper);
        break;
    case WATCH_EGRESS_JOB:
        keeper_egress_job_done(keeper);
        break;
    case WATCH_DYING:
        keeper_reap_dying(keeper, false);
        break;
    case WATCH_VOLUME:
        keeper_volumes_ended(keeper);
        break;
    case WATCH_SIGNALS:
        keeper->stopping = true;
        break;
    }
}

static void end_all(struct keeper *keeper)
{
    struct process_end end;

    for (uint32_t i = 0; i < KEEPER_BOXES; i++)
        if (keeper->box[i])
            keeper_end_box(keeper, keeper->box[i], NULL);
    keeper_reap_dying(keeper, true);
    for (uint32_t i = 0; i < KEEPER_BOXES; i++) {
        struct kept_box *box = keeper->box[i];
        if (!box)
            continue;
        if (box->waiting)
            keeper_free_create(keeper, box);
        if (box->box.midwife.pidfd >= 0 && family_box_call_off(&box->box, true) > 0)
            (void)!process_reap(&box->box.midwife, 1, &end);
        for (unsigned k = 0; k < KEEPER_PAYLOADS; k++)
            if (box->payload[k] && !box->payload[k]->ended && box->payload[k]->payload.process.pidfd >= 0)
                (void)!process_reap(&box->payload[k]->payload.process, 1, &end);
        if (box->box.init.pidfd >= 0)
            box_reap_init(&box->box, &end);
        keeper_bury_box(keeper, box);
    }
    keeper_end_families(keeper);
    keeper_end_volumes(keeper);
    keeper_egress_close(keeper);
}

/* SIGTERM and SIGINT end the boxes first. Children set their own mask before anything else. */
static int watch_signals(struct keeper *keeper)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    if (sigprocmask(SIG_BLOCK, &set, NULL) < 0 ||
        (keeper->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK)) < 0)
        return -errno;
    return keeper_watch(keeper, keeper->signals, WATCH_SIGNALS, 0, 0);
}

/* One round. Returns the number of events, or -errno. */
static int serve(struct keeper *keeper, int wait_ms)
{
    struct epoll_event events[EVENTS];
    int n = epoll_wait(keeper->epoll, events, EVENTS, keeper->look_at_line ? 0 : wait_ms);

    if (n < 0)
        return errno == EINTR ? 0 : -errno;
    for (int i = 0; i < n; i++)
        dispatch(keeper, events[i].data.u64);
    keeper_take_turns(keeper);
    return n;
}

int keeper_run(struct keeper *keeper, int front, int listener, uid_t front_uid, struct err *e)
{
    keeper->front = front;
    keeper->listener = listener;
    keeper->front_uid = front_uid;
    keeper->signals = -1;
    keeper->boxes_most = keeper_raise_descriptors();
    keeper->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (keeper->epoll < 0)
        return err_at(e, errno, STEP_HOST, 0, "epoll");
    int r = watch_signals(keeper);
    if (r == 0 && listener >= 0)
        r = keeper_watch(keeper, listener, WATCH_LISTENER, 0, 0);
    if (r == 0 && front >= 0)
        r = set_patience(front);
    if (r == 0 && front >= 0)
        r = keeper_watch(keeper, front, WATCH_FRONT, 0, 0);
    if (r < 0)
        return err_at(e, -r, STEP_HOST, 0, "epoll");
    if (front >= 0)
        keeper_tell_all(keeper);
    keeper_egress_connect(keeper);

    while (!keeper->stopping) {
        /* If we were slow, messages that came in time are still unread: read them before a deadline fires. */
        int n = keeper->deadline_us && keeper->deadline_us <= clock_monotonic_us() ? 1 : 0;
        for (int i = 0; n > 0 && i < CATCH_UP_MAX; i++)
            n = serve(keeper, 0);
        if (n >= 0 && !keeper->stopping)
            n = serve(keeper, keeper_keep_families(keeper, keeper_keep_deadlines(keeper)));
        if (n < 0) {
            r = err_at(e, -n, STEP_WAIT, 0, "epoll");
            break;
        }
    }
    end_all(keeper);
    keeper->front = fd_close(keeper->front);
    keeper->signals = fd_close(keeper->signals);
    keeper->epoll = fd_close(keeper->epoll);
    return r;
}
