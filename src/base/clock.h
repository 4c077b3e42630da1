/* A monotonic clock. */
#ifndef CARREL_BASE_CLOCK_H
#define CARREL_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Microseconds since some moment before this process began; comparable between processes of one boot. */
static inline uint64_t clock_monotonic_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000U + (uint64_t)now.tv_nsec / 1000U;
}

#endif
