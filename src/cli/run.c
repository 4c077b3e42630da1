/* `carrel run`: this process is the keeper of one box. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/outfile.h"
#include "box/box.h"
#include "box/device.h"
#include "cli/commands.h"
#include "cli/doctor/container.h"
#include "cli/egress.h"
#include "cli/forkway.h"
#include "cli/options/help.h"
#include "cli/options/options.h"
#include "cli/options/sources.h"
#include "cli/report.h"
#include "cli/foreground.h"
#include "cli/viaserver.h"

enum { CAPTURE_MAX = 256 << 20, REPORT_MAX = 1 << 30, TRACE_STEPS = 8 };

/* Everything of one run. It is big and lives as long as the process. */
struct local_run {
    struct run_options options;
    struct sources     sources;
    struct devices     devices;
    struct device_files device_files;
    struct box_host    host;
    struct plan        plan;
    struct engine_box  box;
    struct forkway     way;
    struct payload     payload;         /* forked from a zygote; else the command is box.first */
    struct foreground  session;
    struct buf         output, errors;
    struct report      report;
    struct run_egress  egress;
    int                report_fd;       /* owned; -1: none */
    size_t             n_trace;
    struct trace_step  trace[TRACE_STEPS];
};

static void mark(struct local_run *run, const char *name)
{
    if (run->options.trace && run->n_trace < TRACE_STEPS)
        run->trace[run->n_trace++] = (struct trace_step){ name, clock_monotonic_us() };
}

extern char **environ;

static bool has_variable(char *const *env, const char *variable)
{
    size_t n = strcspn(variable, "=") + 1;

    for (; *env; env++)
        if (strncmp(*env, variable, n) == 0)
            return true;
    return false;
}

/* What a device wants in the environment, unless the caller says otherwise. */
static int add_variables(struct command_spec *command, const struct cdi_edits *edits, struct err *e)
{
    size_t n = 0;

    while (command->env[n])
        n++;
    char **env = reallocarray(command->env, n + edits->n_env + 1, sizeof *env);
    if (!env)
        return err_at(e, ENOMEM, STEP_MEMORY, 0, "environment");
    command->env = env;
    for (size_t i = 0; i < edits->n_env; i++)
        if (!has_variable(env, edits->env[i])) {
            env[n++] = (char *)(uintptr_t)edits->env[i];
            env[n] = NULL;
        }
    return 0;
}

static int add_devices(struct local_run *run, struct err *e)
{
    const struct run_options *o = &run->options;
    const struct cdi_file *file;
    const struct cdi_device *device;
    int r = 0;

    if (o->n_devices)
        devices_read(run->host.rootless, &run->devices);
    for (size_t i = 0; i < o->n_devices && r == 0; i++) {
        r = device_add(&run->options.box, &run->host.facts, &run->devices, o->device[i], &run->device_files, e);
        if (r == 0 && (r = devices_find(&run->devices, o->device[i], &file, &device, e)) == 0
            && (r = add_variables(&run->options.command, &device->edits, e)) == 0)
            r = add_variables(&run->options.command, &file->edits, e);
    }
    return r;
}

static int prepare(struct local_run *run, struct err *e)
{
    int r = box_host_open(&run->host, e);

    run->options.box.has_network = run->options.net.mode != NET_NONE;

    /* Not before: an ordinary user enters a mount namespace there, and a tree can only be cloned from a descriptor of
     * the same one. */
    if (r == 0)
        r = sources_open(&run->options.box, &run->sources, e);
    if (r == 0)
        r = add_devices(run, e);
    if (r == 0)
        r = forkway_open(&run->way, &run->options, e);
    mark(run, "host");
    /* A default that this host cannot hold is told in the report; only what was asked for is refused. */
    if (r == 0 && !run->options.given.pids && !run->host.cgroups.can[CG_PIDS])
        run->options.box.limits.pids = 0;
    if (r == 0)
        r = box_check_limits(&run->host, &run->options.box.limits, e);
    if (r == 0)
        r = facts_read_root(&run->host.facts, spec_root(&run->options.box), e);
    if (r == 0)
        r = plan_make(&run->options.box, &run->host.facts, &run->plan, e);
    mark(run, "plan");
    return r;
}

