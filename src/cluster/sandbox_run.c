/* Executes a Sandbox's plan. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/buf.h"
#include "cluster/controller.h"

enum { BODY_MAX = 16 << 20, STATUS_DELAY_MS = 300 };

static void look(struct controller *c, struct work *w, const struct sandbox *box, struct view *v)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    *v = (struct view){ .box = box, .policy = &c->policy, .now = now.tv_sec, .claim_error = w->error[GROUP_CLAIM],
                        .pod_error = w->error[GROUP_POD], .service_error = w->error[GROUP_SERVICE] };
    v->named = (const struct pod *)cache_find(&c->cache, KIND_POD, w->namespace, sandbox_pod_name(box));
    const struct object *owned = cache_first_owned(&c->cache, KIND_POD, box->o.uid);
    v->owned = (const struct pod *)owned;
    for (; owned; owned = cache_next_owned(owned))
        v->n_owned++;
    v->service = (const struct service *)cache_find(&c->cache, KIND_SERVICE, w->namespace, w->name);
    for (size_t i = 0; i < box->n_claims; i++)
        v->claim[i] = (const struct claim *)cache_find(&c->cache, KIND_CLAIM, w->namespace, box->claims[i].name);
}

static void patch(struct work *w, enum group group, const struct object *o, struct buf *body, const char *what)
{
    work_write(w, VERB_PATCH, group, o->kind, o->name, o, work_path(o->kind, o->namespace, o->name, ""), body, what);
}

static void create(struct work *w, enum group group, enum kind kind, const char *name, struct buf *body,
                   const char *what)
{
    work_write(w, VERB_CREATE, group, kind, name, NULL, work_path(kind, w->namespace, NULL, NULL), body, what);
}

static void forget_pod_name(struct work *w, const struct object *o, struct buf *body)
{
    buf_add_text(body, "{\"metadata\":{\"annotations\":{\"" NOTE_POD_NAME "\":null}}}");
    patch(w, GROUP_POD, o, body, "clear pod name annotation");
}

static void act(struct work *w, const struct sandbox *box, const struct plan *plan, const struct action *a)
{
    const struct policy *p = &w->controller->policy;
    struct buf body;

    buf_init(&body, BODY_MAX);
    switch (a->act) {
    case ACT_FETCH:
        work_write(w, VERB_GET, GROUP_SELF, KIND_SANDBOX, w->name, NULL,
                   work_path(KIND_SANDBOX, w->namespace, w->name, ""), NULL, "get sandbox");
        break;
    case ACT_CREATE_CLAIM:
        sandbox_write_claim(box, p, a->index, &body);
        create(w, GROUP_CLAIM, KIND_CLAIM, box->claims[a->index].name, &body, "create PVC");
        break;
    case ACT_ADOPT_CLAIM:
        sandbox_write_adoption(box, a->object, &body);
        patch(w, GROUP_CLAIM, a->object, &body, "patch PVC with owner reference");
        break;
    case ACT_DISOWN_CLAIM:
        sandbox_write_disowning(box, a->object, &body);
        patch(w, GROUP_CLAIM, a->object, &body, "patch PVC without owner reference");
        break;
    case ACT_CREATE_POD:
        sandbox_write_pod(box, p, &body);
        create(w, GROUP_POD, KIND_POD, box->o.name, &body, "create pod");
        break;
    case ACT_ADOPT_POD:
    case ACT_PATCH_POD:
        (void)sandbox_write_pod_patch(box, p, (const struct pod *)a->object, a->act == ACT_ADOPT_POD, &body);
        patch(w, GROUP_POD, a->object, &body, a->act == ACT_ADOPT_POD ? "adopt pod" : "patch pod");
        break;
    case ACT_DELETE_POD:
        work_delete(w, GROUP_POD, a->object, DELETE_PLAINLY, "delete pod");
        break;
    case ACT_CREATE_SERVICE:
        sandbox_write_service(box, &body);
        create(w, GROUP_SERVICE, KIND_SERVICE, box->o.name, &body, "create service");
        break;
    case ACT_ADOPT_SERVICE:
    case ACT_PATCH_SERVICE:
        sandbox_write_service_patch(box, (const struct service *)a->object, a->act == ACT_ADOPT_SERVICE, &body);
        patch(w, GROUP_SERVICE, a->object, &body,
              a->act == ACT_ADOPT_SERVICE ? "adopt service" : "patch owned service");
        break;
    case ACT_DELETE_SERVICE:
        work_delete(w, GROUP_SERVICE, a->object, DELETE_PLAINLY, "delete service");
        break;
    case ACT_FORGET_POD_NAME:
        forget_pod_name(w, a->object, &body);
        break;
    case ACT_SUSPEND:
    case ACT_RESUME:
        sandbox_write_mode(a->act == ACT_SUSPEND, &body);
        patch(w, GROUP_SELF, a->object, &body, a->act == ACT_SUSPEND ? "suspend" : "resume");
        if (a->act == ACT_SUSPEND)
            event_send(w, &box->o, "Normal", "SuspendedByReplicas",
                       "operatingMode is set to Suspended because replicas is 0; set replicas to 1, or remove it, to "
                       "run the Sandbox");
        break;
    case ACT_NOTE:
        sandbox_write_notes(plan, &body);
        patch(w, GROUP_SELF, a->object, &body, "annotate");
        if (plan->trouble && !texts_are_same(plan->trouble, box->trouble))
            event_send(w, &box->o, "Warning", "PodTrouble", plan->trouble);
        if (plan->waiting && !texts_are_same(plan->waiting, box->waiting))
            event_send(w, &box->o, "Normal", "PodWaiting", plan->waiting);
        break;
    case ACT_DELETE_SANDBOX:
        work_delete(w, GROUP_SELF, a->object, DELETE_PLAINLY, "delete sandbox");
        break;
    }
}

/* Reports a problem once, as an Event. */
static void tell(struct work *w, const struct sandbox *box, const struct plan *plan)
{
    const struct condition *now = &plan->status.condition[COND_READY], *was = &box->condition[COND_READY];
    bool is_new = !was->reason || strcmp(was->reason, now->reason) != 0 || !was->message ||
                  strcmp(was->message, now->message) != 0;

    if (!is_new)
        return;
    if (strcmp(now->reason, "MultiplePods") == 0) {
        log_line(LOG_WARN, "sandbox %s/%s: %s", w->namespace, w->name, now->message);
        event_send(w, &box->o, "Warning", "MultiplePods", now->message);
    } else if (strcmp(now->reason, "ReconcilerError") == 0) {
        event_send(w, &box->o, "Warning", "ReconcilerError", now->message);
    } else if (strcmp(now->reason, "SandboxExpired") == 0) {
        log_line(LOG_INFO, "sandbox %s/%s: its shutdownTime has come", w->namespace, w->name);
    }
}

