/* Egress listens at a path that only we may connect to; its listener belongs to the supervisor and outlives it. When
 * egress dies our link ends. Then we connect again, and make new sockets for every box with network: the old ones were
 * closed with it. Meanwhile the boxes' connections are reset at once.
 *
 * One child at a time prepares a box (box/egress.h); the others wait, marked `wants_sockets`. A new box needs none: its
 * init has prepared it.
 *
 * Front and egress talk over a pair of sockets that we make, because neither may connect. */
#define _GNU_SOURCE
#include "keeper/egress.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "box/desk.h"
#include "box/payload.h"
#include "box/unrouted.h"
#include "keeper/later.h"

enum { RETRY_US = 200000 };

static void retry_later(struct keeper *keeper)
{
    keeper->egress.retry_us = clock_monotonic_us() + RETRY_US;
    keeper_note_deadline(keeper, keeper->egress.retry_us);
}

void keeper_egress_ended(struct keeper *keeper)
{
    keeper_unwatch(keeper, keeper->egress.link);
    keeper->egress.link = fd_close(keeper->egress.link);
    retry_later(keeper);
}

/* 0, or -errno, and the link is closed. */
static int tell_egress(struct keeper *keeper, const void *frame, size_t size, const int *fds, size_t n)
{
    if (keeper->egress.link < 0)
        return -ENOTCONN;
    /* It always reads; if its queue is full it hangs, and a new one is better. */
    ssize_t r = fdpass_send(keeper->egress.link, frame, size, fds, n, MSG_DONTWAIT);
    if (r >= 0)
        return 0;
    keeper_egress_ended(keeper);
    return (int)r;
}

/* Passes the sockets to egress. Without egress, the box is prepared again when there is one. */
static void serve_box(struct keeper *keeper, struct kept_box *box, struct egress_sockets *sockets)
{
    struct egress_box frame = { .head = { .type = EGRESS_BOX, .box = box->token }, .way = sockets->way,
                                .has = sockets->has };

    box->wants_sockets = tell_egress(keeper, &frame, sizeof frame, sockets->fd, sockets->n) < 0;
    egress_sockets_close(sockets);
}

static void answer(struct keeper *keeper, struct kept_box *box, const struct err *e)
{
    if (box->net_serial)
        keeper_tell_done(keeper, box->slot, box->net_serial, e);
    box->net_serial = 0;
}

/* The sockets could not be made. A waiting request is answered, and the box has no network as before; without a
 * request, egress had restarted, and it is retried. */
static void fail_box(struct keeper *keeper, struct kept_box *box, const struct err *e)
{
    if (box->net_serial) {
        box->box.has_network = false;
        answer(keeper, box, e);
        return;
    }
    box->wants_sockets = true;
    retry_later(keeper);
}

/* Prepares the next waiting box, if no child is at work. */
static void prepare_next(struct keeper *keeper)
{
    struct err e;

    if (keeper->egress.job.link >= 0 || keeper->egress.link < 0)
        return;
    for (uint32_t i = 0; i < KEEPER_BOXES; i++) {
        struct kept_box *box = keeper->box[i];
        if (!box || !box->wants_sockets || box->dying || box->box.state != BOX_READY)
            continue;
        box->wants_sockets = false;
        int r = egress_job_start(&box->box, &keeper->egress.job, &e);
        if (r == 0 && keeper_watch(keeper, keeper->egress.job.link, WATCH_EGRESS_JOB, i, 0) == 0) {
            keeper->egress.job_token = box->token;
            return;
        }
        if (r == 0) {
            keeper->egress.job.link = fd_close(keeper->egress.job.link);
            r = err_at(&e, ENOMEM, STEP_NETWORK, 0, "preparing the network of the box");
        }
        fail_box(keeper, box, &e);
    }
}

static struct kept_box *find_box(const struct keeper *keeper, uint64_t token)
{
    for (uint32_t i = 0; i < KEEPER_BOXES; i++)
        if (keeper->box[i] && keeper->box[i]->token == token && !keeper->box[i]->dying)
            return keeper->box[i];
    return NULL;
}

void keeper_egress_job_done(struct keeper *keeper)
{
    struct egress_sockets sockets = { .n = 0 };
    struct err e = { 0 };

    keeper_unwatch(keeper, keeper->egress.job.link);
    int r = egress_job_take(&keeper->egress.job, &sockets, &e);
    if (r == 0) {
        (void)!keeper_watch(keeper, keeper->egress.job.link, WATCH_EGRESS_JOB, 0, 0);
        return;
    }
    keeper_reap_later(keeper, &keeper->egress.job.process);
    struct kept_box *box = find_box(keeper, keeper->egress.job_token);
    if (box && r > 0)
        serve_box(keeper, box, &sockets);
    egress_sockets_close(&sockets);
    if (box && r < 0)
        fail_box(keeper, box, &e);
    else if (box)
        answer(keeper, box, &(struct err){ 0 });
    if (!keeper->egress.retry_us)
        prepare_next(keeper);
}

