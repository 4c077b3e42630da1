/* Stops a box and starts it again. A box that is on_disk writes to a store of the keeper, which is named by the box's
 * number and lives until the box is deleted; the box's row in the database keeps it alive. A store without a row was
 * left by a front that died between two steps, and is removed when the keeper has reported its stores. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "front/boxes/box_private.h"
#include "front/front.h"
#include "front/keeper_link.h"

void boxes_note_store(struct front *front, uint64_t number)
{
    struct told_stores *told = &front->boxes.sync->stores;

    if (told->n == told->room) {
        size_t room = told->room ? told->room * 2 : 64;
        uint64_t *larger = reallocarray(told->number, room, sizeof *larger);
        if (!larger)
            return;     /* it will be reported again */
        told->number = larger;
        told->room = room;
    }
    told->number[told->n++] = number;
}

static void on_orphan(const union event *event, int *fds, size_t n_fds, void *arg)
{
    const struct err *e = event_failure(event);

    (void)fds;
    (void)n_fds;
    (void)arg;
    if (e && e->code != ECONNRESET)
        front_log("error", "files that belong to no box cannot be removed", "why", e->what, NULL);
}

static bool is_owned(const struct front *front, uint64_t number)
{
    for (const struct box *b = front->boxes.first; b; b = b->next)
        if (b->number == number)
            return box_is_alive(b) && box_mounts_on_disk(&b->settings.mounts);
    return false;
}

void boxes_forget_stores(struct front *front)
{
    free(front->boxes.sync->stores.number);
    front->boxes.sync->stores = (struct told_stores){ 0 };
}

void boxes_remove_orphans(struct front *front)
{
    struct told_stores *told = &front->boxes.sync->stores;

    for (size_t i = 0; i < told->n; i++) {
        struct request_store q = { .head.type = REQUEST_STORE_REMOVE, .store = told->number[i] };
        if (!is_owned(front, told->number[i]))
            keeper_link_request(front->keeper, &q, sizeof q, NULL, 0, on_orphan, NULL);
    }
    boxes_forget_stores(front);
}

static void on_removed(const union event *event, int *fds, size_t n_fds, void *arg)
{
    struct box *b = arg;
    const struct err *e = event_failure(event);

    (void)fds;
    (void)n_fds;
    if (e && e->code == ECONNRESET)
        return;         /* the next keeper reports it, and then it is removed */
    if (e)
        front_log("error", "the files of a box cannot be removed", "box", b->id, "why", e->what, NULL);
    if (b->phase != PHASE_DELETING)
        return;
    box_end(b, PHASE_DELETED, b->reason, NULL);
    box_wake(b, NULL);
}

void box_remove_store(struct box *b)
{
    struct request_store q = { .head.type = REQUEST_STORE_REMOVE, .store = b->number };

    if (b->phase == PHASE_DELETING)
        keeper_link_request(b->front->keeper, &q, sizeof q, NULL, 0, on_removed, b);    /* the box lives until the
                                                                                         * answer */
    else
        keeper_link_request(b->front->keeper, &q, sizeof q, NULL, 0, on_orphan, NULL);
}

static void on_destroyed(const union event *event, int *fds, size_t n_fds, void *arg)
{
    (void)event;        /* the box's end is a separate event */
    (void)fds;
    (void)n_fds;
    (void)arg;
}

int box_stop(struct box *b, enum box_reason reason, box_callback *call, void *arg, struct err *e)
{
    if (!box_mounts_on_disk(&b->settings.mounts))
        return err_set(
            e, EINVAL, STEP_USAGE,
            "this box's files are in memory and would be lost; pause it, or create it with \"store\": \"disk\"");
    if (b->phase != PHASE_RUNNING && b->phase != PHASE_PAUSED && b->phase != PHASE_STOPPING)
        return err_set(e, EBUSY, STEP_USAGE, "the box is %s", phase_names[b->phase]);
    box_wait(b, call, arg);
    if (b->phase == PHASE_STOPPING)
        return 0;
    struct request_head q = { .type = REQUEST_DESTROY, .box = b->slot };
    FOR_PARTS(b->front, part, on_stop)
        part->on_stop(b);
    box_set_phase(b, PHASE_STOPPING, reason, NULL);
    keeper_link_request(b->front->keeper, &q, sizeof q, NULL, 0, on_destroyed, NULL);
    return 0;
}

int box_start(struct box *b, struct box_mounts *again, box_callback *call, void *arg, struct err *e)
{
    uint32_t slot = BOX_NO_SLOT;

    if (b->phase == PHASE_STARTING) {
        box_wait(b, call, arg);
        return 0;
    }
    if (b->phase != PHASE_STOPPED)
        return err_set(e, EBUSY, STEP_USAGE, "the box is %s", phase_names[b->phase]);
    int r = box_mounts_match(&b->settings.mounts, again, e);
    if (r == 0)
        r = box_admit_again(b, &slot, e);
    if (r < 0)
        return r;
    box_mounts_reopen(&b->settings.mounts, again);
    box_take_slot(b, slot);
    b->used_ms = front_now_ms();
    box_set_phase(b, PHASE_STARTING, BOX_REASON_NONE, NULL);
    box_wait(b, call, arg);
    box_ask_keeper(b);
    return 0;
}
