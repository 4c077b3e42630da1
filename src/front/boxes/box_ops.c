/* Operations on a box. Every request to the keeper is a struct box_call: it remembers who waits for the answer, and the
 * box outlives it (dead boxes stay in memory until they are pruned, which waits for their calls). */
#define _GNU_SOURCE
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
#include "front/volumes/volumes.h"

struct box_call {
    struct box_call  *next, **back;
    struct box   *box;
    box_callback *done;
    void        (*usage)(struct box *, const struct frame_usage *, const struct err *, void *);
    void         *arg;
    enum phase    phase;        /* the new phase on success */
    bool          in_family;    /* a create within a family, which may have ended meanwhile */
    enum { NET_NO, NET_ASKS, NET_JOINS } net;   /* for the box's network; or waits for the call that asks for it */
    struct limits limits;
    struct loop_task answer;    /* for a call that needs no keeper */
};

static struct box_call *call_new(struct box *b, box_callback *done, void *arg)
{
    struct box_call *c = calloc(1, sizeof *c);

    if (!c)
        abort();
    c->box = b;
    c->done = done;
    c->arg = arg;
    c->phase = PHASE_COUNT;
    LIST_ADD(b->front->boxes.calls, c);
    return c;
}

static void call_free(struct box_call *c)
{
    LIST_REMOVE(c);
    loop_task_cancel(c->box->front->loop, &c->answer);
    free(c);
}

void box_calls_cancel(struct front *front, void *arg)
{
    for (struct box_call *c = front->boxes.calls; c; c = c->next)
        if (c->arg == arg) {
            c->done = NULL;
            c->usage = NULL;
        }
}

void box_calls_free(struct front *front)
{
    for (struct box_call *c = front->boxes.calls, *next; c; c = next) {
        next = c->next;
        call_free(c);
    }
}

bool box_has_calls(const struct box *b)
{
    for (const struct box_call *c = b->front->boxes.calls; c; c = c->next)
        if (c->box == b)
            return true;
    return false;
}

static struct request_head head(const struct box *b, enum request_type type)
{
    return (struct request_head){ .type = (uint16_t)type, .box = b->slot };
}

static int check_phase(const struct box *b, unsigned phases, struct err *e)
{
    if (phases >> b->phase & 1)
        return 0;
    return err_set(e, EBUSY, STEP_USAGE, "the box %s", box_show_state(b).text);
}

#define IN(phase) (1u << (phase))

/* ---- create ---- */

struct limits box_limits_to_come(const struct box *b)
{
    struct limits most = b->settings.limits;

    for (const struct box_call *c = b->front->boxes.calls; c; c = c->next)
        if (c->box == b) {
            most.memory_bytes = c->limits.memory_bytes > most.memory_bytes ? c->limits.memory_bytes : most.memory_bytes;
            most.cpu_milli = c->limits.cpu_milli > most.cpu_milli ? c->limits.cpu_milli : most.cpu_milli;
        }
    return most;
}

/* The family could not give a box with a kernel; a plain one is still useful. It gets another slot, because the keeper
 * may still report the end of the first. */
static void create_plain(struct box *b)
{
    uint32_t slot = box_free_slot(&b->front->boxes);

    front_log("warning", "a family gave no box", "box", b->id, NULL);
    b->family = 0;
    if (slot != BOX_NO_SLOT) {
        box_release_slot(b);
        box_take_slot(b, slot);
    }
    box_ask_keeper(b);
}

static void on_created(const union event *event, int *fds, size_t n_fds, void *arg)
{
    struct box_call *c = arg;
    struct box *b = c->box;
    bool in_family = c->in_family;
    const struct err *e = event_failure(event);
    /* The keeper waits only once for mounts that do not answer. */
    bool is_deaf = e && e->step == STEP_TREE && (e->code == ETIMEDOUT || e->code == EAGAIN);

    (void)fds;
    (void)n_fds;
    call_free(c);
    if (e && e->code == ENOPKG && box_packages_fetch_again(b))
        return;
    if (e && e->code != ECONNRESET && !is_deaf && in_family && b->phase == PHASE_CREATING)
        create_plain(b);
    else
        box_raised(b, e);
}

