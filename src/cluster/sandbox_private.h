/* Shared by the parts of the Sandbox's plan. */
#ifndef CARREL_CLUSTER_SANDBOX_PRIVATE_H
#define CARREL_CLUSTER_SANDBOX_PRIVATE_H

#include "cluster/sandbox.h"

struct planner {
    const struct view    *v;
    struct plan          *plan;
    char                  hash[9];
    const char           *claim_error, *pod_error, *service_error;
    const char           *blocked;      /* the claim that keeps the Pod from being made */
    bool                  lets_go;      /* the Pod is deleted, so that a claim can be deleted */
    bool                  is_outdated;  /* the Pod was made from another podTemplate.spec */
    const struct pod     *pod;          /* the Sandbox's Pod */
    const struct service *service;
};

void        plan_add(struct planner *p, enum act act, const struct object *object, size_t index);

/* Fill plan->status and report whether it differs. */
void status_active(struct planner *p);
void status_expired(struct planner *p, bool is_empty);

#endif