void keeper_egress_introduce(struct keeper *keeper)
{
    const struct egress_head frame = { .type = EGRESS_FRONT };
    const struct event_head event = { .type = EVENT_EGRESS };
    int pair[2];

    if (keeper->front < 0 || keeper->egress.link < 0)
        return;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
        return;
    FD its = pair[0], fronts = pair[1];
    if (tell_egress(keeper, &frame, sizeof frame, &its, 1) == 0)
        keeper_tell(keeper, &event, sizeof event, &fronts, 1);
}

void keeper_egress_front_gone(struct keeper *keeper)
{
    for (uint32_t i = 0; i < KEEPER_BOXES; i++)
        if (keeper->box[i])
            keeper->box[i]->net_serial = 0;
}

void keeper_egress_connect(struct keeper *keeper)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };

    if (!keeper->egress.path)
        return;
    if (keeper->egress.link >= 0) {     /* otherwise only a box is to be retried */
        keeper->egress.retry_us = 0;
        prepare_next(keeper);
        return;
    }
    memcpy(address.sun_path, keeper->egress.path, strlen(keeper->egress.path));
    FD fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) < 0 ||
        keeper_watch(keeper, fd, WATCH_EGRESS, 0, 0) < 0) {
        retry_later(keeper);
        return;
    }
    keeper->egress.retry_us = 0;
    keeper->egress.link = TAKE_FD(fd);
    for (uint32_t i = 0; i < KEEPER_BOXES; i++)
        if (keeper->box[i] && keeper->box[i]->box.has_network)
            keeper->box[i]->wants_sockets = true;
    keeper_egress_introduce(keeper);
    prepare_next(keeper);
}

void keeper_egress_box_ready(struct keeper *keeper, struct kept_box *box)
{
    if (box->box.has_network)
        serve_box(keeper, box, &box->box.egress);
}

void keeper_egress_box_gone(struct keeper *keeper, struct kept_box *box)
{
    const struct egress_head frame = { .type = EGRESS_GONE, .box = box->token };

    if (box->box.has_network)
        (void)!tell_egress(keeper, &frame, sizeof frame, NULL, 0);
}

int keeper_egress_change(struct keeper *keeper, struct kept_box *box, const struct request_net *q, struct err *e)
{
    if (!keeper->egress.path)
        return err_at(e, ENOTSUP, STEP_NETWORK, 0, "this server has no egress");
    if (box->net_serial)
        return err_at(e, EALREADY, STEP_NETWORK, 0, "the network of the box is being changed");
    bool had = box->box.has_network;
    if (!q->has_network)
        keeper_egress_box_gone(keeper, box);
    box->box.has_network = q->has_network;
    box->net_serial = q->head.serial;
    /* It may wait for them already, because egress was restarted. */
    box->wants_sockets = q->has_network && (!had || box->wants_sockets);
    if (!box->wants_sockets)
        answer(keeper, box, &(struct err){ 0 });
    else {
        desk_close_resolver(&box->box);
        prepare_next(keeper);
    }
    return 0;
}

void keeper_door_speaks(struct keeper *keeper, struct kept_box *box)
{
    struct event_refused refused = { .head = { .type = EVENT_REFUSED, .box = box->slot } };

    /* As many as init reports of one command, so that none is left for the next. */
    for (int i = 0; i < DESK_NAMES && desk_hear(&box->box, refused.name) > 0; i++)
        keeper_tell(keeper, &refused, sizeof refused, NULL, 0);
}

void keeper_count_unrouted(struct keeper *keeper, struct kept_box *box)
{
    struct event_refused refused = { .head = { .type = EVENT_REFUSED, .box = box->slot } };

    if (box->box.has_network)
        return;
    uint64_t n = unrouted_count(&box->box);
    if (n > box->n_unrouted)
        keeper_tell(keeper, &refused, sizeof refused, NULL, 0);
    box->n_unrouted = n;
}

void keeper_begin_command(struct keeper *keeper, struct kept_box *box)
{
    keeper_door_speaks(keeper, box);
    desk_begin_command(&box->box);
}

void keeper_egress_close(struct keeper *keeper)
{
    struct kept_egress *egress = &keeper->egress;
    struct process_end end;

    keeper_unwatch(keeper, egress->link);
    egress->link = fd_close(egress->link);
    keeper_unwatch(keeper, egress->job.link);
    if (egress->job.link >= 0)
        (void)!process_reap(&egress->job.process, 1, &end);
    egress->job.link = fd_close(egress->job.link);
}
