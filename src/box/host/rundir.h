/* Carrel's folder for files that live as long as the machine is up: /run/carrel for root, a folder of the user's own
 * otherwise. */
#ifndef CARREL_BOX_HOST_RUNDIR_H
#define CARREL_BOX_HOST_RUNDIR_H

#include "base/err.h"

/* Opens it, making it if necessary; refuses one that another user could have made or can write to. */
MUST_CHECK int rundir_open(int *ret, struct err *e);

/* Chooses its path. Call it before entering a user namespace, where every user looks like root. */
void rundir_choose(void);

#endif
