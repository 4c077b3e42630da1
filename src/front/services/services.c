/* A service's life. It may be freed from the loop only: any callback may end it. The database has the state that the
 * next front needs (all but the secrets), and the keeper has the worker's link; a live worker is adopted, a dead one is
 * replaced, or the service records the reason. */
#define _GNU_SOURCE
#include "front/services/services.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "front/boxes/box_text.h"
#include "front/db/db.h"
#include "front/front.h"
#include "front/services/grants.h"
#include "front/services/service_private.h"

const char *const service_state_names[] = { "loading", "ready", "dead" };

/* ---- watchers ---- */

void service_watch(struct service *s, struct service_watcher *w)
{
    LIST_ADD(s->private->watchers, w);
}

void service_unwatch(struct service_watcher *w)
{
    LIST_REMOVE(w);
}

void service_tell_print(struct service *s, const char *stream, struct jsonslice text)
{
    for (struct service_watcher *w = s->private->watchers, *next; w; w = next) {
        next = w->next;
        if (w->on_print)
            w->on_print(w, stream, text);
    }
}

void service_set_state(struct service *s, enum service_state state)
{
    if (s->state == state)
        return;
    s->state = state;
    box_event(s->box, "service",
              json_pack("{s:s,s:s,s:s?}", "service", s->name, "state", service_state_names[state], "reason",
                        s->reason[0] ? s->reason : NULL));
    for (struct service_watcher *w = s->private->watchers, *next; w; w = next) {
        next = w->next;
        w->on_state(w, s);
    }
    if (state == SERVICE_READY)
        loop_task_add(s->front->loop, &s->private->pump_task);
    else if (state == SERVICE_DEAD)
        service_calls_end(s, CALL_GONE, true);
}

/* ---- finding and showing ---- */

struct service *service_by_id(struct front *front, const char *id)
{
    for (struct service *s = front->services; s; s = s->next)
        if (strcmp(s->id, id) == 0)
            return s;
    return NULL;
}

struct service *service_find(struct front *front, const char *owner, const char *name)
{
    struct service *s = service_by_id(front, name);     /* first: a name may be anything, also another's id */

    if (s && (!owner || strcmp(s->owner, owner) == 0))
        return s;
    for (s = front->services; s; s = s->next)
        if ((!owner || strcmp(s->owner, owner) == 0) && strcmp(s->name, name) == 0)
            return s;
    return NULL;
}

const json_t *service_function(const struct service *s, const char *name)
{
    size_t i;
    json_t *one;

    json_array_foreach(s->functions, i, one)
        if (strcmp(json_string_value(json_object_get(one, "name")), name) == 0)
            return one;
    return NULL;
}

/* With a thousand names of a thousand functions a linear search would be slow. */
json_t *service_functions(const struct service *s, const json_t *names)
{
    json_t *list = json_array(), *wanted = names ? json_object() : NULL, *one;
    size_t i;

    json_array_foreach(names, i, one)
        json_object_set_new(wanted, json_string_value(one), json_true());
    json_array_foreach(s->functions, i, one)
        if (!names || json_object_get(wanted, json_string_value(json_object_get(one, "name"))))
            json_array_append(list, one);
    json_decref(wanted);
    return list;
}

json_t *service_json(const struct service *s)
{
    json_t *o = json_pack("{s:s,s:s,s:s,s:s,s:b,s:s,s:s?,s:s?,s:i,s:o,s:o,s:i,s:I}", "id", s->id, "name", s->name,
                          "owner", s->owner, "box", s->box->id, "own_box", s->own_box, "state",
                          service_state_names[s->state], "outcome", outcome_name(s->outcome), "reason",
                          s->reason[0] ? s->reason : NULL, "restarts", (int)s->restarts, "created_at",
                          front_time_json(s->created_ms), "functions", service_functions(s, NULL), "calls_running",
                          (int)s->n_calls, "calls", (json_int_t)s->n_called);

    json_object_set(o, "filename", json_object_get(s->spec, "filename"));
    if (s->error)
        json_object_set(o, "error", s->error);
    return o;
}

/* ---- storing ---- */

