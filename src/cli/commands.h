/* One function per command; argv[0] is the command's name. Each returns the exit status. */
#ifndef CARREL_CLI_COMMANDS_H
#define CARREL_CLI_COMMANDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "proto/ending.h"

int run_main(int argc, char **argv);
int plan_main(int argc, char **argv);
int doctor_main(int argc, char **argv);
int gc_main(int argc, char **argv);
int layer_main(int argc, char **argv);
int setup_main(int argc, char **argv);
int keeper_main(int argc, char **argv);

/* Execs carrel-server with these words; argv[0] is set. If that is missing, reports it and returns EXIT_CARREL. */
int cli_hand_over(char **argv);

/* Another program of carrel's: beside this one (0) or in ../libexec (1). False: unknown. */
bool cli_program_path(const char *name, int which, char *path, size_t size);
bool cli_has_program(const char *name);
/* Prints the names that package clients of this host need: `carrel doctor --net`. */
void cli_print_indexes(void);

/* Removes unfinished layers of packages, and all that no box has used for so long, of every owner of this user's
 * folder; calls for each with its size, unfinished ones are "". */
MUST_CHECK int cli_collect_layers(uint64_t unused_ms, void (*call)(const char *layer, uint64_t bytes, void *arg),
                                  void *arg, struct err *e);

/* "carrel: <what failed, why, what to do>" on standard error. */
void cli_complain(const struct err *e);

#endif
