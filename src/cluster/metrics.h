/* What the controller counts, and how it is told to Prometheus. */
#ifndef CARREL_CLUSTER_METRICS_H
#define CARREL_CLUSTER_METRICS_H

#include <stdint.h>

struct buf;
struct controller;

enum { LATENCY_BUCKETS = 14 };

struct metrics {
    uint64_t reconciles, retries, writes[5], write_failures, events, events_dropped;
    uint64_t ready_bucket[LATENCY_BUCKETS + 1], ready_count, ready_sum_ms;
};

void metrics_ready(struct metrics *m, uint64_t ms);
void metrics_write(const struct controller *c, struct buf *out);

#endif
