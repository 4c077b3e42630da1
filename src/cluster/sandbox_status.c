/* The status: four conditions with the original's reasons and messages, which its tests compare word by word, and facts
 * about Pod and Service. */
#include <string.h>

#include "cluster/sandbox_private.h"

static void set(struct planner *p, enum condition_kind kind, enum condition_status status, const char *reason,
                const char *message)
{
    const struct condition *was = &p->v->box->condition[kind];

    p->plan->status.condition[kind] = (struct condition){
        .status = (uint8_t)status, .reason = reason, .message = message, .generation = p->v->box->generation,
        .since = was->status == status ? was->since : p->v->now };
}

static bool same_condition(const struct condition *a, const struct condition *b)
{
    if (a->status == COND_ABSENT && b->status == COND_ABSENT)
        return true;
    return a->status == b->status && a->generation == b->generation && texts_are_same(a->reason, b->reason) &&
           texts_are_same(a->message, b->message) && a->since == b->since;
}

/* Compares with the present status, and decides whether a client may wait for the change. */
static void compare(struct planner *p)
{
    const struct sandbox *box = p->v->box;
    struct plan *plan = p->plan;
    const struct status *s = &plan->status;
    const struct condition *ready = &s->condition[COND_READY], *was = &box->condition[COND_READY];
    bool node = !texts_are_same(s->node, box->status_node);

    for (size_t i = 0; i < CONDITIONS; i++) {
        const struct condition *now = &s->condition[i], *before = &box->condition[i];
        if (!same_condition(now, before))
            plan->differs = true;
        bool flips = now->status != before->status;
        if (flips && (i == COND_FINISHED || now->status == COND_TRUE || before->status == COND_TRUE))
            plan->is_urgent = plan->is_urgent || i != COND_SCHEDULED;
    }
    if (!texts_are_same(s->service, box->status_service) || !texts_are_same(s->fqdn, box->status_fqdn) ||
        !texts_are_same(s->selector, box->status_selector) || !texts_are_same(s->ips, box->status_ips) ||
        s->replicas != box->status_replicas)
        plan->differs = true;
    /* Before the Sandbox is Ready, the node's name alone is not worth a write. */
    if (node && (plan->differs || ready->status == COND_TRUE))
        plan->differs = true;
    if (!texts_are_same(ready->reason, was->reason) && ready->reason &&
        (!strcmp(ready->reason, "ReconcilerError") || !strcmp(ready->reason, "SandboxExpired") ||
         !strcmp(ready->reason, "MultiplePods")))
        plan->is_urgent = true;
    if (box->suspended && ready->generation != was->generation)
        plan->is_urgent = true;
}

static void set_suspended(struct planner *p)
{
    const struct sandbox *box = p->v->box;

    if (!sandbox_is_suspended(box))
        set(p, COND_SUSPENDED, COND_FALSE, "NotSuspended", "Sandbox is not suspended");
    else if (!p->pod && p->pod_error)
        set(p, COND_SUSPENDED, COND_UNKNOWN, "PodStateUnknown",
            "Pod state is unknown. Sandbox suspension cannot be confirmed");
    else if (!p->pod)
        set(p, COND_SUSPENDED, COND_TRUE, "PodTerminated", "Pod has been terminated. Sandbox is suspended");
    else if (!object_is_owned_by(&p->pod->o, &box->o))
        set(p, COND_SUSPENDED, COND_FALSE, "PodNotOwned",
            "Refused to delete pod because it is not owned by this sandbox");
    else
        set(p, COND_SUSPENDED, COND_FALSE, "PodTerminating", "Pod is terminating. Sandbox is suspending");
}

static void set_scheduled(struct planner *p)
{
    const struct pod *pod = p->pod;

    if (!pod && p->pod_error) {
        set(p, COND_SCHEDULED, COND_UNKNOWN, "PodSchedulingUnknown",
            "Pod state is unknown. Pod scheduling cannot be determined");
        return;
    }
    if (!pod || !object_is_owned_by(&pod->o, &p->v->box->o))
        return;
    if (pod->scheduled == COND_ABSENT)
        set(p, COND_SCHEDULED, COND_UNKNOWN, "PodSchedulingUnknown",
            "Pod has not reported a PodScheduled condition yet");
    else
        set(p, COND_SCHEDULED, pod->scheduled,
            pod->scheduled_reason ? pod->scheduled_reason
            : pod->scheduled == COND_TRUE ? "PodScheduled" : "PodSchedulingUnknown",
            pod->scheduled_message ? pod->scheduled_message : "");
}

static void set_finished(struct planner *p)
{
    if (!p->pod || !object_is_owned_by(&p->pod->o, &p->v->box->o))
        return;
    if (p->pod->phase == POD_SUCCEEDED)
        set(p, COND_FINISHED, COND_TRUE, "PodSucceeded", "Pod completed successfully");
    else if (p->pod->phase == POD_FAILED)
        set(p, COND_FINISHED, COND_TRUE, "PodFailed", "Pod failed");
}

