/* Executes a Kernel's plan. */
#include <stdlib.h>

#include "base/buf.h"
#include "base/fd.h"
#include "cluster/controller.h"
#include "cluster/kernel.h"

enum { BODY_MAX = 16 << 20, STATUS_DELAY_MS = 300 };

static void act(struct work *w, const struct kernel *k, enum kernel_act a)
{
    const struct policy *p = &w->controller->policy;
    char *own = work_path(KIND_KERNEL, w->namespace, w->name, "");
    struct buf body;

    buf_init(&body, BODY_MAX);
    switch (a) {
    case KERNEL_FETCH:
        work_write(w, VERB_GET, GROUP_SELF, KIND_KERNEL, w->name, NULL, TAKE_PTR(own), NULL, "get kernel");
        break;
    case KERNEL_ANNOTATE:
        kernel_write_notes(k, p, &body);
        work_write(w, VERB_PATCH, GROUP_SELF, KIND_KERNEL, w->name, &k->o, TAKE_PTR(own), &body, "annotate kernel");
        break;
    case KERNEL_CREATE_POD:
        kernel_write_pod(k, p, &body);
        work_write(w, VERB_CREATE, GROUP_POD, KIND_POD, w->name, NULL, work_path(KIND_POD, w->namespace, NULL, NULL),
                   &body, "create pod");
        break;
    case KERNEL_CREATE_SERVICE:
        kernel_write_service(k, &body);
        work_write(w, VERB_CREATE, GROUP_SERVICE, KIND_SERVICE, w->name, NULL,
                   work_path(KIND_SERVICE, w->namespace, NULL, NULL), &body, "create service");
        break;
    case KERNEL_CULL:
        work_delete(w, GROUP_SELF, &k->o, DELETE_PLAINLY, "cull kernel");
        break;
    }
    free(own);
}

static void run(struct work *w)
{
    struct controller *c = w->controller;
    const struct kernel *k = (const struct kernel *)cache_find(&c->cache, KIND_KERNEL, w->namespace, w->name);
    struct kernel_plan plan;
    struct buf body;

    if (!k || k->o.deleting) {
        work_rest(w, 0);
        return;
    }
    struct kernel_view v = {
        .kernel = k, .policy = &c->policy, .self_error = w->error[GROUP_SELF], .pod_error = w->error[GROUP_POD],
        .service_error = w->error[GROUP_SERVICE],
        .pod = (const struct pod *)cache_find(&c->cache, KIND_POD, w->namespace, w->name),
        .service = (const struct service *)cache_find(&c->cache, KIND_SERVICE, w->namespace, w->name) };
    kernel_plan(&v, &plan);
    if (plan.n_actions > 0) {
        for (size_t i = 0; i < plan.n_actions; i++)
            act(w, k, plan.action[i]);
        return;
    }
    uint64_t now = loop_now_ms(), wake = 0;
    if (plan.differs && !w->status_due_ms)
        w->status_due_ms = now + STATUS_DELAY_MS;
    if (plan.differs && !v.self_error && (plan.is_urgent || now >= w->status_due_ms)) {
        w->status_due_ms = 0;
        if (plan.failed)
            event_send(w, &k->o, "Warning", "ReconcilerError", plan.conditions);
        buf_init(&body, BODY_MAX);
        kernel_write_status(&plan, &body);
        work_status(w, KIND_KERNEL, &k->o, &body);
        return;
    }
    if (plan.differs)
        wake = w->status_due_ms > now ? w->status_due_ms - now : 1;
    if (plan.failed)
        work_fail(w);
    else
        work_rest(w, wake);
}

const struct reconciler kernel_reconciler = { .kind = KIND_KERNEL, .noun = "kernel", .run = run };
