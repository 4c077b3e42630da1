/* Slow work that must not block the loop: killed processes that die slowly (their own quota may hold them back), and
 * freezing. The first are reaped when their pidfd is readable; a freezing box is checked repeatedly until all of it is
 * frozen, and answered then. */
#define _GNU_SOURCE
#include "keeper/later.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/fd.h"

enum { FREEZE_AT_ONCE_US = 2000, FREEZE_STEP_US = 5000, FREEZE_TIMEOUT_US = 2000000 };

void keeper_reap_later(struct keeper *keeper, struct process *process)
{
    struct process_end end;

    if (process->pidfd < 0)
        return;
    keeper_unwatch(keeper, process->pidfd);
    if (process_reap(process, 0, &end) > 0)
        return;
    struct kept_dying *d = malloc(sizeof *d);
    if (!d || keeper_watch(keeper, process->pidfd, WATCH_DYING, 0, 0) < 0) {
        free(d);
        (void)!process_reap(process, 1, &end);
        return;
    }
    *d = (struct kept_dying){ .next = keeper->dying, .process = *process };
    keeper->dying = d;
    *process = (struct process){ .pidfd = -1 };
}

void keeper_reap_dying(struct keeper *keeper, bool block)
{
    for (struct kept_dying **at = &keeper->dying, *d; (d = *at);) {
        struct pollfd ended = { .fd = d->process.pidfd, .events = POLLIN };
        struct process_end end;
        if (!block && poll(&ended, 1, 0) <= 0) {
            at = &d->next;
            continue;
        }
        keeper_unwatch(keeper, d->process.pidfd);
        int r = process_reap(&d->process, block, &end);
        /* A debugger traces it and has not detached. */
        if (r == 0 && keeper_watch(keeper, d->process.pidfd, WATCH_DYING, 0, 0) == 0) {
            at = &d->next;
            continue;
        }
        if (r == 0)
            (void)!process_reap(&d->process, 1, &end);
        fd_close(d->process.pidfd);     /* if another part has reaped it */
        *at = d->next;
        free(d);
    }
}

int keeper_freeze(struct keeper *keeper, struct kept_box *box, uint32_t serial, struct err *e)
{
    struct err ignored;
    int r = box_freeze(&box->box, FREEZE_AT_ONCE_US, e);

    if (r < 0)
        (void)!box_thaw(&box->box, &ignored);
    if (r != 0)
        return r;
    uint64_t now = clock_monotonic_us();
    box->freeze_serial = serial;
    box->freeze_end_us = now + FREEZE_TIMEOUT_US;
    box->freeze_us = now + FREEZE_STEP_US;
    keeper_note_deadline(keeper, box->freeze_us);
    return 0;
}

static void answer_freeze(struct keeper *keeper, struct kept_box *box, const struct err *e)
{
    box->freeze_us = 0;
    keeper_tell_done(keeper, box->slot, box->freeze_serial, e);
}

void keeper_freeze_on(struct keeper *keeper, struct kept_box *box, uint64_t now)
{
    struct err e = { 0 }, ignored;
    int r = box_freeze(&box->box, 0, &e);

    if (r == 0 && now < box->freeze_end_us) {
        box->freeze_us = now + FREEZE_STEP_US;
        return;
    }
    if (r == 0)
        r = err_at(&e, ETIMEDOUT, STEP_CGROUP, 0, "freezing the box");
    /* A half-frozen box is useless. */
    if (r < 0)
        (void)!box_thaw(&box->box, &ignored);
    answer_freeze(keeper, box, &e);
}

void keeper_freeze_cancel(struct keeper *keeper, struct kept_box *box, bool tell)
{
    struct err e = { 0 }, ignored;

    if (!box->freeze_us)
        return;
    (void)!box_thaw(&box->box, &ignored);
    (void)err_at(&e, ECANCELED, STEP_WAIT, 0, "freezing the box");
    box->freeze_us = 0;
    if (tell)
        answer_freeze(keeper, box, &e);
}

uint32_t keeper_raise_descriptors(void)
{
    enum { OF_A_BOX = 24, OWN = 512, WANTED = OWN + KEEPER_BOXES * OF_A_BOX };
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return KEEPER_BOXES;
    if (limit.rlim_max >= WANTED || setrlimit(RLIMIT_NOFILE, &(struct rlimit){ WANTED, WANTED }) < 0) {
        limit.rlim_cur = limit.rlim_max;
        (void)!setrlimit(RLIMIT_NOFILE, &limit);
    }
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur >= WANTED)
        return KEEPER_BOXES;
    return limit.rlim_cur > OWN + OF_A_BOX ? (uint32_t)(limit.rlim_cur - OWN) / OF_A_BOX : 1;
}
