/* One function per command; argv[0] is the command's word. Each returns the exit status. */
#ifndef CARREL_CLI_COMMANDS_H
#define CARREL_CLI_COMMANDS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "proto/ending.h"

int run_main(int argc, char **argv);
int plan_main(int argc, char **argv);
int doctor_main(int argc, char **argv);
int gc_main(int argc, char **argv);
int keeper_main(int argc, char **argv);

/* Becomes carrel-server, with these words; argv[0] is set. Returns EXIT_CARREL, after saying so, if it is not there. */
int cli_hand_over(char **argv);

/* Another program of carrel's: beside this one (0) or in ../libexec (1). False: that cannot be told. */
bool cli_program_path(const char *name, int which, char *path, size_t size);
bool cli_has_program(const char *name);

/* "carrel: <what failed, why, what to do>" on standard error. */
void cli_complain(const struct err *e);

#endif
