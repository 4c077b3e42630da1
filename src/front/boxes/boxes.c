/* A box's life: it is stored before the keeper makes it, so that a crash at any moment leaves either a row without a
 * box (undone at the next start) or a box with a row.
 *
 *   CREATING -> RUNNING <-> PAUSED      STARTING <- STOPPED <- STOPPING <- RUNNING, PAUSED
 *       |          |          |            -> RUNNING               (only a box whose files are on disk)
 *       +----------+----------+--> DELETING -> DELETED              (from all of them)
 *       +----------+----------+--> FAILED (the keeper lost it, or could not make it; on disk it is STOPPED instead) */
#define _GNU_SOURCE
#include "front/boxes/boxes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "base/list.h"
#include "front/boxes/box_private.h"
#include "front/boxes/box_text.h"
#include "front/boxes/families.h"
#include "front/boxes/pool.h"
#include "front/db/db.h"
#include "front/front.h"
#include "front/keeper_link.h"
#include "front/keys/keys.h"
#include "front/net/net.h"
#include "proto/defaults.h"

const char *const phase_names[PHASE_COUNT] = {
    "creating", "running", "paused", "stopped", "failed", "deleting", "deleted", "stopping", "starting",
};

bool box_is_alive(const struct box *b)
{
    return b->phase != PHASE_FAILED && b->phase != PHASE_DELETED;
}

void box_settings_init(struct box_settings *s)
{
    *s = (struct box_settings){ .profile = PROFILE_STANDARD, .uid = BOX_ID, .gid = BOX_ID, .hostname = "box" };
}

bool box_settings_have_net(const struct box_settings *s)
{
    return net_allows(s->net) || s->keys;
}

void box_settings_done(struct box_settings *s)
{
    json_decref(s->env);
    json_decref(s->secrets);
    json_decref(s->labels);
    json_decref(s->net);
    json_decref(s->keys);
    box_mounts_done(&s->mounts);
    box_settings_init(s);
}

int box_settings_copy(const struct box_settings *s, struct box_settings *ret)
{
    *ret = *s;
    if (box_mounts_copy(&s->mounts, 0, &ret->mounts) < 0)
        return -ENOMEM;
    json_incref(ret->env);
    json_incref(ret->secrets);
    json_incref(ret->labels);
    json_incref(ret->net);
    json_incref(ret->keys);
    return 0;
}

uint32_t box_template(const struct box *b)
{
    return box_mounts_template(&b->settings.mounts);
}

static unsigned bucket(const char *id)
{
    uint32_t hash = 2166136261u;
    for (; *id; id++)
        hash = (hash ^ (unsigned char)*id) * 16777619u;
    return hash % BOXES_BUCKETS;
}

void box_list(struct box *b)
{
    struct boxes *all = &b->front->boxes;
    struct box **at = &all->first, **same = &all->by_id[bucket(b->id)];

    while (*at && (*at)->number > b->number)
        at = &(*at)->next;
    b->next = *at;
    b->back = at;
    if (b->next)
        b->next->back = &b->next;
    *at = b;
    b->next_id = *same;
    *same = b;
}

void box_unlist(struct box *b)
{
    struct boxes *all = &b->front->boxes;
    struct box **same = &all->by_id[bucket(b->id)];

    LIST_REMOVE(b);
    while (*same && *same != b)
        same = &(*same)->next_id;
    if (*same)
        *same = b->next_id;
}

struct box *boxes_find(struct front *front, const char *owner, const char *id_or_name)
{
    struct box *dead = NULL;

    /* Almost always it is an id. */
    for (struct box *b = front->boxes.by_id[bucket(id_or_name)]; b; b = b->next_id)
        if (strcmp(b->id, id_or_name) == 0 && (!owner || strcmp(b->owner, owner) == 0))
            return b;

    for (struct box *b = front->boxes.first; b; b = b->next) {
        if (owner && strcmp(b->owner, owner) != 0)
            continue;
        bool is_it = b->name && strcmp(b->name, id_or_name) == 0;
        if (is_it && box_is_alive(b))
            return b;
        if (is_it && !dead)
            dead = b;
    }
    return dead;
}

struct box_text box_show_phase(const struct box *b)
{
    struct box_text shown;
    int64_t s = (front_now_ms() - b->changed_ms) / 1000;
    const char *reason = box_reason_name(b->reason);

