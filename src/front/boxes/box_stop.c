/* Stopping a box and starting it again. A box that is on_disk writes to a store of the keeper's, which is called by the
 * box's own number and lives until the box is deleted; its row in the database is what keeps it. A store without one is
 * left over from a front that died between two steps, and is removed when the keeper has told what it has. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "front/boxes/box_private.h"
#include "front/front.h"
#include "front/keeper_link.h"

/* What the keeper has told of since it said hello. */
static struct {
    uint64_t *number;
    size_t    n, room;
} told;

void boxes_note_store(struct front *front, uint64_t number)
{
    (void)front;
    if (told.n == told.room) {
        size_t room = told.room ? told.room * 2 : 64;
        uint64_t *larger = reallocarray(told.number, room, sizeof *larger);
        if (!larger)
            return;     /* it will be told again */
        told.number = larger;
        told.room = room;
    }
    told.number[told.n++] = number;
}

static void on_orphan(const struct event *event, int *fds, size_t n_fds, void *arg)
{
    (void)fds;
    (void)n_fds;
    (void)arg;
    if (event->result < 0 && event->result != -ECONNRESET)
        front_log("error", "files that belong to no box cannot be removed", "why", event->err.what, NULL);
}

static bool is_owned(const struct front *front, uint64_t number)
{
    for (const struct box *b = front->boxes.first; b; b = b->next)
        if (b->number == number)
            return box_is_alive(b) && b->settings.on_disk;
    return false;
}

void boxes_remove_orphans(struct front *front)
{
    for (size_t i = 0; i < told.n; i++) {
        struct request_store q = { .head.type = REQUEST_STORE_REMOVE, .store = told.number[i] };
        if (!is_owned(front, told.number[i]))
            keeper_link_request(front->keeper, &q, sizeof q, NULL, 0, on_orphan, NULL);
    }
    free(told.number);
    told.number = NULL;
    told.n = told.room = 0;
}

static void on_removed(const struct event *event, int *fds, size_t n_fds, void *arg)
{
    struct box *b = arg;

    (void)fds;
    (void)n_fds;
    if (event->result == -ECONNRESET)
        return;         /* the next keeper tells of it, and then it goes */
    if (event->result < 0)
        front_log("error", "the files of a box cannot be removed", "box", b->id, "why", event->err.what, NULL);
    if (b->phase != PHASE_DELETING)
        return;
    box_end(b, PHASE_DELETED, b->reason, NULL);
    box_wake(b, NULL);
}

void box_remove_store(struct box *b)
{
    struct request_store q = { .head.type = REQUEST_STORE_REMOVE, .store = b->number };

    if (b->phase == PHASE_DELETING)
        keeper_link_request(b->front->keeper, &q, sizeof q, NULL, 0, on_removed, b);    /* it lives until then */
    else
        keeper_link_request(b->front->keeper, &q, sizeof q, NULL, 0, on_orphan, NULL);
}

static void on_destroyed(const struct event *event, int *fds, size_t n_fds, void *arg)
{
    (void)event;        /* that the box is gone is an event of its own */
    (void)fds;
    (void)n_fds;
    (void)arg;
}

int box_stop(struct box *b, enum box_reason reason, box_callback *call, void *arg, struct err *e)
{
    if (!b->settings.on_disk)
        return err_set(
            e, EINVAL, STEP_USAGE,
            "this box's files are in memory and would be lost; pause it, or create it with \"store\": \"disk\"");
    if (b->phase != PHASE_RUNNING && b->phase != PHASE_PAUSED && b->phase != PHASE_STOPPING)
        return err_set(e, EBUSY, STEP_USAGE, "the box is %s", phase_names[b->phase]);
    box_wait(b, call, arg);
    if (b->phase == PHASE_STOPPING)
        return 0;
    struct request_head q = { .type = REQUEST_DESTROY, .box = b->slot };
    for (struct exec *x = b->execs; x; x = x->next)
        if (x->state != EXEC_ENDED)
            x->reason = EXEC_REASON_STOPPED;
    box_set_phase(b, PHASE_STOPPING, reason, NULL);
    keeper_link_request(b->front->keeper, &q, sizeof q, NULL, 0, on_destroyed, NULL);
    return 0;
}

/* The descriptors in the order of the box's own mounts. */
static int match_mounts(const struct box_settings *now, const struct box_settings *again, int fd[KEEPER_MOUNTS],
                        const char *source[KEEPER_MOUNTS], struct err *e)
{
    if (now->n_mounts && !again->n_mounts)
        return err_set(e, EINVAL, STEP_USAGE, "the box has %u mounts; they must be handed over again to start it",
                       now->n_mounts);
    for (uint32_t i = 0; i < now->n_mounts; i++) {
        uint32_t k = 0;
        while (k < again->n_mounts && strcmp(again->mount[k].target, now->mount[i].target) != 0)
            k++;
        if (k == again->n_mounts)
            return err_set(e, EINVAL, STEP_USAGE, "the mount at %.150s must be handed over again to start the box",
                           now->mount[i].target);
        if (again->mount[k].writable != now->mount[i].writable)
            return err_set(e, EINVAL, STEP_USAGE, "the mount at %.150s is %s, and stays so", now->mount[i].target,
                           now->mount[i].writable ? "writable" : "read-only");
        fd[i] = again->mount_fd[k];
        source[i] = again->mount_source[k];
    }
    if (again->n_mounts != now->n_mounts)
        return err_set(e, EINVAL, STEP_USAGE, "the box has %u mounts, and a start adds none", now->n_mounts);
    return 0;
}

static void show_sources(struct box_settings *s, const char *const source[KEEPER_MOUNTS])
{
    for (uint32_t i = 0; i < s->n_mounts; i++) {
        char *copy = source[i] ? strdup(source[i]) : NULL;
        if (copy) {
            free(s->mount_source[i]);
            s->mount_source[i] = copy;
        }
    }
}

int box_start(struct box *b, const struct box_settings *again, box_callback *call, void *arg, struct err *e)
{
    int fd[KEEPER_MOUNTS];
    const char *source[KEEPER_MOUNTS] = { NULL };
    uint32_t slot = BOX_NO_SLOT;

    if (b->phase == PHASE_STARTING) {
        box_wait(b, call, arg);
        return 0;
    }
    if (b->phase != PHASE_STOPPED)
        return err_set(e, EBUSY, STEP_USAGE, "the box is %s", phase_names[b->phase]);
    int r = match_mounts(&b->settings, again, fd, source, e);
    if (r == 0)
        r = box_admit_again(b, &slot, e);
    if (r < 0)
        return r;
    show_sources(&b->settings, source);
    box_take_slot(b, slot);
    b->used_ms = front_now_ms();
    box_set_phase(b, PHASE_STARTING, BOX_REASON_NONE, NULL);
    box_wait(b, call, arg);
    box_ask_keeper(b, fd);
    return 0;
}
