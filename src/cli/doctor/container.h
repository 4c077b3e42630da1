/* Containers in which no box can be made, and what they must be given. */
#ifndef CARREL_CLI_DOCTOR_CONTAINER_H
#define CARREL_CLI_DOCTOR_CONTAINER_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/err.h"

struct container {
    bool is_one;                /* or a service that is held as one */
    bool has_seccomp;           /* a filter is on this process */
    bool has_apparmor;          /* a profile is enforced on it */
    bool has_covered_proc;      /* something is mounted below /proc */
    bool has_readonly_sys;      /* /proc/sys */
};

void container_look(struct container *ret);

/* A box could not be made, and that is how containers refuse. */
bool container_is_to_blame(const struct container *c, const struct err *e);

/* What is missing, and the flags of docker, podman and a pod that give it; some lines. */
void container_advise(const struct container *c, struct buf *out);

#endif
