/* `carrel run` by a server. carrel passes the request in a memfd (cli/viaserver.c). It makes a box, starts the command
 * in it as a session, and the server deletes the box when the command has ended, also if this process was killed.
 * Output and exit status are those of a run without a server. */
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
    json_t         *box;            /* owned: the server's answer */
    json_t         *walls;          /* owned: what is enforced, for the report */
    bool            json;
    const char     *report_path;    /* NULL: none */
    int             report_fd;      /* owned; opened before the box exists */
    struct buf      capture[2];
};

/* ---- the report ---- */

/* What is enforced, in the server's words; see cli/report.c. */
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

static int write_report(const struct server_run *run, const json_t *end, struct buf *out)
{
    struct ending e = ending_of(end);
    struct jsonout j;

    jsonout_init(&j, out);
    jsonout_open_object(&j, NULL);
    ending_write(&j, &e);
    write_enforced(&j, run->walls);
    if (run->json)
        ending_write_output(&j, &run->capture[0], &run->capture[1]);
    jsonout_close(&j);
    return jsonout_finish(&j);
}

/* Writes text to the report's file. 0, or the exit status if that failed. */
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

static int tell_end(const struct server_run *run, const json_t *end)
{
    const json_t *error = json_object_get(end, "error");
    int told = 0;

    if (wants_report(run)) {
        struct buf text;
        buf_init(&text, REPORT_MAX);
        int number = (int)json_integer_value(json_object_get(error, "errno"));
        int r = json_is_object(error)
                    ? ending_write_failure(text_of(error, "step"), number, text_of(error, "message"), &text)
                    : write_report(run, end, &text);
        told = deliver(run, &text, r);
        buf_done(&text);
    }
    if (json_is_object(error) || !run->json)
        tell_ending(end);
    return told ? told : exit_of(end, run->session->caught);
}

/* The server refused, or could not be reached. */
static int tell_refusal(const struct server_run *run, int status, json_t *answer, const struct err *e)
{
    const char *message = status < 0 ? e->what : text_of(json_object_get(answer, "error"), "message");
    struct buf text;
    int told = 0;

    if (wants_report(run)) {
        buf_init(&text, REPORT_MAX);
        told = deliver(run, &text, ending_write_failure("host", status < 0 ? e->code : 0, message, &text));
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

/* Asked while the box exists: it ends with its command. */
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

/* If the command has run the server already deletes the box; this waits until it is gone. */
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
    if (!s->follow.end && r > 0 && s->caught)       /* the signal came before the start, or before the end was
                                                     * reported */
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
