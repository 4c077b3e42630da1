/* The queue and the writes.
 *
 *   wake -> ready list -> run() -> writes under way -> answers into the cache -> run() again ... -> rest (freed)
 *                            \-> fail: a timer, longer each time
 *
 * Level-triggered: a wake does not say what changed. While writes of an object are under way it is not run, so that one
 * object never has two plans at once. At most max_busy objects have writes under way.
 *
 * The answer to a write is the newest version of its object and goes into the cache at once; no expectations about
 * later watch events are needed. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "base/jsonout.h"
#include "base/list.h"
#include "cluster/controller.h"

enum { ROUNDS_MAX = 25, NAMESPACE_ENDING_MS = 30000, FAILURE_MAX_MS = 60000 };

struct write {
    struct kube_call call;      /* first */
    struct work     *work;
    struct write    *next;
    enum verb        verb;
    enum group       group;
    enum kind        kind;
    const char      *what;
    char            *name, *uid;
    uint64_t         version;   /* of the object to change */
};

/* A creation without an answer: the object may exist. */
struct unsure {
    struct unsure *next;
    enum group     group;
    enum kind      kind;
    char           name[];
};

static void run_later(struct work *w);

/* ---- finding ---- */

static uint32_t hash_of(enum kind kind, const char *namespace, const char *name)
{
    uint64_t h = hash_bytes(HASH_SEED + (uint64_t)kind, namespace, strlen(namespace) + 1);

    h = hash_bytes(h, name, strlen(name));
    return (uint32_t)(h ^ h >> 32);
}

static struct work **place_of(struct controller *c, enum kind kind, uint32_t hash, const char *namespace,
                              const char *name)
{
    struct work **at = &c->works[hash & (c->works_size - 1)];

    while (*at && ((*at)->hash != hash || (*at)->by->kind != kind || strcmp((*at)->name, name) != 0 ||
                   strcmp((*at)->namespace, namespace) != 0))
        at = &(*at)->next;
    return at;
}

static void grow(struct controller *c)
{
    size_t size = c->works_size * 2;
    struct work **to = calloc(size, sizeof *to);

    if (!to)
        return;
    for (size_t b = 0; b < c->works_size; b++)
        for (struct work *w = c->works[b], *next; w; w = next) {
            next = w->next;
            w->next = to[w->hash & (size - 1)];
            to[w->hash & (size - 1)] = w;
        }
    free(c->works);
    c->works = to;
    c->works_size = size;
}

static void clear_errors(struct work *w)
{
    for (size_t i = 0; i < GROUPS; i++) {
        free(w->error[i]);
        w->error[i] = NULL;
    }
    w->is_transient = false;
    w->retry_ms = 0;
}

static void release_work(struct work *w)
{
    w->controller->n_works--;
    loop_timer_cancel(w->controller->loop, &w->timer);
    clear_errors(w);
    for (struct unsure *u = w->unsure, *next; u; u = next) {
        next = u->next;
        free(u);
    }
    free(w->reserved);
    free(w);
}

static void free_work(struct work *w)
{
    *place_of(w->controller, w->by->kind, w->hash, w->namespace, w->name) = w->next;
    release_work(w);
}

static void on_timer(struct loop_timer *t)
{
    struct work *w = container_of(t, struct work, timer);

    w->is_backing_off = false;
    run_later(w);
}

static struct work *make_work(struct controller *c, const struct reconciler *by, uint32_t hash, const char *namespace,
                              const char *name)
{
    size_t a = strlen(namespace) + 1, b = strlen(name) + 1;
    struct work *w = calloc(1, sizeof *w + a + b);

    if (!w)
        return NULL;
    char *text = (char *)(w + 1);
    memcpy(text, namespace, a);
    memcpy(text + a, name, b);
    w->namespace = text;
    w->name = text + a;
    w->controller = c;
    w->by = by;
    w->hash = hash;
    w->timer.on_expire = on_timer;
    struct work **at = &c->works[hash & (c->works_size - 1)];
    w->next = *at;
    *at = w;
    if (++c->n_works > c->works_size)
        grow(c);
    return w;
}

/* ---- the ready list ---- */

static void run_later(struct work *w)
{
    struct controller *c = w->controller;

    if (w->is_ready || w->is_busy)
        return;
    w->is_ready = true;
    w->next_ready = NULL;
    *c->ready_end = w;
    c->ready_end = &w->next_ready;
    loop_task_add(c->loop, &c->pump);
}

