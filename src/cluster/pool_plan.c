/* The decision about a pool. Members that are being deleted keep their place until they are gone, so that a pool never
 * has more Sandboxes than it should. An unschedulable member is kept: a new one could not be scheduled either. */
#include "cluster/pool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* More creations at once than IN_FLIGHT_MAX gain nothing, and claims would wait behind them. */
enum { SLACK_MS = 2000, IN_FLIGHT_MAX = 16, YIELD_MS = 1000, YIELD_RETRY_MS = 50 };

static bool is_ready(const struct sandbox *s)
{
    return s->condition[COND_READY].status == COND_TRUE;
}

bool pool_may_give(const struct pool *pool, const struct sandbox *box)
{
    return !box->o.deleting && box->pool && box->template_hash_label && object_is_owned_by(&box->o, &pool->o) &&
           strcmp(box->o.namespace, pool->o.namespace) == 0;
}

bool pool_is_stale(const struct sandbox *box, const struct template *t)
{
    char hash[9];

    hash_name(t->o.name, hash);
    if (!texts_are_same(box->template_hash_label, hash))
        return true;
    if (box->o.owner_uid && texts_are_same(box->blueprint_label, t->blueprint_label))
        return false;
    return box->blueprint != t->blueprint;
}

static void add(struct pool_plan *plan, enum pool_act act, const struct sandbox *box, const char *why)
{
    plan->action[plan->n_actions++] = (struct pool_action){ act, box, why };
}

static void wake_in(struct pool_plan *plan, uint64_t ms)
{
    if (!plan->wake_ms || ms < plan->wake_ms)
        plan->wake_ms = ms ? ms : 1;
}

/* Whether a member was not Ready for too long. True: delete it. */
static bool is_lost(const struct pool_view *v, const struct sandbox *s, struct pool_plan *plan, unsigned *held)
{
    uint64_t age_ms = v->now > s->created ? (uint64_t)(v->now - s->created) * 1000 : 0;
    const struct condition *scheduled = &s->condition[COND_SCHEDULED];

    if (is_ready(s) || !s->created)
        return false;
    if (age_ms <= v->policy->grace_ms) {
        wake_in(plan, v->policy->grace_ms - age_ms + SLACK_MS);
        return false;
    }
    if (scheduled->status == COND_FALSE && texts_are_same(scheduled->reason, "Unschedulable")) {
        (*held)++;
        return false;
    }
    return true;
}

struct census {
    const struct sandbox **active;      /* replaces the view's members: those that stay */
    size_t                 n_active;
    unsigned               n_ending, n_held;
};

static void count(const struct pool_view *v, struct pool_plan *plan, struct census *c)
{
    bool checks = v->template && v->pool->recreates;

    c->active = v->member;
    for (size_t i = 0; i < v->n_members; i++) {
        const struct sandbox *s = v->member[i];
        if (s->o.deleting) {
            c->n_ending++;
        } else if (checks && pool_is_stale(s, v->template)) {
            add(plan, POOL_DELETE, s, "delete stale sandbox");
            c->n_ending++;
        } else if (is_lost(v, s, plan, &c->n_held)) {
            add(plan, POOL_DELETE, s, "delete stuck sandbox");
            c->n_ending++;
        } else {
            if (!texts_are_same(s->launch, "warm"))
                add(plan, POOL_LABEL, s, "label sandbox");
            c->active[c->n_active++] = s;
            plan->ready += is_ready(s);
        }
    }
    for (size_t i = 0; i < v->n_orphans; i++) {
        const struct sandbox *s = v->orphan[i];
        if (s->o.deleting)
            continue;
        if (v->template && pool_is_stale(s, v->template))
            add(plan, POOL_DELETE, s, "delete stale sandbox");
        else
            add(plan, POOL_ADOPT, s, "adopt sandbox");
    }
}

/* ---- too few ---- */

/* Members taken by a burst of claims are replaced when the burst is over. True: not now. */
static bool is_held_back(const struct pool_view *v, struct pool_plan *plan, size_t active)
{
    struct pool_memory *m = &plan->memory;
    bool has_dropped = m->is_known && active < m->members;

    m->members = (unsigned)active;
    m->is_known = true;
    if (!v->policy->replenish_delay_ms || active >= (size_t)v->pool->replicas) {
        m->hold_until_ms = 0;
        return false;
    }
    if (has_dropped)
        m->hold_until_ms = v->now_ms + v->policy->replenish_delay_ms;
    if (m->hold_until_ms <= v->now_ms)
        return false;
    wake_in(plan, m->hold_until_ms - v->now_ms);
    return true;
}

/* During a burst the API server is busy: claims are served first and their members replaced later, for at most a second
 * and while half of the pool is left. True: not now. */