    if (box_is_alive(b))
        snprintf(shown.text, sizeof shown.text, "%s", phase_names[b->phase]);
    else
        snprintf(shown.text, sizeof shown.text, "%s %lld %s ago%s%s", phase_names[b->phase],
                 (long long)(s < 120 ? s : s < 7200 ? s / 60 : s / 3600), s < 120 ? "s" : s < 7200 ? "min" : "h",
                 reason ? ": " : "", reason ? reason : "");
    return shown;
}

struct box_text box_show_state(const struct box *b)
{
    struct box_text shown, phase = box_show_phase(b);

    const char *verb = b->phase == PHASE_DELETED ? "was" : "is";

    snprintf(shown.text, sizeof shown.text, "%s %.58s", verb, phase.text);
    return shown;
}

struct box *boxes_by_number(struct front *front, uint64_t number)
{
    for (struct box *b = front->boxes.first; b; b = b->next)
        if (b->number == number)
            return b;
    return NULL;
}

struct box *box_by_slot(struct front *front, uint32_t slot)
{
    return slot < KEEPER_BOXES ? front->boxes.by_slot[slot] : NULL;
}

uint64_t box_token(const struct box *b)
{
    return b->token ? b->token : b->number;
}

/* The API's JSON is also stored; a few hidden members are added under "_". */
char *box_row_text(const struct box *b)
{
    json_t *body = box_json(b);
    json_t *hidden = json_pack("{s:I,s:I,s:I,s:I}", "slot", (json_int_t)b->slot, "uid", (json_int_t)b->owner_uid, "gid",
                               (json_int_t)b->owner_gid, "token", (json_int_t)b->token);

    if (b->settings.keys)
        json_object_set_new(hidden, "seed", keys_seed_json(b));
    json_object_set(body, "env", b->settings.env);     /* callers only see the names */
    json_object_set_new(body, "_", hidden);
    char *text = json_dumps(body, JSON_COMPACT);
    json_decref(body);
    return text;
}

static struct db_box make_row(const struct box *b, const char *text)
{
    return (struct db_box){ .number = b->number,
                               .id = b->id,
                               .owner = b->owner,
                               .name = b->name,
                               .key = b->key,
                               .phase = phase_names[b->phase],
                               .body = text,
                               .created_ms = b->created_ms,
                               .alive = box_is_alive(b) };
}

void box_save(struct box *b)
{
    struct err e;
    char *text = box_row_text(b);
    struct db_box row = make_row(b, text);

    if (!text || db_box_update(b->front->db, &row, &e) < 0)
        front_log("error", "cannot store a box", "box", b->id, NULL);
    free(text);
}

static int event_try_insert(struct box *b, const char *type, const json_t *body, uint64_t *ret_number, struct err *e)
{
    char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
    struct db_event row = { .box = b->number, .time_ms = front_now_ms(), .type = type, .body = text };
    int r = db_event_insert(b->front->db, &row, e);

    free(text);
    *ret_number = row.number;
    return r;
}

static uint64_t event_insert(struct box *b, const char *type, const json_t *body)
{
    struct err e;
    uint64_t number;

    if (event_try_insert(b, type, body, &number, &e) < 0)
        front_log("error", "cannot store an event", "box", b->id, NULL);
    return number;
}

/* body is taken over. */
static void event_tell(struct box *b, uint64_t number, const char *type, json_t *body)
{
    for (struct box_watcher *w = b->front->boxes.watchers, *next; w; w = next) {
        next = w->next;
        if (!w->owner || strcmp(w->owner, b->owner) == 0)
            w->on_event(w, b, number, type, body);
    }
    json_decref(body);
}

void box_event(struct box *b, const char *type, json_t *body)
{
    event_tell(b, event_insert(b, type, body), type, body);
}

void box_event_with(struct box *b, void (*save)(void *arg), void *arg, const char *type, json_t *body)
{
    struct err e;

    db_begin(b->front->db);
    save(arg);
    uint64_t number = event_insert(b, type, body);
    if (db_end(b->front->db, &e) < 0)
        front_log("error", "cannot store a change", "box", b->id, NULL);
    event_tell(b, number, type, body);
}

int box_insert(struct box *b, struct err *e)
{
    char *text = box_row_text(b);
    struct db_box row = make_row(b, text);
    int r = text ? db_box_insert(b->front->db, &row, e) : err_at(e, ENOMEM, STEP_MEMORY, 0, "box");

    free(text);
    b->number = row.number;
    return r;
}

