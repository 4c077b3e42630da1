/* After a start or a lost keeper: what the store remembers is compared with what the keeper has. A box that the keeper
 * does not have is gone; a box that the store does not know was never answered for, and is destroyed; the others go on,
 * with their execs and their output. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "front/boxes/box_private.h"
#include "front/boxes/families.h"
#include "front/boxes/pool.h"
#include "front/db/db.h"
#include "front/front.h"
#include "front/keeper_link.h"
#include "front/net/net.h"
#include "front/services/inlets.h"
#include "front/services/services.h"

static bool unreadable;     /* there are rows whose boxes we do not know: then nothing can be said to be nobody's */

static int load_one(const struct db_box *row, void *arg)
{
    struct front *front = arg;
    struct err e = { 0 };
    struct box *b = box_new(front, row->owner, row->name, row->key);
    json_t *body = json_loads(row->body, 0, NULL);

    if (!b || !body) {
        json_decref(body);
        if (b)
            box_free(b);
        unreadable = true;
        front_log("error", "a box in the database cannot be read", "box", row->id, NULL);
        return 0;
    }
    snprintf(b->id, sizeof b->id, "%s", row->id);
    b->number = row->number;
    if (json_object_size(body) == 0) {
        /* Stored, but the front died before it asked for it. */
        b->phase = PHASE_CREATING;
        b->created_ms = b->changed_ms = row->created_ms;
        b->settings.env = json_object();
        b->settings.labels = json_object();
    } else if (box_from_json(b, body, &e) < 0 || execs_load(b, &e) < 0) {
        char text[256];
        err_text(&e, text, sizeof text);
        unreadable = true;
        front_log("error", text, "box", row->id, NULL);
    }
    json_decref(body);
    box_list(b);
    if (!box_is_alive(b))
        box_bury(b);
    return 0;
}

int boxes_load(struct front *front, struct err *e)
{
    front->boxes.next_slot = (uint32_t)(front->started_ms % KEEPER_BOXES);
    return db_boxes(front->db, false, load_one, front, e);
}

static struct box *by_token(struct front *front, uint64_t token)
{
    for (struct box *b = front->boxes.first; b; b = b->next)
        if (box_token(b) == token)
            return b;
    return NULL;
}

static void nothing(const struct event *event, int *fds, size_t n_fds, void *arg)
{
    (void)event;
    (void)fds;
    (void)n_fds;
    (void)arg;
}

static void on_stranger_gone(const struct event *event, int *fds, size_t n_fds, void *arg)
{
    struct front *front = arg;

    (void)fds;
    (void)n_fds;
    if (event->result != -ECONNRESET)   /* then there are no slots at all */
        front->boxes.slot_used[event->box / 64] &= ~(UINT64_C(1) << event->box % 64);
}

void boxes_destroy_slot(struct front *front, uint32_t slot)
{
    struct request_head q = { .type = REQUEST_DESTROY, .box = slot };

    front->boxes.slot_used[slot / 64] |= UINT64_C(1) << slot % 64;
    keeper_link_request(front->keeper, &q, sizeof q, NULL, 0, on_stranger_gone, front);
}

/* The keeper tells of a box that it has. */
static void found(struct front *front, const struct event *event)
{
    struct box *b = by_token(front, event->token);

    if (!b || !box_is_alive(b) || b->phase == PHASE_STOPPED)
        return;     /* on_synced destroys what nobody has claimed */
    b->seen = true;
    b->family = (uint32_t)event->code;
    b->has_network = event->outcome != 0;
    if (b->slot == BOX_NO_SLOT)
        box_take_slot(b, event->box);
    enum phase phase = event->state == BOX_FROZEN ? PHASE_PAUSED : PHASE_RUNNING;
    if (b->phase == PHASE_DELETING || b->phase == PHASE_STOPPING || event->state == BOX_MAKING)
        return;
    if (b->phase != phase)
        box_set_phase(b, phase, BOX_REASON_NONE, NULL);
    box_arm_timers(b);
}

static uint64_t told_slots[KEEPER_BOXES / 64];

/* The keeper does not have it. What it wrote to a disk is still there. */
static void lost(struct box *b)
{
    struct err e = { 0 };
    bool deleting = b->phase == PHASE_DELETING, stopping = b->phase == PHASE_STOPPING;

    if (deleting)
        box_end(b, PHASE_DELETED, b->reason, NULL);
    else if (stopping)
        box_end(b, PHASE_STOPPED, b->reason, NULL);
    else if (b->settings.on_disk && b->ready_ms)
        box_end(b, PHASE_STOPPED, BOX_REASON_KEEPER_LOST, "the keeper was restarted; the files are still there");
    else
        box_end(b, PHASE_FAILED, BOX_REASON_KEEPER_LOST, "the box did not survive a restart of the keeper");
    (void)err_set(&e, ECONNRESET, STEP_WAIT, "the keeper was restarted and the box with it");
    box_wake(b, deleting || stopping ? NULL : &e);
}

