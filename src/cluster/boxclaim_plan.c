/* The decision about a claim.
 *
 *   expired:  status says so -> the claim deleted, or its Sandbox deleted and the status emptied
 *   bound:    labels and annotations of the Sandbox as they should be -> its condition forwarded
 *   unbound:  a member of the pool adopted, or a Sandbox made from the template
 *
 * The owner reference of a Sandbox decides who owns it. It is changed only together with the version: a Sandbox is
 * never adopted twice, and after a crash the claim finds its Sandbox by that reference. The annotation on the claim,
 * written at the same time, is for people and for the original's controller. */
#include "cluster/boxclaim.h"

#include <string.h>

#include "cluster/pool.h"

enum { PENDING_GRACE_US = 2000000, PENDING_RETRY_MS = 100, MISSING_RETRY_MS = 60000 };

static void add(struct boxclaim_plan *plan, enum boxclaim_act act, const struct sandbox *box)
{
    plan->action[plan->n_actions++] = act;
    if (box)
        plan->box = box;
}

static bool is_ready(const struct sandbox *s)
{
    return s->condition[COND_READY].status == COND_TRUE;
}

/* ---- the status ---- */

static void set(const struct boxclaim_view *v, const struct condition *was, struct condition *to,
                enum condition_status status, const char *reason, const char *message)
{
    *to = (struct condition){ .status = (uint8_t)status, .reason = reason, .message = message,
                              .generation = v->claim->generation,
                              .since = was->status == status ? was->since : v->now_us / 1000000 };
}

static void set_ready(const struct boxclaim_view *v, struct boxclaim_plan *plan, const char *reason,
                      const char *message)
{
    set(v, &v->claim->ready, &plan->status.ready, COND_FALSE, reason, message);
}

/* Copies a condition of the Sandbox to the claim; its time changes if the status does. */
static void forward(const struct condition *was, const struct condition *from, struct condition *to)
{
    *to = *from;
    if (was->status == from->status)
        to->since = was->since;
}

static void set_from_box(const struct boxclaim_view *v, struct boxclaim_plan *plan, const struct sandbox *box)
{
    const struct boxclaim *c = v->claim;
    struct boxclaim_status *s = &plan->status;
    const struct condition *ready = &box->condition[COND_READY], *finished = &box->condition[COND_FINISHED];

    if (texts_are_same(ready->reason, "SandboxExpired")) {
        set_ready(v, plan, "SandboxExpired", "Underlying Sandbox resource has expired independently of the Claim.");
    } else if (ready->status != COND_ABSENT) {
        forward(&c->ready, ready, &s->ready);
        s->ready.generation = c->generation;
    } else {
        set_ready(v, plan, "SandboxNotReady", "Sandbox is not ready");
    }
    if (finished->status != COND_ABSENT)
        forward(&c->finished, finished, &s->finished);
    s->name = box->o.name;
    s->ips = box->status_ips;
    s->fqdn = box->status_fqdn;
}

static bool same_condition(const struct condition *a, const struct condition *b)
{
    if (a->status == COND_ABSENT && b->status == COND_ABSENT)
        return true;
    return a->status == b->status && a->generation == b->generation && a->since == b->since &&
           texts_are_same(a->reason, b->reason) && texts_are_same(a->message, b->message);
}

/* Compares with the present status, and decides whether a client may wait for the change. */
static void compare(const struct boxclaim_view *v, struct boxclaim_plan *plan)
{
    const struct boxclaim *c = v->claim;
    const struct boxclaim_status *s = &plan->status;

    plan->differs = !same_condition(&s->ready, &c->ready) || !same_condition(&s->finished, &c->finished) ||
                    !texts_are_same(s->name, c->box_name) || !texts_are_same(s->ips, c->box_ips) ||
                    !texts_are_same(s->fqdn, c->box_fqdn);
    bool flips = s->ready.status != c->ready.status &&
                 (s->ready.status == COND_TRUE || c->ready.status == COND_TRUE);
    bool is_forwarded = plan->box && s->name;
    plan->is_urgent = plan->differs && (flips || s->finished.status != c->finished.status ||
                                        (!is_forwarded && !texts_are_same(s->ready.reason, c->ready.reason)));
}

/* The claim cannot be served; the recorded Sandbox stays. */
static void refuse(const struct boxclaim_view *v, struct boxclaim_plan *plan, const char *reason, const char *message)
{
    const struct boxclaim *c = v->claim;

    plan->status = (struct boxclaim_status){ .name = c->box_name, .ips = c->box_ips, .fqdn = c->box_fqdn };
    set_ready(v, plan, reason, message);
    compare(v, plan);
}

