/* Parts of the keeper's events: what a box uses, and how a payload ended. */
#ifndef CARREL_PROTO_USAGE_H
#define CARREL_PROTO_USAGE_H

#include <stdint.h>

/* What a cgroup of the box counts; the other members are 0. */
enum usage_measured { USAGE_MEMORY = 1, USAGE_CPU = 2, USAGE_PIDS = 4, USAGE_PIDS_PEAK = 8 };

struct frame_usage {
    uint64_t memory_bytes, memory_peak_bytes, cpu_us, disk_bytes;
    uint32_t pids, pids_peak, oom_kills, pids_refused;
    uint32_t disk_full, measured;
};
_Static_assert(sizeof(struct frame_usage) == 56, "a frame has no hidden bytes");

/* How a payload ended. */
struct frame_end {
    uint64_t           wall_us, cpu_us, peak_bytes;
    int32_t            code, signal;    /* signal 0: it exited with code */
    uint32_t           outcome;         /* enum outcome */
    uint32_t           reserved;
    struct frame_usage usage;           /* of its box by then */
};
_Static_assert(sizeof(struct frame_end) == 96, "a frame has no hidden bytes");

#endif
