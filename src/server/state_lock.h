/* A state directory has one server. */
#ifndef CARREL_SERVER_STATE_LOCK_H
#define CARREL_SERVER_STATE_LOCK_H

#include <stdbool.h>

#include "base/err.h"

/* Makes this process the one that serves `state`, and locks it for whoever gets *ret: the supervisor and its children,
 * each as long as it lives. Waits for children of a supervisor that was killed; *ret_left: there were some, and their
 * sockets may be closed a moment later. -EBUSY: another server has it. */
MUST_CHECK int state_lock(const char *state, int *ret, bool *ret_left, struct err *e);

#endif
