/* `carrel run` by a server. */
#ifndef CARREL_CLI_VIASERVER_H
#define CARREL_CLI_VIASERVER_H

#include "cli/options/options.h"

/* Does not return if a server is to run it: the process goes on as that server's client. 0: it is to be run here.
 * -errno: only a server was wanted, and it cannot be. */
MUST_CHECK int viaserver_run(const struct run_options *options, struct err *e);

#endif
