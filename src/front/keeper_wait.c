/* A server that has just started, or whose keeper has ended, has none for some hundred milliseconds, on a busy machine
 * for seconds. Callers' requests wait for it. */
#include <stddef.h>

#include "base/list.h"
#include "front/front.h"

enum { WAIT_MS = 10000 };

void front_cancel_wait(struct keeper_wait *w)
{
    if (!w->back)
        return;
    loop_timer_cancel(w->front->loop, &w->deadline);
    *w->back = w->next;
    if (w->next)
        w->next->back = w->back;
    else
        w->front->waiting_end = w->back;
    w->back = NULL;
}

static void on_deadline(struct loop_timer *t)
{
    struct keeper_wait *w = container_of(t, struct keeper_wait, deadline);

    front_cancel_wait(w);
    w->go_on(w);
}

void front_wait_for_keeper(struct front *front, struct keeper_wait *w, void (*go_on)(struct keeper_wait *w))
{
    if (!front->waiting)
        front->waiting_end = &front->waiting;
    *w = (struct keeper_wait){
        .front = front, .back = front->waiting_end, .go_on = go_on, .deadline.on_expire = on_deadline
    };
    *front->waiting_end = w;
    front->waiting_end = &w->next;
    loop_timer_set(front->loop, &w->deadline, WAIT_MS);
}

static void on_go_on(struct loop_task *t)
{
    struct front *front = container_of(t, struct front, go_on);

    while (front->ready && front->waiting) {
        struct keeper_wait *w = front->waiting;
        front_cancel_wait(w);
        w->go_on(w);
    }
}

void front_keeper_came(struct front *front)
{
    front->go_on.on_run = on_go_on;
    loop_task_add(front->loop, &front->go_on);
}
