#define _GNU_SOURCE
#include "cli/report.h"

#include "base/jsonout.h"
#include "proto/walls.h"

enum { REFUSAL_TEXT = 2048 };

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
        .network = plan->has_network ? WALL_NET_HOLD + report->way : WALL_NET_NONE,
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

static void write_refusals(struct jsonout *j, const struct report *report)
{
    char rule[NET_RULE_TEXT];
    struct buf text;

    buf_init(&text, REFUSAL_TEXT);
    if (!report->refusals || !refusals_write(report->refusals, 0, report->policy, "--deny ", &text, rule))
        return;
    jsonout_open_object(j, "net");
    jsonout_string(j, "message", buf_string(&text));
    jsonout_string(j, "rule", rule[0] ? rule : NULL);
    jsonout_open_array(j, "refused");
    for (size_t i = 0; i < report->refusals->n; i++) {
        const struct net_refusal *one = &report->refusals->list[i];
        net_refusal_rule(one, report->policy, rule);
        jsonout_open_object(j, NULL);
        jsonout_string(j, "name", one->what);
        jsonout_unsigned(j, "port", one->port);
        jsonout_unsigned(j, "count", one->count);
        jsonout_string(j, "rule", rule[0] ? rule : NULL);
        jsonout_close(j);
    }
    jsonout_close(j);
    jsonout_unsigned(j, "refused_more", report->refusals->more);
    jsonout_close(j);
    buf_done(&text);
}

void report_refusals(const struct report *report)
{
    char rule[NET_RULE_TEXT];
    struct buf text;

    buf_init(&text, REFUSAL_TEXT);
    if (refusals_write(report->refusals, 0, report->policy, "--deny ", &text, rule)) {
        refusals_advise("--allow ", rule, "", "--packages NAME", &text);
        fprintf(stderr, "carrel: %s\n", buf_string(&text));
    }
    buf_done(&text);
}

int report_json(const struct report *report, struct buf *out)
{
    struct jsonout j;

    jsonout_init(&j, out);
    jsonout_open_object(&j, NULL);
    ending_write(&j, &report->end);
    write_walls(&j, report);
    write_refusals(&j, report);
    if (report->n_trace > 0)
        write_trace(&j, report);
    if (report->output)
        ending_write_output(&j, report->output, report->errors);
    jsonout_close(&j);
    return jsonout_finish(&j);
}

int report_error_json(const struct err *e, struct buf *out)
{
    char text[512];

    err_text(e, text, sizeof text);
    return ending_write_failure(err_step_name(e->step), e->code, text, out);
}