void boxes_on_synced(struct front *front)
{
    for (struct box *b = front->boxes.first; b; b = b->next) {
        if (!box_is_alive(b))
            continue;
        if (b->phase == PHASE_STOPPED) {
            box_arm_timers(b);
            continue;
        }
        if (!b->seen) {
            lost(b);
            continue;
        }
        told_slots[b->slot / 64] &= ~(UINT64_C(1) << b->slot % 64);
        execs_synced(b);
        if (b->phase == PHASE_DELETING || b->phase == PHASE_STOPPING) {
            struct request_head q = { .type = REQUEST_DESTROY, .box = b->slot };
            keeper_link_request(front->keeper, &q, sizeof q, NULL, 0, nothing, NULL);
        }
    }
    for (uint32_t i = 0; i < KEEPER_BOXES; i++)
        if (told_slots[i / 64] >> i % 64 & 1)
            boxes_destroy_slot(front, i);
    memset(told_slots, 0, sizeof told_slots);
    if (!unreadable)
        boxes_remove_orphans(front);
    front->ready = front->was_ready = true;
    pool_on_synced(front);
    families_on_synced(front);
    services_on_synced(front);
    front_keeper_came(front);
}

void boxes_on_lost(struct front *front)
{
    front->ready = false;
    front->metrics.keeper_losses++;
    for (struct box *b = front->boxes.first; b; b = b->next) {
        b->seen = false;
        b->family = 0;
        if (b->is_held) {
            struct err e;
            b->is_held = false;
            err_at(&e, ECONNRESET, STEP_HOST, 0, "the keeper");
            box_raised(b, &e);
        }
        /* The slots are the keeper's; it will tell them again. */
        if (box_is_alive(b))
            box_release_slot(b);
    }
    families_on_lost(front);
    pool_on_lost(front);
    memset(front->boxes.slot_used, 0, sizeof front->boxes.slot_used);
}

static void gone(struct box *b, const struct event *event)
{
    char text[256] = "";

    if (event->err.code)
        err_text(&event->err, text, sizeof text);
    if (b->phase == PHASE_DELETING && b->settings.on_disk) {
        box_release_slot(b);
        box_remove_store(b);
    } else if (b->phase == PHASE_DELETING) {
        box_end(b, PHASE_DELETED, b->reason, NULL);
        box_wake(b, NULL);
    } else if (b->phase == PHASE_STOPPING) {
        box_end(b, PHASE_STOPPED, b->reason, NULL);
        box_wake(b, NULL);
    } else if (b->phase == PHASE_CREATING || b->phase == PHASE_STARTING) {
        box_raised(b, &event->err);     /* asked for by the last front: nobody else will tell */
    } else if (box_is_alive(b) && b->settings.on_disk) {
        box_end(b, PHASE_STOPPED, BOX_REASON_DIED, text[0] ? text : "the box ended on its own");
        box_wake(b, &event->err);
    } else if (box_is_alive(b)) {
        box_end(b, PHASE_FAILED, BOX_REASON_DIED, text[0] ? text : "the box ended on its own");
        box_wake(b, &event->err);
    }
}

/* A default that this host cannot hold gives way; only what a caller asks for is refused. */
static void drop_defaults(struct config *c, unsigned held)
{
    if (!(held & 1))
        c->defaults.memory_bytes = 0;
    if (!(held & 2))
        c->defaults.pids = 0;
    if (!(held & 4))
        c->defaults.cpu_milli = 0;
}

void boxes_on_keeper_event(struct front *front, const struct event *event, int *fds, size_t n_fds)
{
    if (event->type == EVENT_HELLO) {
        front->boxes.can_store = event->state == 1;
        front->boxes.why_no_store = event->err;
        front->boxes.n_templates = event->n_held;
        if (front->config.n_templates > event->n_held)  /* one that somebody else runs */
            front_log("warning", "the keeper knows fewer templates than the settings have: boxes of the others lack "
                      "their directories; start it with a --template for each, in the same order", NULL);
        front->boxes.walls = event->walls;
        drop_defaults(&front->config, event->walls.can);
        return;
    }
    if (event->type == EVENT_EGRESS) {
        if (n_fds > 0) {
            net_on_link(front, fds[0]);
            fds[0] = -1;
        }
        return;
    }
    if (event->type == EVENT_STORE) {
        boxes_note_store(front, event->token);
        return;
    }
    if (event->type == EVENT_FAMILY || event->type == EVENT_FAMILY_GONE) {
        families_on_keeper_event(front, event);
        return;
    }
    if (event->type == EVENT_BOX) {
        told_slots[event->box / 64] |= UINT64_C(1) << event->box % 64;
        found(front, event);
        if (n_fds > 0)
            inlet_adopt(front, event->box, &fds[0]);
        return;
    }
    struct box *b = box_by_slot(front, event->box);
    if (!b) {
        pool_on_keeper_event(front, event);
        return;
    }
    switch (event->type) {
    case EVENT_PAYLOAD:
    case EVENT_STARTED:
    case EVENT_FAILED:
    case EVENT_ENDED:
        execs_on_keeper_event(b, event, fds, n_fds);
        break;
    case EVENT_REFUSED:
        net_box_name_refused(b, event->err.what);
        break;
    case EVENT_READY:
        if (!event->serial)     /* asked for by the last front */
            box_raised(b, NULL);
        break;
    case EVENT_GONE:
        if (event->token == box_token(b))      /* else one that was dying in this slot before */
            gone(b, event);
        break;
    default:
        break;
    }
}
