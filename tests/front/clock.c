#define _GNU_SOURCE
#include "front/clock.h"

#include <time.h>

int __real_clock_gettime(clockid_t clock, struct timespec *ret);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret);

static uint64_t wound_us = 1;

void clock_wind(uint64_t ms)
{
    wound_us += ms * 1000;
}

/* A microsecond passes with every look, or two things that come one after the other would have one time. */
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret)
{
    static struct timespec start[2];
    struct timespec *from = &start[clock == CLOCK_MONOTONIC];

    if (!from->tv_sec && __real_clock_gettime(clock, from) < 0)
        return -1;
    uint64_t us = (uint64_t)from->tv_nsec / 1000 + wound_us++;
    *ret = (struct timespec){ .tv_sec = from->tv_sec + (time_t)(us / 1000000), .tv_nsec = (long)(us % 1000000) * 1000 };
    return 0;
}
