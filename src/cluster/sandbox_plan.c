/* The decision, in the order of dependencies: the mode, the claims, the Pod and the Service (both at once), the status.
 * A step adds its writes; a later step that depends on it waits for the next round, when the answer is in the cache.
 *
 *   expired:   status says so -> Pod and Service deleted -> the Sandbox deleted, or its status emptied
 *   suspended: claims kept or made, Pod deleted, Service kept
 *   running:   claims -> Pod; Service
 *
 * Unlike the original, no Pod is made on a claim that belongs to another object or is being deleted. */
#include "cluster/sandbox.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "cluster/sandbox_private.h"

bool sandbox_is_suspended(const struct sandbox *s)
{
    return s->suspended || s->replicas == 0;
}

bool sandbox_wants(uint8_t annotation, bool flag)
{
    return annotation == YES || (annotation == UNSET && flag);
}

const char *sandbox_pod_name(const struct sandbox *s)
{
    return s->pod_name ? s->pod_name : s->o.name;
}

void plan_add(struct planner *p, enum act act, const struct object *object, size_t index)
{
    struct plan *plan = p->plan;

    if (plan->n_actions < PLAN_ACTIONS_MAX)
        plan->action[plan->n_actions++] = (struct action){ .act = act, .object = object, .index = (uint16_t)index };
}

static const char *foreign_owner(struct planner *p, const char *noun, const struct object *o)
{
    return texts_add(&p->plan->texts, "%s \"%s\" is owned by %s/%s (UID: %s), not by sandbox \"%s\"", noun, o->name,
                     o->owner_kind ? o->owner_kind : "", o->owner_name ? o->owner_name : "", o->owner_uid,
                     p->v->box->o.name);
}

static const char *not_adoptable(struct planner *p, const char *noun, const struct object *o)
{
    return texts_add(&p->plan->texts,
                     "cannot adopt unowned %s \"%s\": missing required pool authorization label (\"%s\") or "
                     "sandbox tracking label (\"%s\")",
                     noun, o->name, LABEL_ADOPTABLE, LABEL_HASH);
}

static bool may_adopt(struct planner *p, const struct object *o)
{
    return o->adoptable || (o->name_hash && strcmp(o->name_hash, p->hash) == 0);
}

/* ---- claims ---- */

/* One claim from a template. */
static void plan_claim(struct planner *p, size_t i)
{
    const struct sandbox *box = p->v->box;
    const struct claim *c = p->v->claim[i];
    bool retain = sandbox_wants(box->retain, p->v->policy->retain_volumes);

    if (!c) {
        plan_add(p, ACT_CREATE_CLAIM, NULL, i);
    } else if (object_is_owned_by(&c->o, &box->o)) {
        if (retain && !c->o.deleting)
            plan_add(p, ACT_DISOWN_CLAIM, &c->o, i);
    } else if (c->o.owner_uid) {
        p->claim_error = foreign_owner(p, "PVC", &c->o);
    } else if (!may_adopt(p, &c->o)) {
        p->claim_error = not_adoptable(p, "PVC", &c->o);
    } else if (!retain && !c->o.deleting) {
        plan_add(p, ACT_ADOPT_CLAIM, &c->o, i);
    }
}

static void plan_claims(struct planner *p)
{
    const struct sandbox *box = p->v->box;
    bool release = sandbox_wants(box->release, p->v->policy->release_volumes);

    p->claim_error = p->v->claim_error;
    if (box->too_many_claims)
        p->claim_error = texts_add(&p->plan->texts, "a Sandbox may mention at most %d volume claims", CLAIMS_MAX);
    for (size_t i = 0; i < box->n_claims && !p->claim_error; i++)
        if (box->claims[i].is_template)
            plan_claim(p, i);
    for (size_t i = 0; i < box->n_claims && !p->blocked; i++) {
        const struct claim *c = p->v->claim[i];
        if (c && c->o.deleting && (release || box->claims[i].is_template))
            p->blocked =
                texts_add(&p->plan->texts, "PersistentVolumeClaim \"%s\" is being deleted", box->claims[i].name);
        else if (!c && release && !box->claims[i].is_template)
            p->blocked = texts_add(&p->plan->texts, "PersistentVolumeClaim \"%s\" does not exist", box->claims[i].name);
        if (c && c->o.deleting && release)
            p->lets_go = true;
    }
}

/* ---- the Pod ---- */

static void plan_suspended_pod(struct planner *p)
{
    const struct sandbox *box = p->v->box;

    if (p->pod && object_is_owned_by(&p->pod->o, &box->o)) {
        if (!p->pod->o.deleting && !p->pod_error)
            plan_add(p, ACT_DELETE_POD, &p->pod->o, 0);
        return;
    }
    if (box->pod_name)
        plan_add(p, ACT_FORGET_POD_NAME, &box->o, 0);
}

