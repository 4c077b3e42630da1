/* Containers in which no box can be made, and the flags that they need. */
#ifndef CARREL_CLI_DOCTOR_CONTAINER_H
#define CARREL_CLI_DOCTOR_CONTAINER_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/err.h"

struct container {
    bool is_one;                /* or a service confined like one */
    bool has_seccomp;           /* a filter is on this process */
    bool has_apparmor;          /* a profile is enforced on it */
    bool has_covered_proc;      /* something is mounted below /proc */
    bool has_readonly_sys;      /* /proc/sys */
};

void container_look(struct container *ret);

/* Whether a failed box looks like a container's refusal. */
bool container_is_to_blame(const struct container *c, const struct err *e);

/* Lists what is missing, and the flags of docker, podman and a pod that provide it. */
void container_advise(const struct container *c, struct buf *out);

#endif
