/* The decision about a Kernel (jupyter.org), a pure function; sandbox.h has the idea. */
#ifndef CARREL_CLUSTER_KERNEL_H
#define CARREL_CLUSTER_KERNEL_H

#include "cluster/sandbox.h"

enum { KERNEL_PORTS = 5 };

/* The connection parameters, from the environment of its first container. */
struct guest_link {
    char     id[256];
    bool     has_key;                   /* KERNEL_KEY is given: the key is a secret that we must not publish */
    unsigned port[KERNEL_PORTS];        /* shell, iopub, hb, control, stdin */
};

struct kernel_view {
    const struct kernel  *kernel;
    const struct pod     *pod;          /* the Pod with its name */
    const struct service *service;
    const struct policy  *policy;
    const char           *self_error, *pod_error, *service_error;
};

enum kernel_act { KERNEL_FETCH, KERNEL_ANNOTATE, KERNEL_CREATE_POD, KERNEL_CREATE_SERVICE, KERNEL_CULL };

struct kernel_plan {
    enum kernel_act action[4];
    size_t          n_actions;
    /* Only if there are no actions: */
    const char     *conditions, *state;     /* JSON */
    bool            differs, is_urgent, failed;
    char            text[2048];
};

void kernel_plan(const struct kernel_view *v, struct kernel_plan *ret);

void guest_link_read(const struct kernel *k, struct guest_link *ret);
void kernel_write_notes(const struct kernel *k, const struct policy *p, struct buf *out);
void kernel_write_pod(const struct kernel *k, const struct policy *p, struct buf *out);
void kernel_write_service(const struct kernel *k, struct buf *out);
void kernel_write_status(const struct kernel_plan *plan, struct buf *out);

#endif
