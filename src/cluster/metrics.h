/* What the controller counts, and how it is told to Prometheus. */
#ifndef CARREL_CLUSTER_METRICS_H
#define CARREL_CLUSTER_METRICS_H

#include <stdint.h>

struct buf;
struct controller;
struct sandbox;

enum { LATENCY_BUCKETS = 14 };

/* How long Sandboxes of one sort took to be Ready. */
struct latency {
    struct latency *next;
    char           *labels;
    uint64_t        bucket[LATENCY_BUCKETS + 1], count, sum_ms;
};

struct metrics {
    uint64_t reconciles, retries, writes[5], write_failures, events, events_dropped;
    struct latency *latencies;
    unsigned        n_latencies;
};

void metrics_ready(struct metrics *m, const struct sandbox *box, uint64_t ms);
void metrics_done(struct metrics *m);
void metrics_write(const struct controller *c, struct buf *out);

#endif
