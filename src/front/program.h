/* The front as a program. */
#ifndef CARREL_FRONT_PROGRAM_H
#define CARREL_FRONT_PROGRAM_H

#include "base/err.h"

/* carrel-server front --keeper PATH --state DIR [--config FILE] [--set KEY=VALUE]... [--listen-fd N:tcp|unix]... [--uid UID --gid GID] */
int front_main(int argc, char **argv);

/* confine.c: from here on this process can connect nowhere, open nothing outside these directories, and call little of the kernel. */
MUST_CHECK int front_confine(const char *state, const char *keeper_socket, struct err *e);

#endif
