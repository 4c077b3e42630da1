/* How long the dead are kept. Dead boxes stay for a while, so that whoever asks can be told how they ended. They wait
 * in the order of their deaths; beyond DEAD_KEPT of them the oldest go, a few at a time and between requests, with
 * their rows and the logs of their execs. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "front/boxes/box_private.h"
#include "front/db/db.h"
#include "front/front.h"
#include "front/services/services.h"

enum { DEAD_KEPT = 1000, DEAD_AGE_MS = 10000, SWEEP_MS = 100, SWEEP_MOST = 64 };

static bool in_use(const struct box *b)
{
    if (b->waiters || box_has_calls(b) || services_need_box(b))
        return true;
    for (struct exec *x = b->execs; x; x = x->next)
        if (x->followers)
            return true;
    return false;
}

void box_bury(struct box *b)
{
    struct boxes *all = &b->front->boxes;

    if (b->buried)
        return;
    b->buried = true;
    b->dead_next = NULL;
    if (!all->dead_last)
        all->dead_first = b;
    else
        all->dead_last->dead_next = b;
    all->dead_last = b;
    if (++all->dead > DEAD_KEPT && !all->sweep.armed)
        loop_timer_set(b->front->loop, &all->sweep, SWEEP_MS);
}

/* The oldest dead box is forgotten; if somebody still has to do with it, it goes to the end of the queue instead. */
static void forget_oldest(struct front *front)
{
    struct boxes *all = &front->boxes;
    struct box *b = all->dead_first;
    struct err e;

    all->dead_first = b->dead_next;
    if (!all->dead_first)
        all->dead_last = NULL;
    all->dead--;
    b->buried = false;
    if (in_use(b)) {
        box_bury(b);
        return;
    }
    services_on_box_forget(b);
    if (db_box_delete(front->db, b->number, &e) < 0)
        front_log("error", "cannot remove a box from the database", "box", b->id, NULL);
    box_unlist(b);
    execs_forget(b);
    box_free(b);
}

static void on_sweep(struct loop_timer *t)
{
    struct front *front = container_of(t, struct front, boxes.sweep);
    struct boxes *all = &front->boxes;
    int64_t before_ms = front_now_ms() - DEAD_AGE_MS;
    struct err e;

    db_begin(front->db);
    for (unsigned i = 0; i < SWEEP_MOST && all->dead > DEAD_KEPT && all->dead_first->changed_ms < before_ms; i++)
        forget_oldest(front);
    if (db_end(front->db, &e) < 0)
        front_log("error", "cannot remove boxes from the database", NULL);
    if (all->dead > DEAD_KEPT)
        loop_timer_set(front->loop, t, SWEEP_MS);
}

void boxes_prune(struct front *front, int64_t before_ms)
{
    unsigned n = front->boxes.dead;

    while (n-- && front->boxes.dead_first->changed_ms < before_ms)
        forget_oldest(front);
}

void boxes_init(struct front *front)
{
    front->boxes.sweep.on_expire = on_sweep;
}