/* The message for a Pod that has not ended. */
static const char *pod_message(struct planner *p, bool *ret_ready)
{
    static const char *const phases[] = { "", "Pending", "Running", "Succeeded", "Failed", "Unknown" };
    const struct pod *pod = p->pod;

    *ret_ready = false;
    if (!pod)
        return p->blocked ? texts_add(&p->plan->texts, "Pod does not exist; %s", p->blocked) : "Pod does not exist";
    if (p->lets_go)
        return texts_add(&p->plan->texts, "Pod is terminating; %s", p->blocked ? p->blocked : "");
    if (pod->phase != POD_RUNNING)
        return texts_add(&p->plan->texts, "Pod exists with phase: %s", phases[pod->phase]);
    if (pod->ready != COND_TRUE)
        return "Pod is Running but not Ready";
    if (!pod->ips)
        return "Pod is Ready but has no podIPs yet";
    *ret_ready = true;
    return "Pod is Ready";
}

static void set_ready(struct planner *p)
{
    const struct sandbox *box = p->v->box;
    const char *errors[] = { p->claim_error, p->pod_error, p->service_error }, *all = NULL;
    bool is_ready;

    if (p->plan->many_pods) {
        set(p, COND_READY, COND_FALSE, "MultiplePods", p->pod_error);
        return;
    }
    for (size_t i = 0; i < 3; i++)
        if (errors[i])
            all = all ? texts_add(&p->plan->texts, "%s\n%s", all, errors[i]) : errors[i];
    if (all) {
        p->plan->failed = true;
        set(p, COND_READY, COND_FALSE, "ReconcilerError", texts_add(&p->plan->texts, "Error seen: %s", all));
        return;
    }
    if (sandbox_is_suspended(box)) {
        set(p, COND_READY, COND_FALSE, "SandboxSuspended", p->pod ? "Sandbox is suspending" : "Sandbox is suspended");
        return;
    }
    if (p->pod && p->pod->phase == POD_SUCCEEDED) {
        set(p, COND_READY, COND_FALSE, "PodSucceeded", "Pod completed successfully");
        return;
    }
    if (p->pod && p->pod->phase == POD_FAILED) {
        set(p, COND_READY, COND_FALSE, "PodFailed", "Pod failed");
        return;
    }
    const char *message = pod_message(p, &is_ready);
    if (p->service)
        message = texts_add(&p->plan->texts, "%s; Service Exists", message);
    else if (box->service == YES)
        message = texts_add(&p->plan->texts, "%s; Service does not exist", message);
    is_ready = is_ready && (p->service || box->service != YES);
    set(p, COND_READY, is_ready ? COND_TRUE : COND_FALSE, is_ready ? "DependenciesReady" : "DependenciesNotReady",
        message);
}

void status_active(struct planner *p)
{
    const struct sandbox *box = p->v->box;
    struct status *s = &p->plan->status;
    bool ours = p->pod && object_is_owned_by(&p->pod->o, &box->o);

    *s = (struct status){ .selector = box->status_selector, .replicas = -1 };
    if (p->pod)
        s->selector = texts_add(&p->plan->texts, LABEL_HASH "=%s", p->hash);
    if (ours) {
        s->ips = p->pod->ips;
        s->node = p->pod->node;
    }
    if (p->service) {
        s->service = p->service->o.name;
        s->fqdn = texts_add(&p->plan->texts, "%s.%s.svc.%s", p->service->o.name, box->o.namespace,
                            p->v->policy->cluster_domain);
    } else if (p->service_error || p->plan->many_pods) {
        s->service = box->status_service;
        s->fqdn = box->status_fqdn;
    }
    if (box->replicas >= 0)
        s->replicas = ours ? 1 : 0;
    set_suspended(p);
    set_finished(p);
    set_scheduled(p);
    set_ready(p);
    compare(p);
}

void status_expired(struct planner *p, bool is_empty)
{
    const struct sandbox *box = p->v->box;
    struct status *s = &p->plan->status;

    *s = (struct status){ .replicas = -1 };
    for (size_t i = 0; i < CONDITIONS; i++)
        s->condition[i] = box->condition[i];
    if (!is_empty) {
        s->service = box->status_service;
        s->fqdn = box->status_fqdn;
        s->selector = box->status_selector;
        s->ips = box->status_ips;
        s->node = box->status_node;
        s->replicas = box->status_replicas;
    }
    s->condition[COND_SCHEDULED] = (struct condition){ 0 };
    set(p, COND_READY, COND_FALSE, "SandboxExpired", "Sandbox has expired");
    compare(p);
}
