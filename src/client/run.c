/* `carrel run` by a server: what was asked for comes from carrel in a memfd (cli/viaserver.c). A box is made, the
 * command is started in it as a session, and the box is deleted with it: by the server itself when the command has
 * ended, so also when this process was killed. What is printed, and the exit status, are those of a run without a
 * server. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/jsonout.h"
#include "base/outfile.h"
#include "base/parse.h"
#include "client/client.h"
#include "client/commands.h"
#include "client/remote.h"
#include "client/wire/heed.h"
#include "proto/names.h"

enum { REQUEST_MAX = 16 << 20, CAPTURE_MAX = 256 << 20, GRACE_US = 5000000 };
#define REPORT_MAX ((size_t)1 << 30)

struct server_run {
    struct remote_command *session;
    json_t         *request;        /* owned */
    json_t         *box;            /* owned: as it was made */
    json_t         *walls;          /* owned: what holds it, if there is to be a report */
    bool            json;
    const char     *report_path;    /* NULL: none */
    int             report_fd;      /* owned; opened before the box is there */
    struct buf      capture[2];
};

/* ---- the report ---- */

static uint64_t number_of(const json_t *object, const char *key)
{
    return (uint64_t)json_integer_value(json_object_get(object, key));
}

static uint64_t us_of(const json_t *object, const char *key)
{
    return (uint64_t)(json_number_value(json_object_get(object, key)) * 1000 + 0.5);
}

/* What holds the box, in the server's words; see cli/report.c. */
static void write_enforced(struct jsonout *j, const json_t *walls)
{
    static const char *const parts[] = { "enforced", "not_enforced" };
    const char *name;
    json_t *means;

    for (size_t i = 0; i < 2; i++) {
        jsonout_open_object(j, parts[i]);
        json_object_foreach(json_object_get(walls, parts[i]), name, means)
            jsonout_string(j, name, json_string_value(means));
        jsonout_close(j);
    }
}

/* As cli/report.c writes it. */
static int write_report(const struct server_run *run, const json_t *end, struct buf *out)
{
    const json_t *code = json_object_get(end, "exit_code"), *signal = json_object_get(end, "signal"),
                 *usage = json_object_get(end, "box_usage");
    uint64_t peak = number_of(usage, "memory_peak_bytes"), pids = number_of(usage, "pids_peak");
    struct jsonout j;

    jsonout_init(&j, out);
    jsonout_open_object(&j, NULL);
    jsonout_string(&j, "outcome", text_of(end, "outcome"));
    if (json_is_integer(code))
        jsonout_signed(&j, "exit_code", json_integer_value(code));
    else
        jsonout_null(&j, "exit_code");
    if (json_is_integer(signal))
        jsonout_signed(&j, "signal", json_integer_value(signal));
    else
        jsonout_null(&j, "signal");
    jsonout_decimal(&j, "wall_ms", us_of(end, "wall_ms"), 3);
    jsonout_decimal(&j, "cpu_ms", us_of(end, "cpu_ms"), 3);
    jsonout_unsigned(&j, "memory_peak_bytes", peak ? peak : number_of(end, "memory_peak_bytes"));
    jsonout_unsigned(&j, "disk_bytes", number_of(usage, "disk_bytes"));
    if (pids)
        jsonout_unsigned(&j, "pids_peak", pids);
    else
        jsonout_null(&j, "pids_peak");
    write_enforced(&j, run->walls);
    if (run->json) {
        jsonout_bool(&j, "truncated", buf_error(&run->capture[0]) < 0 || buf_error(&run->capture[1]) < 0);
        jsonout_bytes(&j, "stdout", buf_string(&run->capture[0]), run->capture[0].length);
        jsonout_bytes(&j, "stderr", buf_string(&run->capture[1]), run->capture[1].length);
    }
    jsonout_close(&j);
    return jsonout_finish(&j);
}

static int write_failure(const char *step, int code, const char *message, struct buf *out)
{
    struct jsonout j;

    jsonout_init(&j, out);
    jsonout_open_object(&j, NULL);
    jsonout_null(&j, "outcome");
    jsonout_open_object(&j, "error");
    jsonout_string(&j, "step", step);
    jsonout_signed(&j, "errno", code);
    jsonout_string(&j, "message", message);
    jsonout_close(&j);
    jsonout_close(&j);
    return jsonout_finish(&j);
}

