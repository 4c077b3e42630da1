/* Payloads forked from a family's zygote. One has no process until its child has answered and was checked
 * (family_check.c); until then the command waits in the payload's slot.
 *
 *   REQUEST_START -> in the family's line? -> requested -> checked: it gets its command
 *                                                      +-> failed, late, or the box is going
 *
 * Few are requested at once: a zygote forks one after the other, and each request carries a dozen descriptors, of which
 * the kernel allows a user only so many in flight. The deadline begins with the request, so that a burst of commands in
 * boxes that stood ready makes none late. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>

#include "base/fd.h"
#include "keeper/families.h"
#include "keeper/later.h"

enum { LATE_MOST = 2 };
enum { FORKS_MOST = 4 };        /* for each family */

static void close_order(struct kept_payload *p)
{
    for (size_t i = 0; i < sizeof p->order / sizeof *p->order; i++)
        p->order[i] = fd_close(p->order[i]);
}

static int request_fork(struct kept_payload *p, struct err *e)
{
    int r = family_fork(&p->box->box, &p->payload, e);

    if (r < 0)
        return r;
    p->is_requested = true;
    p->box->family->n_forks++;
    return 0;
}

static void queue_fork(struct kept_payload *p)
{
    struct kept_payload **at = &p->box->family->line;

    while (*at)
        at = &(*at)->next_in_line;
    *at = p;
    p->is_in_line = true;
    p->payload = (struct payload){ .process.pidfd = -1, .link = -1, .terminal = -1 };
}

static void unqueue_fork(struct kept_payload *p)
{
    struct kept_payload **at = &p->box->family->line;

    while (*at && *at != p)
        at = &(*at)->next_in_line;
    if (*at)
        *at = p->next_in_line;
    p->is_in_line = false;
}

/* It has a process, or gets none. */
static void fork_is_over(struct keeper *keeper, struct kept_payload *p)
{
    if (p->is_in_line)
        unqueue_fork(p);
    if (p->is_requested)
        p->box->family->n_forks--;
    p->is_requested = p->forking = false;
    close_order(p);
    keeper->look_at_line = true;
}

int keeper_fork(struct kept_box *box, struct kept_payload *p, const struct start *start, struct err *e)
{
    struct family *family = box->box.family;

    p->box = box;
    for (size_t i = 0; i < sizeof p->order / sizeof *p->order; i++)
        p->order[i] = -1;
    if (family && box->box.first.waiting) {
        p->way = WAY_PARKED;
        (void)cgroup_cpu_read(&box->box.leaf, &p->cpu_before_us);
        int started = box_start_payload(&box->box, start, &p->payload, e);
        /* The zygote was killed just now; another child can be forked. */
        if (started != -EPIPE && started != -ECONNRESET)
            return started;
        *e = (struct err){ 0 };
    }
    if (!family || !box->family || box->family->state != FAMILY_READY)
        return err_at(e, ECHILD, STEP_USAGE, 0, "the box has no zygote that lives");
    int r = 0;
    if (box->family->line || box->family->n_forks >= FORKS_MOST)
        queue_fork(p);
    else
        r = request_fork(p, e);
    if (r < 0)
        return r;
    p->way = WAY_FORKED;
    p->forking = true;
    p->order[0] = fcntl(start->packed, F_DUPFD_CLOEXEC, 3);
    for (int i = 0; i < 3; i++)
        p->order[1 + i] = start->stdio[i] < 0 ? -1 : fcntl(start->stdio[i], F_DUPFD_CLOEXEC, 3);
    return 0;
}

void keeper_judge_fork(struct keeper *keeper, struct kept_box *box, const struct err *e)
{
    if (!box->family)
        return;
    /* A single one may be the fault of its box, which is slow. */
    if (e->code == ETIMEDOUT && ++box->family->n_late >= LATE_MOST)
        keeper_stop_family(keeper, box->family, e);
    if (e->code != EPERM && e->code != EPROTO)
        return;
    /* The child in the box is not sealed, and the next would not be either. */
    keeper_end_box(keeper, box, e);
    keeper_stop_family(keeper, box->family, e);
}

void keeper_fork_failed(struct keeper *keeper, struct kept_box *box, unsigned slot, const struct err *e)
{
    struct kept_payload *p = box->payload[slot];

    fork_is_over(keeper, p);
    p->ended = true;
    p->deadline_us = 0;
    keeper_unwatch(keeper, p->payload.link);
    payload_done(&p->payload);
    p->end.failed = (struct event_failed){
        .head = { .type = EVENT_FAILED, .box = box->slot, .payload = (uint16_t)slot }, .token = p->token, .err = *e
    };
    keeper_tell_end(keeper, p);
    keeper_judge_fork(keeper, box, e);
}

void keeper_fork_speaks(struct keeper *keeper, struct kept_box *box, unsigned slot)
{
    struct kept_payload *p = box->payload[slot];
    struct err e = { 0 };
    int r = family_forked(&box->box, &p->payload, 0, &e);

    if (r == 0)
        return;
    /* If two forks gave the same child, only the first would learn its end; the second would hold a reused pid. */
    if (r > 0 && keeper_count_known(keeper, p->payload.process.pid) > 1)
        r = err_at(&e, EPERM, STEP_RIGHTS, 0, "the zygote's child was refused: it is another command already");
    else if (r > 0) {
        struct start start = { .packed = p->order[0], .stdio = { p->order[1], p->order[2], p->order[3] } };
        r = family_order(&box->box, &p->payload, &start, &e);
        if (r == 0)
            r = keeper_watch_end(keeper, box, slot, &e);
        if (r < 0) {
            (void)!process_signal(&p->payload.process, SIGKILL);
            keeper_reap_later(keeper, &p->payload.process);
        }
    }
    if (r < 0) {
        keeper_fork_failed(keeper, box, slot, &e);
        return;
    }
    fork_is_over(keeper, p);
    box->family->n_late = 0;
    keeper_arm(keeper, p);
}

void keeper_cancel_fork(struct keeper *keeper, struct kept_payload *p)
{
    if (p->forking)
        fork_is_over(keeper, p);
}

static unsigned slot_of(const struct kept_payload *p)
{
    unsigned slot = 0;

    while (p->box->payload[slot] != p)
        slot++;
    return slot;
}

/* The payload whose turn it is. */
static void request_next(struct keeper *keeper, struct kept_payload *p)
{
    struct kept_box *box = p->box;
    unsigned slot = slot_of(p);
    struct err e = { 0 };
    int r = 0;

    unqueue_fork(p);
    if (box->family->state != FAMILY_READY)
        r = err_at(&e, ECHILD, STEP_USAGE, 0, "the box has no zygote that lives");
    if (r == 0)
        r = request_fork(p, &e);
    if (r == 0 && (r = keeper_watch(keeper, p->payload.link, WATCH_PAYLOAD_LINK, box->slot, slot)) < 0)
        r = err_at(&e, -r, STEP_MEMORY, 0, "watching the payload");
    if (r < 0)
        keeper_fork_failed(keeper, box, slot, &e);
    else
        keeper_arm(keeper, p);
}

void keeper_take_fork_turns(struct keeper *keeper)
{
    for (struct kept_family *f = keeper->families; f; f = f->next)
        while (f->line && (f->n_forks < FORKS_MOST || f->state != FAMILY_READY))
            request_next(keeper, f->line);
}
