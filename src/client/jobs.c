/* carrel jobs, wait and kill: the commands of a box. Kernels and services' workers are commands, too, but are not shown
 * as jobs. */
#define _GNU_SOURCE
#include "client/jobs.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/parse.h"
#include "client/commands.h"
#include "client/follow.h"

enum { PATIENCE_US = 15000000, COMMAND_SHOWN = 60 };

static bool is_job(const json_t *exec)
{
    return !json_object_get(exec, "kernel") && !json_object_get(exec, "service");
}

static bool is_background(const json_t *exec)
{
    return is_job(exec) && json_is_true(json_object_get(exec, "background"));
}

static bool has_ended(const json_t *exec)
{
    return strcmp(text_of(exec, "state"), "ended") == 0;
}

int job_find(const struct client *c, const char *box, const char *word, char ret[JOB_ID_BYTES])
{
    json_t *answer = NULL, *exec;
    size_t i;

    if (word && (strlen(word) >= JOB_ID_BYTES || !word[0] || strchr(word, '/'))) {
        (void)client_misused(c, "'%s' is not the id of a command", show_text(word));
        return -1;
    }
    snprintf(ret, JOB_ID_BYTES, "%s", word ? word : "");
    if (word)
        return 0;
    if (client_call(c, "GET", target_box(box, "/exec"), NULL, &answer) < 0)
        return -1;
    json_array_foreach(json_object_get(answer, "execs"), i, exec)
        if (!ret[0] && is_background(exec))
            snprintf(ret, JOB_ID_BYTES, "%s", text_of(exec, "id"));
    if (!ret[0])
        fprintf(stderr,
                "carrel: no command was started in the background of %s; 'carrel exec -d' starts one, and 'carrel jobs "
                "-a' lists all that ran\n",
                show_text(box));
    json_decref(answer);
    return ret[0] ? 0 : -1;
}

/* ---- jobs ---- */

static const char jobs_usage[] =
    "usage: carrel jobs [-a] [-q] BOX [--json] [--url URL]\n"
    "\n"
    "Lists the commands of a box, newest first: those that run, and those in the background that have ended. -a: all; "
    "-q: ids\n"
    "only. STATUS is the exit status that 'carrel wait' gives.\n";

struct shown_jobs {
    bool all, quiet;
};

static int set_all(void *into, const char *value, struct err *e)
{
    (void)value;
    (void)e;
    ((struct shown_jobs *)into)->all = true;
    return 0;
}

static int set_quiet(void *into, const char *value, struct err *e)
{
    (void)value;
    (void)e;
    ((struct shown_jobs *)into)->quiet = true;
    return 0;
}

/* The words of a command with spaces between them, or the line of a shell. */
static const char *show_command(const json_t *argv)
{
    const char *shell = json_string_value(json_array_get(argv, 0)),
               *option = json_string_value(json_array_get(argv, 1));
    bool is_line = shell && option && json_array_size(argv) == 3 && strcmp(shell, "/bin/sh") == 0
                   && strcmp(option, "-c") == 0;
    char text[COMMAND_SHOWN + 1] = "";
    struct buf out;

    buf_init(&out, 1 << 16);
    for (size_t i = is_line ? 2 : 0; i < json_array_size(argv); i++)
        buf_printf(&out, "%s%s", out.length ? " " : "", json_string_value(json_array_get(argv, i)));
    size_t length = out.length < COMMAND_SHOWN ? out.length : COMMAND_SHOWN;
    while (length < out.length && length > 0 && ((unsigned char)out.data[length] & 0xc0) == 0x80)
        length--;
    snprintf(text, sizeof text, "%.*s", (int)length, buf_string(&out));
    bool is_cut = length < out.length;
    buf_done(&out);
    return show_format("%s%s", text, is_cut ? "\xe2\x80\xa6" : "");
}

static void add_job(struct table *t, const json_t *exec)
{
    bool ended = has_ended(exec);
    const char *outcome = text_of(exec, "outcome");

    table_add(t, text_of(exec, "id"), ended && outcome[0] ? outcome : text_of(exec, "state"),
              ended ? show_number((uint64_t)exit_of(exec, 0)) : "-", show_age(text_of(exec, "started_at")),
              show_command(json_object_get(exec, "argv")));
}

