/* carrel setup, and how other commands offer it. */
#ifndef CARREL_CLIENT_KERNEL_SETUP_H
#define CARREL_CLIENT_KERNEL_SETUP_H

#include "client/client.h"

/* Whether a cell ended because this machine has no Python for kernels yet and its server is ours, so that 'carrel
 * setup' by this user mends it. */
bool setup_would_help(const struct client *c, const json_t *end);

/* There is no Python for kernels: asks on a terminal whether to make one, or makes it at once if yes or if
 * CARREL_SETUP is "yes". 0: it is there now. EXIT_CLIENT: it is not, and what to do was told. */
int  setup_offer(bool yes);

#endif