/* The functions, too: calls that come to the next front before the worker has described itself are queued there. */
static int store(struct service *s, struct err *e)
{
    json_t *body = json_pack("{s:O,s:b,s:b,s:I,s:i,s:I,s:O}", "spec", s->spec, "own_box", s->own_box, "has_secrets",
                             s->has_secrets, "load_timeout_ms", (json_int_t)s->load_timeout_ms, "restarts",
                             (int)s->restarts, "created_ms", (json_int_t)s->created_ms, "functions", s->functions);
    char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
    struct db_service row = { .id = s->id, .owner = s->owner, .name = s->name, .box = s->box->number, .body = text };

    int r = text ? db_service_put(s->front->db, &row, e) : err_at(e, ENOMEM, STEP_MEMORY, 0, "service");
    free(text);
    json_decref(body);
    return r;
}

void service_save(struct service *s)
{
    struct err e;

    if (store(s, &e) < 0)
        front_log("error", "cannot store a service", "service", s->id, NULL);
}

/* ---- making and forgetting ---- */

static void on_pump(struct loop_task *t)
{
    service_pump((container_of(t, struct service_private, pump_task))->service);
}

static void on_free(struct loop_task *t)
{
    struct service_private *p = container_of(t, struct service_private, free_task);
    struct service *s = p->service;

    loop_task_cancel(s->front->loop, &p->pump_task);
    loop_timer_cancel(s->front->loop, &p->load_timer);
    loop_timer_cancel(s->front->loop, &p->close_timer);
    guest_link_close(&p->link);
    share_leave(&p->link.share);
    share_leave(&p->link.partials);
    share_leave(&p->share);
    share_leave(&p->kept);
    free(p->log);
    free(p);
    free(s->name);
    free(s->owner);
    json_decref(s->spec);
    json_decref(s->secrets);
    json_decref(s->error);
    json_decref(s->functions);
    free(s);
}

/* Removes it from all indexes; the loop frees it. */
void service_forget(struct service *s)
{
    struct service_private *p = s->private;

    if (p->gone)
        return;
    p->gone = true;
    LIST_REMOVE(s);
    loop_task_cancel(s->front->loop, &p->box_task);
    boxes_cancel(s->front, s);
    service_calls_end(s, CALL_GONE, true);
    while (p->watchers)
        service_unwatch(p->watchers);
    if (s->exec)
        s->exec->owned_by = NULL;
    s->exec = NULL;
    guest_link_close(&p->link);
    loop_task_add(s->front->loop, &p->free_task);
}

/* Adds it to the lists, without a process yet. */
static struct service *make(struct box *box, const char *id, const struct service_options *o)
{
    struct service *s = calloc(1, sizeof *s);
    struct service_private *p = calloc(1, sizeof *p);
    struct front *front = box->front;

    if (s) {
        s->name = strdup(o->name);
        s->owner = strdup(box->owner);
        s->spec = json_incref(o->spec);
        s->secrets = json_incref(o->secrets);
        s->functions = json_array();
    }
    if (!s || !p || !s->name || !s->owner || !s->functions)
        abort();        /* as everywhere when a few bytes cannot be allocated */
    s->private = p;
    p->service = s;
    s->front = front;
    s->box = box;
    if (id)
        snprintf(s->id, sizeof s->id, "%s", id);
    else
        front_make_id('v', s->id);
    s->own_box = o->own_box;
    s->has_secrets = json_object_size(o->secrets) > 0;
    s->load_timeout_ms = o->load_timeout_ms;
    s->created_ms = front_now_ms();
    p->calls_end = &p->calls;
    service_link_init(s);
    if (share_join(&p->share, &front->memory, box->owner) < 0 || share_join(&p->kept, &front->memory, box->owner) < 0 ||
        share_join(&p->link.share, &front->memory, box->owner) < 0 ||
        share_join(&p->link.partials, &front->partials, box->owner) < 0)
        abort();
    p->free_task.on_run = on_free;
    p->pump_task.on_run = on_pump;
    service_box_init(s);
    LIST_ADD(front->services, s);
    return s;
}

static size_t weight(const json_t *part)
{
    char *text = part ? json_dumps(part, JSON_COMPACT) : NULL;
    size_t n = text ? jsonscan_weight(text, strlen(text)) : 0;

    free(text);
    return n;
}

