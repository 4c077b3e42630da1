/* `carrel run` by a server. */
#ifndef CARREL_CLI_VIASERVER_H
#define CARREL_CLI_VIASERVER_H

#include "cli/options/options.h"

/* Does not return if the options need a server: this process then becomes its client. 0: run it here. -errno: they need
 * one, and there is none, or it cannot run the rest. */
MUST_CHECK int viaserver_run(const struct run_options *options, struct err *e);

#endif
