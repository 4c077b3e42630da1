/* Being the keeper without being root: a user namespace of one's own, in which one is. */
#ifndef CARREL_BOX_HOST_ROOTLESS_H
#define CARREL_BOX_HOST_ROOTLESS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* True if this process can make boxes as it is. */
bool rootless_needed(void);

/* Enters a new user and mount namespace with as many ids as newuidmap gives, or with the user's own id alone. *ret_ids
 * says how many. */
MUST_CHECK int rootless_enter(uint32_t *ret_ids, struct err *e);

#endif
