/* The controller's counters, and their output for Prometheus. */
#ifndef CARREL_CLUSTER_METRICS_H
#define CARREL_CLUSTER_METRICS_H

#include <stdbool.h>
#include <stdint.h>

struct buf;
struct controller;
struct sandbox;
struct boxclaim;

enum { LATENCY_BUCKETS = 15 };

enum histogram { LATENCY_SANDBOX, LATENCY_CLAIM_WEBHOOK, LATENCY_CLAIM_CONTROLLER, LATENCY_CLAIM_CLIENT, HISTOGRAMS };

/* How long Sandboxes or claims of one label set took to be Ready. */
struct latency {
    struct latency *next;
    char           *labels;
    uint64_t        bucket[LATENCY_BUCKETS + 1], count, sum_ms;
};

/* How many claims of one label set have got a Sandbox. */
struct tally {
    struct tally *next;
    char         *labels;
    uint64_t      count;
};

struct metrics {
    uint64_t reconciles, retries, writes[6], write_failures, events, events_dropped;
    struct latency *latencies[HISTOGRAMS];
    struct tally   *tallies;
    unsigned        n_sorts;
};

void metrics_ready(struct metrics *m, const struct sandbox *box, uint64_t ms);
/* The claim has got a Sandbox. */
void metrics_claim(struct metrics *m, const struct boxclaim *c, const struct sandbox *box, bool is_warm);
/* The claim is Ready; only the first time counts. box NULL: unknown. */
void metrics_claim_ready(struct metrics *m, const struct boxclaim *c, const struct sandbox *box, int64_t now_us);
void metrics_done(struct metrics *m);
void metrics_write(const struct controller *c, struct buf *out);

#endif
