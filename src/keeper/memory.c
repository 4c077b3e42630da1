/* When memory runs out in a box, all of it ends: on v2 the kernel does it (memory.oom.group); on v1 the kernel kills
 * one process and notifies us, and we kill the others.
 *
 * None of that is over when the first process has ended. v1 notifies before it has chosen a victim, and v2 counts one
 * kill after the other; dying processes still hold their memory. A command that started meanwhile would lack memory
 * that others hold, and would be blamed for their kills.
 *
 * So the box settles first: until its leaf is empty, ends are not reported and nothing is started. The process in which
 * the kernel searches for a victim is itself in the leaf; so when the leaf is empty, the counts are final. */
#define _GNU_SOURCE
#include "keeper/memory.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"

enum { SETTLE_STEP_US = 1000, SETTLE_STEP_MOST_US = 16000, SETTLE_TIMEOUT_US = 5000000, HELD_MOST = 64 };

/* All processes of the box have been killed. The wait is bounded, because one may hang in a system call. */
static void begin_to_settle(struct keeper *keeper, struct kept_box *box)
{
    if (box->shortage || box->dying || cgroup_is_empty(&box->box.leaf))
        return;
    struct kept_shortage *s = box->shortage = calloc(1, sizeof *s);
    if (!s)
        return;
    uint64_t now = clock_monotonic_us();
    s->step_us = SETTLE_STEP_US;
    s->next_us = now + s->step_us;
    s->end_us = now + SETTLE_TIMEOUT_US;
    keeper_note_deadline(keeper, s->next_us);
}

void keeper_memory_ran_out(struct keeper *keeper, struct kept_box *box)
{
    uint64_t times;

    if (box->box.oom < 0 || read(box->box.oom, &times, sizeof times) != sizeof times || !box->box.has_leaf
        || box->dying)
        return;
    for (unsigned i = 0; i < KEEPER_PAYLOADS; i++)
        if (box->payload[i] && !box->payload[i]->ended)
            box->payload[i]->out_of_memory = true;
    cgroup_kill_members(&box->box.leaf);
    begin_to_settle(keeper, box);
}

/* Reads the kernel's counters of the box. If there are new kills for lack of memory, the box settles. */
static void look(struct keeper *keeper, struct kept_box *box)
{
    uint64_t kills = box->oom_kills;

    keeper_memory_ran_out(keeper, box);
    if (!box->box.has_leaf)
        return;
    cgroup_refusals_read(&box->box.leaf, &box->oom_kills, &box->pids_refused);
    if (box->oom_kills > kills && cgroup_kills_together(&box->box.leaf))
        begin_to_settle(keeper, box);
}

static void tell_end(struct keeper *keeper, struct kept_box *box, struct kept_payload *p)
{
    struct box_usage full;

    p->untold = false;
    box_peaks_read(&box->box, &full);
    keeper_fill_usage(&full, &p->end.ended.end.usage);
    full.cgroup.oom_kills -= p->oom_kills_before;
    if (p->out_of_memory && p->how.signal == SIGKILL && full.cgroup.oom_kills == 0)
        full.cgroup.oom_kills = 1;
    full.cgroup.pids_refused -= p->pids_refused_before;
    p->end.ended.end.outcome = (uint32_t)box_outcome(&p->how, p->timed_out ? OUTCOME_TIMEOUT : OUTCOME_NONE, &full);
    keeper_tell_end(keeper, p);
}

void keeper_command_ended(struct keeper *keeper, struct kept_box *box, struct kept_payload *p)
{
    look(keeper, box);
    if (box->shortage)
        p->untold = true;
    else
        tell_end(keeper, box, p);
}

static void free_held(struct kept_shortage *s)
{
    for (struct held_request *h; (h = s->held);) {
        s->held = h->next;
        for (size_t i = 0; i < h->n_fds; i++)
            fd_close(h->fds[i]);
        free(h);
    }
    s->n_held = 0;
}

int keeper_hold(struct keeper *keeper, struct kept_box *box, const void *frame, size_t size, int *fds, size_t n_fds,
                struct err *e)
{
    look(keeper, box);
    if (!box->shortage)
        return 0;
    if (box->shortage->n_held >= HELD_MOST)
        return err_at(e, EBUSY, STEP_WAIT, 0, "the box ran out of memory and is being cleared");
    struct held_request *h = malloc(sizeof *h + size), **last = &box->shortage->held;
    if (!h)
        return err_at(e, ENOMEM, STEP_MEMORY, 0, "request");
    *h = (struct held_request){ .size = size, .n_fds = n_fds };
    memcpy(h->frame, frame, size);
    for (size_t i = 0; i < n_fds; i++)
        h->fds[i] = TAKE_FD(fds[i]);
    while (*last)
        last = &(*last)->next;
    *last = h;
    box->shortage->n_held++;
    return 1;
}

void keeper_settle_end(struct keeper *keeper, struct kept_box *box)
{
    struct kept_shortage *s = TAKE_PTR(box->shortage);

    if (!s)
        return;
    for (unsigned i = 0; i < KEEPER_PAYLOADS; i++)
        if (box->payload[i] && box->payload[i]->untold)
            tell_end(keeper, box, box->payload[i]);
    /* Stops when the front is gone; and a request may run the box out of memory again. */
    for (struct held_request *h; keeper->front >= 0 && (h = s->held); free(h)) {
        s->held = h->next;
        (void)!keeper_request(keeper, h->frame, h->size, h->fds, h->n_fds);
    }
    free_held(s);
    free(s);
}

void keeper_settle_on(struct keeper *keeper, struct kept_box *box, uint64_t now)
{
    if (cgroup_is_empty(&box->box.leaf) || now >= box->shortage->end_us) {
        keeper_settle_end(keeper, box);
        return;
    }
    struct kept_shortage *s = box->shortage;
    if (s->step_us < SETTLE_STEP_MOST_US)
        s->step_us *= 2;
    else if (!cgroup_kills_together(&box->box.leaf))
        cgroup_kill_members(&box->box.leaf);        /* a process may have been forked while the others were killed */
    s->next_us = now + s->step_us;
}

void keeper_forget_held(struct keeper *keeper)
{
    for (uint32_t i = 0; i < KEEPER_BOXES; i++)
        if (keeper->box[i] && keeper->box[i]->shortage)
            free_held(keeper->box[i]->shortage);
}
