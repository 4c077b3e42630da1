/* After a start or a lost keeper: compares the database with the keeper. A box that the keeper lacks is gone; a box
 * that the database lacks was never acknowledged, and is destroyed; the others continue, with their execs and their
 * output. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "front/boxes/box_private.h"
#include "front/boxes/families.h"
#include "front/boxes/pool.h"
#include "front/db/db.h"
#include "front/front.h"
#include "front/keeper_link.h"
#include "front/keys/keys.h"
#include "front/net/net.h"
#include "front/volumes/volumes.h"

static int load_parts(struct box *b, struct err *e)
{
    int r = 0;

    FOR_PARTS(b->front, part, load)
        if (r == 0)
            r = part->load(b, e);
    return r;
}

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
        front->boxes.sync->is_unreadable = true;
        front_log("error", "a box in the database cannot be read", "box", row->id, NULL);
        return 0;
    }
    snprintf(b->id, sizeof b->id, "%s", row->id);
    b->number = row->number;
    if (json_object_size(body) == 0) {
        /* Stored, but the front died before it sent the request. */
        b->phase = PHASE_CREATING;
        b->created_ms = b->changed_ms = row->created_ms;
        b->settings.env = json_object();
        b->settings.labels = json_object();
    } else if (box_from_json(b, body, &e) < 0 || load_parts(b, &e) < 0) {
        char text[256];
        err_text(&e, text, sizeof text);
        front->boxes.sync->is_unreadable = true;
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
    front->boxes.most = KEEPER_BOXES;
    return db_boxes(front->db, false, load_one, front, e);
}

static struct box *by_token(struct front *front, uint64_t token)
{
    for (struct box *b = front->boxes.first; b; b = b->next)
        if (box_token(b) == token)
            return b;
    return NULL;
}

static void nothing(const union event *event, int *fds, size_t n_fds, void *arg)
{
    (void)event;
    (void)fds;
    (void)n_fds;
    (void)arg;
}

static void on_stranger_gone(const union event *event, int *fds, size_t n_fds, void *arg)
{
    struct front *front = arg;

    (void)fds;
    (void)n_fds;
    if (event->head.result != -ECONNRESET)      /* then there are no slots at all */
        front->boxes.slot_used[event->head.box / 64] &= ~(UINT64_C(1) << event->head.box % 64);
}

void boxes_destroy_slot(struct front *front, uint32_t slot)
{
    struct request_head q = { .type = REQUEST_DESTROY, .box = slot };

    front->boxes.slot_used[slot / 64] |= UINT64_C(1) << slot % 64;
    keeper_link_request(front->keeper, &q, sizeof q, NULL, 0, on_stranger_gone, front);
}

/* The keeper reports a box that it has. */
static void found(struct front *front, const struct event_box *event)
{
    struct box *b = by_token(front, event->token);

    if (!b || !box_is_alive(b) || b->phase == PHASE_STOPPED)
        return;     /* on_synced destroys boxes without a row */
    b->seen = true;
    b->family = event->family;
    b->has_network = event->has_network;
    if (b->slot == BOX_NO_SLOT)
        box_take_slot(b, event->head.box);
    enum phase phase = event->state == BOX_FROZEN ? PHASE_PAUSED : PHASE_RUNNING;
    if (b->phase == PHASE_DELETING || b->phase == PHASE_STOPPING || event->state == BOX_MAKING)
        return;
    if (b->phase != phase)
        box_set_phase(b, phase, BOX_REASON_NONE, NULL);
    box_arm_timers(b);
}

/* The keeper lacks it. Its files on a disk still exist. */
static void lost(struct box *b)
{
    struct err e = { 0 };
    bool deleting = b->phase == PHASE_DELETING, stopping = b->phase == PHASE_STOPPING;

    if (deleting)
        box_end(b, PHASE_DELETED, b->reason, NULL);
    else if (stopping)
        box_end(b, PHASE_STOPPED, b->reason, NULL);
    else if (box_mounts_on_disk(&b->settings.mounts) && b->ready_ms)
        box_end(b, PHASE_STOPPED, BOX_REASON_KEEPER_LOST, "the server was restarted; the files are still there");
    else
        box_end(b, PHASE_FAILED, BOX_REASON_KEEPER_LOST, "the box did not survive a restart of the server");
    (void)err_set(&e, ECONNRESET, STEP_WAIT, "the server was restarted, and the box ended with it");
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
        front->boxes.sync->slots[b->slot / 64] &= ~(UINT64_C(1) << b->slot % 64);
        FOR_PARTS(front, part, on_box_synced)
            part->on_box_synced(b);
        if (b->phase == PHASE_DELETING || b->phase == PHASE_STOPPING) {
            struct request_head q = { .type = REQUEST_DESTROY, .box = b->slot };
            keeper_link_request(front->keeper, &q, sizeof q, NULL, 0, nothing, NULL);
        }
    }
    for (uint32_t i = 0; i < KEEPER_BOXES; i++)
        if (front->boxes.sync->slots[i / 64] >> i % 64 & 1)
            boxes_destroy_slot(front, i);
    memset(front->boxes.sync->slots, 0, sizeof front->boxes.sync->slots);
    if (!front->boxes.sync->is_unreadable)
        boxes_remove_orphans(front);
    volumes_on_synced(front);
    front->ready = front->was_ready = true;
    pool_on_synced(front);
    families_on_synced(front);
    FOR_PARTS(front, part, on_synced)
        part->on_synced(front);
    front_keeper_came(front);
}