void work_wake(struct controller *c, enum kind kind, const char *namespace, const char *name, bool is_soft)
{
    static const struct reconciler *const reconcilers[KINDS] = { [KIND_SANDBOX] = &sandbox_reconciler,
                                                                 [KIND_KERNEL] = &kernel_reconciler,
                                                                 [KIND_TEMPLATE] = &template_reconciler,
                                                                 [KIND_POOL] = &pool_reconciler,
                                                                 [KIND_BOXCLAIM] = &boxclaim_reconciler };
    const struct reconciler *by = reconcilers[kind];
    uint32_t hash = hash_of(kind, namespace, name);
    struct work *w = *place_of(c, kind, hash, namespace, name);

    if (!c->leads)
        return;
    if (!w)
        w = make_work(c, by, hash, namespace, name);
    if (!w)
        return;         /* out of memory: the next change or list wakes it */
    if (w->is_busy) {
        w->is_dirty = w->is_dirty || !is_soft;      /* it runs again after the writes anyway */
        return;
    }
    if (w->is_backing_off && is_soft)
        return;
    run_later(w);
}

static void run(struct work *w)
{
    struct controller *c = w->controller;

    c->metrics.reconciles++;
    if (++w->rounds > ROUNDS_MAX) {
        log_line(LOG_WARN, "%s %s/%s: no end after %u rounds; trying again later", w->by->noun, w->namespace, w->name,
                 w->rounds - 1);
        work_fail(w);
        return;
    }
    w->is_dirty = false;
    w->by->run(w);
}

/* Checks first which unanswered creations happened. True: requests are under way. */
static bool ask_unsure(struct work *w)
{
    bool asks = w->unsure != NULL;

    for (struct unsure *u = w->unsure, *next; u; u = next) {
        next = u->next;
        work_write(w, VERB_GET, u->group, u->kind, u->name, NULL, work_path(u->kind, w->namespace, u->name, ""), NULL,
                   "get");
        free(u);
    }
    w->unsure = NULL;
    return asks;
}

static void on_pump(struct loop_task *t)
{
    struct controller *c = container_of(t, struct controller, pump);
    unsigned budget = 256;      /* then the rest of the loop gets a turn */

    while (c->ready && c->n_busy < c->max_busy && budget-- > 0) {
        struct work *w = c->ready;
        if (!(c->ready = w->next_ready))
            c->ready_end = &c->ready;
        w->is_ready = false;
        if (!c->leads || c->is_stopping || (c->elects && !kube_lease_is_held(&c->lease))) {
            work_rest(w, 0);
            continue;
        }
        w->is_backing_off = false;
        loop_timer_cancel(c->loop, &w->timer);
        clear_errors(w);
        w->rounds = 0;
        if (!ask_unsure(w))
            run(w);
    }
    if (c->ready && c->n_busy < c->max_busy)
        loop_task_add(c->loop, &c->pump);
}

void work_rest(struct work *w, uint64_t wake_ms)
{
    w->failures = 0;
    if (w->is_dirty) {
        w->is_dirty = false;
        run_later(w);
    } else if (wake_ms > 0) {
        loop_timer_set(w->controller->loop, &w->timer, wake_ms);
    } else {
        free_work(w);
    }
}

void work_fail(struct work *w)
{
    uint32_t wait = kube_backoff_ms(++w->failures + 1);

    if (wait > FAILURE_MAX_MS)
        wait = FAILURE_MAX_MS;
    if (wait < w->retry_ms)
        wait = w->retry_ms;
    w->controller->metrics.retries++;
    if (w->is_dirty && !w->is_transient) {
        w->is_dirty = false;        /* the cause of the failure may have changed meanwhile */
        run_later(w);
        return;
    }
    w->is_backing_off = true;
    w->is_dirty = false;
    loop_timer_set(w->controller->loop, &w->timer, wait);
}

/* ---- writes ---- */

char *work_path(enum kind kind, const char *namespace, const char *name, const char *subresource)
{
    const struct kind_info *k = &kind_info[kind];

    if (!name)
        return kube_path("%r/namespaces/%s/%r?fieldManager=sandbox-controller", k->prefix, namespace, k->plural);
    return kube_path("%r/namespaces/%s/%r/%s%r", k->prefix, namespace, k->plural, name, subresource);
}

static void release_write(struct write *x)
{
    kube_call_done(&x->call);
    free(x->name);
    free(x->uid);
    free(x);
}

static void free_write(struct write *x)
{
    for (struct write **at = &x->work->writes; *at; at = &(*at)->next)
        if (*at == x) {
            *at = x->next;
            break;
        }
    release_write(x);
}