static int carry_out(struct local_run *run, struct err *e)
{
    bool capture = run->options.json;
    struct process_end init_end = { 0 };
    struct box_usage usage = { 0 };

    buf_init(&run->output, CAPTURE_MAX);
    buf_init(&run->errors, CAPTURE_MAX);
    int r =
        foreground_open(&run->session, &run->options, capture ? &run->output : NULL, capture ? &run->errors : NULL, e);
    if (r < 0)
        return r;
    struct winsize size;
    if (run->options.command.terminal && ioctl(STDIN_FILENO, TIOCGWINSZ, &size) == 0) {
        run->options.command.rows = size.ws_row;
        run->options.command.columns = size.ws_col;
    }
    struct foreground *s = &run->session;
    struct start start = { .command = &run->options.command, .stdio = { s->stdio[0], s->stdio[1], s->stdio[2] } };
    bool has_network = run->egress.link >= 0;
    struct payload *payload = run->options.zygote ? &run->payload : &run->box.first;
    if (run->options.zygote)
        r = forkway_create(&run->way, &run->host, &run->options, &run->plan, &start, &run->box, payload, e);
    else
        r = box_create(&run->host, &run->plan, &start, false, &run->box, e);
    mark(run, "create");
    if (r == 0) {
        s->egress = has_network ? &run->egress : NULL;
        r = foreground_run(s, &run->box, payload, e);
        run_egress_hear(&run->egress, &run->box);
        mark(run, "command");
        box_usage_read(&run->box, &usage);
        box_destroy(&run->host, &run->box, &init_end);
        forkway_close(&run->way, &run->host);
        mark(run, "destroy");
    }
    foreground_close(s);
    if (r < 0)
        return r;
    /* Init ends by our signal and in no other way; if it did, a step of its own sealing failed, and it took the command
     * with it. */
    if (init_end.signal == 0 && init_end.code != 0)
        return err_set(e, ECHILD, init_end.code < STEP_COUNT ? (enum step)init_end.code : STEP_WAIT, "init");

    enum outcome outcome = box_outcome(&s->end, s->cause, &usage);
    run->report.end = (struct ending){
        .outcome = outcome,
        .code = s->end.code,
        .signal = s->end.signal,
        .limit = ending_limit(outcome, &run->plan.limits, run->options.command.timeout_ms,
                              run->options.command.output_bytes),
        .wall_us = s->ended_us - s->started_us,
        .cpu_us = s->end.cpu_us + init_end.cpu_us,
        .memory_peak_bytes = usage.cgroup.has_memory ? usage.cgroup.memory_peak_bytes : s->end.peak_bytes,
        .disk_bytes = usage.disk_bytes,
        .pids_peak = usage.cgroup.has_pids_peak ? (uint32_t)usage.cgroup.pids_peak : 0,
    };
    run->report.host = &run->host;
    run->report.plan = &run->plan;
    run->report.refusals = &run->egress.refusals;
    run->report.has_network = has_network;
    run->report.n_trace = run->n_trace;
    run->report.trace = run->trace;
    if (capture) {
        run->report.output = &run->output;
        run->report.errors = &run->errors;
    }
    return 0;
}

/* Writes the report or the error where it was asked for. */
static int deliver(struct local_run *run, const struct err *failure, struct err *e)
{
    struct buf text;
    int r = 0;

    if (!run->options.json && run->report_fd < 0)
        return 0;
    buf_init(&text, REPORT_MAX);
    r = failure ? report_error_json(failure, &text) : report_json(&run->report, &text);
    buf_add_char(&text, '\n');
    if (r < 0) {
        r = err_at(e, -r, STEP_MEMORY, 0, "report");
    } else if (run->report_fd >= 0) {
        r = outfile_write(run->report_fd, text.data, text.length);
        run->report_fd = fd_close(run->report_fd);
        if (r < 0)
            r = err_set(e, -r, STEP_STDIO, "--report %s", run->options.report_path);
    }
    if (r == 0 && run->options.json && (r = fd_write_all(STDOUT_FILENO, text.data, text.length)) < 0)
        r = err_at(e, -r, STEP_STDIO, 1, "standard output");
    buf_done(&text);
    return r;
}

