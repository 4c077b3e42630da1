/* The limits of execve, so that an error names the argument that is too long instead of "Argument list too long". */
#ifndef CARREL_CLI_OPTIONS_EXEC_LIMITS_H
#define CARREL_CLI_OPTIONS_EXEC_LIMITS_H

#include "base/err.h"

enum {
    EXEC_STRING_MAX = 32 * 4096 - 1,    /* MAX_ARG_STRLEN of Linux less the NUL */
};

/* Checks every argument and the sum of arguments and environment. */
MUST_CHECK int exec_limits_check(char *const *argv, char *const *env, struct err *e);

#endif
