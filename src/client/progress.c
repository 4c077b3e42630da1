/* The server writes an event of the box for each step of an installation (front/boxes/box_packages.c). A list that is
 * installed already causes none, and then nothing is shown. */
#define _GNU_SOURCE
#include "client/progress.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "proto/names.h"

enum { LOOK_MS = 150 };

void progress_init(struct packages_progress *p, const struct client *c, const char *box)
{
    *p = (struct packages_progress){ .client = c, .start_us = clock_monotonic_us(), .talks = isatty(STDERR_FILENO) };
    snprintf(p->box, sizeof p->box, "%s", box);
}

static void show(struct packages_progress *p, const char *text)
{
    if (!p->is_shown)
        fputs("carrel: installing packages, once\n", stderr);
    p->is_shown = true;
    /* Without a terminal only slow steps are shown, as carrel run does. */
    if (p->talks)
        fprintf(stderr, "\r\033[K  %.100s", show_text(text));
    else if (strncmp(text, "Downloading ", 12) == 0 || strncmp(text, "Building ", 9) == 0)
        fprintf(stderr, "  %s\n", show_text(text));
    fflush(stderr);
}

void progress_look(struct packages_progress *p)
{
    char rest[64];
    json_t *answer = NULL, *event;
    struct err ignored;
    size_t i;

    snprintf(rest, sizeof rest, "/events?limit=1000&after=%llu", (unsigned long long)p->after);
    if (client_ask(p->client, "GET", target_box(p->box, rest), NULL, &answer, &ignored) == 200)
        json_array_foreach(json_object_get(answer, "events"), i, event) {
            p->after = (uint64_t)json_integer_value(json_object_get(event, "number"));
            if (strcmp(text_of(event, "type"), "packages") == 0)
                show(p, text_of(json_object_get(event, "body"), "message"));
        }
    json_decref(answer);
}

void progress_done(struct packages_progress *p, bool made)
{
    if (p->is_shown && p->talks)
        fputs("\r\033[K", stderr);
    if (p->is_shown && made)
        fprintf(stderr, "carrel: installed in %.1f s\n", (double)(clock_monotonic_us() - p->start_us) / 1e6);
    fflush(stderr);
}

/* ---- from a child ---- */

static volatile sig_atomic_t is_over;

static void on_end(int number)
{
    (void)number;
    is_over = 1;
}

static _Noreturn void watch(struct packages_progress *p, pid_t parent)
{
    struct sigaction end = { .sa_handler = on_end };

    (void)sigaction(SIGTERM, &end, NULL);
    if (prctl(PR_SET_PDEATHSIG, SIGTERM) < 0 || getppid() != parent)
        _exit(0);
    while (!is_over) {
        progress_look(p);
        if (!is_over)
            (void)poll(NULL, 0, LOOK_MS);
    }
    _exit(p->is_shown);
}

void progress_watch(struct packages_progress *p)
{
    pid_t self = getpid();

    fflush(NULL);
    p->pid = fork();
    if (p->pid == 0)
        watch(p, self);
}

void progress_unwatch(struct packages_progress *p)
{
    int status = 0;

    if (p->pid <= 0)
        return;
    (void)kill(p->pid, SIGTERM);
    p->is_shown = waitpid(p->pid, &status, 0) == p->pid && WIFEXITED(status) && WEXITSTATUS(status) != 0;
    p->pid = 0;
}