int client_jobs(int argc, char **argv)
{
    static const struct flag flags[] = { { "all", 'a', false, set_all }, { "quiet", 'q', false, set_quiet } };
    static const char *const titles[] = { "JOB", "STATE", "STATUS", "AGE", "COMMAND", NULL };
    struct client c = { .name = "jobs", .usage = jobs_usage };
    struct shown_jobs l = { 0 };
    struct words words;
    json_t *answer = NULL, *exec, *shown = json_array();
    struct table table;
    size_t i;
    int status = client_begin(&c, argc, argv, flags, 2, &l, false, &words);

    if (status < 0 && words.n != 1)
        status = client_misused(&c, words.n ? "it takes one box" : "which box?");
    if (status < 0 && client_call(&c, "GET", target_box(words.at[0], "/exec"), NULL, &answer) < 0)
        status = EXIT_CLIENT;
    if (status >= 0) {
        json_decref(shown);
        return status;
    }
    table_init(&table, titles, 1 << 2);
    json_array_foreach(json_object_get(answer, "execs"), i, exec) {
        if (!is_job(exec) || (!l.all && has_ended(exec) && !is_background(exec)))
            continue;
        json_array_append(shown, exec);
        add_job(&table, exec);
        if (l.quiet && !c.json)
            puts(text_of(exec, "id"));
    }
    if (c.json)
        print_json(shown);
    else if (!l.quiet)
        table_print(&table);
    table_done(&table);
    json_decref(shown);
    json_decref(answer);
    return 0;
}

/* ---- wait ---- */

static const char wait_usage[] =
    "usage: carrel wait BOX [JOB] [--json] [--url URL]\n"
    "\n"
    "Waits until a command of a box has ended; without JOB, the newest one in the background. The exit status is the "
    "command's,\n"
    "as 'carrel exec' gives it. --json: the command with its outcome and bill.\n";

/* The command once it has ended; NULL after it reported an error. Retries for some seconds while the server is away. */
static json_t *await_end(const struct client *c, const char *target)
{
    const struct timespec pause = { .tv_nsec = 50000000L };
    uint64_t until = clock_monotonic_us() + PATIENCE_US;

    for (;;) {
        struct err e = { 0 };
        json_t *answer = NULL;
        int status = client_ask(c, "GET", target, NULL, &answer, &e);
        if (status == 200 && has_ended(answer))
            return answer;
        if (status == 200)
            until = clock_monotonic_us() + PATIENCE_US;
        else if ((status >= 0 && status != 503) || clock_monotonic_us() >= until) {
            (void)(status < 0 ? client_complain(&e) : client_refused(status, answer));
            json_decref(answer);
            return NULL;
        }
        json_decref(answer);
        nanosleep(&pause, NULL);
    }
}

int client_wait(int argc, char **argv)
{
    struct client c = { .name = "wait", .usage = wait_usage };
    struct words words;
    char id[JOB_ID_BYTES], rest[80];
    int status = client_begin(&c, argc, argv, NULL, 0, NULL, false, &words);

    if (status >= 0)
        return status;
    if (words.n < 1 || words.n > 2)
        return client_misused(&c, words.n ? "it takes a box and a command" : "which box?");
    if (job_find(&c, words.at[0], words.n == 2 ? words.at[1] : NULL, id) < 0)
        return EXIT_CLIENT;
    snprintf(rest, sizeof rest, "/exec/%s?wait=true", id);
    json_t *end = await_end(&c, target_box(words.at[0], rest));
    if (!end)
        return EXIT_CLIENT;
    if (c.json)
        print_json(end);
    fflush(stdout);
    tell_ending(end);
    status = exit_of(end, 0);
    json_decref(end);
    return status;
}

/* ---- kill ---- */

static const char kill_usage[] =
    "usage: carrel kill BOX JOB [SIGNAL] [--json] [--url URL]\n"
    "\n"
    "Sends a signal to a command of a box and its children (its process group): a name like TERM or KILL, or a "
    "number.\n"
    "Without SIGNAL it is TERM. 'carrel wait' waits for the end.\n";

static json_t *signal_json(const char *word)
{
    char name[16] = "";
    uint32_t number = 0;
    struct err ignored;

    if (parse_count("SIGNAL", word, 1, 64, &number, &ignored) == 0)
        return json_integer(number);
    for (size_t i = 0; word[i] && i < sizeof name - 1; i++)
        name[i] = (char)toupper((unsigned char)word[i]);
    return json_string(name);
}

int client_kill(int argc, char **argv)
{
    struct client c = { .name = "kill", .usage = kill_usage };
    struct words words;
    char id[JOB_ID_BYTES], rest[80];
    json_t *answer = NULL;
    int status = client_begin(&c, argc, argv, NULL, 0, NULL, false, &words);

    if (status >= 0)
        return status;
    if (words.n < 2 || words.n > 3)
        return client_misused(&c, words.n == 1 ? "which command? 'carrel jobs' lists them"
                                               : "it takes a box, a command and a signal");
    if (job_find(&c, words.at[0], words.at[1], id) < 0)
        return EXIT_CLIENT;
    snprintf(rest, sizeof rest, "/exec/%s/signal", id);
    json_t *body = json_pack("{s:o}", "signal", signal_json(words.n == 3 ? words.at[2] : "TERM"));
    if (client_call(&c, "POST", target_box(words.at[0], rest), body, &answer) < 0)
        return EXIT_CLIENT;
    if (c.json)
        print_json(answer);
    json_decref(answer);
    return 0;
}
