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
#include "base/prefix.h"
#include "box/box.h"
#include "box/device.h"
#include "cli/broker.h"
#include "cli/commands.h"
#include "cli/doctor/container.h"
#include "cli/egress.h"
#include "cli/forkway.h"
#include "cli/layers/layers.h"
#include "cli/options/help.h"
#include "cli/options/mountarg.h"
#include "cli/options/options.h"
#include "cli/options/sources.h"
#include "cli/report.h"
#include "cli/foreground.h"
#include "cli/viaserver.h"

enum { CAPTURE_MAX = 256 << 20, REPORT_MAX = 1 << 30, TRACE_STEPS = 8 };

/* The whole state of one run. It is large and lives as long as the process. */
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
    struct run_broker  broker;
    char               layer_path[LAYER_PATH], python_places[1024];
    int                layer;           /* owned: keeps the layer in use; -1: none */
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

/* Adds a device's variables, unless the caller has set them. */
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

/* Adds mounts for the layer of the packages and its interpreter, like the caller's own. */
static int add_packages(struct local_run *run, struct err *e)
{
    struct run_options *o = &run->options;
    char python[PYTHON_MAX], mount[LAYER_PATH * 2 + 32];

    if (o->packages.n == 0)
        return 0;
    int r = layer_get(&o->packages, o->python, &run->layer, run->layer_path, e);
    if (r == 0)
        r = interpreter_find(o->python, python, e);
    if (r == 0)
        r = prefix_add_python(python, run->python_places, sizeof run->python_places, e);
    for (const char *at = run->python_places; r == 0 && *at; at += strcspn(at, ":"), at += *at == ':') {
        int n = (int)strcspn(at, ":");
        snprintf(mount, sizeof mount, "%.*s:%.*s", n, at, n, at);
        r = mountarg_add(&o->box, mount, &o->arena, e);
    }
    if (r == 0) {
        snprintf(mount, sizeof mount, "%s:" PACKAGES_PLACE, run->layer_path);
        r = mountarg_add(&o->box, mount, &o->arena, e);
    }
    return r;
}

static int prepare(struct local_run *run, struct err *e)
{
    int r = box_host_open(&run->host, e);

    run->options.box.has_network = run->options.net.mode != NET_NONE;

    /* Not earlier: an ordinary user enters a mount namespace before, and a tree can only be cloned from a descriptor of
     * the same one. */
    if (r == 0)
        r = sources_open(&run->options.box, &run->sources, e);
    if (r == 0)
        r = add_devices(run, e);
    if (r == 0)
        r = forkway_open(&run->way, &run->options, e);
    mark(run, "host");
    /* If this host cannot enforce a default limit, the report says so; only an explicit limit is refused. */
    if (r == 0 && !run->options.given.pids && !run->host.cgroups.can[CG_PIDS])
        run->options.box.limits.pids = 0;
    if (r == 0)
        r = box_check_limits(&run->host, &run->options.box.limits, e);
    if (r == 0)
        r = facts_read_root(&run->host.facts, spec_root(&run->options.box), run->options.box.has_network, e);
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
        if (s->end.code != 0)
            run_egress_count(&run->egress, &run->box);
        mark(run, "command");
        box_usage_read(&run->box, &usage);
        box_destroy(&run->host, &run->box, &init_end);
        forkway_close(&run->way, &run->host);
        mark(run, "destroy");
    }
    foreground_close(s);
    if (r < 0)
        return r;
    /* Init only ends by our signal; otherwise a step of its own sealing failed, and it took the command with it. */
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
    run->report.policy = &run->options.net;
    run->report.way = run->egress.way;
    run->report.n_trace = run->n_trace;
    run->report.trace = run->trace;
    if (capture) {
        run->report.output = &run->output;
        run->report.errors = &run->errors;
    }
    return 0;
}

/* Writes the report or the error to its destination. */
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
    run.report_fd = run.egress.link = run.broker.link = run.layer = -1;
    mark(&run, "start");
    r = viaserver_run(&run.options, &e);
    /* If the report cannot be written, the run does not begin. */
    if (r == 0 && run.options.report_path &&
        (run.report_fd = outfile_open("--report", run.options.report_path, &late)) < 0) {
        cli_complain(&late);
        return EXIT_CARREL;
    }
    if (r == 0)
        r = add_packages(&run, &e);
    if (r == 0)
        r = run_egress_open(&run.egress, &run.options.net, &run.options.net_bounds, &e);
    if (r == 0)
        r = run_broker_open(&run.broker, &run.egress, &run.options, &e);
    if (r == 0)
        r = prepare(&run, &e);
    if (r == 0)
        r = carry_out(&run, &e);
    run_egress_close(&run.egress);
    run_broker_close(&run.broker);
    sources_close(&run.sources);
    device_close(&run.device_files);
    fd_close(run.layer);
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

/* Options of reports, and those that need a server, make no sense for `carrel plan`. */
static int refuse_for_plan(const struct run_options *options, struct err *e)
{
    const char *name = options->json                    ? "--json"
                     : options->report_path             ? "--report"
                     : options->trace                   ? "--trace"
                     : options->request_memory_bytes    ? "--request-memory"
                     : options->n_volumes               ? "--volume"
                     : options->n_secrets               ? "--secret" : NULL;

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
