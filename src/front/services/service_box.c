/* Services whose box ends. If a caller ended the box, they end with it. If it ended by itself (the keeper was killed,
 * for example), a service with a box of its own gets another; the others are dead and give the reason, as long as the
 * box's own record has it. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "front/db/db.h"
#include "front/front.h"
#include "front/services/service_private.h"

bool service_is_lost(const struct service *s)
{
    return s->state == SERVICE_DEAD && !box_is_alive(s->box);
}

/* The worker ended with the box; this is not reported as a death of its own. */
static void detach(struct service *s)
{
    struct service_private *p = s->private;

    loop_timer_cancel(s->front->loop, &p->load_timer);
    loop_timer_cancel(s->front->loop, &p->close_timer);
    if (s->exec)
        s->exec->owned_by = NULL;
    s->exec = NULL;
    guest_link_close(&p->link);
}

/* ---- another box ---- */

static void on_box(struct box *box, const struct err *e, void *arg)
{
    struct service *s = arg;

    if (s->private->wants_box || s->box != box)
        return;         /* it ended already, and another is wanted */
    if (e) {
        err_text(e, s->reason, sizeof s->reason);
        service_die(s);
    } else {
        service_start_anew(s);
    }
}

void service_await_box(struct service *s)
{
    boxes_cancel(s->front, s);
    box_wait(s->box, on_box, s);
}

static void like(const struct box *old, struct box_settings *ret)
{
    if (box_settings_copy(&old->settings, ret) < 0)
        abort();
    int64_t left_ms = old->expires_ms - front_now_ms();
    if (old->expires_ms)
        ret->ttl_s = left_ms > 1000 ? (uint32_t)(left_ms / 1000) : 1;
}

static void on_rebox(struct loop_task *t)
{
    struct service_private *p = container_of(t, struct service_private, box_task);
    struct service *s = p->service;
    const struct box *old = s->box;
    struct box_settings settings;
    struct box *box = NULL;
    struct err e = { 0 }, ignored;
    bool existed;

    if (!s->front->ready)
        return;         /* no keeper; services_on_synced() will run again */
    like(old, &settings);
    db_begin(s->front->db);         /* no box without its service, whenever we may be killed */
    int r = boxes_create(s->front, s->owner, old->owner_uid, old->owner_gid, old->name, NULL, &settings, on_box, s,
                         &box, &existed, &e);
    if (r == 0 && box) {
        s->box = box;
        s->restarts++;
        box_save(box);          /* completely: the next front may have to make one like it */
        service_save(s);
    }
    if (db_end(s->front->db, &ignored) < 0)
        front_log("error", "cannot store a service", "service", s->id, NULL);
    if (r == -ECONNREFUSED || r == -ECONNRESET)
        return;
    p->wants_box = false;
    if (r < 0 || !box) {
        err_text(&e, s->reason, sizeof s->reason);
        service_die(s);
        return;
    }
    front_log("warning", "a service's box ended and is replaced", "service", s->name, "reason", s->reason, NULL);
}

void service_box_init(struct service *s)
{
    s->private->box_task.on_run = on_rebox;
}

/* NULL: it may have another; else why not. */
static const char *why_not(struct service *s)
{
    if (!s->own_box)
        return "create it again in another box";
    if (s->has_secrets && !s->secrets)
        return "its secrets are not kept over a restart of the server; create it again";
    if (box_mounts_count(&s->box->settings.mounts, MOUNT_HOST))
        return "its mounts can be opened by its owner only; create it again";
    if (!service_may_restart(s))
        return "that happened too often";
    return NULL;
}

void service_rebox(struct service *s, const char *reason)
{
    const char *why = why_not(s);

    s->outcome = OUTCOME_KILLED;
    snprintf(s->reason, sizeof s->reason, "the box has ended (%s)%s%s", reason, why ? "; " : "", why ? why : "");
    if (why) {
        service_die(s);
        return;
    }
    service_set_state(s, SERVICE_LOADING);
    service_calls_end(s, CALL_DIED, false);
    if (s->private->gone)
        return;
    s->private->wants_box = true;
    loop_task_add(s->front->loop, &s->private->box_task);       /* not now: a caller iterates over the boxes */
}

/* ---- the box ---- */

static void end_with(struct service *s, enum phase phase, const char *reason)
{
    detach(s);
    s->outcome = OUTCOME_KILLED;
    /* A box that could not be made goes from CREATING to DELETED; a box that a caller deletes was DELETING. */
    if (phase == PHASE_FAILED || (phase == PHASE_DELETED && s->box->phase == PHASE_CREATING)) {
        service_rebox(s, reason);
        return;
    }
    snprintf(s->reason, sizeof s->reason, "the box has ended");
    service_set_state(s, SERVICE_DEAD);
    if (phase == PHASE_STOPPED || s->private->gone)
        return;
    s->own_box = false;
    service_delete(s, "the box has ended");
}

void services_on_box_end(struct box *box, enum phase phase, enum box_reason reason)
{
    for (struct service *s = box->front->services, *next; s; s = next) {
        next = s->next;
        if (s->box == box)
            end_with(s, phase, reason ? box_reason_name(reason) : phase_names[phase]);
    }
}

bool services_need_box(const struct box *box)
{
    for (const struct service *s = box->front->services; s; s = s->next)
        if (s->box == box && s->own_box)
            return true;
    return false;
}

void services_on_box_forget(struct box *box)
{
    for (struct service *s = box->front->services, *next; s; s = next) {
        next = s->next;
        if (s->box != box)
            continue;
        s->own_box = false;
        service_delete(s, "the box has ended");
    }
}
