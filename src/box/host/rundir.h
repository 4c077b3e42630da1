/* Where carrel keeps what lives as long as the machine is up: /run/carrel for root, a folder of the user's own
 * otherwise. */
#ifndef CARREL_BOX_HOST_RUNDIR_H
#define CARREL_BOX_HOST_RUNDIR_H

#include "base/err.h"

/* Opens it, making it if needed; refuses one that somebody else could have made or can write. */
MUST_CHECK int rundir_open(int *ret, struct err *e);

/* Its path. Call it before entering a user namespace: later everybody looks like root. */
void rundir_choose(void);

#endif