bool service_keep(struct service *s, size_t described_bytes)
{
    struct service_private *p = s->private;

    if (!p->spec_bytes)     /* the interface, its environment and so on are kept for the next worker */
        p->spec_bytes = weight(s->spec) + weight(s->secrets);
    size_t bytes = p->spec_bytes + described_bytes;
    if (!share_move_bytes(&p->kept, p->kept_bytes, bytes))
        return false;
    p->kept_bytes = bytes;
    p->described_bytes = described_bytes;
    return true;
}

static void remove_row(struct service *s)
{
    struct err e;

    if (db_service_delete(s->front->db, s->id, &e) < 0)
        front_log("error", "cannot remove a service from the database", "service", s->id, NULL);
}

int service_create(struct box *box, const struct service_options *o, struct service **ret, struct err *e)
{
    unsigned in_box = 0, of_owner = 0;

    if (box->phase != PHASE_RUNNING)
        return err_set(e, EBUSY, STEP_USAGE, "the box %s; only in a running one can a service be started",
                       box_show_state(box).text);
    for (struct service *s = box->front->services; s; s = s->next) {
        in_box += s->box == box;
        of_owner += strcmp(s->owner, box->owner) == 0;
    }
    struct service *old = service_find(box->front, box->owner, o->name);
    if (old && !service_is_lost(old))
        return err_set(e, EEXIST, STEP_USAGE, "there is a service '%.40s' already", o->name);
    if (in_box >= SERVICES_PER_BOX)
        return err_set(e, EAGAIN, STEP_USAGE, "a box may have %d services", SERVICES_PER_BOX);
    if (of_owner >= SERVICES_PER_OWNER)
        return err_set(e, EDQUOT, STEP_USAGE, "%s may have %d services", box->owner, SERVICES_PER_OWNER);
    if (old)
        service_delete(old, "the box has ended");
    struct service *s = make(box, NULL, o);
    /* Before there is a worker: the database decides about names. */
    int r = service_keep(s, s->private->described_bytes) ? store(s, e) : err_set(e, EDQUOT, STEP_USAGE, SHARE_FULL);
    if (r == 0 && (r = service_launch(s, e)) < 0)
        remove_row(s);
    if (r < 0) {
        service_forget(s);
        return r;
    }
    *ret = s;
    return 0;
}

void service_delete(struct service *s, const char *reason)
{
    struct box *box = s->own_box ? s->box : NULL;
    struct err ignored;

    if (s->private->gone)
        return;
    snprintf(s->reason, sizeof s->reason, "%s", reason);
    if (s->exec)
        (void)!exec_signal(s->exec, SIGKILL, &ignored);
    /* Watchers are notified that it will not be loaded, and may delete it. */
    service_set_state(s, SERVICE_DEAD);
    if (s->private->gone)
        return;
    grants_on_service_end(s);
    remove_row(s);
    service_forget(s);
    if (box)
        (void)!box_delete(box, BOX_REASON_SERVICE_DELETED, NULL, NULL, &ignored);
}

/* ---- deaths ---- */

void service_condemn(struct service *s, enum outcome outcome, const char *why)
{
    struct service_private *p = s->private;
    struct err ignored;

    if (!p->end_outcome) {
        p->end_outcome = outcome;
        snprintf(p->end_reason, sizeof p->end_reason, "%s", why);
    }
    if (s->exec)
        (void)!exec_signal(s->exec, SIGKILL, &ignored);
}

static void say_why(struct service *s, const struct exec *x)
{
    const struct service_private *p = s->private;

    s->outcome = p->end_outcome ? p->end_outcome : x->outcome ? x->outcome : OUTCOME_ERROR;
    s->interpreter_failed = service_blame_interpreter(s, x, s->reason, sizeof s->reason);
    if (s->interpreter_failed)
        return;
    if (p->end_outcome)
        snprintf(s->reason, sizeof s->reason, "%s", p->end_reason);
    else if (x->failure.code)
        err_text(&x->failure, s->reason, sizeof s->reason);
    else if (s->outcome == OUTCOME_OOM)
        snprintf(s->reason, sizeof s->reason, "the box ran out of memory, and the worker was killed");
    else if (x->end.signal)
        snprintf(s->reason, sizeof s->reason, "the worker was killed by signal %d (SIG%s)", x->end.signal,
                 sigabbrev_np(x->end.signal) ? sigabbrev_np(x->end.signal) : "?");
    else
        snprintf(s->reason, sizeof s->reason, "the worker's process exited with status %d", x->end.code);
}

