/* The text of `carrel run --help`. */
#ifndef CARREL_CLI_OPTIONS_HELP_H
#define CARREL_CLI_OPTIONS_HELP_H

#include <stdio.h>

void help_print(FILE *out);

#endif
