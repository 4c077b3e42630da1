/* How kernels end and restart. Clients learn of a death at once, with its outcome and a reason; the kernel stays dead
 * until it is restarted or forgotten. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "front/front.h"
#include "front/kernels/kernel_private.h"

/* Only for a kernel that was not ready yet: afterwards any cell can print such a line and exit with such a status. */
static void add_last_words(const struct kernel *k, const struct exec *x, char *text, size_t size)
{
    const struct kernel_private *p = kernel_private(k);
    size_t n = strlen(text);
    char words[400];

    if (guest_link_last_words(p->tail, p->tail_size, x->end.code, words, sizeof words))
        snprintf(text, size, "%s", words);
    else if (words[0])
        snprintf(text + n, size - n, ": %s", words);
}

static void say_why(struct kernel *k, const struct exec *x)
{
    struct kernel_private *p = kernel_private(k);
    const struct config *config = &k->front->config;
    uint32_t template = k->spec ? config_template_find(config, k->spec) : box_template(k->box);

    k->outcome = p->end_outcome ? p->end_outcome : x->outcome ? x->outcome : OUTCOME_ERROR;
    if (p->end_outcome)
        snprintf(k->reason, sizeof k->reason, "%s", p->end_reason);
    else if (config_awaits_setup(config, template, &x->failure))
        snprintf(k->reason, sizeof k->reason,
                 "there is no Python for kernels on this machine yet; 'carrel setup' makes one, once");
    else if (x->failure.code)
        err_text(&x->failure, k->reason, sizeof k->reason);
    else if (k->outcome == OUTCOME_OOM)
        snprintf(k->reason, sizeof k->reason, "the box ran out of memory, and the kernel was killed");
    else if (x->end.signal)
        snprintf(k->reason, sizeof k->reason, "the kernel was killed by signal %d (SIG%s)", x->end.signal,
                 sigabbrev_np(x->end.signal) ? sigabbrev_np(x->end.signal) : "?");
    else {
        bool starting = k->state == KERNEL_STARTING;
        snprintf(k->reason, sizeof k->reason, "%sthe kernel's process exited with status %d",
                 starting ? "the kernel did not start: " : "", x->end.code);
        if (starting)
            add_last_words(k, x, k->reason, sizeof k->reason);
    }
    front_make_utf8(k->reason);
}

static void start_anew(struct kernel *k)
{
    struct kernel_private *p = kernel_private(k);
    struct err e = { 0 };

    p->restart_wanted = false;
    p->end_outcome = OUTCOME_NONE;
    p->tail_size = 0;
    k->outcome = OUTCOME_NONE;
    k->reason[0] = '\0';
    if (kernel_launch(k, &e) < 0) {
        k->outcome = OUTCOME_ERROR;
        err_text(&e, k->reason, sizeof k->reason);
        front_make_utf8(k->reason);
        kernel_set_state(k, KERNEL_DEAD);
        return;
    }
    kernel_set_state(k, KERNEL_STARTING);
}

static void died(struct kernel *k)
{
    struct kernel_private *p = kernel_private(k);
    struct exec *x = k->exec;

    guest_link_drain(&p->link);
    kernel_raw_end(k);
    loop_timer_cancel(k->front->loop, &p->close_timer);
    kernel_ladder_end(k, NULL);
    p->running_id[0] = '\0';
    p->runs_own = false;
    free(p->input_parent);
    p->input_parent = NULL;
    if (p->gone)
        return;
    k->exec = NULL;
    x->owned_by = NULL;
    if (x->failure.code && k->way != KERNEL_COLD && !p->must_exec && !p->end_outcome && !p->restart_wanted) {
        p->must_exec = true;            /* forking failed; an exec'd interpreter may work */
        guest_link_rewind(&p->link);
        start_anew(k);
        return;
    }
    if (p->restart_wanted) {
        start_anew(k);
        return;
    }
    guest_link_close(&p->link);
    say_why(k, x);
    k->front->metrics.kernels_died++;
    kernel_set_state(k, KERNEL_DEAD);
}

void kernel_process_ended(struct exec *x)
{
    if (x->owned_by)
        died(x->owned_by);
}

/* In a box that was made for this caller (no token: not from the pool) the first kernel was forked for it, too. */
enum kernel_way kernel_way_of(const struct kernel *k, enum way way)
{
    return way == WAY_PARKED && k->box->token ? KERNEL_PARKED : way == WAY_EXECUTED ? KERNEL_COLD : KERNEL_FORKED;
}

void kernel_process_runs(struct exec *x, const struct exec_birth *birth)
{
    struct kernel *k = x->owned_by;

    if (birth->cpu_us > x->box->unbilled_us)
        x->box->unbilled_us = birth->cpu_us;
    if (!k || k->way == KERNEL_COLD)
        return;
    k->way = kernel_way_of(k, birth->way) == KERNEL_PARKED ? KERNEL_PARKED : KERNEL_FORKED;
    guest_link_confirm(&kernel_private(k)->link);
    if (k->state == KERNEL_STARTING)
        kernel_set_state(k, KERNEL_IDLE);       /* it was ready before the request */
    kernel_runs_confirmed(k);
}

int kernel_restart(struct kernel *k, struct err *e)
{
    struct kernel_private *p = kernel_private(k);
    struct err ignored;

    if (k->box->phase != PHASE_RUNNING)
        return err_set(e, EBUSY, STEP_USAGE, "the box is %s", phase_names[k->box->phase]);
    if (k->state == KERNEL_RESTARTING)
        return 0;
    k->restarts++;
    p->restart_wanted = true;
    kernel_ladder_end(k, NULL);
    guest_link_close(&p->link);        /* queued messages are for the ending interpreter, new ones for the next */
    p->cell_waits = p->interrupt_waits = false;
    kernel_set_state(k, KERNEL_RESTARTING);
    if (p->gone)
        return 0;
    if (k->exec)
        (void)!exec_signal(k->exec, SIGKILL, &ignored);
    else
        start_anew(k);
    return 0;
}

int kernel_interrupt(struct kernel *k, struct err *e)
{
    if (!k->exec)
        return err_set(e, ESRCH, STEP_USAGE, "the kernel is dead");
    kernel_private(k)->interrupts++;
    if (k->state == KERNEL_STARTING || k->state == KERNEL_RESTARTING) {
        kernel_private(k)->interrupt_waits = kernel_private(k)->cell_waits;
        return 0;
    }
    return exec_signal(k->exec, SIGINT, e);
}

void kernel_end(struct kernel *k, const char *reason)
{
    struct kernel_private *p = kernel_private(k);

    if (p->gone)
        return;
    if (k->exec)
        exec_disown(k->exec);
    if (k->state != KERNEL_DEAD) {
        k->outcome = OUTCOME_KILLED;
        snprintf(k->reason, sizeof k->reason, "%s", reason);
        kernel_set_state(k, KERNEL_DEAD);
    }
    if (!p->gone)
        kernel_runs_end(k);
    kernel_forget(k);
}

void kernels_on_box_end(struct box *box, enum phase phase, enum box_reason reason)
{
    (void)phase;
    (void)reason;
    while (box->kernels)
        kernel_end(box->kernels, "the box has ended");
}
