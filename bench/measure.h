/* Timing one command from posix_spawn to its last descendant, and the figures made of many such samples. */
#ifndef CARREL_BENCH_MEASURE_H
#define CARREL_BENCH_MEASURE_H

#include <stddef.h>
#include <stdint.h>

struct sample {
    uint64_t wall_us;       /* spawn until the command itself is reaped */
    uint64_t settled_us;    /* spawn until its last descendant is reaped */
    uint64_t cpu_us;        /* user and system time of the command and all its descendants */
    int      status;        /* as wait gives it */
};

struct series {
    size_t   count, size;
    struct sample *sample;
};

struct figures {
    double median_ms, p99_ms, settled_ms, cpu_ms;       /* settled_ms is a median, cpu_ms a mean */
};

uint64_t clock_now_us(void);
/* Returns only when that time has passed, whatever signals come. */
void     clock_wait_us(uint64_t us);

/* The calling process becomes the reaper of all that its commands leave behind. Call it once. 0 or -errno. */
int measure_init(void);

/* Runs argv with stdin and stdout on /dev/null and stderr on the given fd. -ETIMEDOUT: it or a descendant was still
 * there after the deadline; the command itself has been killed. */
int measure_command(char *const argv[], int stderr_fd, uint64_t deadline_us, struct sample *ret);

int  series_add(struct series *series, const struct sample *sample);
void series_done(struct series *series);
/* All zero for an empty series. Sorts nothing in place. */
void series_figures(const struct series *series, struct figures *ret);

#endif
