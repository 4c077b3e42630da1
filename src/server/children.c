/* One loop over signals: on SIGCHLD it reaps children, on the others it ends. A child that does not run has a time for
 * its next start, so that a child that cannot start delays no other. */
#define _GNU_SOURCE
#include "server/children.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "front/front.h"

enum {
    RESTART_US = 100000,
    RETRY_US = 1000000,         /* fork failed for lack of resources */
    EARLY_US = 500000,          /* a child that exits before that did not really run */
    EARLY_MOST = 5,             /* 100 ms << 5 is the longest pause */
};

void child_word(struct child_command *c, const char *word)
{
    if (c->argc < CHILD_WORDS)
        c->argv[c->argc] = (char *)(uintptr_t)word;     /* execv() only reads it */
    c->argc++;
}

void child_format(struct child_command *c, const char *format, ...)
{
    char *at = c->text + c->text_used;
    size_t room = sizeof c->text - c->text_used;
    va_list args;

    va_start(args, format);
    int n = vsnprintf(at, room, format, args);
    va_end(args);
    if (n < 0 || (size_t)n >= room) {
        c->argc = CHILD_WORDS + 1;
        return;
    }
    c->text_used += (size_t)n + 1;
    child_word(c, at);
}

void child_keep(struct child_command *c, int fd)
{
    if (fd < 0)
        return;
    if (c->n_keep < CHILD_FDS)
        c->keep[c->n_keep++] = fd;
    else
        c->argc = CHILD_WORDS + 1;
}

static _Noreturn void become(const struct child_command *c, int death_signal, pid_t supervisor)
{
    sigset_t none;

    /* If the supervisor was killed before this call, the signal never comes. */
    if (prctl(PR_SET_PDEATHSIG, death_signal, 0, 0, 0) < 0 || getppid() != supervisor)
        _exit(127);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    for (size_t i = 0; i < c->n_keep; i++)
        fcntl(c->keep[i], F_SETFD, 0);
    errno = E2BIG;
    if (c->argc <= CHILD_WORDS)
        execv(c->argv[0], c->argv);
    fprintf(stderr, "carrel: cannot start %s: %s\n", c->argv[0], strerror(errno));
    _exit(127);
}

static void start(struct child *child, const void *owner, uint64_t now_us)
{
    static struct child_command command;

    command = (struct child_command){ 0 };
    child->describe(owner, &command);
    pid_t self = getpid(), pid = fork();
    if (pid == 0)
        become(&command, child->death_signal, self);
    child->started_us = now_us;
    child->pid = pid < 0 ? 0 : pid;
    if (pid < 0) {
        front_log("error", "cannot start a process; trying again", "program", child->name, "error", strerror(errno),
                  NULL);
        child->start_at_us = now_us + RETRY_US;
    }
}

static void note_end(struct child *child, uint64_t now_us)
{
    bool early = now_us - child->started_us < EARLY_US;
    char text[64];

    snprintf(text, sizeof text, "the %s ended; starting another", child->name);
    front_log("error", text, NULL);
    child->pid = 0;
    child->early_deaths = !early ? 0 : child->early_deaths < EARLY_MOST ? child->early_deaths + 1 : EARLY_MOST;
    child->start_at_us = now_us + ((uint64_t)RESTART_US << (child->early_deaths ? child->early_deaths - 1 : 0));
}

/* Starts the children that are due. Microseconds until the next one is; UINT64_MAX if all run. */
static uint64_t start_due(struct child *child, size_t n, const void *owner)
{
    uint64_t now_us = clock_monotonic_us(), wait_us = UINT64_MAX;

    for (size_t i = 0; i < n; i++) {
        if (child[i].pid == 0 && child[i].start_at_us <= now_us)
            start(&child[i], owner, now_us);
        if (child[i].pid == 0 && child[i].start_at_us - now_us < wait_us)
            wait_us = child[i].start_at_us - now_us;
    }
    return wait_us;
}

void children_run(struct child *child, size_t n, const void *owner)
{
    sigset_t signals;

    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGHUP);
    sigaddset(&signals, SIGCHLD);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    /* A killed keeper orphans its boxes' processes. They end only when they are reaped, and not every pid 1 reaps; so
     * we do. */
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    for (;;) {
        uint64_t wait_us = start_due(child, n, owner);
        const struct timespec until = { .tv_sec = (time_t)(wait_us / 1000000),
                                        .tv_nsec = (long)(wait_us % 1000000) * 1000 };
        int number = wait_us == UINT64_MAX ? sigwaitinfo(&signals, NULL) : sigtimedwait(&signals, NULL, &until);
        if (number > 0 && number != SIGCHLD)
            return;
        for (pid_t pid; (pid = waitpid(-1, NULL, WNOHANG)) > 0;)
            for (size_t i = 0; i < n; i++)
                if (child[i].pid == pid)
                    note_end(&child[i], clock_monotonic_us());
    }
}

void children_end(struct child *child, size_t n)
{
    while (n-- > 0) {
        if (child[n].pid == 0)
            continue;
        kill(child[n].pid, SIGTERM);
        while (waitpid(child[n].pid, NULL, 0) < 0 && errno == EINTR)
            ;
        child[n].pid = 0;
    }
}
