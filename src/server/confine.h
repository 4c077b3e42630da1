/* How a child of the supervisor gives up what it does not need, in this order. */
#ifndef CARREL_SERVER_CONFINE_H
#define CARREL_SERVER_CONFINE_H

#include <sys/types.h>

#include "base/err.h"
#include "policy/policy.h"

/* An empty network namespace; before the rights for it are given up. An ordinary user's child stays where it is. */
MUST_CHECK int confine_network(const char *who, struct err *e);

/* For good, with no other groups. The death signal stays armed; -ESRCH: the parent died meanwhile. */
MUST_CHECK int confine_user(uid_t uid, gid_t gid, struct err *e);

/* From here on this process can connect nowhere, open nothing outside the directory `state`, and make only the system
 * calls of the filter. */
MUST_CHECK int confine_process(const char *who, const char *state, const struct policy_filter *filter, struct err *e);

#endif
