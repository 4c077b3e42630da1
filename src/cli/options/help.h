/* What `carrel run --help` prints. */
#ifndef CARREL_CLI_OPTIONS_HELP_H
#define CARREL_CLI_OPTIONS_HELP_H

extern const char run_help[];

#endif