static bool is_cause(const struct kube_call *call, const char *reason)
{
    const char *text = buf_string(&call->answer);

    if (!jsonscan_is_object(text, call->answer.length))
        return false;
    struct jsonslice details = jsonscan_find((struct jsonslice){ text, call->answer.length }, "details");
    struct jsonwalk w = jsonscan_walk(jsonscan_find(details, "causes"));
    while (jsonscan_next(&w))
        if (jsonscan_is(jsonscan_find(w.value, "reason"), reason))
            return true;
    return false;
}

/* The server's answer is the newest version of its object. */
static void take_answer(struct write *x)
{
    struct controller *c = x->work->controller;
    struct jsonslice text = { buf_string(&x->call.answer), x->call.answer.length };
    struct err e;
    struct object *o = NULL;

    if (jsonscan_is_object(text.data, text.size) && !jsonscan_is(jsonscan_find(text, "kind"), "Status"))
        o = object_decode(x->kind, text, &e);
    if (x->verb == VERB_DELETE && (!o || !o->deleting)) {
        cache_remove(&c->cache, x->kind, x->work->namespace, x->name, x->uid, UINT64_MAX);
        object_free(o);
        return;
    }
    if (o)
        (void)cache_put_answer(&c->cache, o, c->watch[x->kind].selector != NULL);
}

static void start_get(struct work *w, enum group group, enum kind kind, const char *name)
{
    work_write(w, VERB_GET, group, kind, name, NULL, work_path(kind, w->namespace, name, ""), NULL, "get");
}

static void fail_group(struct write *x, const char *text)
{
    struct work *w = x->work;
    char *line = NULL;

    if (w->error[x->group])
        return;
    if (x->verb == VERB_CREATE || asprintf(&line, "failed to %s: %s", x->what, text) < 0)
        line = strdup(text);
    w->error[x->group] = line;
    log_line(LOG_WARN, "%s %s/%s: %s %s: %s", w->by->noun, w->namespace, w->name, x->what, x->name, text);
}

static void note_unsure(struct write *x)
{
    size_t size = strlen(x->name) + 1;
    struct unsure *u = malloc(sizeof *u + size);

    if (!u)
        return;
    *u = (struct unsure){ .next = x->work->unsure, .group = x->group, .kind = x->kind };
    memcpy(u->name, x->name, size);
    x->work->unsure = u;
}

/* The server refused, or did not answer. */
static void take_refusal(struct write *x)
{
    struct work *w = x->work;
    struct controller *c = w->controller;
    int status = x->call.status;
    char text[1024];

    c->metrics.write_failures++;
    if (x->verb == VERB_STATUS)
        w->status_hash = 0;
    kube_call_text(&x->call, text, sizeof text);
    if (status == 409) {
        /* It exists already, or has changed, or is another object: read it. */
        start_get(w, x->group, x->kind, x->name);
    } else if (status == 404 && x->verb != VERB_CREATE) {
        cache_remove(&c->cache, x->kind, w->namespace, x->name, x->verb == VERB_GET ? NULL : x->uid, UINT64_MAX);
    } else if (status == 403 && is_cause(&x->call, "NamespaceTerminating")) {
        w->is_transient = true;
        w->retry_ms = NAMESPACE_ENDING_MS;
    } else if (status == 0 || status == 401 || status == 429 || status == 503 || status == 504) {
        log_line(w->failures < 2 ? LOG_DEBUG : LOG_WARN, "%s %s/%s: %s %s: %s", w->by->noun, w->namespace, w->name,
                 x->what, x->name, text);
        w->is_transient = true;
        /* Other creations have fixed names, so a second one is refused. */
        if (x->verb != VERB_CREATE ? x->verb == VERB_GET && w->by->kind == KIND_POOL : x->kind == KIND_SANDBOX)
            note_unsure(x);
        if (w->retry_ms < x->call.retry_after_ms)
            w->retry_ms = x->call.retry_after_ms;
    } else {
        fail_group(x, text);
    }
}

static void on_done(struct kube_call *call)
{
    struct write *x = (struct write *)call;
    struct work *w = x->work;
    struct controller *c = w->controller;

    c->metrics.writes[x->verb]++;
    if (call->status >= 200 && call->status < 300) {
        take_answer(x);
        if (x->verb != VERB_GET && x->verb != VERB_STATUS)
            log_line(LOG_INFO, "%s %s/%s: %s %s", w->by->noun, w->namespace, w->name, x->what, x->name);
    } else {
        take_refusal(x);
    }
    free_write(x);
    if (w->writes)
        return;
    w->is_busy = false;
    c->n_busy--;
    loop_task_add(c->loop, &c->pump);
    if (c->is_stopping || (c->elects && !kube_lease_is_held(&c->lease)))
        work_rest(w, 0);
    else if (w->is_transient)
        work_fail(w);
    else
        run(w);
}

