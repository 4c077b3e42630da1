#include "cli/options/exec_limits.h"

#include <errno.h>
#include <string.h>
#include <sys/resource.h>

/* fs/exec.c: a quarter of the soft stack limit, but never more than three quarters of 8 MiB nor less than 128 KiB. */
static size_t total_max(void)
{
    const size_t most = 6U << 20, least = 128U << 10;
    struct rlimit stack;

    if (getrlimit(RLIMIT_STACK, &stack) < 0 || stack.rlim_cur == RLIM_INFINITY || stack.rlim_cur / 4 > most)
        return most;
    size_t quarter = (size_t)stack.rlim_cur / 4;
    return quarter < least ? least : quarter;
}

int exec_limits_check(char *const *argv, char *const *env, struct err *e)
{
    size_t total = 0;

    for (size_t i = 0; argv[i]; i++) {
        size_t length = strlen(argv[i]);
        if (length > EXEC_STRING_MAX)
            return err_set(e, EINVAL, STEP_USAGE,
                           "argument %zu is %zu bytes; Linux allows %d; pass it in a file or on standard input", i,
                           length, EXEC_STRING_MAX);
        total += length + 1 + sizeof *argv;
    }
    for (size_t i = 0; env[i]; i++)
        total += strlen(env[i]) + 1 + sizeof *env;
    size_t most = total_max();
    if (total > most)
        return err_set(e, EINVAL, STEP_USAGE,
                       "arguments and environment take %zu bytes; Linux allows %zu here (ulimit -s)", total, most);
    return 0;
}
