/* A Kernel gets its annotations, a Pod and a Service, all at once. Its conditions are the Pod's, so Ready comes from
 * the kubelet; they are written only when nothing else is left to write, so that a client that sees Ready finds the
 * connection. A Pod that has ended well (idle for too long, or shut down) ends its Kernel; a failed Pod stays, with its
 * reason. */
#include "cluster/kernel.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/jsonout.h"

static void add(struct kernel_plan *plan, enum kernel_act act)
{
    plan->action[plan->n_actions++] = act;
}

static void refuse(struct kernel_plan *plan, const struct kernel *k, const char *text)
{
    struct buf out;
    struct jsonout j;

    plan->failed = true;
    plan->state = k->state;
    buf_init_fixed(&out, plan->text, sizeof plan->text);
    jsonout_init(&j, &out);
    jsonout_open_array(&j, NULL);
    jsonout_open_object(&j, NULL);
    jsonout_string(&j, "type", "Ready");
    jsonout_string(&j, "status", "False");
    jsonout_string(&j, "reason", "ReconcilerError");
    jsonout_bytes(&j, "message", text, strnlen(text, 1000));
    jsonout_close(&j);
    jsonout_close(&j);
    plan->conditions = jsonout_finish(&j) == 0 ? plan->text : "[]";
}

static const char *find_refusal(const struct kernel_view *v, char *text, size_t size)
{
    const struct kernel *k = v->kernel;
    const struct object *all[] = { v->pod ? &v->pod->o : NULL, v->service ? &v->service->o : NULL };
    static const char *const nouns[] = { "pod", "service" };

    if (!k->has_spec)
        return "spec.template.spec is missing or is no object; nothing can be started from it";
    for (size_t i = 0; i < 2; i++)
        if (all[i] && !object_is_owned_by(all[i], &k->o)) {
            snprintf(text, size,
                     "%s \"%.250s\" exists and is not this Kernel's; delete it, or name the Kernel otherwise", nouns[i],
                     all[i]->name);
            return text;
        }
    return v->self_error ? v->self_error : v->pod_error ? v->pod_error : v->service_error;
}

static bool same(const char *a, const char *b)
{
    return strcmp(a ? a : "", b ? b : "") == 0;
}

void kernel_plan(const struct kernel_view *v, struct kernel_plan *ret)
{
    const struct kernel *k = v->kernel;
    char text[512];

    ret->n_actions = 0;
    ret->differs = ret->is_urgent = ret->failed = false;
    ret->conditions = ret->state = NULL;
    if (k->o.deleting)
        return;
    if (v->pod && object_is_owned_by(&v->pod->o, &k->o) && v->pod->phase == POD_SUCCEEDED && !v->self_error) {
        add(ret, KERNEL_CULL);
        return;
    }
    const char *refusal = find_refusal(v, text, sizeof text);
    if (refusal) {
        refuse(ret, k, refusal);
        ret->is_urgent = true;
    } else {
        if (!k->kernel_id || !k->connection)
            add(ret, KERNEL_ANNOTATE);
        if (!v->pod)
            add(ret, KERNEL_CREATE_POD);
        if (!v->service)
            add(ret, KERNEL_CREATE_SERVICE);
        if (ret->n_actions > 0) {
            if (!k->pod_spec) {
                ret->n_actions = 0;
                add(ret, KERNEL_FETCH);
            }
            return;
        }
        ret->conditions = v->pod->conditions ? v->pod->conditions : "[]";
        ret->state = v->pod->state;
    }
    ret->differs = !same(k->conditions, ret->conditions) || !same(k->state, ret->state) || !k->has_replicas;
    if (!refusal && (v->pod->ready == COND_TRUE) != (k->ready == COND_TRUE))
        ret->is_urgent = true;
    if (!refusal && v->pod->phase == POD_FAILED)
        ret->is_urgent = true;
}