static void write_status(struct work *w, const struct sandbox *box, const struct plan *plan)
{
    struct buf body;

    tell(w, box, plan);
    if (plan->status.condition[COND_READY].status == COND_TRUE && box->condition[COND_READY].status != COND_TRUE) {
        log_line(LOG_INFO, "sandbox %s/%s: ready", w->namespace, w->name);
        if (box->seen_ms)
            metrics_ready(&w->controller->metrics, box, loop_now_ms() - box->seen_ms);
        ((struct sandbox *)box)->seen_ms = 0;
    }
    w->status_due_ms = 0;
    buf_init(&body, BODY_MAX);
    sandbox_write_status(box, &plan->status, &body);
    work_status(w, KIND_SANDBOX, &box->o, &body);
}

static uint64_t until(int64_t at, int64_t now)
{
    return at <= now ? 1 : at - now > 86400 ? 86400000 : (uint64_t)(at - now) * 1000;
}

static void run(struct work *w)
{
    struct controller *c = w->controller;
    const struct sandbox *box = (const struct sandbox *)cache_find(&c->cache, KIND_SANDBOX, w->namespace, w->name);
    struct view v;
    static struct plan plan;        /* large; one thread, and used up before the next call */

    if (!box || box->o.deleting) {
        work_rest(w, 0);
        return;
    }
    if (w->error[GROUP_SELF]) {
        work_fail(w);
        return;
    }
    look(c, w, box, &v);
    sandbox_plan(&v, &plan);
    if (plan.n_actions > 0) {
        for (size_t i = 0; i < plan.n_actions; i++)
            act(w, box, &plan, &plan.action[i]);
        return;
    }
    uint64_t now_ms = loop_now_ms(), wake_ms = plan.wake_at ? until(plan.wake_at, v.now) : 0;
    if (plan.differs && !w->status_due_ms)
        w->status_due_ms = now_ms + STATUS_DELAY_MS;
    if (plan.differs && (plan.is_urgent || plan.failed || now_ms >= w->status_due_ms)) {
        write_status(w, box, &plan);
        return;
    }
    if (!plan.differs)
        w->status_due_ms = 0;
    else if (!wake_ms || wake_ms > w->status_due_ms - now_ms)
        wake_ms = w->status_due_ms - now_ms;
    if (plan.failed)
        work_fail(w);
    else
        work_rest(w, wake_ms);
}

const struct reconciler sandbox_reconciler = { .kind = KIND_SANDBOX, .noun = "sandbox", .run = run };
