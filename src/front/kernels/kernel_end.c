/* How kernels end, and how they begin anew. A death is told at once, with its outcome and a reason in words; the kernel
 * stays, dead, until somebody restarts or forgets it. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "front/boxes/box_private.h"
#include "front/execs/exec_private.h"
#include "front/front.h"
#include "front/kernels/kernel_private.h"

/* Only of one that was not ready yet: afterwards any cell can say such words and leave with such a status. */
static void add_last_words(const struct kernel *k, const struct exec *x, char *text, size_t size)
{
    const struct kernel_private *p = kernel_private(k);
    size_t n = strlen(text);
    char words[400];

    if (kernel_link_last_words(p->tail, p->tail_size, x->end.code, words, sizeof words))
        snprintf(text, size, "%s", words);
    else if (words[0])
        snprintf(text + n, size - n, ": %s", words);
}

static void say_why(struct kernel *k, const struct exec *x)
{
    struct kernel_private *p = kernel_private(k);
    const struct config *config = &k->front->config;
    uint32_t template = k->spec ? config_template_find(config, k->spec) : k->box->settings.template;

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

    kernel_link_drain(&p->link);
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
    x->kernel = NULL;
    if (x->failure.code && k->way != KERNEL_COLD && !p->must_exec && !p->end_outcome && !p->restart_wanted) {
        p->must_exec = true;            /* the zygote could not; an interpreter of its own can */
        kernel_link_rewind(&p->link);
        start_anew(k);
        return;
    }
    if (p->restart_wanted) {
        start_anew(k);
        return;
    }
    kernel_link_close(&p->link);
    say_why(k, x);
    k->front->metrics.kernels_died++;
    kernel_set_state(k, KERNEL_DEAD);
}

void kernels_on_exec_change(struct exec *x)
{
    struct kernel *k = x->kernel;

    if (!k)
        return;
    if (x->state == EXEC_ENDED) {
        died(k);
        return;
    }
    if (x->state != EXEC_RUNNING || k->way == KERNEL_COLD)
        return;
    k->way = x->way == KERNEL_PARKED ? KERNEL_PARKED : KERNEL_FORKED;
    kernel_link_confirm(&kernel_private(k)->link);
    if (k->state == KERNEL_STARTING)
        kernel_set_state(k, KERNEL_IDLE);       /* it was ready before it was asked for */
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
    kernel_link_close(&p->link);        /* what waits is for the interpreter that ends; what comes now for the next */
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
    struct err ignored;

    if (p->gone)
        return;
    if (k->exec) {
        k->exec->is_nobodys = true;     /* the signal may be lost, with the keeper's connection or with us */
        exec_save(k->exec);
        (void)!exec_signal(k->exec, SIGKILL, &ignored);
    }
    if (k->state != KERNEL_DEAD) {
        k->outcome = OUTCOME_KILLED;
        snprintf(k->reason, sizeof k->reason, "%s", reason);
        kernel_set_state(k, KERNEL_DEAD);
    }
    if (!p->gone)
        kernel_runs_end(k);
    kernel_forget(k);
}

void kernels_on_box_end(struct box *box)
{
    while (box->kernels)
        kernel_end(box->kernels, "the box has ended");
}
