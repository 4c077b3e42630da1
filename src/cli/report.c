#define _GNU_SOURCE
#include "cli/report.h"

#include <stdio.h>

#include "base/jsonout.h"
#include "base/parse.h"
#include "proto/walls.h"

static void write_walls(struct jsonout *j, const struct report *report)
{
    static const enum cgroup_controller controller[WALL_LIMITS] = { CG_MEMORY, CG_PIDS, CG_CPU };
    const struct plan *plan = report->plan;
    struct walls walls = {
        .host = box_host_walls(report->host),
        .limits = plan->limits,
        .profile = plan->profile,
        .writable_root = plan->writable_root,
        .no_proc = plan->no_proc,
    };

    for (enum wall_limit i = 0; i < WALL_LIMITS; i++)
        walls.why[i] = report->host->cgroups.why[controller[i]];
    walls_write(j, &walls);
}

static void write_trace(struct jsonout *j, const struct report *report)
{
    jsonout_open_array(j, "trace");
    for (size_t i = 1; i < report->n_trace; i++) {
        jsonout_open_object(j, NULL);
        jsonout_string(j, "step", report->trace[i].name);
        jsonout_unsigned(j, "us", report->trace[i].at_us - report->trace[i - 1].at_us);
        jsonout_close(j);
    }
    jsonout_close(j);
}

int report_json(const struct report *report, struct buf *out)
{
    const struct cgroup_usage *cgroup = &report->usage.cgroup;
    struct jsonout j;

    jsonout_init(&j, out);
    jsonout_open_object(&j, NULL);
    jsonout_string(&j, "outcome", outcome_name(report->outcome));
    if (report->end.signal)
        jsonout_null(&j, "exit_code");
    else
        jsonout_signed(&j, "exit_code", report->end.code);
    if (report->end.signal)
        jsonout_signed(&j, "signal", report->end.signal);
    else
        jsonout_null(&j, "signal");
    jsonout_decimal(&j, "wall_ms", report->wall_us, 3);
    jsonout_decimal(&j, "cpu_ms", report->cpu_us, 3);
    jsonout_unsigned(&j, "memory_peak_bytes", cgroup->has_memory ? cgroup->memory_peak_bytes : report->end.peak_bytes);
    jsonout_unsigned(&j, "disk_bytes", report->usage.disk_bytes);
    if (cgroup->has_pids_peak)
        jsonout_unsigned(&j, "pids_peak", cgroup->pids_peak);
    else
        jsonout_null(&j, "pids_peak");
    write_walls(&j, report);
    if (report->n_trace > 0)
        write_trace(&j, report);
    if (report->output) {
        jsonout_bool(&j, "truncated", buf_error(report->output) < 0 || buf_error(report->errors) < 0);
        jsonout_bytes(&j, "stdout", buf_string(report->output), report->output->length);
        jsonout_bytes(&j, "stderr", buf_string(report->errors), report->errors->length);
    }
    jsonout_close(&j);
    return jsonout_finish(&j);
}

int report_error_json(const struct err *e, struct buf *out)
{
    char text[512];
    struct jsonout j;

    err_text(e, text, sizeof text);
    jsonout_init(&j, out);
    jsonout_open_object(&j, NULL);
    jsonout_null(&j, "outcome");
    jsonout_open_object(&j, "error");
    jsonout_string(&j, "step", err_step_name(e->step));
    jsonout_unsigned(&j, "errno", (uint64_t)e->code);
    jsonout_string(&j, "message", text);
    jsonout_close(&j);
    jsonout_close(&j);
    return jsonout_finish(&j);
}

void report_remark(const struct report *report, const struct command_spec *command)
{
    const struct limits *limits = &report->plan->limits;

    switch (report->outcome) {
    case OUTCOME_TIMEOUT:
        fprintf(stderr, "carrel: the command was ended after %.3g s (--timeout)\n", (double)command->timeout_ms / 1000);
        break;
    case OUTCOME_OOM:
        if (limits->memory_bytes)
            fprintf(stderr, "carrel: the box ran out of memory (--memory %s)\n",
                    parse_show_size(limits->memory_bytes).text);
        else
            fputs("carrel: the host ran out of memory\n", stderr);
        break;
    case OUTCOME_PIDS:
        fprintf(stderr, "carrel: the box reached its limit of %u processes (--pids)\n", limits->pids);
        break;
    case OUTCOME_DISK:
        fprintf(stderr, "carrel: the box filled its disk (--disk %s)\n",
                parse_show_size(limits->disk_bytes).text);
        break;
    case OUTCOME_OUTPUT:
        fprintf(stderr, "carrel: the command was ended after %s of output (--output-limit)\n",
                parse_show_size(command->output_bytes).text);
        break;
    default:
        break;
    }
}
