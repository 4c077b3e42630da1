/* The box library alone, without a command line around it: this process is the keeper.
 *
 *   exec        a box is prepared (not timed); its first payload gets /bin/true; until that is reaped
 *   exec again  the same in a box that has already run commands
 *   boxes       create, run /bin/true, destroy, all limits on: how many per second, one after the other and with
 *               several under way at a time, still from one thread
 *
 * Beside each latency stands a bare posix_spawn of /bin/true, taken in turns with it. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "box/box.h"
#include "measure.h"

enum { WINDOW_MAX = 16, STEP_DEADLINE_MS = 20000 };

extern char **environ;

static struct box_host host;
static struct plan plan;
static char *true_argv[] = { "/bin/true", NULL };
static char *true_env[] = { "PATH=/usr/bin:/bin", "LANG=C.UTF-8", NULL };
static const struct command_spec true_command = { .argv = true_argv, .env = true_env };
static const struct start true_start = { .command = &true_command, .packed = -1, .stdio = { -1, -1, -1 } };

static int wait_readable(int fd)
{
    struct pollfd p = { .fd = fd, .events = POLLIN };
    int n;
    while ((n = poll(&p, 1, STEP_DEADLINE_MS)) < 0 && errno == EINTR)
        ;
    return n == 1 ? 0 : -ETIMEDOUT;
}

/* Waits for the payload's end, which must be a success, and lets go of it. */
static int payload_finish(struct payload *payload, struct err *e)
{
    struct process_end end;
    int r = wait_readable(payload->process.pidfd);
    if (r == 0)
        r = payload_reap(payload, &end);
    if (r > 0 && (end.code != 0 || end.signal != 0)) {
        r = payload_started(payload, e);
        return r < 0 ? r : err_set(e, EPROTO, STEP_EXEC, "/bin/true ended with %d, signal %d", end.code, end.signal);
    }
    payload_done(payload);
    return r == 1 ? 0 : err_at(e, r < 0 ? -r : ETIMEDOUT, STEP_WAIT, 0, "/bin/true");
}

static int box_prepare(struct engine_box *box, struct err *e)
{
    int r = box_create(&host, &plan, NULL, false, box, e);
    if (r < 0)
        return r;
    r = box_ready(box, true, e);
    return r == 1 ? 0 : r < 0 ? r : err_at(e, EPROTO, STEP_WAIT, 0, "box");
}

static int exec_true(struct engine_box *box, struct series *series, struct err *e)
{
    struct payload payload;
    uint64_t start = clock_now_us();
    int r = box_start_payload(box, &true_start, &payload, e);
    if (r == 0)
        r = payload_finish(&payload, e);
    struct sample sample = { .wall_us = clock_now_us() - start };
    if (r == 0 && series_add(series, &sample) < 0)
        r = err_at(e, ENOMEM, STEP_MEMORY, 0, "samples");
    return r;
}

static int spawn_true(struct series *series, struct err *e)
{
    pid_t pid;
    int status = 0;
    uint64_t start = clock_now_us();
    int r = posix_spawn(&pid, "/bin/true", NULL, NULL, true_argv, environ);
    if (r != 0)
        return err_at(e, r, STEP_EXEC, 0, "/bin/true");
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    struct sample sample = { .wall_us = clock_now_us() - start };
    return series_add(series, &sample) < 0 || status != 0 ? err_at(e, EPROTO, STEP_EXEC, 0, "/bin/true") : 0;
}

struct latency {
    struct series bare, first, again, create, destroy;
};

static int measure_latency(unsigned rounds, struct latency *ret, struct err *e)
{
    static struct engine_box box;
    struct process_end end;

    for (unsigned i = 0; i < rounds; i++) {
        struct sample made = { .wall_us = clock_now_us() };
        int r = box_prepare(&box, e);
        if (r < 0)
            return r;
        made.wall_us = clock_now_us() - made.wall_us;
        r = exec_true(&box, &ret->first, e);
        if (r == 0)
            r = exec_true(&box, &ret->again, e);
        struct sample gone = { .wall_us = clock_now_us() };
        box_destroy(&host, &box, &end);
        gone.wall_us = clock_now_us() - gone.wall_us;
        if (r == 0)
            r = spawn_true(&ret->bare, e);
        if (r < 0)
            return r;
        if (series_add(&ret->create, &made) < 0 || series_add(&ret->destroy, &gone) < 0)
            return err_at(e, ENOMEM, STEP_MEMORY, 0, "samples");
    }
    return 0;
}