void box_raised(struct box *b, const struct err *e)
{
    /* The box has the mounts, or never will; the callers' descriptors are not kept here. */
    box_mounts_close(&b->settings.mounts);
    keys_close_trust(b);
    if (b->phase != PHASE_CREATING && b->phase != PHASE_STARTING)
        return;
    if (e) {
        char text[256];
        bool again = b->phase == PHASE_STARTING;
        err_text(e, text, sizeof text);
        /* A waiting caller gets the reason, and the box is deleted; without a waiter the failed box stays with its
         * reason. */
        b->front->metrics.boxes_failed += !again && b->waiters;
        box_end(b, again ? PHASE_STOPPED : b->waiters ? PHASE_DELETED : PHASE_FAILED,
                again ? BOX_REASON_START_FAILED : BOX_REASON_CREATE_FAILED, text);
        if (!again && box_mounts_on_disk(&b->settings.mounts))
            box_remove_store(b);
        box_wake(b, e);
        return;
    }
    if (b->phase == PHASE_CREATING)
        histogram_add(&b->front->metrics.create, loop_now_us() - b->created_us);
    b->ready_ms = front_now_ms();
    b->has_network = box_settings_have_net(&b->settings);
    net_box_tell(b);
    box_set_phase(b, PHASE_RUNNING, BOX_REASON_NONE, NULL);
    box_arm_timers(b);
    box_wake(b, NULL);
}

void box_create_frame(const struct front *front, const struct box_settings *s, uint64_t number, uint32_t family,
                      struct request_create *ret)
{
    *ret = (struct request_create){
        .head.type = REQUEST_CREATE,
        .token = number,
        .limits = s->limits,
        .profile = s->profile,
        .flags = CREATE_TERMINAL | (box_settings_have_net(s) ? CREATE_NETWORK : 0),
        .uid = s->uid,
        .gid = s->gid,
        .family = family,
    };
    ret->limits.cpu_request_milli = s->requests.cpu_milli;
    memcpy(ret->hostname, s->hostname, sizeof ret->hostname);
    box_mounts_frame(front, &s->mounts, number, &ret->mounts);
}

void box_keys_came(struct box *b, const struct err *e)
{
    if (e)
        box_raised(b, e);
    else
        box_ask_keeper(b);
}

void box_ask_keeper(struct box *b)
{
    int fds[KEEPER_LIST + CREATE_TRUST_FDS];
    const struct box_settings *s = &b->settings;
    struct request_create q;

    if (s->keys && b->keys.trust[0] < 0) {
        keys_want(b);
        return;
    }
    box_create_frame(b->front, s, b->number, b->family, &q);
    q.head.box = b->slot;
    q.owner_uid = b->owner_uid;
    q.owner_gid = b->owner_gid;
    struct box_call *c = call_new(b, NULL, NULL);
    c->in_family = b->family != 0;
    size_t n = box_mounts_fds(&s->mounts, fds);
    if (s->keys) {
        q.flags |= CREATE_TRUST;
        fds[n++] = b->keys.trust[0];
        fds[n++] = b->keys.trust[1];
    }
    keeper_link_request(b->front->keeper, &q, sizeof q, fds, n, on_created, c);
}

void box_unhold(struct box *b, uint32_t family)
{
    if (!b->is_held)
        return;
    b->is_held = false;
    b->family = family;
    box_ask_keeper(b);
}

static int find_by_key(struct front *front, const char *owner, const char *key, struct box **ret, struct err *e)
{
    uint64_t number;
    int r = db_box_by_key(front->db, owner, key, &number, e);

    if (r == -ENOENT)
        return 0;
    if (r < 0)
        return r;
    for (struct box *b = front->boxes.first; b; b = b->next)
        if (b->number == number) {
            *ret = b;
            return 1;
        }
    return 0;
}

/* A box from the pool runs already; this only keeps the callback from being called inside the caller's own call. */
static void on_raise(struct loop_task *t)
{
    struct box *b = container_of(t, struct box, raise_task);

    if (b->phase != PHASE_RUNNING)
        return;
    histogram_add(&b->front->metrics.create, loop_now_us() - b->created_us);
    b->has_network = box_settings_have_net(&b->settings);
    net_box_tell(b);
    box_arm_timers(b);
    box_wake(b, NULL);
}

int boxes_create(struct front *front, const char *owner, uid_t uid, gid_t gid, const char *name, const char *key,
                 struct box_settings *settings, box_callback *call, void *arg, struct box **ret, bool *ret_existed,
                 struct err *e)
{
    struct box *b = NULL;
    int r = key ? find_by_key(front, owner, key, &b, e) : 0;

