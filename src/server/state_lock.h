/* A state directory has one server. */
#ifndef CARREL_SERVER_STATE_LOCK_H
#define CARREL_SERVER_STATE_LOCK_H

#include <stdbool.h>

#include "base/err.h"

/* Makes this process the only server of `state`. The supervisor and its children, which inherit *ret, hold the lock as
 * long as they live. Waits for children of a killed supervisor; *ret_left: there were some, and their sockets may be
 * closed a moment later. -EBUSY: another server has it. */
MUST_CHECK int state_lock(const char *state, int *ret, bool *ret_left, struct err *e);

#endif