int box_insert_running(struct box *b, uint32_t slot, struct err *e)
{
    json_t *body = json_pack("{s:s,s:s}", "from", phase_names[b->phase], "to", phase_names[PHASE_RUNNING]);
    uint64_t number = 0;

    box_take_slot(b, slot);
    b->phase = PHASE_RUNNING;
    b->ready_ms = front_now_ms();
    db_begin(b->front->db);
    int r = box_insert(b, e);
    /* A failure here may have undone the row, too, so everything has failed. */
    if (r == 0)
        r = event_try_insert(b, "phase", body, &number, e);
    if (r < 0)
        db_undo(b->front->db);
    else
        r = db_end(b->front->db, e);
    if (r < 0) {
        box_release_slot(b);
        json_decref(body);
        return r;
    }
    event_tell(b, number, "phase", body);
    return 0;
}

static void save_box(void *arg)
{
    box_save(arg);
}

void box_set_phase(struct box *b, enum phase phase, enum box_reason reason, const char *message)
{
    json_t *body = json_pack("{s:s,s:s}", "from", phase_names[b->phase], "to", phase_names[phase]);

    b->phase = phase;
    b->changed_ms = front_now_ms();
    b->reason = reason;
    snprintf(b->message, sizeof b->message, "%s", message ? message : "");
    if (reason)
        json_object_set_new(body, "reason", json_string(box_reason_name(reason)));
    if (b->message[0])
        json_object_set_new(body, "message", json_string(b->message));
    if (!box_is_alive(b))
        box_bury(b);
    box_event_with(b, save_box, b, "phase", body);
}

void boxes_watch(struct front *front, struct box_watcher *w)
{
    LIST_ADD(front->boxes.watchers, w);
}

void boxes_unwatch(struct box_watcher *w)
{
    LIST_REMOVE(w);
}

void box_wait(struct box *b, box_callback *call, void *arg)
{
    struct box_waiter *w = call ? malloc(sizeof *w) : NULL;

    if (!w)
        return;
    *w = (struct box_waiter){ .next = b->waiters, .call = call, .arg = arg };
    b->waiters = w;
}

void box_wake(struct box *b, const struct err *e)
{
    struct box_waiter *list = b->waiters;

    b->waiters = NULL;
    while (list) {
        struct box_waiter *w = list;
        list = w->next;
        if (w->call)
            w->call(b, e, w->arg);
        free(w);
    }
}

void boxes_cancel(struct front *front, void *arg)
{
    for (struct box *b = front->boxes.first; b; b = b->next)
        for (struct box_waiter *w = b->waiters; w; w = w->next)
            if (w->arg == arg)
                w->call = NULL;
    box_calls_cancel(front, arg);
}

void box_release_slot(struct box *b)
{
    struct boxes *all = &b->front->boxes;

    if (b->slot == BOX_NO_SLOT)
        return;
    box_meter_close(b);
    FOR_PARTS(b->front, part, on_release)
        part->on_release(b);
    all->slot_used[b->slot / 64] &= ~(UINT64_C(1) << b->slot % 64);
    all->requested.memory_bytes -= b->settings.requests.memory_bytes;
    all->requested.cpu_milli -= b->settings.requests.cpu_milli;
    all->alive--;
    all->by_slot[b->slot] = NULL;
    b->slot = BOX_NO_SLOT;
    /* The pool stops at half of what the keeper holds. */
    if (all->pool && all->alive + 1 + pool_slots(all) >= all->most / 2)
        pool_fill(b->front);
}

void box_take_slot(struct box *b, uint32_t slot)
{
    struct boxes *all = &b->front->boxes;

    all->slot_used[slot / 64] |= UINT64_C(1) << slot % 64;
    all->next_slot = slot + 1;
    all->requested.memory_bytes += b->settings.requests.memory_bytes;
    all->requested.cpu_milli += b->settings.requests.cpu_milli;
    all->alive++;
    all->by_slot[slot] = b;
    b->slot = slot;
}