/* The existing Pod of a running Sandbox. */
static void plan_present_pod(struct planner *p)
{
    const struct sandbox *box = p->v->box;
    const struct pod *pod = p->pod;
    struct buf ignored;
    char hash[24];

    if (pod->o.owner_uid && !object_is_owned_by(&pod->o, &box->o)) {
        p->pod_error = foreign_owner(p, "pod", &pod->o);
        p->pod = NULL;
        if (box->pod_name)
            plan_add(p, ACT_FORGET_POD_NAME, &box->o, 0);
        return;
    }
    if (!pod->o.owner_uid) {
        if (may_adopt(p, &pod->o)) {
            plan_add(p, ACT_ADOPT_POD, &pod->o, 0);
        } else {
            p->pod_error = not_adoptable(p, "pod", &pod->o);
            p->pod = NULL;
        }
        return;
    }
    if (pod->o.deleting)
        return;
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)box->spec_hash);
    struct jsonslice notes = { pod->notes, pod->notes ? strlen(pod->notes) : 0 };
    struct jsonslice made_from = jsonscan_find(notes, NOTE_SPEC_HASH);
    bool recreate = sandbox_wants(box->recreate, p->v->policy->recreate_on_change);
    p->is_outdated = made_from.data && !jsonscan_is(made_from, hash);
    if (p->lets_go || (recreate && p->is_outdated)) {
        plan_add(p, ACT_DELETE_POD, &pod->o, 0);
        return;
    }
    buf_init(&ignored, 1 << 20);
    if (sandbox_write_pod_patch(box, p->v->policy, pod, false, &ignored))
        plan_add(p, ACT_PATCH_POD, &pod->o, 0);
    buf_done(&ignored);
}

static void plan_pod(struct planner *p)
{
    const struct view *v = p->v;
    size_t owned = v->n_owned;

    p->pod_error = v->pod_error;
    p->pod = v->named;
    if (owned > 1) {
        p->plan->many_pods = true;
        p->pod_error = texts_add(&p->plan->texts,
                                 "multiple Pods (%zu) are controlled by this Sandbox; refusing to choose or "
                                 "create a Pod",
                                 owned);
        p->pod = NULL;
        return;
    }
    if (v->box->pod_name && (!v->named || (owned == 1 && v->named != v->owned))) {
        plan_add(p, ACT_FORGET_POD_NAME, &v->box->o, 0);
        return;
    }
    if (owned == 1)
        p->pod = v->owned;
    if (sandbox_is_suspended(v->box))
        plan_suspended_pod(p);
    else if (p->pod_error)
        p->pod = p->pod && object_is_owned_by(&p->pod->o, &v->box->o) ? p->pod : NULL;
    else if (p->pod)
        plan_present_pod(p);
    else if (!p->blocked && !p->claim_error)
        plan_add(p, ACT_CREATE_POD, NULL, 0);
}

/* ---- the Service ---- */

static void plan_service(struct planner *p)
{
    const struct sandbox *box = p->v->box;
    const struct service *s = p->v->service;

    p->service_error = p->v->service_error;
    if (p->service_error)
        return;
    if (!s) {
        if (box->service == YES)
            plan_add(p, ACT_CREATE_SERVICE, NULL, 0);
        return;
    }
    bool ours = object_is_owned_by(&s->o, &box->o);
    if (box->service == NO) {
        if (ours && !s->o.deleting)
            plan_add(p, ACT_DELETE_SERVICE, &s->o, 0);
        return;
    }
    if (ours) {
        bool labelled = s->o.name_hash && strcmp(s->o.name_hash, p->hash) == 0;
        p->service = s;
        if (!labelled || !s->selects || (box->service == YES && s->ports_hash != box->ports_hash))
            plan_add(p, ACT_PATCH_SERVICE, &s->o, 0);
    } else if (s->o.owner_uid) {
        p->service_error = foreign_owner(p, "service", &s->o);
    } else if (box->service == YES && !may_adopt(p, &s->o)) {
        p->service_error = not_adoptable(p, "service", &s->o);
    } else if (box->service == YES && s->cluster_ip && strcmp(s->cluster_ip, "None") != 0) {
        p->service_error = texts_add(&p->plan->texts,
                                     "cannot adopt service \"%s\": ClusterIP is \"%s\" (expected \"None\", "
                                     "field is immutable)",
                                     s->o.name, s->cluster_ip);
    } else if (box->service == YES) {
        plan_add(p, ACT_ADOPT_SERVICE, &s->o, 0);
    }
}

/* ---- why it died, or does not start, and what waits for its end ---- */

/* The scheduler's complaint counts only after a while: most Pods get one briefly. */
enum { UNSCHEDULED_S = 2 };

static const char *trouble_of(struct planner *p, const struct pod *pod)
{
    struct plan *plan = p->plan;
    int64_t since = pod->scheduled_since + UNSCHEDULED_S;

    if (pod->trouble || pod->scheduled != COND_FALSE || !texts_are_same(pod->scheduled_reason, "Unschedulable"))
        return pod->trouble;
    if (p->v->now < since) {
        plan->wake_at = !plan->wake_at || since < plan->wake_at ? since : plan->wake_at;
        return p->v->box->trouble;
    }
    return texts_add(&plan->texts, "Pod: Unschedulable: %s", pod->scheduled_message ? pod->scheduled_message : "");
}

