/* The decision about a SandboxTemplate: its own label, and the NetworkPolicy that all Pods made from it share. */
#ifndef CARREL_CLUSTER_TEMPLATE_H
#define CARREL_CLUSTER_TEMPLATE_H

#include "cluster/extension.h"
#include "cluster/texts.h"

struct template_view {
    const struct template  *template;
    const struct netpolicy *policy;     /* named "TEMPLATE-network-policy" */
    const char             *error;      /* a failed write of this pass, as a sentence */
};

enum template_act { TEMPLATE_LABEL, TEMPLATE_CREATE_POLICY, TEMPLATE_REPLACE_POLICY, TEMPLATE_DELETE_POLICY };

struct template_plan {
    enum template_act action[2];
    size_t            n_actions;
    const char       *error;            /* why it cannot be done; NULL: no problem */
    struct texts      texts;
};

void template_plan(const struct template_view *v, struct template_plan *ret);

enum { POLICY_NAME_SIZE = 320 };
void template_policy_name(const struct template *t, char name[static POLICY_NAME_SIZE]);

void template_write_label(const struct template *t, struct buf *out);
void template_write_policy(const struct template *t, struct buf *out);
/* A JSON patch with the whole spec, valid only for the policy's version in the cache. */
void template_write_policy_change(const struct template *t, const struct netpolicy *now, struct buf *out);

#endif
