/* How commands that need a Python for kernels come to one: `carrel setup` (cli/layers/setup.c). */
#ifndef CARREL_CLIENT_KERNEL_SETUP_H
#define CARREL_CLIENT_KERNEL_SETUP_H

#include "client/client.h"

/* Whether a cell ended because this machine has no Python for kernels yet and the server is this user's, so that
 * 'carrel setup' helps. */
bool setup_would_help(const struct client *c, const json_t *end);

/* Runs `carrel setup`, unless CARREL_SETUP is "no". 0: there is a Python for kernels now. EXIT_CLIENT: there is none,
 * and the reason was printed. */
int  setup_make(void);

#endif
