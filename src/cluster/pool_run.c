/* Executes a pool's plan. Sandboxes are created in batches that grow after each success; the answers put them into the
 * cache, so that the next run counts them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/buf.h"
#include "cluster/controller.h"
#include "cluster/pool.h"

/* A pool that lost a member is usually full again before the status would be written. */
enum { BODY_MAX = 4 << 20, STATUS_DELAY_MS = 1000, CONTENDED_MS = 100 };

static size_t count_owned(const struct cache *c, const char *key)
{
    size_t n = 0;

    for (const struct object *o = cache_first_owned(c, KIND_SANDBOX, key); o; o = cache_next_owned(o))
        n++;
    return n;
}

static const struct sandbox **list_owned(const struct cache *c, const char *key, const struct sandbox **at)
{
    for (const struct object *o = cache_first_owned(c, KIND_SANDBOX, key); o; o = cache_next_owned(o))
        *at++ = (const struct sandbox *)o;
    return at;
}

static void act(struct work *w, const struct pool *pool, const struct pool_action *a)
{
    const struct object *o = &a->box->o;
    char *path = work_path(KIND_SANDBOX, o->namespace, o->name, "");
    struct buf body;

    buf_init(&body, BODY_MAX);
    if (a->act == POOL_DELETE) {
        free(path);
        work_delete(w, GROUP_BOX, o, DELETE_IF_UNCHANGED, a->why);
        return;
    }
    if (a->act == POOL_ADOPT)
        pool_write_adoption(pool, a->box, &body);
    else
        pool_write_label(&body);
    work_write(w, VERB_PATCH, GROUP_BOX, KIND_SANDBOX, o->name, o, path, &body, a->why);
}

static void create(struct work *w, const struct pool *pool, const struct template *t)
{
    char name[BOX_NAME_SIZE];
    struct buf body;

    pool_name_box(pool, (uint64_t)arc4random() << 32 | arc4random(), name);
    buf_init(&body, BODY_MAX);
    pool_write_box(pool, t, name, &body);
    work_write(w, VERB_CREATE, GROUP_BOX, KIND_SANDBOX, name, NULL,
               work_path(KIND_SANDBOX, w->namespace, NULL, NULL), &body, "create sandbox");
}

/* Reports once that the pool makes no progress, and once that it does again. */
static void tell(struct work *w, const struct pool *pool, const struct pool_plan *plan)
{
    if (plan->is_stuck == pool->memory.is_stuck)
        return;
    if (plan->is_stuck)
        event_send(w, &pool->o, "Warning", "WarmPoolNotProgressing", plan->stuck);
    else
        event_send(w, &pool->o, "Normal", "WarmPoolProgressing", "Warm pool is progressing again");
}

static void carry_out(struct work *w, struct pool *pool, const struct pool_view *v, struct pool_plan *plan)
{
    uint64_t now_ms = loop_now_ms();
    struct buf body;

    tell(w, pool, plan);
    if (v->error)
        plan->memory.batch = 1;
    pool->memory = plan->memory;
    for (size_t i = 0; i < plan->n_actions; i++)
        act(w, pool, &plan->action[i]);
    for (unsigned i = 0; i < plan->n_create; i++)
        create(w, pool, v->template);
    if (plan->n_create > 0)
        w->rounds = 0;          /* needs as many rounds as there are replicas */
    if (plan->differs && !w->status_due_ms)
        w->status_due_ms = now_ms + STATUS_DELAY_MS;
    if (!plan->differs)
        w->status_due_ms = 0;
    if (plan->differs && (plan->is_urgent || v->error || now_ms >= w->status_due_ms)) {
        w->status_due_ms = 0;
        buf_init(&body, 4096);
        pool_write_status(pool, plan, &body);
        work_status(w, KIND_POOL, &pool->o, &body);
        return;
    }
    if (plan->n_actions > 0 || plan->n_create > 0)
        return;
    pool->memory.batch = v->error ? 1 : pool->memory.batch;
    if (v->error) {
        if (w->failures == 0)
            event_send(w, &pool->o, "Warning", "ReconcilerError", v->error);
        work_fail(w);
        return;
    }
    uint64_t wake_ms = plan->wake_ms;
    if (w->status_due_ms && (!wake_ms || wake_ms > w->status_due_ms - now_ms))
        wake_ms = w->status_due_ms - now_ms;
    work_rest(w, wake_ms);
}

static void run(struct work *w)
{
    struct controller *c = w->controller;
    struct pool *pool = (struct pool *)cache_find(&c->cache, KIND_POOL, w->namespace, w->name);
    struct timespec now;
    char key[320], hash[9];

    if (!pool || pool->o.deleting) {
        work_rest(w, 0);
        return;
    }
    hash_name(w->name, hash);
    snprintf(key, sizeof key, "%s/%s", w->namespace, hash);
    clock_gettime(CLOCK_REALTIME, &now);
    struct pool_view v = { .pool = pool, .policy = &c->policy, .error = w->error[GROUP_BOX], .now = now.tv_sec,
                           .now_ms = loop_now_ms(), .is_contended = loop_now_ms() - c->claim_at_ms < CONTENDED_MS,
                           .n_members = count_owned(&c->cache, pool->o.uid),
                           .n_orphans = count_owned(&c->cache, key) };
    size_t n = v.n_members + v.n_orphans;
    struct pool_plan plan = { .action = calloc(2 * n + 1, sizeof *plan.action) };
    v.member = calloc(n + 1, sizeof *v.member);
    if (!plan.action || !v.member) {
        free(plan.action);
        free(v.member);
        w->is_transient = true;
        work_fail(w);
        return;
    }
    v.orphan = list_owned(&c->cache, pool->o.uid, v.member);
    (void)list_owned(&c->cache, key, v.orphan);
    if (pool->template_name)
        v.template = (const struct template *)cache_find(&c->cache, KIND_TEMPLATE, w->namespace, pool->template_name);
    pool_plan(&v, &plan);
    carry_out(w, pool, &v, &plan);
    free(plan.action);
    free(v.member);
}

const struct reconciler pool_reconciler = { .kind = KIND_POOL, .noun = "pool", .run = run };
