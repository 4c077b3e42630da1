#include "cluster/template.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "cluster/body.h"

void template_policy_name(const struct template *t, char name[static POLICY_NAME_SIZE])
{
    snprintf(name, POLICY_NAME_SIZE, "%s-network-policy", t->o.name);
}

static void add(struct template_plan *plan, enum template_act act)
{
    plan->action[plan->n_actions++] = act;
}

static void plan_policy(const struct template_view *v, struct template_plan *plan)
{
    const struct template *t = v->template;
    const struct netpolicy *policy = v->policy;
    bool ours = policy && object_is_owned_by(&policy->o, &t->o);

    if (!t->policy_spec) {
        if (ours && !policy->o.deleting)
            add(plan, TEMPLATE_DELETE_POLICY);
    } else if (!policy) {
        add(plan, TEMPLATE_CREATE_POLICY);
    } else if (!ours) {
        plan->error = texts_add(&plan->texts, "refusing to update NetworkPolicy \"%s\" as it is not controlled by "
                                "SandboxTemplate \"%s\"", policy->o.name, t->o.name);
    } else if (policy->spec_hash != t->policy_hash && !policy->o.deleting) {
        add(plan, TEMPLATE_REPLACE_POLICY);
    }
}

void template_plan(const struct template_view *v, struct template_plan *ret)
{
    char hash[9];

    ret->n_actions = ret->texts.used = 0;
    ret->error = v->error;
    if (v->template->o.deleting || v->error)
        return;
    hash_name(v->template->o.name, hash);
    if (!texts_are_same(v->template->hash_label, hash))
        add(ret, TEMPLATE_LABEL);
    plan_policy(v, ret);
}

/* ---- bodies ---- */

void template_write_label(const struct template *t, struct buf *out)
{
    char hash[9];

    hash_name(t->o.name, hash);
    buf_printf(out, "{\"metadata\":{\"labels\":{\"" LABEL_TEMPLATE "\":\"%s\"}}}", hash);
}

void template_write_policy(const struct template *t, struct buf *out)
{
    char name[POLICY_NAME_SIZE];
    struct jsonout j;

    template_policy_name(t, name);
    jsonout_init(&j, out);
    jsonout_open_object(&j, NULL);
    jsonout_string(&j, "apiVersion", kind_info[KIND_NETPOLICY].api_version);
    jsonout_string(&j, "kind", kind_info[KIND_NETPOLICY].name);
    jsonout_open_object(&j, "metadata");
    jsonout_string(&j, "name", name);
    jsonout_string(&j, "namespace", t->o.namespace);
    jsonout_open_array(&j, "ownerReferences");
    body_owner(&j, &t->o);
    jsonout_close(&j);
    jsonout_close(&j);
    jsonout_raw(&j, "spec", t->policy_spec, strlen(t->policy_spec));
    jsonout_close(&j);
    body_finish(&j, out);
}

void template_write_policy_change(const struct template *t, const struct netpolicy *now, struct buf *out)
{
    buf_printf(out, "[{\"op\":\"test\",\"path\":\"/metadata/resourceVersion\",\"value\":\"%llu\"},"
               "{\"op\":\"replace\",\"path\":\"/spec\",\"value\":%s}]", (unsigned long long)now->o.version,
               t->policy_spec);
}