/* The box has no processes any more, for any reason. */
void box_end(struct box *b, enum phase phase, enum box_reason reason, const char *message)
{
    FOR_PARTS(b->front, part, on_end)
        part->on_end(b, phase, reason);
    loop_timer_cancel(b->front->loop, &b->ttl_timer);
    loop_timer_cancel(b->front->loop, &b->idle_timer);
    keys_box_gone(b);
    box_release_slot(b);
    if (phase == PHASE_FAILED)
        b->front->metrics.boxes_failed++;
    box_set_phase(b, phase, reason, message);
    if (phase == PHASE_STOPPED)
        box_arm_timers(b);
}

static void on_ttl(struct loop_timer *t)
{
    struct box *b = container_of(t, struct box, ttl_timer);
    struct err e;

    if (box_delete(b, BOX_REASON_TTL, NULL, NULL, &e) < 0)
        loop_timer_set(b->front->loop, t, 1000);
}

static void on_idle(struct loop_timer *t)
{
    struct box *b = container_of(t, struct box, idle_timer);
    int64_t left = b->used_ms + (int64_t)b->settings.idle_s * 1000 - front_now_ms();
    struct err e;

    unsigned idle = 0;
    FOR_PARTS(b->front, part, count_idle)
        idle += part->count_idle(b);
    if (b->running > idle)
        left = (int64_t)b->settings.idle_s * 1000;
    if (left > 0) {
        loop_timer_set(b->front->loop, t, (uint64_t)left);
        return;
    }
    int r = 0;
    if (!b->settings.pause_when_idle)
        r = box_delete(b, BOX_REASON_IDLE, NULL, NULL, &e);
    else if (b->phase == PHASE_RUNNING)
        r = box_pause(b, true, NULL, NULL, &e);
    if (r < 0)
        loop_timer_set(b->front->loop, t, 1000);
}

void box_arm_timers(struct box *b)
{
    int64_t now = front_now_ms();

    loop_timer_cancel(b->front->loop, &b->ttl_timer);
    loop_timer_cancel(b->front->loop, &b->idle_timer);
    if (b->expires_ms)
        loop_timer_set(b->front->loop, &b->ttl_timer, b->expires_ms > now ? (uint64_t)(b->expires_ms - now) : 0);
    if (b->settings.idle_s && b->phase != PHASE_STOPPED)
        loop_timer_set(b->front->loop, &b->idle_timer, (uint64_t)b->settings.idle_s * 1000);
}

void box_touch(struct box *b)
{
    b->used_ms = front_now_ms();
    if (b->settings.idle_s && !b->idle_timer.armed)
        box_arm_timers(b);
}

struct box *box_new(struct front *front, const char *owner, const char *name, const char *key)
{
    struct box *b = calloc(1, sizeof *b);

    if (!b)
        return NULL;
    b->front = front;
    b->slot = BOX_NO_SLOT;
    b->meter.cpu = b->meter.peak = b->keys.trust[0] = b->keys.trust[1] = -1;
    b->owner = strdup(owner);
    b->name = name ? strdup(name) : NULL;
    b->key = key ? strdup(key) : NULL;
    box_settings_init(&b->settings);
    b->ttl_timer.on_expire = on_ttl;
    b->idle_timer.on_expire = on_idle;
    if (!b->owner || (name && !b->name) || (key && !b->key)) {
        box_free(b);
        return NULL;
    }
    return b;
}

void box_free(struct box *b)
{
    loop_timer_cancel(b->front->loop, &b->ttl_timer);
    loop_timer_cancel(b->front->loop, &b->idle_timer);
    loop_timer_cancel(b->front->loop, &b->keys.late);
    keys_close_trust(b);
    loop_task_cancel(b->front->loop, &b->raise_task);
    size_t n = 0;
    while (b->front->parts[n])
        n++;
    while (n-- > 0)
        if (b->front->parts[n]->free)
            b->front->parts[n]->free(b);
    box_meter_close(b);
    net_box_free(b);
    while (b->waiters) {
        struct box_waiter *w = b->waiters;
        b->waiters = w->next;
        free(w);
    }
    box_settings_done(&b->settings);
    free(b->owner);
    free(b->name);
    free(b->key);
    free(b);
}

void boxes_free(struct front *front)
{
    loop_timer_cancel(front->loop, &front->boxes.sweep);
    families_free(front);
    pool_free(front);
    boxes_forget_stores(front);
    free(front->boxes.sync);
    front->boxes.sync = NULL;
    box_calls_free(front);
    for (struct box *b = front->boxes.first, *next; b; b = next) {
        next = b->next;
        box_free(b);
    }
}
