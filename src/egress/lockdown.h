/* How egress gives up what it does not need. */
#ifndef CARREL_EGRESS_LOCKDOWN_H
#define CARREL_EGRESS_LOCKDOWN_H

#include <sys/types.h>

#include "base/err.h"

/* For good, with no other groups. The death signal stays armed. */
MUST_CHECK int lockdown_user(uid_t uid, gid_t gid, struct err *e);

/* From here on: no capability, no file but those of the resolver, no program, no process, no socket but TCP and UDP. */
MUST_CHECK int lockdown_process(struct err *e);

#endif
