/* Executes a claim's plan. The member that is being adopted is reserved meanwhile, so that the next claim picks another
 * one; the version in the write keeps it from being adopted twice. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/buf.h"
#include "base/fd.h"
#include "cluster/boxclaim.h"
#include "cluster/controller.h"
#include "cluster/template.h"

enum { BODY_MAX = 16 << 20, STATUS_DELAY_MS = 300, OWNED_MAX = 16 };

static int64_t clock_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static void release(struct work *w)
{
    struct sandbox *box = w->reserved
                              ? (struct sandbox *)cache_find(&w->controller->cache, KIND_SANDBOX, w->namespace,
                                                             w->reserved)
                              : NULL;

    if (box)
        box->is_reserved = false;
    free(w->reserved);
    w->reserved = NULL;
}

static void reserve(struct work *w, const struct sandbox *box)
{
    ((struct sandbox *)box)->is_reserved = true;
    w->reserved = strdup(box->o.name);      /* out of memory: it stays reserved until its owner changes */
}

/* ---- the view ---- */

/* A claim of v1alpha1 names a template and the pools that may serve it: none, any (the default), or one. */
static const struct pool *find_pool(const struct cache *c, const struct boxclaim *claim)
{
    const char *name = claim->pool_name ? claim->pool_name : claim->warmth;
    size_t bucket;

    if (name && (claim->pool_name || (strcmp(name, "none") != 0 && strcmp(name, "default") != 0)))
        return (const struct pool *)cache_find(c, KIND_POOL, claim->o.namespace, name);
    if (!claim->template_name || (name && strcmp(name, "none") == 0))
        return NULL;
    for (struct object *o = NULL; (o = cache_walk(c, KIND_POOL, &bucket, o));) {
        const struct pool *p = (const struct pool *)o;
        if (strcmp(o->namespace, claim->o.namespace) == 0 && texts_are_same(p->template_name, claim->template_name))
            return p;
    }
    return NULL;
}

static const struct sandbox *find_box(const struct cache *c, const struct boxclaim *claim, const char *name)
{
    return name ? (const struct sandbox *)cache_find(c, KIND_SANDBOX, claim->o.namespace, name) : NULL;
}

/* members: grows as needed and is reused for the next claim. */
static bool list_members(const struct cache *c, struct boxclaim_view *v)
{
    static const struct sandbox **members;
    static size_t room;
    size_t n = 0;

    for (const struct object *o = cache_first_owned(c, KIND_SANDBOX, v->pool->o.uid); o; o = cache_next_owned(o)) {
        if (n == room) {
            size_t more = room ? room * 2 : 256;
            const struct sandbox **grown = realloc(members, more * sizeof *members);
            if (!grown)
                return false;
            members = grown;
            room = more;
        }
        members[n++] = (const struct sandbox *)o;
    }
    v->member = members;
    v->n_members = n;
    return true;
}

static bool look(struct controller *c, struct work *w, const struct boxclaim *claim, struct boxclaim_view *v)
{
    static const struct sandbox *owned[OWNED_MAX];
    char policy[POLICY_NAME_SIZE];

    *v = (struct boxclaim_view){ .claim = claim, .owned = owned, .policy = &c->policy, .now_us = clock_us(),
                                 .pool = find_pool(&c->cache, claim), .named = find_box(&c->cache, claim, w->name),
                                 .assigned = find_box(&c->cache, claim, claim->assigned ? claim->assigned
                                                                                        : claim->assigned_label),
                                 .error = w->error[GROUP_BOX] ? w->error[GROUP_BOX] : w->error[GROUP_SELF] };
    v->template_name = claim->template_name ? claim->template_name : v->pool ? v->pool->template_name : NULL;
    if (v->template_name)
        v->template = (const struct template *)cache_find(&c->cache, KIND_TEMPLATE, w->namespace, v->template_name);
    for (const struct object *o = cache_first_owned(&c->cache, KIND_SANDBOX, claim->o.uid); o && v->n_owned < OWNED_MAX;
         o = cache_next_owned(o))
        owned[v->n_owned++] = (const struct sandbox *)o;
    snprintf(policy, sizeof policy, "%s-network-policy", w->name);
    v->policy_left = (const struct netpolicy *)cache_find(&c->cache, KIND_NETPOLICY, w->namespace, policy);
    return v->n_owned > 0 || !v->pool || list_members(&c->cache, v);
}

/* ---- execution ---- */