/* Writes text where a report was asked for. 0, or the exit status if that could not be. */
static int deliver(const struct server_run *run, struct buf *text, int r)
{
    buf_add_char(text, '\n');
    if (r == 0)
        r = buf_error(text);
    if (r < 0) {
        fprintf(stderr, "carrel: report: %s\n", strerror(-r));
        return EXIT_CLIENT;
    }
    if (run->report_path) {
        r = outfile_write(run->report_fd, text->data, text->length);
        if (r < 0)
            fprintf(stderr, "carrel: --report %s: %s\n", run->report_path, strerror(-r));
    }
    if (r == 0 && run->json &&
        (r = heed_write(STDOUT_FILENO, text->data, text->length, heed_stop_for_signal, NULL)) < 0) {
        int signal = r == -EINTR ? heed_pending() : 0;
        if (signal)
            return 128 + signal;
        fprintf(stderr, "carrel: standard output: %s\n", strerror(-r));
    }
    return r < 0 ? EXIT_CLIENT : 0;
}

static bool wants_report(const struct server_run *run)
{
    return run->json || run->report_path;
}

/* ---- how it ended ---- */

static void remark(const struct server_run *run, const json_t *end, enum outcome outcome)
{
    const json_t *limits = json_object_get(run->box, "limits"), *command = json_object_get(run->request, "exec");

    if (outcome == OUTCOME_TIMEOUT)
        fprintf(stderr, "carrel: the command was ended after %.3g s (--timeout)\n",
                json_number_value(json_object_get(command, "timeout")));
    else if (outcome == OUTCOME_OOM)
        fprintf(stderr, "carrel: the box ran out of memory (--memory %s)\n",
                parse_show_size(number_of(limits, "memory")).text);
    else if (outcome == OUTCOME_PIDS)
        fprintf(stderr, "carrel: the box reached its limit of %llu processes (--pids)\n",
                (unsigned long long)number_of(limits, "pids"));
    else if (outcome == OUTCOME_DISK)
        fprintf(stderr, "carrel: the box filled its disk (--disk %s)\n",
                parse_show_size(number_of(limits, "disk")).text);
    else if (outcome == OUTCOME_OUTPUT)
        fprintf(stderr, "carrel: the command was ended after %s of output (--output-limit)\n",
                parse_show_size(number_of(end, "output_limit")).text);
}

static int tell_end(const struct server_run *run, const json_t *end)
{
    const json_t *error = json_object_get(end, "error"), *code = json_object_get(end, "exit_code");
    enum outcome outcome = outcome_parse(text_of(end, "outcome"));
    int signal = (int)number_of(end, "signal"), status = EXIT_CLIENT, r = 0;
    struct buf text;

    buf_init(&text, REPORT_MAX);
    if (json_is_object(error)) {
        int number = (int)number_of(error, "errno");
        r = write_failure(text_of(error, "step"), number, text_of(error, "message"), &text);
        if (strcmp(text_of(error, "step"), "exec") == 0)
            status = number == ENOENT || number == ENOTDIR ? EXIT_MISSING : EXIT_CANNOT;
    } else {
        r = write_report(run, end, &text);
        if (outcome == OUTCOME_TIMEOUT)
            status = EXIT_TIMEOUT;
        else if (outcome == OUTCOME_KILLED && run->session->caught)
            status = 128 + run->session->caught;
        else if (outcome == OUTCOME_OUTPUT)
            status = 128 + SIGKILL;
        else if (signal)
            status = 128 + signal;
        else if (json_is_integer(code))
            status = (int)json_integer_value(code);
    }
    int told = wants_report(run) ? deliver(run, &text, r) : 0;
    buf_done(&text);
    if (json_is_object(error))
        fprintf(stderr, "carrel: %s\n", show_text(text_of(error, "message")));
    else if (!run->json)
        remark(run, end, outcome);
    return told ? told : status;
}

/* The server would not, or could not be reached. */
static int tell_refusal(const struct server_run *run, int status, json_t *answer, const struct err *e)
{
    const char *message = status < 0 ? e->what : text_of(json_object_get(answer, "error"), "message");
    struct buf text;
    int told = 0;

    if (wants_report(run)) {
        buf_init(&text, REPORT_MAX);
        told = deliver(run, &text, write_failure("host", status < 0 ? e->code : 0, message, &text));
        buf_done(&text);
    }
    (void)told;
    return status < 0 ? client_complain(e) : client_refused(status, answer);
}

/* ---- the run ---- */

static json_t *read_request(int fd)
{
    struct buf all;
    ssize_t n;

    buf_init(&all, REQUEST_MAX);
    do {
        char *room = buf_reserve(&all, 65536);
        n = room ? read(fd, room, 65536) : -1;
        if (n > 0)
            buf_commit(&all, (size_t)n);
    } while (n > 0 || (n < 0 && errno == EINTR));
    json_t *value = n == 0 ? json_loadb(buf_string(&all), all.length, 0, NULL) : NULL;
    buf_done(&all);
    return value;
}

