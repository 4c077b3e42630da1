#define _GNU_SOURCE
#include "client/kernel/setup.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/guest.h"

bool setup_would_help(const struct client *c, const json_t *end)
{
    struct stat status;

    /* Written by front/kernels/kernel_end.c. */
    return strstr(text_of(end, "reason"), "'carrel setup'") && c->server.is_unix &&
           stat(c->server.address, &status) == 0 && status.st_uid == geteuid();
}

int setup_make(void)
{
    const char *wish = getenv("CARREL_SETUP");
    char program[PATH_MAX];
    int status = 0;

    if (wish && strcmp(wish, "no") == 0) {
        fputs("carrel: there is no Python for kernels on this machine yet; 'carrel setup' makes one, once\n", stderr);
        return EXIT_CLIENT;
    }
    guest_find_program(program, sizeof program);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        int null = open("/dev/null", O_RDWR | O_CLOEXEC);
        /* Our standard output is for what the code prints. */
        if (null >= 0 && dup2(null, STDIN_FILENO) >= 0 && dup2(null, STDOUT_FILENO) >= 0)
            execlp(program, "carrel", "setup", (char *)NULL);
        _exit(127);
    }
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return pid > 0 && status == 0 ? 0 : EXIT_CLIENT;
}
