/* The report of a run as one JSON object. */
#ifndef CARREL_CLI_REPORT_H
#define CARREL_CLI_REPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "box/box.h"
#include "proto/ending.h"
#include "proto/refusals.h"

struct trace_step {
    const char *name;
    uint64_t    at_us;
};

struct report {
    struct ending         end;
    const struct box_host *host;
    const struct plan    *plan;
    const struct buf     *output, *errors;      /* NULL: not captured */
    const struct refusals *refusals;            /* NULL: none */
    const struct net_policy *policy;
    uint32_t              way;              /* enum egress_way, if the box has a network */
    size_t                n_trace;
    const struct trace_step *trace;             /* first is the start */
};

MUST_CHECK int report_json(const struct report *report, struct buf *out);
MUST_CHECK int report_error_json(const struct err *e, struct buf *out);

/* Prints a line about refused connections; nothing if there were none. */
void           report_refusals(const struct report *report);

#endif
