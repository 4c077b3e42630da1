/* What a SandboxTemplate needs now: its own label, and the NetworkPolicy that all Pods made from it share. */
#ifndef CARREL_CLUSTER_TEMPLATE_H
#define CARREL_CLUSTER_TEMPLATE_H

#include "cluster/extension.h"
#include "cluster/texts.h"

struct template_view {
    const struct template  *template;
    const struct netpolicy *policy;     /* the one of the name "TEMPLATE-network-policy" */
    const char             *error;      /* a write that failed in this pass, in words */
};

enum template_act { TEMPLATE_LABEL, TEMPLATE_CREATE_POLICY, TEMPLATE_REPLACE_POLICY, TEMPLATE_DELETE_POLICY };

struct template_plan {
    enum template_act action[2];
    size_t            n_actions;
    const char       *error;            /* why it cannot be done; NULL: nothing is wrong */
    struct texts      texts;
};

void template_plan(const struct template_view *v, struct template_plan *ret);

enum { POLICY_NAME_SIZE = 320 };
void template_policy_name(const struct template *t, char name[static POLICY_NAME_SIZE]);

void template_write_label(const struct template *t, struct buf *out);
void template_write_policy(const struct template *t, struct buf *out);
/* A JSON patch: the whole spec, if the policy is still of the version that we know. */
void template_write_policy_change(const struct template *t, const struct netpolicy *now, struct buf *out);

#endif
