/* Deadlines of payloads, and of boxes that wait for a zygote or for their mounts. One number holds the next of them, so
 * that a loop without deadlines costs nothing. */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <signal.h>

#include "base/clock.h"
#include "keeper/create.h"
#include "keeper/egress.h"
#include "keeper/families.h"
#include "keeper/later.h"
#include "keeper/memory.h"
#include "keeper/opener.h"

void keeper_note_deadline(struct keeper *keeper, uint64_t deadline_us)
{
    if (deadline_us && (keeper->deadline_us == 0 || deadline_us < keeper->deadline_us))
        keeper->deadline_us = deadline_us;
}

static void payload_is_late(struct keeper *keeper, struct kept_box *box, unsigned slot)
{
    struct kept_payload *p = box->payload[slot];
    struct err e = { 0 };

    p->deadline_us = 0;
    if (p->forking) {
        (void)err_at(&e, ETIMEDOUT, STEP_CLONE, 0, "the zygote gave no child in time");
        keeper_fork_failed(keeper, box, slot, &e);
        return;
    }
    p->timed_out = true;
    (void)!process_signal_group(&p->payload.process, SIGKILL);
    (void)!process_signal(&p->payload.process, SIGKILL);
}

static void mounts_are_late(struct keeper *keeper, struct kept_box *box)
{
    struct err late = { 0 };

    (void)err_at(&late, ETIMEDOUT, STEP_TREE, 0, "the mounts do not answer");
    keeper_end_box(keeper, box, &late);
    keeper_free_create(keeper, box);
    keeper_bury_box(keeper, box);
}

/* Returns the next deadline in this box, or UINT64_MAX. */
static uint64_t keep_deadlines_of(struct keeper *keeper, struct kept_box *box, uint64_t now)
{
    uint64_t next = UINT64_MAX;

    if (box->waiting && box->waiting->deadline_us) {
        if (box->waiting->deadline_us > now)
            return box->waiting->deadline_us;
        mounts_are_late(keeper, box);
        return next;
    }
    if (box->deadline_us && box->deadline_us <= now) {
        struct err late = { 0 };
        bool by_init = box->box.birth < 0 && box->box.is_blank;
        (void)err_at(&late, ETIMEDOUT, STEP_CLONE, 0,
                     box->box.birth >= 0 ? "the box was not born in time" :
                     by_init ? "the box was not complete in time" : "the zygote gave no child in time");
        /* The zygote has no part in a blank box's completion. */
        if (!by_init)
            keeper_judge_fork(keeper, box, &late);
        keeper_end_box(keeper, box, &late);
    } else if (box->deadline_us) {
        next = box->deadline_us;
    }
    if (box->freeze_us && box->freeze_us <= now)
        keeper_freeze_on(keeper, box, now);
    if (box->freeze_us && box->freeze_us < next)
        next = box->freeze_us;
    if (box->shortage && box->shortage->next_us <= now)
        keeper_settle_on(keeper, box, now);
    if (box->shortage && box->shortage->next_us < next)
        next = box->shortage->next_us;
    for (unsigned k = 0; k < KEEPER_PAYLOADS; k++) {
        const struct kept_payload *p = box->payload[k];
        if (p && p->deadline_us && p->deadline_us <= now)
            payload_is_late(keeper, box, k);
        else if (p && p->deadline_us && p->deadline_us < next)
            next = p->deadline_us;
    }
    return next;
}

int keeper_keep_deadlines(struct keeper *keeper)
{
    uint64_t now = clock_monotonic_us(), next = UINT64_MAX;

    if (keeper->deadline_us == 0)
        return -1;
    for (uint32_t i = keeper->deadline_us > now ? KEEPER_BOXES : 0; i < KEEPER_BOXES && keeper->n_boxes; i++) {
        uint64_t its = keeper->box[i] ? keep_deadlines_of(keeper, keeper->box[i], now) : UINT64_MAX;
        next = its < next ? its : next;
    }
    if (keeper->deadline_us > now)
        next = keeper->deadline_us;
    if (keeper->egress.retry_us && keeper->egress.retry_us <= now)
        keeper_egress_connect(keeper);
    if (keeper->egress.retry_us && keeper->egress.retry_us < next)
        next = keeper->egress.retry_us;
    keeper->deadline_us = next == UINT64_MAX ? 0 : next;
    if (next == UINT64_MAX)
        return -1;
    uint64_t wait_ms = (next - now) / 1000 + 1;
    return wait_ms < INT_MAX ? (int)wait_ms : INT_MAX;
}