static int make_box(struct server_run *run)
{
    struct client *c = &run->session->client;
    json_t *body = json_deep_copy(json_object_get(run->request, "create")), *answer = NULL, *mount;
    struct err e = { 0 };
    struct handover h;
    size_t i;
    int status = 0;

    handover_init(&h);
    json_array_foreach(json_object_get(run->request, "mounts"), i, mount) {
        const char *source = text_of(mount, "source"), *what = show_format("--mount %s", parse_quote(source).text);
        if (status == 0)
            status = handover_add(&h, what, source, text_of(mount, "target"),
                                  json_is_true(json_object_get(mount, "writable")), &e);
    }
    if (h.n)
        json_object_set(body, "mounts", h.list);
    if (status == 0)
        status = client_ask_with(c, "POST", "/v1/boxes", NULL, json_incref(body), &h, &answer, &e);
    json_decref(body);
    handover_done(&h);
    if (status < 200 || status >= 300) {
        status = tell_refusal(run, status, answer, &e);
        json_decref(answer);
        return status;
    }
    run->box = answer;
    return 0;
}

/* Asked while the box is there: it ends with its command. */
static int ask_walls(struct server_run *run)
{
    json_t *answer = NULL;
    struct err e = { 0 };
    int status = client_ask(&run->session->client, "GET", target_box(text_of(run->box, "id"), "/enforced"), NULL,
                            &answer, &e);

    if (status < 200 || status >= 300) {
        status = tell_refusal(run, status, answer, &e);
        json_decref(answer);
        return status;
    }
    run->walls = answer;
    return 0;
}

/* It is going already if the command has run; then this waits until it is gone. */
static void end_box(const struct server_run *run)
{
    json_t *answer = NULL;
    struct err ignored;

    (void)!client_ask(&run->session->client, "DELETE", target_box(text_of(run->box, "id"), ""), NULL, &answer,
                      &ignored);
    json_decref(answer);
}

static int carry_out(struct server_run *run)
{
    struct remote_command *s = run->session;

    json_decref(s->body);
    json_decref(s->env);
    s->body = json_deep_copy(json_object_get(run->request, "exec"));
    s->env = json_incref(json_object_get(s->body, "env"));
    s->interactive = json_is_true(json_object_get(run->request, "interactive"));
    s->terminal = json_is_true(json_object_get(run->request, "tty"));
    s->grace_us = GRACE_US;
    s->follow.box = text_of(run->box, "id");
    if (run->json) {
        buf_init(&run->capture[0], CAPTURE_MAX);
        buf_init(&run->capture[1], CAPTURE_MAX);
        s->follow.capture = run->capture;
    }
    if (remote_prepare(s) < 0)
        return EXIT_CLIENT;
    int r = remote_run(s);
    if (!s->follow.end && r > 0 && s->caught)       /* ended before it began, or before its end was told */
        s->follow.end = json_pack("{s:s,s:n,s:i}", "outcome", outcome_name(OUTCOME_KILLED), "exit_code", "signal",
                                  SIGKILL);
    if (s->follow.end)
        return tell_end(run, s->follow.end);
    return r < 0 ? EXIT_CLIENT : s->follow.cut ? 128 + SIGPIPE : 128 + s->caught;
}

int client_run(int argc, char **argv)
{
    static struct server_run run;
    struct err e = { 0 };
    uint32_t fd = 0;

    if (argc != 3 || parse_count("the request", argv[1], 3, 1 << 20, &fd, &e) < 0
        || !(run.request = read_request((int)fd))) {
        fputs("carrel-server: run is started by carrel; see 'carrel run --help'\n", stderr);
        return EXIT_CLIENT;
    }
    fd_close((int)fd);
    run.session = remote_new("run", "");
    if (server_find(argv[2], &run.session->client.server, &e) < 0)
        return remote_finish(run.session, client_complain(&e));
    run.json = json_is_true(json_object_get(run.request, "json"));
    run.report_path = json_string_value(json_object_get(run.request, "report"));
    if (run.report_path && (run.report_fd = outfile_open("--report", run.report_path, &e)) < 0)
        return remote_finish(run.session, client_complain(&e));
    int status = make_box(&run);
    if (status == 0) {
        status = wants_report(&run) ? ask_walls(&run) : 0;
        if (status == 0)
            status = carry_out(&run);
        end_box(&run);
    }
    json_decref(run.walls);
    json_decref(run.box);
    json_decref(run.request);
    return remote_finish(run.session, status);
}
