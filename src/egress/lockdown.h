/* How egress and the broker drop their rights. */
#ifndef CARREL_EGRESS_LOCKDOWN_H
#define CARREL_EGRESS_LOCKDOWN_H

#include <sys/types.h>

#include "base/err.h"
#include "policy/policy.h"

/* For good, without supplementary groups. The death signal stays armed. */
MUST_CHECK int lockdown_user(uid_t uid, gid_t gid, struct err *e);

enum lockdown_files {
    LOCKDOWN_SETTINGS,      /* the resolver's and the other world-readable files beside them */
    LOCKDOWN_NO_FILES,      /* and no TCP of its own */
};

/* Afterwards: no capability, no other files, and the system calls of the filter. */
MUST_CHECK int lockdown_process(const struct policy_filter *filter, enum lockdown_files files, struct err *e);

#endif