static void refuse_error(const struct boxclaim_view *v, struct boxclaim_plan *plan, const char *text)
{
    refuse(v, plan, "ReconcilerError", texts_add(&plan->texts, "Error seen: %s", text));
    plan->failed = true;
}

/* ---- the end ---- */

static int64_t expires_at(const struct boxclaim *c)
{
    int64_t at = c->shutdown;

    if (c->ttl >= 0 && c->finished.status == COND_TRUE && c->finished.since) {
        int64_t after = c->finished.since + c->ttl;
        at = !at || after < at ? after : at;
    }
    return at;
}

/* Keeps the claim and deletes its Sandbox. */
static void plan_retained(const struct boxclaim_view *v, struct boxclaim_plan *plan)
{
    const struct boxclaim *c = v->claim;
    const struct sandbox *box = v->n_owned ? v->owned[0] : NULL, *named = v->named;
    const char *expired = "Claim expired. Sandbox cleanup initiated.";

    if (box && !box->o.deleting && !v->error) {
        add(plan, BOXCLAIM_DELETE_BOX, box);
        return;
    }
    plan->status = (struct boxclaim_status){ .finished = c->finished };
    if (box) {
        set_from_box(v, plan, box);
    } else if (named && !c->box_name) {
        expired = texts_add(&plan->texts, "Claim expired. sandbox not owned by this claim: sandbox \"%s\" is not owned "
                            "by claim \"%s\"; deletion skipped.", named->o.name, c->o.name);
    }
    plan->box = NULL;
    set_ready(v, plan, "ClaimExpired", expired);
    plan->failed = v->error != NULL;
    compare(v, plan);
}

/* True: the claim has expired; the plan is complete. */
static bool plan_expired(const struct boxclaim_view *v, struct boxclaim_plan *plan)
{
    const struct boxclaim *c = v->claim;
    int64_t at = expires_at(c), now = v->now_us / 1000000;

    if (!at)
        return false;
    if (now < at) {
        plan->wake_ms = at - now > 86400 ? 86400000 : (uint64_t)(at * 1000 - v->now_us / 1000);
        return false;
    }
    if (!texts_are_same(c->ready.reason, "ClaimExpired")) {
        plan->status = (struct boxclaim_status){ .finished = c->finished, .name = c->box_name, .ips = c->box_ips,
                                                 .fqdn = c->box_fqdn };
        set_ready(v, plan, "ClaimExpired", "Claim expired. Sandbox cleanup initiated.");
        compare(v, plan);
        plan->is_urgent = true;
    } else if (c->policy != SHUTDOWN_RETAIN) {
        add(plan, BOXCLAIM_DELETE, NULL);
    } else {
        plan_retained(v, plan);
    }
    return true;
}

/* ---- the claim's annotations ---- */

/* Plans the annotations for this Sandbox. True: they must be written. */
static bool plan_notes(const struct boxclaim_view *v, struct boxclaim_plan *plan, const struct sandbox *box,
                       bool is_warm, bool is_ready_now)
{
    const struct boxclaim *c = v->claim;
    struct boxclaim_notes *n = &plan->notes;
    bool times = !v->policy->bare_claims;

    n->assigned = is_warm ? box->o.name : NULL;
    n->trouble = box ? box->trouble : c->trouble;
    n->observed_us = times && !c->observed ? (c->seen_us ? c->seen_us : v->now_us) : 0;
    if (times && !c->first_ready && is_ready_now)
        n->ready_us = c->seen_us ? v->now_us : -1;
    plan->has_trouble = n->trouble && !texts_are_same(n->trouble, c->trouble);
    return n->observed_us || n->ready_us || !texts_are_same(n->assigned, c->assigned) || c->assigned_label ||
           !texts_are_same(n->trouble, c->trouble);
}

/* ---- a Sandbox ---- */

/* The Sandbox that the claim owns already. */
static const struct sandbox *bound_box(const struct boxclaim_view *v)
{
    const struct sandbox *best = NULL;

    for (size_t i = 0; i < v->n_owned; i++) {
        const struct sandbox *s = v->owned[i];
        if (texts_are_same(s->o.name, v->claim->box_name))
            return s;
        if (!best || best->o.deleting || (!s->o.deleting && texts_are_same(s->o.name, v->claim->assigned)))
            best = s;
    }
    return best;
}