static const char *error_type(const struct service *s)
{
    return s->interpreter_failed ? "InterpreterFailed" : "WorkerDied";
}

/* The standard error of a worker that did not come up is the best available reason. */
static void add_tail(struct service *s)
{
    const struct service_private *p = s->private;

    bool is_told = s->interpreter_failed && memchr(p->tail, '\n', p->tail_size) == p->tail + p->tail_size - 1;
    if (s->error || !p->tail_size || is_told)
        return;
    json_t *text = json_stringn(p->tail, p->tail_size);
    if (text)
        s->error = json_pack("{s:s,s:s,s:o}", "type", error_type(s), "message", s->reason, "traceback", text);
}

void service_die(struct service *s)
{
    if (!s->error)
        s->error = json_pack("{s:s,s:s}", "type", error_type(s), "message", s->reason);
    service_set_state(s, SERVICE_DEAD);
}

/* Without a keeper nothing can be started; services_on_synced() follows when there is one. */
void service_start_anew(struct service *s)
{
    struct err e = { 0 };

    s->private->restart_wanted = false;
    json_decref(s->error);
    s->error = NULL;
    service_set_state(s, SERVICE_LOADING);
    if (s->private->gone)
        return;
    if (s->has_secrets && !s->secrets) {
        snprintf(s->reason, sizeof s->reason,
                 "its worker has ended, and its secrets are not kept over a restart of the server; create it again");
        service_die(s);
    } else if (service_launch(s, &e) < 0 && s->front->ready && e.code != ECONNRESET) {
        s->outcome = OUTCOME_ERROR;
        err_text(&e, s->reason, sizeof s->reason);
        service_die(s);
    }
}

/* Bounded: a function that ends its worker may be called again and again. */
bool service_may_restart(struct service *s)
{
    struct service_private *p = s->private;
    uint64_t now = loop_now_ms();

    if (now - p->recent_ms > SERVICE_RESTARTS_MS) {
        p->recent_ms = now;
        p->n_recent = 0;
    }
    return p->n_recent++ < SERVICE_RESTARTS_MOST;
}

static void on_exec_end(struct exec *x)
{
    struct service *s = x->owned_by;

    if (!s || s->exec != x)
        return;
    struct service_private *p = s->private;
    bool was_ready = s->state == SERVICE_READY;
    guest_link_drain(&p->link);
    loop_timer_cancel(s->front->loop, &p->load_timer);
    loop_timer_cancel(s->front->loop, &p->close_timer);
    if (p->gone)
        return;
    s->exec = NULL;
    x->owned_by = NULL;
    guest_link_close(&p->link);
    say_why(s, x);
    s->state = SERVICE_LOADING;         /* nothing is sent until the next worker is there */
    service_calls_end(s, CALL_DIED, false);
    if (p->gone)
        return;
    if (x->failure.code == ECONNRESET) {
        ;       /* the keeper went away before it could start it; services_on_synced() retries */
    } else if (p->restart_wanted) {
        service_start_anew(s);
    } else if (was_ready && s->box->phase == PHASE_RUNNING && service_may_restart(s)) {
        front_log("warning", "a service's worker died and is replaced", "service", s->name, "reason", s->reason, NULL);
        s->restarts++;
        service_save(s);
        service_start_anew(s);
    } else {
        add_tail(s);
        service_die(s);
    }
}

int service_restart(struct service *s, struct err *e)
{
    if (s->has_secrets && !s->secrets)
        return err_set(e, EPIPE, STEP_USAGE, "its secrets are not kept over a restart of the server; create it again");
    if (!box_is_alive(s->box) && s->own_box && !s->private->wants_box) {
        s->private->n_recent = 0;
        service_rebox(s, "a restart was asked for");
        return 0;
    }
    if (s->box->phase != PHASE_RUNNING)
        return err_set(e, EBUSY, STEP_USAGE, "the box is %s", phase_names[s->box->phase]);
    s->restarts++;
    s->private->restart_wanted = true;
    s->private->n_recent = 0;
    service_save(s);
    if (s->exec) {
        snprintf(s->reason, sizeof s->reason, "a restart was asked for");
        service_condemn(s, OUTCOME_KILLED, s->reason);
        service_set_state(s, SERVICE_LOADING);
    } else {
        service_start_anew(s);
    }
    return 0;
}