void work_write(struct work *w, enum verb verb, enum group group, enum kind kind, const char *name,
                const struct object *object, char *path, struct buf *body, const char *what)
{
    static const char *const methods[VERBS] = { "GET", "POST", "PATCH", "PATCH", "DELETE", "PATCH" };
    static const char *const types[VERBS] = { NULL, KUBE_JSON, KUBE_MERGE_PATCH, KUBE_MERGE_PATCH, KUBE_JSON,
                                              KUBE_JSON_PATCH };
    struct write *x = calloc(1, sizeof *x);
    bool good = x && path && (!body || buf_error(body) == 0);

    if (x) {
        x->name = strdup(name);
        x->uid = object ? strdup(object->uid) : NULL;
        good = good && x->name && (x->uid || !object);
    }
    if (!good) {
        if (x) {
            free(x->name);
            free(x->uid);
        }
        free(x);
        free(path);
        if (body)
            buf_done(body);
        w->is_transient = true;
        if (!w->writes && !w->is_busy)
            work_fail(w);
        return;
    }
    x->work = w;
    x->verb = verb;
    x->group = group;
    x->kind = kind;
    x->what = what;
    x->call.method = methods[verb];
    x->call.path = path;
    x->call.on_done = on_done;
    x->call.deadline_ms = 30000;
    if (body) {
        x->call.body = *body;
        x->call.type = types[verb];
    }
    x->next = w->writes;
    w->writes = x;
    if (!w->is_busy) {
        w->is_busy = true;
        w->controller->n_busy++;
    }
    kube_call_start(w->controller->client, &x->call);
}

void work_status(struct work *w, enum kind kind, const struct object *o, struct buf *body)
{
    uint64_t hash = hash_bytes(HASH_SEED, buf_string(body), body->length);

    if (hash == w->status_hash && !w->is_backing_off && w->rounds > 1) {
        log_line(LOG_WARN, "%s %s/%s: the server keeps its status otherwise than it was written; is its CRD another's?",
                 w->by->noun, w->namespace, w->name);
        buf_done(body);
        w->status_hash = 0;
        work_rest(w, 0);
        return;
    }
    w->status_hash = hash;
    work_write(w, VERB_STATUS, GROUP_SELF, kind, w->name, o, work_path(kind, w->namespace, w->name, "/status"), body,
               "write status");
}

void work_delete(struct work *w, enum group group, const struct object *o, enum deletion how, const char *what)
{
    char version[32];
    struct buf body;
    struct jsonout j;

    buf_init(&body, 4096);
    jsonout_init(&j, &body);
    jsonout_open_object(&j, NULL);
    jsonout_string(&j, "apiVersion", "v1");
    jsonout_string(&j, "kind", "DeleteOptions");
    jsonout_open_object(&j, "preconditions");
    jsonout_string(&j, "uid", o->uid);
    if (how == DELETE_IF_UNCHANGED) {
        snprintf(version, sizeof version, "%llu", (unsigned long long)o->version);
        jsonout_string(&j, "resourceVersion", version);
    }
    jsonout_close(&j);
    if (how == DELETE_FOREGROUND)
        jsonout_string(&j, "propagationPolicy", "Foreground");
    jsonout_close(&j);
    if (jsonout_finish(&j) < 0)
        body.failure = body.failure ? body.failure : EINVAL;
    work_write(w, VERB_DELETE, group, o->kind, o->name, o, work_path(o->kind, o->namespace, o->name, ""), &body, what);
}

/* ---- the controller's side ---- */

int controller_init(struct controller *c)
{
    c->works_size = 256;
    c->works = calloc(c->works_size, sizeof *c->works);
    c->ready_end = &c->ready;
    c->pump.on_run = on_pump;
    if (!c->works)
        return -ENOMEM;
    return cache_init(&c->cache);
}

void controller_done(struct controller *c)
{
    c->is_stopping = true;
    c->leads = false;
    for (size_t b = 0; b < c->works_size; b++)
        for (struct work *w = c->works[b], *next; w; w = next) {
            next = w->next;
            for (struct write *x = w->writes, *more; x; x = more) {
                more = x->next;
                release_write(x);
            }
            release_work(w);
        }
    free(c->works);
    loop_task_cancel(c->loop, &c->pump);
    metrics_done(&c->metrics);
    for (size_t i = 0; i < KINDS; i++)
        kube_watch_stop(&c->watch[i]);
    cache_done(&c->cache);
}