    if (r > 0) {
        box_settings_done(settings);
        *ret = b;
        *ret_existed = true;
        if (b->phase == PHASE_CREATING)
            box_wait(b, call, arg);
        return 0;
    }
    uint32_t slot = box_free_slot(&front->boxes), taken;
    if (r == 0 && slot == BOX_NO_SLOT)
        r = boxes_full(&front->boxes, e);
    if (r == 0)
        r = box_admit(front, owner, name, settings, e);
    if (r == 0)
        r = box_packages_settle(front, owner, settings, e);
    if (r == 0 && !(b = box_new(front, owner, name, key)))
        r = err_at(e, ENOMEM, STEP_MEMORY, 0, "box");
    if (r < 0 || !b) {
        box_settings_done(settings);
        return r;
    }
    front_make_id('b', b->id);
    b->settings = *settings;
    box_settings_init(settings);
    r = keys_make_seed(b, e);
    b->owner_uid = uid;
    b->owner_gid = gid;
    b->created_ms = b->changed_ms = b->used_ms = front_now_ms();
    b->created_us = loop_now_us();
    b->expires_ms = b->settings.ttl_s ? b->created_ms + (int64_t)b->settings.ttl_s * 1000 : 0;
    if (r == 0 && box_packages_are_awaited(&b->settings.mounts)) {
        r = box_packages_fetch(b, e);
    } else if (r == 0) {
        b->is_held = families_hold(front, owner, &b->settings);
        b->family = families_for(front, owner, &b->settings);
    }
    if (r == 0 && !b->awaits_packages && !b->is_held && pool_take(front, &b->settings, b->family, &taken, &b->token))
        slot = taken;
    if (r == 0)
        r = b->token ? box_insert_running(b, slot, e) : box_insert(b, e);
    if (r < 0) {
        box_packages_abandon(b);
        if (b->token)
            boxes_destroy_slot(front, slot);
        box_free(b);
        return r;
    }
    if (!b->token) {
        pool_make_room(front);
        box_take_slot(b, slot);
    }
    box_list(b);
    front->metrics.boxes_created++;
    box_wait(b, call, arg);
    b->raise_task.on_run = on_raise;
    if (b->token)
        loop_task_add(front->loop, &b->raise_task);
    else if (!b->is_held && !b->awaits_packages)
        box_ask_keeper(b);
    *ret = b;
    *ret_existed = false;
    return 0;
}

/* ---- the rest ---- */

static void on_done(const union event *event, int *fds, size_t n_fds, void *arg)
{
    struct box_call *c = arg;
    struct box *b = c->box;
    const struct err *e = event_failure(event);

    (void)fds;
    (void)n_fds;
    if (!e && box_is_alive(b)) {
        /* If it is asked to end meanwhile, the end takes precedence. */
        if (c->phase < PHASE_COUNT && (b->phase == PHASE_RUNNING || b->phase == PHASE_PAUSED))
            box_set_phase(b, c->phase, BOX_REASON_NONE, NULL);
        if (!limits_equal(&c->limits, &(struct limits){ 0 })) {
            limits_update(&b->settings.limits, &c->limits);
            box_save(b);
        }
    }
    if (c->usage)
        c->usage(b, &event->usage.usage, e, c->arg);
    if (c->done)
        c->done(b, e, c->arg);
    call_free(c);
}

int box_pause(struct box *b, bool pause, box_callback *call, void *arg, struct err *e)
{
    int r = check_phase(b, pause ? IN(PHASE_RUNNING) : IN(PHASE_PAUSED), e);
    if (r < 0)
        return r;
    struct request_head q = head(b, pause ? REQUEST_FREEZE : REQUEST_THAW);
    struct box_call *c = call_new(b, call, arg);
    c->phase = pause ? PHASE_PAUSED : PHASE_RUNNING;
    if (!pause)
        box_touch(b);
    keeper_link_request(b->front->keeper, &q, sizeof q, NULL, 0, on_done, c);
    return 0;
}

/* None of the changes concerned the keeper. */
static void on_updated(struct loop_task *t)
{
    struct box_call *c = container_of(t, struct box_call, answer);

    if (c->done)
        c->done(c->box, NULL, c->arg);
    call_free(c);
}

int box_update(struct box *b, const struct limits *limits, json_t *labels, const uint32_t *ttl_s,
               const uint32_t *idle_s, box_callback *call, void *arg, struct err *e)
{
    int r = check_phase(b, IN(PHASE_RUNNING) | IN(PHASE_PAUSED), e);
    if (r == 0 && limits)
        r = box_check_growth(b, limits, e);
    if (r < 0)
        return r;
    if (labels) {
        json_decref(b->settings.labels);
        b->settings.labels = json_incref(labels);
    }
    if (ttl_s) {
        b->settings.ttl_s = *ttl_s;
        b->expires_ms = *ttl_s ? front_now_ms() + (int64_t)*ttl_s * 1000 : 0;
    }
    if (idle_s)
        b->settings.idle_s = *idle_s;
    if (ttl_s || idle_s)
        box_arm_timers(b);
    box_save(b);
    box_event(b, "updated", NULL);
    struct box_call *c = call_new(b, call, arg);
    if (limits) {
        struct request_limits q = { .head = head(b, REQUEST_LIMITS), .limits = *limits };
        c->limits = *limits;
        keeper_link_request(b->front->keeper, &q, sizeof q, NULL, 0, on_done, c);
    } else {
        c->answer.on_run = on_updated;
        loop_task_add(b->front->loop, &c->answer);
    }
    return 0;
}

