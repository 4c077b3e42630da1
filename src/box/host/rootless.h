/* A keeper without root: it enters a user namespace of its own, in which it is root. */
#ifndef CARREL_BOX_HOST_ROOTLESS_H
#define CARREL_BOX_HOST_ROOTLESS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* Whether this process needs one to make boxes. */
bool rootless_needed(void);

/* Enters a new user and mount namespace with the ids that newuidmap gives, or with the user's own id alone. *ret_ids:
 * how many. */
MUST_CHECK int rootless_enter(uint32_t *ret_ids, struct err *e);

#endif
