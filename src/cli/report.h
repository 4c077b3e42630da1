/* What is told about a run: one JSON object, or one line if a limit ended it. */
#ifndef CARREL_CLI_REPORT_H
#define CARREL_CLI_REPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "box/box.h"

struct trace_step {
    const char *name;
    uint64_t    at_us;
};

struct report {
    enum outcome          outcome;
    struct process_end    end;
    uint64_t              wall_us, cpu_us;
    struct box_usage      usage;
    const struct box_host *host;
    const struct plan    *plan;
    const struct buf     *output, *errors;      /* NULL: not captured */
    size_t                n_trace;
    const struct trace_step *trace;             /* first is the start */
};

MUST_CHECK int report_json(const struct report *report, struct buf *out);
MUST_CHECK int report_error_json(const struct err *e, struct buf *out);

/* A line for a person if a limit ended the command; nothing otherwise. */
void           report_remark(const struct report *report, const struct command_spec *command);

#endif