static void plan_bound(const struct boxclaim_view *v, struct boxclaim_plan *plan, const struct sandbox *box)
{
    const char *text;

    if (!v->error && !box->o.deleting) {
        if (v->template && !boxclaim_check_merge(v, &plan->texts, &text)) {
            refuse_error(v, plan, text);
            return;
        }
        if (!boxclaim_is_aligned(v, box))
            add(plan, BOXCLAIM_ALIGN, box);
    }
    bool is_warm = !texts_are_same(box->o.name, v->claim->o.name);
    if (plan_notes(v, plan, box, is_warm, v->claim->ready.status == COND_TRUE) && !v->error)
        add(plan, BOXCLAIM_NOTE, NULL);
    plan->box = box;
    if (plan->n_actions > 0)
        return;
    plan->status = (struct boxclaim_status){ 0 };
    set_from_box(v, plan, box);
    plan->failed = v->error != NULL;
    compare(v, plan);
}

/* A member of the pool: first one whose adoption an earlier pass, or the original, has begun. */
static const struct sandbox *adoptable(const struct boxclaim_view *v, size_t *ret_pending)
{
    *ret_pending = 0;
    if (!v->pool || v->claim->env || v->claim->claim_templates)
        return NULL;
    if (v->assigned && pool_may_give(v->pool, v->assigned) && !v->assigned->is_reserved)
        return v->assigned;
    return boxclaim_pick(v, ret_pending);
}

static void plan_adoption(const struct boxclaim_view *v, struct boxclaim_plan *plan, const struct sandbox *box)
{
    const char *text;

    if (v->template && !boxclaim_check_merge(v, &plan->texts, &text)) {
        refuse_error(v, plan, text);
        return;
    }
    add(plan, BOXCLAIM_ADOPT, box);
    if (plan_notes(v, plan, box, true, is_ready(box)))
        add(plan, BOXCLAIM_NOTE, NULL);
}

static void plan_creation(const struct boxclaim_view *v, struct boxclaim_plan *plan)
{
    const char *reason, *text;

    if (v->claim->pool_name && !v->pool) {
        refuse(v, plan, "WarmPoolNotFound", texts_add(&plan->texts, "SandboxWarmPool \"%s\" not found",
                                                      v->claim->pool_name));
    } else if (!v->template) {
        refuse(v, plan, "TemplateNotFound", texts_add(&plan->texts, "SandboxTemplate \"%s\" not found",
                                                      v->template_name ? v->template_name : ""));
    } else if (!boxclaim_check_cold(v, &plan->texts, &reason, &text)) {
        if (strcmp(reason, "ReconcilerError") == 0)
            refuse_error(v, plan, text);
        else
            refuse(v, plan, reason, text);
        return;
    } else {
        add(plan, BOXCLAIM_CREATE, NULL);
        if (plan_notes(v, plan, NULL, false, false))
            add(plan, BOXCLAIM_NOTE, NULL);
        return;
    }
    if (!plan->wake_ms || plan->wake_ms > MISSING_RETRY_MS)
        plan->wake_ms = MISSING_RETRY_MS;
}

static void plan_unbound(const struct boxclaim_view *v, struct boxclaim_plan *plan)
{
    size_t pending;

    if (v->error) {
        refuse_error(v, plan, v->error);
        return;
    }
    if (v->named) {
        refuse_error(v, plan, texts_add(&plan->texts, "sandbox \"%s\" is not controlled by claim \"%s\". Please use a "
                                        "different claim name or delete the sandbox manually", v->named->o.name,
                                        v->claim->o.name));
        return;
    }
    const struct sandbox *box = adoptable(v, &pending);
    if (box) {
        plan_adoption(v, plan, box);
    } else if (pending > 0 && v->now_us < v->claim->created * 1000000 + PENDING_GRACE_US) {
        plan->status = (struct boxclaim_status){ .ready = v->claim->ready, .finished = v->claim->finished,
                                                 .name = v->claim->box_name, .ips = v->claim->box_ips,
                                                 .fqdn = v->claim->box_fqdn };
        plan->wake_ms = PENDING_RETRY_MS;
    } else {
        plan_creation(v, plan);
    }
}

void boxclaim_plan(const struct boxclaim_view *v, struct boxclaim_plan *ret)
{
    const struct boxclaim *c = v->claim;
    const char *text;

    *ret = (struct boxclaim_plan){ .texts.used = 0 };
    if (c->o.deleting)
        return;
    if (v->policy_left && !v->error && !v->policy_left->o.deleting && object_is_owned_by(&v->policy_left->o, &c->o)) {
        add(ret, BOXCLAIM_DELETE_POLICY, NULL);
        return;
    }
    if (plan_expired(v, ret))
        return;
    if (!boxclaim_check_metadata(c, v->policy->label_domains, &ret->texts, &text)) {
        refuse(v, ret, "InvalidMetadata", texts_add(&ret->texts, "invalid additionalPodMetadata: %s", text));
        return;
    }
    const struct sandbox *box = bound_box(v);
    if (box)
        plan_bound(v, ret, box);
    else
        plan_unbound(v, ret);
}