static struct box_call *find_net_call(struct front *front, const struct box *b, int net)
{
    struct box_call *c = front->boxes.calls;

    while (c && !(c->box == b && (int)c->net == net))
        c = c->next;
    return c;
}

/* Changes that came meanwhile have sent their policies already, and end with this one. */
static void on_net(const union event *event, int *fds, size_t n_fds, void *arg)
{
    struct box_call *c = arg;
    struct box *b = c->box;
    struct front *front = b->front;
    bool was_asked = c->net == NET_ASKS;

    if (box_is_alive(b))
        net_box_changed(b, event->head.result);
    on_done(event, fds, n_fds, c);
    while (was_asked && (c = find_net_call(front, b, NET_JOINS)))
        on_done(event, fds, n_fds, c);
}

int box_update_net(struct box *b, json_t *net, box_callback *call, void *arg, struct err *e)
{
    struct request_net q = { .head = head(b, REQUEST_NET) };
    int r = check_phase(b, IN(PHASE_RUNNING), e);

    if (r == 0)
        r = net_check_keys(&b->front->config, net, b->settings.keys, e);
    if (r < 0) {
        json_decref(net);
        return r;
    }
    json_decref(b->settings.net);
    b->settings.net = net;
    box_save(b);
    box_event(b, "updated", NULL);
    /* A policy takes effect at once; a new network when the keeper has made it. */
    b->has_network |= net_allows(net);
    net_box_tell(b);
    q.has_network = b->has_network;
    bool joins = q.has_network && find_net_call(b->front, b, NET_ASKS);
    struct box_call *c = call_new(b, call, arg);
    c->net = joins ? NET_JOINS : q.has_network ? NET_ASKS : NET_NO;
    if (!joins)
        keeper_link_request(b->front->keeper, &q, sizeof q, NULL, 0, on_net, c);
    return 0;
}

int box_usage(struct box *b, void (*call)(struct box *, const struct frame_usage *, const struct err *, void *),
              void *arg, struct err *e)
{
    int r = check_phase(b, IN(PHASE_RUNNING) | IN(PHASE_PAUSED), e);
    if (r < 0)
        return r;
    struct request_head q = head(b, REQUEST_USAGE);
    struct box_call *c = call_new(b, NULL, arg);
    c->usage = call;
    keeper_link_request(b->front->keeper, &q, sizeof q, NULL, 0, on_done, c);
    return 0;
}

static void on_buried(struct loop_task *t)
{
    box_wake(container_of(t, struct box, raise_task), NULL);
}

int box_delete(struct box *b, enum box_reason reason, box_callback *call, void *arg, struct err *e)
{
    int r = check_phase(b, ~IN(PHASE_DELETED), e);
    if (r < 0)
        return r;
    /* The files of a stopped box wait for the next keeper. A caller must not wait: there may never be one. */
    if (call && b->phase == PHASE_STOPPED && !keeper_link_is_up(b->front->keeper))
        return box_no_keeper(e);
    box_wait(b, call, arg);
    if (b->phase == PHASE_FAILED) {     /* only its row is left */
        box_set_phase(b, PHASE_DELETED, reason, NULL);
        b->raise_task.on_run = on_buried;
        loop_task_add(b->front->loop, &b->raise_task);
        return 0;
    }
    if (b->phase == PHASE_DELETING)
        return 0;
    enum phase before = b->phase;
    if (b->awaits_packages || b->keys.awaits) {     /* the keeper does not know it yet */
        box_packages_abandon(b);
        box_mounts_close(&b->settings.mounts);
        if (before == PHASE_CREATING) {
            box_end(b, PHASE_DELETED, reason, NULL);
            b->raise_task.on_run = on_buried;
            loop_task_add(b->front->loop, &b->raise_task);
            return 0;
        }
        keys_box_gone(b);
        box_release_slot(b);
        before = PHASE_STOPPED;         /* of a box that is being started the keeper has only the files */
    }
    box_unhold(b, 0);       /* the keeper cannot end a box that it does not know */
    struct request_head q = head(b, REQUEST_DESTROY);
    box_set_phase(b, PHASE_DELETING, reason, NULL);
    if (before == PHASE_STOPPED) {
        box_remove_store(b);
        return 0;
    }
    if (before == PHASE_STOPPING)
        return 0;       /* it is ending already */
    keeper_link_request(b->front->keeper, &q, sizeof q, NULL, 0, on_done, call_new(b, NULL, NULL));
    return 0;
}
