/* The front as a program. */
#ifndef CARREL_SERVER_PROGRAM_H
#define CARREL_SERVER_PROGRAM_H

#include "base/err.h"

/* carrel-server front --keeper PATH --state DIR [--config FILE] [--set KEY=VALUE]... [--listen-fd N:tcp|unix]... [--uid
 * UID --gid GID] */
int front_main(int argc, char **argv);

/* confine.c: an empty network namespace; before the rights for it are given up. */
MUST_CHECK int front_leave_network(struct err *e);

/* From here on this process can connect nowhere, open nothing outside this directory, and call little of the kernel.
 */
MUST_CHECK int front_confine(const char *state, struct err *e);

#endif