static bool is_yielding(const struct pool_view *v, struct pool_plan *plan)
{
    struct pool_memory *m = &plan->memory;

    if (!v->is_contended || 2 * plan->ready <= v->pool->replicas) {
        m->yielding_ms = 0;
        return false;
    }
    if (!m->yielding_ms)
        m->yielding_ms = v->now_ms;
    if (v->now_ms - m->yielding_ms >= YIELD_MS)
        return false;
    wake_in(plan, YIELD_RETRY_MS);
    return true;
}

/* How many of the missing the rate allows now. */
static unsigned pace(const struct pool_view *v, struct pool_plan *plan, unsigned wanted)
{
    struct pool_memory *m = &plan->memory;
    double rate = v->policy->refill_rate, most = rate > 1 ? rate : 1;

    if (rate <= 0)
        return wanted;
    m->tokens = m->paced_at_ms ? m->tokens + rate * (double)(v->now_ms - m->paced_at_ms) / 1000 : most;
    m->tokens = m->tokens > most ? most : m->tokens;
    m->paced_at_ms = v->now_ms;
    unsigned granted = m->tokens < wanted ? (unsigned)m->tokens : wanted;
    m->tokens -= granted;
    if (granted < wanted)
        wake_in(plan, (uint64_t)((1 - m->tokens) / rate * 1000) + 1);
    return granted;
}

static void plan_creation(const struct pool_view *v, struct pool_plan *plan, const struct census *c)
{
    struct pool_memory *m = &plan->memory;
    size_t all = c->n_active + c->n_ending;

    if (is_held_back(v, plan, c->n_active) || !v->template || !v->template->pod_spec || v->error ||
        all >= (size_t)v->pool->replicas || is_yielding(v, plan))
        return;
    size_t missing = (size_t)v->pool->replicas - all;
    unsigned most = v->policy->max_batch < IN_FLIGHT_MAX ? v->policy->max_batch : IN_FLIGHT_MAX;
    unsigned batch = m->batch > most ? most : m->batch ? m->batch : 1;
    unsigned granted = pace(v, plan, missing < batch ? (unsigned)missing : batch);
    plan->n_create = granted;
    m->members += granted;
    m->batch = batch < most ? batch * 2 : most;
}

/* ---- too many ---- */

static int compare_surplus(const void *a, const void *b)
{
    const struct sandbox *x = *(const struct sandbox *const *)a, *y = *(const struct sandbox *const *)b;

    if (is_ready(x) != is_ready(y))
        return is_ready(x) ? 1 : -1;
    if (x->created != y->created)
        return x->created > y->created ? -1 : 1;
    return strcmp(y->o.name, x->o.name);
}

/* Members that are not Ready are deleted first, then the newest. */
static void plan_surplus(const struct pool_view *v, struct pool_plan *plan, const struct census *c)
{
    size_t wanted = (size_t)v->pool->replicas;

    if (c->n_active <= wanted || v->error)
        return;
    qsort(c->active, c->n_active, sizeof *c->active, compare_surplus);
    size_t n = c->n_active - wanted;
    if (n > v->policy->max_batch)
        n = v->policy->max_batch;
    for (size_t i = 0; i < n; i++)
        if (!c->active[i]->is_reserved)
            add(plan, POOL_DELETE, c->active[i], "delete excess sandbox");
}

void pool_plan(const struct pool_view *v, struct pool_plan *ret)
{
    struct census c = { 0 };
    char hash[9];

    *ret = (struct pool_plan){ .action = ret->action, .memory = v->pool->memory };
    if (v->pool->o.deleting)
        return;
    count(v, ret, &c);
    ret->replicas = (int64_t)c.n_active;
    plan_creation(v, ret, &c);
    plan_surplus(v, ret, &c);
    ret->is_stuck = ret->memory.is_stuck = c.n_held > 0;
    if (ret->is_stuck) {
        snprintf(ret->stuck, sizeof ret->stuck, "%u/%lld sandboxes are unschedulable past the %llus readiness grace "
                 "period; holding them instead of replacing (replacements would be equally unschedulable)", c.n_held,
                 (long long)v->pool->replicas, (unsigned long long)v->policy->grace_ms / 1000);
        wake_in(ret, v->policy->recheck_ms);
    }
    hash_name(v->pool->o.name, hash);
    snprintf(ret->selector, sizeof ret->selector, LABEL_POOL "=%s", hash);
    const struct pool *p = v->pool;
    /* A client may wait for a full pool, or for the new generation. */
    ret->is_urgent = p->status_generation != p->generation ||
                     (ret->ready == p->replicas && ret->ready != (p->status_ready < 0 ? 0 : p->status_ready));
    ret->differs = ret->is_urgent || ret->replicas != (p->status_replicas < 0 ? 0 : p->status_replicas) ||
                   ret->ready != (p->status_ready < 0 ? 0 : p->status_ready) ||
                   !texts_are_same(ret->selector, p->status_selector);
}
