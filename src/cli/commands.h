/* One function per command; argv[0] is the command's word. Each returns the exit status. */
#ifndef CARREL_CLI_COMMANDS_H
#define CARREL_CLI_COMMANDS_H

#include <stdbool.h>

#include "base/err.h"

enum { EXIT_TIMEOUT = 124, EXIT_CARREL = 125, EXIT_CANNOT_RUN = 126, EXIT_NOT_FOUND = 127 };

int run_main(int argc, char **argv);
int plan_main(int argc, char **argv);
int doctor_main(int argc, char **argv);
int gc_main(int argc, char **argv);
int keeper_main(int argc, char **argv);

/* Becomes carrel-server, with these words; argv[0] is set. Returns EXIT_CARREL, after saying so, if it is not there. */
int cli_hand_over(char **argv);

bool cli_has_server(void);

/* "carrel: <what failed, why, what to do>" on standard error. */
void cli_complain(const struct err *e);

#endif