/* Keeps `window` boxes under way until `count` have come and gone. */
static int measure_throughput(unsigned count, unsigned window, double *ret_per_second, struct err *e)
{
    static struct engine_box box[WINDOW_MAX];
    struct pollfd polls[WINDOW_MAX];
    unsigned started = 0, ended = 0;
    int r = 0;

    for (unsigned i = 0; i < WINDOW_MAX; i++)
        polls[i] = (struct pollfd){ .fd = -1, .events = POLLIN };
    uint64_t start = clock_now_us();
    while (ended < count && r == 0) {
        for (unsigned i = 0; i < window && started < count && r == 0; i++) {
            if (polls[i].fd >= 0)
                continue;
            r = box_create(&host, &plan, &true_start, false, &box[i], e);
            if (r == 0) {
                polls[i].fd = box[i].first.process.pidfd;
                started++;
            }
        }
        if (r == 0 && poll(polls, window, STEP_DEADLINE_MS) <= 0)
            r = err_at(e, ETIMEDOUT, STEP_WAIT, 0, "boxes");
        for (unsigned i = 0; i < window; i++) {
            struct process_end end;
            if (polls[i].fd < 0 || !(polls[i].revents & POLLIN || r < 0))
                continue;
            polls[i].fd = -1;
            int finished = r < 0 ? r : payload_finish(&box[i].first, e);
            box_destroy(&host, &box[i], &end);
            r = r < 0 ? r : finished;
            ended++;
        }
    }
    *ret_per_second = (double)count * 1e6 / (double)(clock_now_us() - start);
    return r;
}

static int keeper_open(struct err *e)
{
    static const struct box_spec spec = {
        .uid = 1000, .gid = 1000, .profile = PROFILE_STANDARD,
        .limits = { .memory_bytes = 256 << 20, .disk_bytes = 64 << 20, .pids = 128, .cpu_milli = 1000 },
    };
    int r = box_host_open(&host, e);
    if (r == 0)
        r = box_check_limits(&host, &spec.limits, e);
    if (r == 0)
        r = facts_read_root(&host.facts, NULL, false, e);
    return r < 0 ? r : plan_make(&spec, &host.facts, &plan, e);
}

static void print_row(const char *name, const struct series *series, const struct series *bare)
{
    struct figures f, b;
    series_figures(series, &f);
    series_figures(bare, &b);
    printf("  %-34s %10.2f %10.2f %10.2f\n", name, f.median_ms, f.p99_ms, f.median_ms / b.median_ms);
}

int main(int argc, char **argv)
{
    char *end, text[512];
    unsigned long rounds = argc == 2 ? strtoul(argv[1], &end, 10) : 0;
    struct err e = { 0 };
    struct latency latency = { 0 };
    double serial = 0, windowed = 0;

    if (rounds == 0 || rounds > 100000) {
        fprintf(stderr, "usage: engine ROUNDS\n");
        return 2;
    }
    int r = keeper_open(&e);
    if (r == 0)
        r = measure_latency((unsigned)rounds, &latency, &e);
    if (r == 0)
        r = measure_throughput((unsigned)rounds * 4, 1, &serial, &e);
    if (r == 0)
        r = measure_throughput((unsigned)rounds * 4, 4, &windowed, &e);
    if (r < 0) {
        err_text(&e, text, sizeof text);
        fprintf(stderr, "bench: %s\n", text);
        return 1;
    }
    printf("\nkeeper alone, %lu rounds\n  %-34s %10s %10s %10s\n", rounds, "", "median ms", "p99 ms", "/ bare");
    print_row("posix_spawn of /bin/true", &latency.bare, &latency.bare);
    print_row("prepared box: exec it, reap it", &latency.first, &latency.bare);
    print_row("the same box: once more", &latency.again, &latency.bare);
    print_row("preparing a box", &latency.create, &latency.bare);
    print_row("destroying it", &latency.destroy, &latency.bare);
    printf("  boxes per second: %.0f one by one, %.0f with 4 under way\n", serial, windowed);
    box_host_close(&host);
    return 0;
}