static void print_trace(const struct local_run *run)
{
    for (size_t i = 1; i < run->n_trace; i++)
        fprintf(stderr, "carrel: %8.3f ms  %s\n", (double)(run->trace[i].at_us - run->trace[i - 1].at_us) / 1000,
                run->trace[i].name);
}

static void remark(const struct local_run *run)
{
    const struct ending *end = &run->report.end;
    struct ending_text line = ending_remark(end->outcome, end->limit, ENDING_OPTIONS);

    if (line.text[0])
        fprintf(stderr, "carrel: %s\n", line.text);
}

static void complain(const struct err *e)
{
    struct container container;
    struct buf advice;

    cli_complain(e);
    container_look(&container);
    if (!container_is_to_blame(&container, e))
        return;
    buf_init(&advice, 4096);
    container_advise(&container, &advice);
    fputs(buf_string(&advice), stderr);
    buf_done(&advice);
}

int run_main(int argc, char **argv)
{
    static struct local_run run;
    struct err e = { 0 }, late = { 0 };

    int r = options_parse(argc, argv, environ, &run.options, &e);
    if (r < 0) {
        cli_complain(&e);
        return EXIT_CARREL;
    }
    if (run.options.help) {
        help_print(stdout);
        return 0;
    }
    run.report_fd = run.egress.link = -1;
    mark(&run, "start");
    r = viaserver_run(&run.options, &e);
    /* What cannot be told is not begun. */
    if (r == 0 && run.options.report_path &&
        (run.report_fd = outfile_open("--report", run.options.report_path, &late)) < 0) {
        cli_complain(&late);
        return EXIT_CARREL;
    }
    if (r == 0)
        r = run_egress_open(&run.egress, &run.options.net, &e);
    if (r == 0)
        r = prepare(&run, &e);
    if (r == 0)
        r = carry_out(&run, &e);
    run_egress_close(&run.egress);
    sources_close(&run.sources);
    device_close(&run.device_files);
    int written = deliver(&run, r < 0 ? &e : NULL, &late);
    box_host_close(&run.host);
    mark(&run, "end");

    if (r < 0)
        complain(&e);
    else if (!run.options.json)
        remark(&run);
    if (r == 0 && !run.options.json)
        report_refusals(&run.report);
    if (run.options.trace)
        print_trace(&run);
    if (written < 0) {
        cli_complain(&late);
        return EXIT_CARREL;
    }
    return r < 0 ? ending_failure_status(e.step, e.code) : ending_status(&run.report.end, run.session.forwarded);
}

/* What says how a run is told of, or where it is done, means nothing where nothing runs. */
static int refuse_for_plan(const struct run_options *options, struct err *e)
{
    const char *name = options->json                    ? "--json"
                     : options->report_path             ? "--report"
                     : options->trace                   ? "--trace"
                     : options->where == RUN_BY_SERVER  ? "--server" : NULL;

    return name ? err_set(e, EINVAL, STEP_USAGE, "carrel plan runs nothing and has no %s; leave it out", name) : 0;
}

int plan_main(int argc, char **argv)
{
    static struct local_run run;
    struct err e = { 0 };

    int r = options_parse(argc, argv, environ, &run.options, &e);
    if (r == 0 && run.options.help) {
        help_print(stdout);
        return 0;
    }
    if (r == 0)
        r = refuse_for_plan(&run.options, &e);
    if (r == 0)
        r = prepare(&run, &e);
    if (r < 0)
        cli_complain(&e);
    else
        plan_print(&run.plan, stdout);
    sources_close(&run.sources);
    device_close(&run.device_files);
    box_host_close(&run.host);
    return r < 0 ? EXIT_CARREL : 0;
}
