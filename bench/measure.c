/* One sample: posix_spawn, a monotonic clock, wait4.
 *
 * What a sandbox leaves to be reaped after its command has returned (a monitor, a cleaner) costs too. So the bench is a
 * child subreaper: orphans of a command become its children, are waited for before the next command starts, and their
 * rusage is added. What the kernel does later in its own threads (teardown of a network namespace) is in no rusage. */
#define _GNU_SOURCE
#include "measure.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

uint64_t clock_now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
}

void clock_wait_us(uint64_t us)
{
    uint64_t until = clock_now_us() + us;
    struct timespec t = { .tv_sec = (time_t)(until / 1000000u), .tv_nsec = (long)(until % 1000000u * 1000u) };
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
        ;
}

static void on_alarm(int number)
{
    (void)number;       /* only there to end wait4 with EINTR */
}

int measure_init(void)
{
    struct sigaction action = { .sa_handler = on_alarm };       /* no SA_RESTART */
    if (sigaction(SIGALRM, &action, NULL) < 0 || prctl(PR_SET_CHILD_SUBREAPER, 1L, 0L, 0L, 0L) < 0)
        return -errno;
    return 0;
}

static uint64_t rusage_cpu_us(const struct rusage *u)
{
    return (uint64_t)(u->ru_utime.tv_sec + u->ru_stime.tv_sec) * 1000000u +
           (uint64_t)(u->ru_utime.tv_usec + u->ru_stime.tv_usec);
}

static int spawn_quiet(char *const argv[], int stderr_fd, pid_t *ret)
{
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&files, 1, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_adddup2(&files, stderr_fd, 2);
    int r = posix_spawnp(ret, argv[0], &files, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&files);
    return -r;
}

int measure_command(char *const argv[], int stderr_fd, uint64_t deadline_us, struct sample *ret)
{
    struct sample s = { 0 };
    bool late = false;
    pid_t child;
    /* Kept firing, so that an alarm just before wait4 is not lost. */
    struct itimerspec off = { 0 }, alarm_at = {
        .it_interval = { .tv_nsec = 250000000 },
        .it_value = { .tv_sec = (time_t)(deadline_us / 1000000u) + 1 },
    };
    timer_t timer;
    struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM };
    if (timer_create(CLOCK_MONOTONIC, &event, &timer) < 0)
        return -errno;
    timer_settime(timer, 0, &alarm_at, NULL);

    uint64_t start = clock_now_us();
    int r = spawn_quiet(argv, stderr_fd, &child);
    for (bool main_done = r < 0; r == 0;) {
        struct rusage used;
        int status;
        pid_t pid = wait4(-1, &status, 0, &used);
        uint64_t now = clock_now_us();
        if (pid > 0) {
            s.cpu_us += rusage_cpu_us(&used);
            s.settled_us = now - start;
        }
        if (pid == child) {
            main_done = true;
            s.wall_us = now - start;
            s.status = status;
        }
        if (pid < 0 && errno == ECHILD)
            break;
        if (pid < 0 && now - start >= deadline_us) {
            late = true;
            if (main_done)          /* a descendant that stays: not ours to end */
                break;
            kill(child, SIGKILL);
        }
    }
    timer_settime(timer, 0, &off, NULL);
    timer_delete(timer);
    if (r < 0)
        return r;
    *ret = s;
    return late ? -ETIMEDOUT : 0;
}

int series_add(struct series *series, const struct sample *sample)
{
    if (series->count == series->size) {
        size_t size = series->size ? series->size * 2 : 256;
        struct sample *more = realloc(series->sample, size * sizeof *more);
        if (!more)
            return -ENOMEM;
        series->sample = more;
        series->size = size;
    }
    series->sample[series->count++] = *sample;
    return 0;
}

void series_done(struct series *series)
{
    free(series->sample);
    memset(series, 0, sizeof *series);
}

static int compare_u64(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* values are sorted; nearest rank. */
static double rank_ms(const uint64_t *values, size_t count, unsigned percent)
{
    size_t rank = (count * percent + 99) / 100;
    return (double)values[rank ? rank - 1 : 0] / 1000.0;
}

void series_figures(const struct series *series, struct figures *ret)
{
    memset(ret, 0, sizeof *ret);
    uint64_t *values = calloc(series->count ? series->count : 1, sizeof *values);
    if (!values || series->count == 0) {
        free(values);
        return;
    }
    uint64_t cpu = 0;
    for (size_t i = 0; i < series->count; i++) {
        values[i] = series->sample[i].wall_us;
        cpu += series->sample[i].cpu_us;
    }
    qsort(values, series->count, sizeof *values, compare_u64);
    ret->median_ms = rank_ms(values, series->count, 50);
    ret->p99_ms = rank_ms(values, series->count, 99);
    for (size_t i = 0; i < series->count; i++)
        values[i] = series->sample[i].settled_us;
    qsort(values, series->count, sizeof *values, compare_u64);
    ret->settled_ms = rank_ms(values, series->count, 50);
    ret->cpu_ms = (double)cpu / (double)series->count / 1000.0;
    free(values);
}
