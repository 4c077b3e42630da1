#define _GNU_SOURCE
#include "cli/report.h"

#include <stdio.h>

#include "base/json.h"

static void write_enforced(struct json *j, const struct report *report)
{
    const struct limits *limits = &report->plan->limits;
    const struct cgroup_host *cgroups = &report->host->cgroups;
    char text[96];

    json_open_object(j, "enforced");
    if (limits->memory_bytes)
        json_string(j, "memory", cgroup_means(cgroups, CG_MEMORY));
    if (limits->pids)
        json_string(j, "pids", cgroup_means(cgroups, CG_PIDS));
    if (limits->cpu_milli)
        json_string(j, "cpus", cgroup_means(cgroups, CG_CPU));
    json_string(j, "disk", "tmpfs size");
    snprintf(text, sizeof text, "landlock abi %d", report->plan->landlock_abi);
    json_string(j, "files", report->plan->landlock_abi ? text : "mount namespace");
    snprintf(text, sizeof text, "seccomp %s", profile_name(report->plan->profile));
    json_string(j, "syscalls", text);
    snprintf(text, sizeof text, "user namespace with %u ids", report->host->ids.size);
    json_string(j, "users", text);
    json_string(j, "processes", "pid namespace");
    json_string(j, "network", "network namespace, loopback only");
    json_string(j, "root", report->plan->writable_root ? "overlay" : "read-only mounts");
    json_string(j, "nesting", "user.max_user_namespaces");
    json_close(j);

    json_open_object(j, "not_enforced");
    if (!limits->memory_bytes)
        json_string(j, "memory", cgroups->can[CG_MEMORY] ? "not asked for" : cgroups->why[CG_MEMORY]);
    if (!limits->pids)
        json_string(j, "pids", cgroups->can[CG_PIDS] ? "not asked for" : cgroups->why[CG_PIDS]);
    if (!limits->cpu_milli)
        json_string(j, "cpus", cgroups->can[CG_CPU] ? "not asked for" : cgroups->why[CG_CPU]);
    if (!report->plan->landlock_abi)
        json_string(j, "landlock", "this kernel has none");
    json_close(j);
}

static void write_trace(struct json *j, const struct report *report)
{
    json_open_array(j, "trace");
    for (size_t i = 1; i < report->n_trace; i++) {
        json_open_object(j, NULL);
        json_string(j, "step", report->trace[i].name);
        json_unsigned(j, "us", report->trace[i].at_us - report->trace[i - 1].at_us);
        json_close(j);
    }
    json_close(j);
}

int report_json(const struct report *report, struct buf *out)
{
    const struct cgroup_usage *cgroup = &report->usage.cgroup;
    struct json j;

    json_init(&j, out);
    json_open_object(&j, NULL);
    json_string(&j, "outcome", outcome_name(report->outcome));
    if (report->end.signal)
        json_null(&j, "exit_code");
    else
        json_signed(&j, "exit_code", report->end.code);
    if (report->end.signal)
        json_signed(&j, "signal", report->end.signal);
    else
        json_null(&j, "signal");
    json_decimal(&j, "wall_ms", report->wall_us, 3);
    json_decimal(&j, "cpu_ms", report->cpu_us, 3);
    json_unsigned(&j, "memory_peak_bytes", cgroup->has_memory ? cgroup->memory_peak_bytes : report->end.peak_bytes);
    json_unsigned(&j, "disk_bytes", report->usage.disk_bytes);
    if (cgroup->has_pids_peak)
        json_unsigned(&j, "pids_peak", cgroup->pids_peak);
    else
        json_null(&j, "pids_peak");
    write_enforced(&j, report);
    if (report->n_trace > 0)
        write_trace(&j, report);
    if (report->output) {
        json_bytes(&j, "stdout", buf_string(report->output), report->output->length);
        json_bytes(&j, "stderr", buf_string(report->errors), report->errors->length);
    }
    json_close(&j);
    return json_finish(&j);
}

int report_error_json(const struct err *e, struct buf *out)
{
    char text[512];
    struct json j;

    err_text(e, text, sizeof text);
    json_init(&j, out);
    json_open_object(&j, NULL);
    json_null(&j, "outcome");
    json_open_object(&j, "error");
    json_string(&j, "step", err_step_name(e->step));
    json_unsigned(&j, "errno", (uint64_t)e->code);
    json_string(&j, "message", text);
    json_close(&j);
    json_close(&j);
    return json_finish(&j);
}

void report_remark(const struct report *report, const struct command_spec *command)
{
    const struct limits *limits = &report->plan->limits;

    switch (report->outcome) {
    case OUTCOME_TIMEOUT:
        fprintf(stderr, "carrel: the command was ended after %.3g s (--timeout)\n", (double)command->timeout_ms / 1000);
        break;
    case OUTCOME_OOM:
        fprintf(stderr, "carrel: the box ran out of memory (--memory %llu bytes)\n", (unsigned long long)limits->memory_bytes);
        break;
    case OUTCOME_PIDS:
        fprintf(stderr, "carrel: the box reached its limit of %u processes (--pids)\n", limits->pids);
        break;
    case OUTCOME_DISK:
        fprintf(stderr, "carrel: the box filled its disk (--disk %llu bytes)\n", (unsigned long long)limits->disk_bytes);
        break;
    case OUTCOME_OUTPUT:
        fprintf(stderr, "carrel: the command was ended after %llu bytes of output (--output-limit)\n",
                (unsigned long long)command->output_bytes);
        break;
    case OUTCOME_OK:
    case OUTCOME_ERROR:
    case OUTCOME_KILLED:
    case OUTCOME_COUNT:
        break;
    }
}