/* ---- after an earlier front ---- */

static int load_one(const struct db_service *row, void *arg)
{
    struct front *front = arg;
    json_t *body = json_loads(row->body, 0, NULL);
    struct box *box = NULL;

    for (struct box *b = front->boxes.first; b && !box; b = b->next)
        if (b->number == row->box)
            box = b;
    struct service_options o = { .name = row->name,
                                 .spec = json_object_get(body, "spec"),
                                 .own_box = json_is_true(json_object_get(body, "own_box")),
                                 .load_timeout_ms =
                                     (uint64_t)json_integer_value(json_object_get(body, "load_timeout_ms")) };
    /* A service whose box had ended before it got another gets one now. */
    if (box && (box_is_alive(box) || o.own_box) && json_is_object(o.spec)) {
        struct service *s = make(box, row->id, &o);
        s->has_secrets = json_is_true(json_object_get(body, "has_secrets"));
        s->restarts = (unsigned)json_integer_value(json_object_get(body, "restarts"));
        s->created_ms = (int64_t)json_integer_value(json_object_get(body, "created_ms"));
        json_array_extend(s->functions, json_object_get(body, "functions"));
        /* An existing one stays, even if its owner's budget has become smaller. */
        if (!service_keep(s, weight(s->functions)))
            front_log("warning", "a service takes more memory than its owner may have", "service", s->id, NULL);
    }
    json_decref(body);
    return 0;
}

int services_load(struct front *front, struct err *e)
{
    return db_services(front->db, load_one, front, e);
}

static void adopt(struct exec *x, const struct exec_birth *birth)
{
    const char *id = json_string_value(json_object_get(x->about, "service"));
    struct service *s = id ? service_by_id(x->box->front, id) : NULL;
    struct err ignored;

    (void)birth;
    if (x->owned_by)
        return;         /* only the keeper's connection was lost */
    if (!s || s->box != x->box || s->exec) {
        (void)!exec_signal(x, SIGKILL, &ignored);
        return;
    }
    s->exec = x;
    x->owned_by = s;
    if (exec_link(x) < 0 || guest_link_open(&s->private->link, exec_link(x), false) < 0)
        service_condemn(s, OUTCOME_ERROR, "the worker's link was lost");
    else
        service_ask_again(s);
}

static void on_synced(struct front *front)
{
    for (struct service *s = front->services, *next; s; s = next) {
        next = s->next;
        if (s->private->wants_box)
            loop_task_add(front->loop, &s->private->box_task);
        if (s->exec || s->state != SERVICE_LOADING || s->private->wants_box)
            continue;
        if (s->box->phase == PHASE_RUNNING) {
            service_start_anew(s);
        } else if (s->box->phase == PHASE_CREATING) {
            service_await_box(s);
        } else if (!box_is_alive(s->box)) {
            service_rebox(s, box_reason_name(s->box->reason ? s->box->reason : BOX_REASON_KEEPER_LOST));
        } else {
            snprintf(s->reason, sizeof s->reason, "the box is %s", phase_names[s->box->phase]);
            service_set_state(s, SERVICE_DEAD);
        }
    }
}

void services_free(struct front *front)
{
    for (struct service *s = front->services, *next; s; s = next) {
        next = s->next;
        service_forget(s);
        loop_task_cancel(front->loop, &s->private->free_task);
        on_free(&s->private->free_task);
    }
}

const struct box_part services_part = {
    .on_synced = on_synced,
    .on_end = services_on_box_end,
    .needs = services_need_box,
    .on_forget = services_on_box_forget,
};

const struct exec_owner services_exec_owner = {
    .name = "service",
    .adopt = adopt,
    .on_output = service_on_output,
    .on_end = on_exec_end,
};
