/* Stops a cell whose client is gone or whose time is over: SIGINT to the process group; a second later again, and a
 * message; after two seconds SIGTERM, after three SIGKILL. The ladder ends as soon as the kernel reports the cell's
 * end; the interpreter then keeps its state. */
#define _GNU_SOURCE
#include <signal.h>
#include <stddef.h>
#include <string.h>

#include "base/list.h"
#include "front/execs/execs.h"
#include "front/front.h"
#include "front/kernels/kernel_private.h"

enum { STEP_MS = 1000 };

static void send_interrupt(struct kernel *k)
{
    struct kernel_private *p = kernel_private(k);
    char header[256], id[64];
    struct err ignored;

    snprintf(id, sizeof id, "%s_s%llu", p->session, (unsigned long long)++p->n_asked);
    size_t size = kernel_make_header(k, "interrupt_request", id, header, sizeof header);
    struct iovec none = { (char *)(uintptr_t)"{}", 2 };
    const struct iovec part[KERNEL_PARTS] = { { header, size }, none, none, none };
    (void)!kernel_send(k, KERNEL_CONTROL, part, NULL, 0, &ignored);
}

static void climb(struct kernel *k)
{
    static const int signals[] = { SIGINT, SIGINT, SIGTERM, SIGKILL };
    struct kernel_private *p = kernel_private(k);
    struct err ignored;

    if (!k->exec || p->ladder_step >= sizeof signals / sizeof *signals)
        return;
    (void)!exec_signal(k->exec, signals[p->ladder_step], &ignored);
    if (p->ladder_step == 1)
        send_interrupt(k);
    p->ladder_step++;
    loop_timer_set(k->front->loop, &p->ladder_timer, STEP_MS);
}

static void on_step(struct loop_timer *t)
{
    climb((container_of(t, struct kernel_private, ladder_timer))->kernel);
}

void kernel_ladder_init(struct kernel *k)
{
    kernel_private(k)->ladder_timer.on_expire = on_step;
}

void kernel_stop_cell(struct kernel *k, const char *id)
{
    struct kernel_private *p = kernel_private(k);

    if (k->state == KERNEL_DEAD || strcmp(p->ladder_id, id) == 0)
        return;
    snprintf(p->ladder_id, sizeof p->ladder_id, "%s", id);
    p->ladder_step = 0;
    kernel_ladder_begin(k);
}

void kernel_ladder_begin(struct kernel *k)
{
    struct kernel_private *p = kernel_private(k);

    /* The running cell may be another client's, and a starting interpreter would not survive a signal. */
    if (p->ladder_id[0] && p->ladder_step == 0 && strcmp(p->ladder_id, p->running_id) == 0)
        climb(k);
}

void kernel_ladder_end(struct kernel *k, const char *id)
{
    struct kernel_private *p = kernel_private(k);

    if (id && strcmp(p->ladder_id, id) != 0)
        return;
    p->ladder_id[0] = '\0';
    p->ladder_step = 0;
    loop_timer_cancel(k->front->loop, &p->ladder_timer);
}