void boxes_on_lost(struct front *front)
{
    front->ready = false;
    front->metrics.keeper_losses++;
    for (struct box *b = front->boxes.first; b; b = b->next) {
        b->seen = false;
        b->family = 0;
        if (b->is_held || b->awaits_packages || b->keys.awaits) {
            struct err e;
            box_packages_abandon(b);
            b->is_held = b->keys.awaits = false;
            loop_timer_cancel(front->loop, &b->keys.late);
            err_set(&e, ECONNRESET, STEP_USAGE, "the server cannot reach its boxes; its log says why");
            box_raised(b, &e);
        }
        /* The slots are the keeper's; it will report them again. */
        if (box_is_alive(b))
            box_release_slot(b);
    }
    families_on_lost(front);
    pool_on_lost(front);
    memset(front->boxes.slot_used, 0, sizeof front->boxes.slot_used);
}

/* cause, code 0: it was requested. */
static void gone(struct box *b, const struct err *cause)
{
    char text[256] = "";

    if (cause->code)
        err_text(cause, text, sizeof text);
    if (b->phase == PHASE_DELETING && box_mounts_on_disk(&b->settings.mounts)) {
        box_release_slot(b);
        box_remove_store(b);
    } else if (b->phase == PHASE_DELETING) {
        box_end(b, PHASE_DELETED, b->reason, NULL);
        box_wake(b, NULL);
    } else if (b->phase == PHASE_STOPPING) {
        box_end(b, PHASE_STOPPED, b->reason, NULL);
        box_wake(b, NULL);
    } else if (b->phase == PHASE_CREATING || b->phase == PHASE_STARTING) {
        box_raised(b, cause);     /* the previous front asked for it, so no answer comes for it */
    } else if (box_is_alive(b) && box_mounts_on_disk(&b->settings.mounts)) {
        box_end(b, PHASE_STOPPED, BOX_REASON_DIED, text[0] ? text : "the box ended on its own");
        box_wake(b, cause);
    } else if (box_is_alive(b)) {
        box_end(b, PHASE_FAILED, BOX_REASON_DIED, text[0] ? text : "the box ended on its own");
        box_wake(b, cause);
    }
}

/* A default that this host cannot enforce is dropped; only an explicit limit is refused. */
static void drop_defaults(struct config *c, unsigned held)
{
    for (uint32_t i = 0; i <= c->n_templates; i++) {
        struct limits *requests = i < c->n_templates ? &c->template[i].requests : &c->default_requests;
        if (!(held & 1))
            requests->memory_bytes = 0;
        if (!(held & 4))
            requests->cpu_milli = 0;
    }
    if (!(held & 1))
        c->defaults.memory_bytes = 0;
    if (!(held & 2))
        c->defaults.pids = 0;
    if (!(held & 4))
        c->defaults.cpu_milli = 0;
}

static void greeted(struct front *front, const struct event_hello *event)
{
    front->boxes.can_store = event->can_store;
    front->boxes.why_no_store = event->why_no_store;
    front->boxes.volumes = event->volumes <= VOLUMES_FREE ? event->volumes : VOLUMES_NONE;
    volumes_on_greeted(front);
    front->boxes.n_templates = event->n_templates;
    front->boxes.most = event->most_boxes && event->most_boxes < KEEPER_BOXES ? event->most_boxes : KEEPER_BOXES;
    if (front->config.n_templates > event->n_templates)     /* a keeper that was started by other means */
        front_log("warning", "the keeper knows fewer templates than the settings have: boxes of the others lack "
                  "their directories; start it with a --template for each, in the same order", NULL);
    front->boxes.walls = event->walls;
    struct config *c = &front->config;
    if (c->host_memory_measured && event->memory_bound && event->memory_bound < c->host_memory_bytes)
        c->host_memory_bytes = event->memory_bound - event->memory_bound / 8;
    drop_defaults(&front->config, event->walls.can);
}

void boxes_on_keeper_event(struct front *front, const union event *event, int *fds, size_t n_fds)
{
    struct box *b = box_by_slot(front, event->head.box);

    switch (event->head.type) {
    case EVENT_HELLO:
        greeted(front, &event->hello);
        break;
    case EVENT_STORE:
        boxes_note_store(front, event->store.store);
        break;
    case EVENT_VOLUME:
        if (!event->head.serial)
            volumes_on_told(front, &event->volume);
        break;
    case EVENT_FAMILY:
        families_on_told(front, &event->family);
        break;
    case EVENT_FAMILY_GONE:
        families_on_gone(front, &event->family_gone);
        break;
    case EVENT_EGRESS:
        if (n_fds > 0)
            net_on_link(front, TAKE_FD(fds[0]));
        keys_introduce(front);
        break;
    case EVENT_BOX:
        front->boxes.sync->slots[event->head.box / 64] |= UINT64_C(1) << event->head.box % 64;
        found(front, &event->box);
        FOR_PARTS(front, part, on_inlet)
            if (n_fds > 0)
                part->on_inlet(front, event->head.box, &fds[0]);
        break;
    case EVENT_PAYLOAD:
    case EVENT_STARTED:
    case EVENT_FAILED:
    case EVENT_ENDED:
        if (b)
            FOR_PARTS(front, part, on_payload)
                part->on_payload(b, event, fds, n_fds);
        break;
    case EVENT_REFUSED:
        if (b)
            net_box_name_refused(b, event->refused.name);
        break;
    case EVENT_READY:
        if (b && !event->head.serial)   /* the previous front asked for it */
            box_raised(b, NULL);
        break;
    case EVENT_GONE:
        if (!b)
            pool_on_gone(front, event->gone.token);
        else if (event->gone.token == box_token(b))     /* else one that was dying in this slot before */
            gone(b, &event->gone.cause);
        break;
    default:
        break;
    }
}