static void act(struct work *w, const struct boxclaim_view *v, const struct boxclaim_plan *plan, enum boxclaim_act a)
{
    const struct boxclaim *c = v->claim;
    const struct sandbox *box = plan->box;
    struct buf body;

    buf_init(&body, BODY_MAX);
    switch (a) {
    case BOXCLAIM_ADOPT:
        boxclaim_write_adoption(v, box, &body);
        work_write(w, VERB_PATCH, GROUP_BOX, KIND_SANDBOX, box->o.name, &box->o,
                   work_path(KIND_SANDBOX, w->namespace, box->o.name, ""), &body, "adopt sandbox");
        reserve(w, box);
        w->begun = BEGUN_ADOPTION;
        w->controller->claim_at_ms = loop_now_ms();
        break;
    case BOXCLAIM_CREATE:
        boxclaim_write_box(v, &body);
        work_write(w, VERB_CREATE, GROUP_BOX, KIND_SANDBOX, w->name, NULL,
                   work_path(KIND_SANDBOX, w->namespace, NULL, NULL), &body, "create sandbox");
        w->begun = BEGUN_CREATION;
        break;
    case BOXCLAIM_ALIGN:
        boxclaim_write_alignment(v, box, &body);
        work_write(w, VERB_PATCH, GROUP_BOX, KIND_SANDBOX, box->o.name, &box->o,
                   work_path(KIND_SANDBOX, w->namespace, box->o.name, ""), &body, "patch sandbox");
        break;
    case BOXCLAIM_NOTE:
        boxclaim_write_notes(c, &plan->notes, &body);
        work_write(w, VERB_PATCH, GROUP_SELF, KIND_BOXCLAIM, w->name, &c->o,
                   work_path(KIND_BOXCLAIM, w->namespace, w->name, ""), &body, "annotate claim");
        if (plan->has_trouble)
            event_send(w, &c->o, "Warning", "SandboxTrouble", plan->notes.trouble);
        break;
    case BOXCLAIM_DELETE_BOX:
        work_delete(w, GROUP_BOX, &box->o, DELETE_PLAINLY, "delete sandbox");
        break;
    case BOXCLAIM_DELETE_POLICY:
        work_delete(w, GROUP_SELF, &v->policy_left->o, DELETE_PLAINLY, "delete network policy");
        break;
    case BOXCLAIM_DELETE: {
        char text[64];
        snprintf(text, sizeof text, "Deleting Claim (ShutdownPolicy=%s)",
                 c->policy == SHUTDOWN_FOREGROUND ? "DeleteForeground" : "Delete");
        if (!w->controller->policy.quiet_claims)
            event_send(w, &c->o, "Normal", "ClaimExpired", text);
        work_delete(w, GROUP_SELF, &c->o, c->policy == SHUTDOWN_FOREGROUND ? DELETE_FOREGROUND : DELETE_PLAINLY,
                    "delete claim");
        break;
    }
    }
}

/* The claim has a Sandbox now. */
static void tell_begun(struct work *w, const struct boxclaim_view *v)
{
    bool is_warm = w->begun == BEGUN_ADOPTION;
    const struct sandbox *box = v->n_owned ? v->owned[0] : NULL;
    char text[320];

    if (!w->begun || !box)
        return;
    w->begun = BEGUN_NOTHING;
    metrics_claim(&w->controller->metrics, v->claim, box, is_warm);
    snprintf(text, sizeof text, is_warm ? "Adopted warm pool Sandbox \"%s\"" : "Created Sandbox \"%s\"", box->o.name);
    if (!w->controller->policy.quiet_claims)
        event_send(w, &v->claim->o, "Normal", is_warm ? "SandboxAdopted" : "SandboxProvisioned", text);
}

static void write_status(struct work *w, const struct boxclaim_view *v, const struct boxclaim_plan *plan)
{
    const struct boxclaim *c = v->claim;
    const struct condition *now = &plan->status.ready, *was = &c->ready;
    struct buf body;

    w->status_due_ms = 0;
    w->controller->claim_at_ms = loop_now_ms();
    if (now->status == COND_TRUE && was->status != COND_TRUE) {
        log_line(LOG_INFO, "claim %s/%s: ready with sandbox %s", w->namespace, w->name, plan->status.name);
        metrics_claim_ready(&w->controller->metrics, c, plan->box, v->now_us);
    }
    if (!texts_are_same(now->reason, was->reason)) {
        if (texts_are_same(now->reason, "ClaimExpired") && !w->controller->policy.quiet_claims)
            event_send(w, &c->o, "Normal", "ClaimExpired", "Claim expired");
        else if (texts_are_same(now->reason, "ReconcilerError") && !plan->box)
            event_send(w, &c->o, "Warning", "ReconcilerError", now->message);
    }
    buf_init(&body, BODY_MAX);
    boxclaim_write_status(c, &plan->status, &body);
    work_status(w, KIND_BOXCLAIM, &c->o, &body);
}

static void run(struct work *w)
{
    struct controller *c = w->controller;
    const struct boxclaim *claim =
        (const struct boxclaim *)cache_find(&c->cache, KIND_BOXCLAIM, w->namespace, w->name);
    static struct boxclaim_plan plan;       /* large; one thread, and used up before the next call */
    struct boxclaim_view v;

    release(w);
    if (!claim || claim->o.deleting) {
        work_rest(w, 0);
        return;
    }
    if (!look(c, w, claim, &v)) {
        w->is_transient = true;
        work_fail(w);
        return;
    }
    tell_begun(w, &v);
    boxclaim_plan(&v, &plan);
    for (size_t i = 0; i < plan.n_actions; i++)
        act(w, &v, &plan, plan.action[i]);
    if (plan.n_actions > 0)
        return;
    uint64_t now_ms = loop_now_ms(), wake_ms = plan.wake_ms;
    if (plan.differs && !w->status_due_ms)
        w->status_due_ms = now_ms + STATUS_DELAY_MS;
    if (plan.differs && !w->error[GROUP_SELF] && (plan.is_urgent || plan.failed || now_ms >= w->status_due_ms)) {
        write_status(w, &v, &plan);
        return;
    }
    if (!plan.differs)
        w->status_due_ms = 0;
    else if (!wake_ms || w->status_due_ms < now_ms + wake_ms)
        wake_ms = w->status_due_ms > now_ms ? w->status_due_ms - now_ms : 1;
    if (plan.failed || w->error[GROUP_SELF])
        work_fail(w);
    else
        work_rest(w, wake_ms);
}

const struct reconciler boxclaim_reconciler = { .kind = KIND_BOXCLAIM, .noun = "claim", .run = run };