/* A requested change that waits for the end of this Pod. NULL: none. */
static const char *waiting_of(struct planner *p, const struct pod *pod)
{
    const struct sandbox *box = p->v->box;
    const char *text = NULL;

    if (p->is_outdated)
        text = texts_add(&p->plan->texts, "podTemplate.spec has changed, and the Pod is of the former one until it is "
                         "replaced (kubectl delete pod %s; " NOTE_RECREATE " would do it)", pod->o.name);
    for (size_t i = 0; i < box->n_claims; i++)
        if (p->v->claim[i] && p->v->claim[i]->o.deleting)
            text = texts_add(&p->plan->texts, "%s%sPersistentVolumeClaim \"%s\" is being deleted, and goes when the "
                             "Pod ends (" NOTE_RELEASE " would end it)", text ? text : "", text ? "; " : "",
                             box->claims[i].name);
    return text;
}

static void plan_notes(struct planner *p)
{
    const struct sandbox *box = p->v->box;
    const struct pod *pod = p->pod && object_is_owned_by(&p->pod->o, &box->o) ? p->pod : NULL;
    struct plan *plan = p->plan;
    bool stays = pod && !pod->o.deleting;

    plan->trouble = stays ? trouble_of(p, pod) : box->trouble;      /* keep the last reason */
    plan->waiting = stays ? waiting_of(p, pod) : NULL;
    if (!texts_are_same(plan->trouble, box->trouble) || !texts_are_same(plan->waiting, box->waiting))
        plan_add(p, ACT_NOTE, &box->o, 0);
}

/* ---- all of it ---- */

/* True: the Sandbox has expired; the plan is complete. */
static bool plan_expired(struct planner *p)
{
    const struct view *v = p->v;
    const struct sandbox *box = v->box;
    const struct pod *pod = v->n_owned > 0 ? v->owned : NULL;
    const struct condition *ready = &box->condition[COND_READY];

    if (!box->shutdown)
        return false;
    if (v->now < box->shutdown) {
        p->plan->wake_at = box->shutdown;
        return false;
    }
    bool told = ready->status != COND_ABSENT && ready->reason && strcmp(ready->reason, "SandboxExpired") == 0;
    if (!told) {
        status_expired(p, false);
        return true;
    }
    if (pod && !pod->o.deleting && !v->pod_error)
        plan_add(p, ACT_DELETE_POD, &pod->o, 0);
    if (v->service && !v->service->o.deleting && object_is_owned_by(&v->service->o, &box->o) && !v->service_error)
        plan_add(p, ACT_DELETE_SERVICE, &v->service->o, 0);
    if (p->plan->n_actions > 0)
        return true;
    p->plan->failed = v->pod_error || v->service_error;
    if (box->deletes_at_shutdown && !p->plan->failed)
        plan_add(p, ACT_DELETE_SANDBOX, &box->o, 0);
    else
        status_expired(p, !p->plan->failed);
    return true;
}

static bool needs_template(const struct plan *plan)
{
    for (size_t i = 0; i < plan->n_actions; i++)
        switch (plan->action[i].act) {
        case ACT_CREATE_CLAIM:
        case ACT_CREATE_POD:
        case ACT_CREATE_SERVICE:
        case ACT_ADOPT_SERVICE:
        case ACT_PATCH_SERVICE:
            return true;
        default:
            break;
        }
    return false;
}

void sandbox_plan(const struct view *v, struct plan *ret)
{
    struct planner p = { .v = v, .plan = ret };

    ret->n_actions = ret->texts.used = 0;
    ret->differs = ret->is_urgent = ret->failed = ret->many_pods = false;
    ret->wake_at = 0;
    ret->trouble = ret->waiting = NULL;
    if (v->box->o.deleting)
        return;
    hash_name(v->box->o.name, p.hash);
    if (plan_expired(&p))
        return;
    if (v->box->replicas == 0 && !v->box->suspended)
        plan_add(&p, ACT_SUSPEND, &v->box->o, 0);
    else if (v->box->replicas != 0 && v->box->suspended && v->box->scaled)
        plan_add(&p, ACT_RESUME, &v->box->o, 0);
    if (ret->n_actions > 0)
        return;
    if (!v->box->has_spec) {
        p.pod_error = "spec.podTemplate.spec is missing or is no object; nothing can be started from it";
        status_active(&p);
        return;
    }
    plan_claims(&p);
    bool claims_first = ret->n_actions > 0;
    if (!claims_first)
        plan_pod(&p);
    if (!ret->many_pods && !claims_first)
        plan_service(&p);
    if (ret->n_actions == 0)
        plan_notes(&p);
    if (ret->n_actions == 0) {
        status_active(&p);
    } else if (!v->box->pod_spec && needs_template(ret)) {
        ret->n_actions = 0;
        plan_add(&p, ACT_FETCH, &v->box->o, 0);
    }
}
