/* How long dead boxes are kept, so that callers can still learn how they ended. They queue in the order of their
 * deaths; beyond DEAD_KEPT the oldest are forgotten, a few at a time and between requests, with their rows and the logs
 * of their execs. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "front/boxes/box_private.h"
#include "front/boxes/families.h"
#include "front/boxes/pool.h"
#include "front/db/db.h"
#include "front/front.h"

enum { DEAD_KEPT = 1000, DEAD_AGE_MS = 10000, SWEEP_MS = 100, SWEEP_MOST = 64 };

static bool in_use(const struct box *b)
{
    if (b->waiters || box_has_calls(b))
        return true;
    FOR_PARTS(b->front, part, needs)
        if (part->needs(b))
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

/* Forgets the oldest dead box. If it is still in use, moves it to the end of the queue. */
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
    FOR_PARTS(front, part, on_forget)
        part->on_forget(b);
    if (db_box_delete(front->db, b->number, &e) < 0)
        front_log("error", "cannot remove a box from the database", "box", b->id, NULL);
    box_unlist(b);
    FOR_PARTS(front, part, remove_files)
        part->remove_files(b);
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
    front->boxes.sync = calloc(1, sizeof *front->boxes.sync);
    if (!front->boxes.sync)
        abort();
    pool_init(front);
    families_init(front);
}
