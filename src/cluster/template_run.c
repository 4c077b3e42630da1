/* Executes a SandboxTemplate's plan. */
#include "base/buf.h"
#include "cluster/controller.h"
#include "cluster/template.h"

enum { BODY_MAX = 4 << 20 };

static void act(struct work *w, const struct template_view *v, enum template_act a)
{
    const struct template *t = v->template;
    char name[POLICY_NAME_SIZE];
    struct buf body;

    template_policy_name(t, name);
    buf_init(&body, BODY_MAX);
    switch (a) {
    case TEMPLATE_LABEL:
        template_write_label(t, &body);
        work_write(w, VERB_PATCH, GROUP_SELF, KIND_TEMPLATE, w->name, &t->o,
                   work_path(KIND_TEMPLATE, w->namespace, w->name, ""), &body, "label template");
        break;
    case TEMPLATE_CREATE_POLICY:
        template_write_policy(t, &body);
        work_write(w, VERB_CREATE, GROUP_SELF, KIND_NETPOLICY, name, NULL,
                   work_path(KIND_NETPOLICY, w->namespace, NULL, NULL), &body, "create network policy");
        break;
    case TEMPLATE_REPLACE_POLICY:
        template_write_policy_change(t, v->policy, &body);
        work_write(w, VERB_REPLACE, GROUP_SELF, KIND_NETPOLICY, name, &v->policy->o,
                   work_path(KIND_NETPOLICY, w->namespace, name, ""), &body, "update network policy");
        break;
    case TEMPLATE_DELETE_POLICY:
        work_delete(w, GROUP_SELF, &v->policy->o, DELETE_PLAINLY, "delete network policy");
        break;
    }
}

static void run(struct work *w)
{
    struct controller *c = w->controller;
    struct template_view v = {
        .template = (const struct template *)cache_find(&c->cache, KIND_TEMPLATE, w->namespace, w->name),
        .error = w->error[GROUP_SELF] };
    struct template_plan plan;
    char name[POLICY_NAME_SIZE];

    if (!v.template) {
        work_rest(w, 0);
        return;
    }
    template_policy_name(v.template, name);
    v.policy = (const struct netpolicy *)cache_find(&c->cache, KIND_NETPOLICY, w->namespace, name);
    template_plan(&v, &plan);
    for (size_t i = 0; i < plan.n_actions; i++)
        act(w, &v, plan.action[i]);
    if (plan.n_actions > 0)
        return;
    if (!plan.error) {
        work_rest(w, 0);
        return;
    }
    if (w->failures == 0)
        event_send(w, &v.template->o, "Warning", "ReconcilerError", plan.error);
    work_fail(w);
}

const struct reconciler template_reconciler = { .kind = KIND_TEMPLATE, .noun = "template", .run = run };
