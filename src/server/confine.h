/* Steps by which a child of the supervisor drops its rights, in this order. */
#ifndef CARREL_SERVER_CONFINE_H
#define CARREL_SERVER_CONFINE_H

#include <sys/types.h>

#include "base/err.h"
#include "policy/policy.h"

/* An empty network namespace, while the process may still make one. A no-op for an ordinary user's child. */
MUST_CHECK int confine_network(const char *who, struct err *e);

/* For good, without supplementary groups. The death signal stays armed; -ESRCH: the parent died meanwhile. */
MUST_CHECK int confine_user(uid_t uid, gid_t gid, struct err *e);

/* Afterwards this process cannot connect, cannot open anything outside the directory `state`, and can only make the
 * system calls of the filter. */
MUST_CHECK int confine_process(const char *who, const char *state, const struct policy_filter *filter, struct err *e);

#endif
