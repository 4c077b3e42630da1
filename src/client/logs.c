/* carrel logs and carrel events. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "client/client.h"
#include "client/commands.h"
#include "client/follow.h"
#include "client/jobs.h"

struct looking {
    bool follows;
};

static int set_follow(void *into, const char *value, struct err *e)
{
    (void)value;
    (void)e;
    ((struct looking *)into)->follows = true;
    return 0;
}

static const struct flag follow_flag[] = { { "follow", 'f', false, set_follow } };

/* ---- logs ---- */

static const char logs_usage[] = "usage: carrel logs [-f] BOX [JOB] [--json] [--url URL]\n"
                                 "\n"
                                 "Shows a command's output; without JOB, the newest background command's. -f: until "
                                 "it ends. --json: the events with\n"
                                 "their offsets. The exit status is the command's, as 'carrel exec' gives it; 0 while "
                                 "it runs.\n";

int client_logs(int argc, char **argv)
{
    struct client c = { .name = "logs", .usage = logs_usage };
    struct looking l = { 0 };
    struct words words;
    struct follow f;
    int status = client_begin(&c, argc, argv, follow_flag, 1, &l, false, &words);

    if (status >= 0)
        return status;
    if (words.n < 1 || words.n > 2)
        return client_misused(&c, "it takes a box and, if you like, the id of a command");
    follow_init(&f, &c, words.at[0]);
    f.follows = l.follows;
    f.json = c.json;
    int r = job_find(&c, f.box, words.n == 2 ? words.at[1] : NULL, f.exec);
    if (r == 0)
        r = follow_attach(&f, false);
    while (r == 0) {
        r = follow_step(&f, true);
        if (r == -ECONNRESET && f.follows)
            r = follow_attach(&f, true);
    }
    status = r < 0 ? EXIT_CLIENT : f.cut ? 128 + SIGPIPE : f.end ? exit_of(f.end, 0) : 0;
    if (r >= 0 && f.end)
        tell_ending(f.end);
    follow_done(&f);
    return status;
}

/* ---- events ---- */

static const char events_usage[] =
    "usage: carrel events [-f] [BOX] [--json] [--url URL]\n"
    "\n"
    "Shows the events of a box. -f: and follows new ones; without BOX, of all your boxes.\n";

enum { EVENT_BYTES_MAX = 1 << 20, PATIENCE_US = 15000000 };

static void show_event(const struct client *c, json_t *event)
{
    if (c->json) {
        print_json_line(event);
        return;
    }
    char *body = json_dumps(json_object_get(event, "body"), JSON_COMPACT | JSON_ENCODE_ANY);
    const char *type = text_of(event, "type");
    printf("%s%s%s  %s  %s%-10s%s  %s\n", colour_of("dim", STDOUT_FILENO), show_text(text_of(event, "time")),
           colour_off(STDOUT_FILENO), show_text(text_of(event, "box")), colour_of(type, STDOUT_FILENO), show_text(type),
           colour_off(STDOUT_FILENO),
           show_text(body && strcmp(body, "{}") != 0 && strcmp(body, "null") != 0 ? body : ""));
    fflush(stdout);
    free(body);
}

static int show_log(const struct client *c, const char *box)
{
    uint64_t after = 0;
    json_t *answer = NULL, *event;
    size_t i;

    do {
        char rest[64];
        snprintf(rest, sizeof rest, "/events?limit=1000&after=%llu", (unsigned long long)after);
        if (client_call(c, "GET", target_box(box, rest), NULL, &answer) < 0)
            return EXIT_CLIENT;
        json_array_foreach(json_object_get(answer, "events"), i, event)
            show_event(c, event);
        after = (uint64_t)json_integer_value(json_object_get(answer, "next"));
        json_decref(answer);
    } while (after);
    return 0;
}

/* Server-sent events: lines "field: value", an empty one ends an event; ours have one line of data. */
static int read_events(const struct client *c, struct exchange *x, uint64_t *last)
{
    struct buf line;
    ssize_t n;
    char byte_block[16384];

    buf_init(&line, EVENT_BYTES_MAX);
    while ((n = exchange_read(x, byte_block, sizeof byte_block, true)) > 0) {
        for (ssize_t i = 0; i < n; i++) {
            if (byte_block[i] != '\n') {
                buf_add_char(&line, byte_block[i]);
                continue;
            }
            if (strncmp(buf_string(&line), "data: ", 6) == 0) {
                json_t *event = json_loadb(line.data + 6, line.length - 6, 0, NULL);
                if (event)
                    show_event(c, event);
                if (json_object_get(event, "number"))
                    *last = (uint64_t)json_integer_value(json_object_get(event, "number"));
                json_decref(event);
            }
            buf_clear(&line);
        }
    }
    buf_done(&line);
    return (int)n;
}

/* From the start of the box's log (or, without a box, from now) until a signal ends us; after a lost connection it
 * resumes. */
static int watch(const struct client *c, const char *box)
{
    const struct timespec pause = { .tv_nsec = 50000000L };
    struct exchange *x = malloc(sizeof *x);
    uint64_t last = 0, until = 0;
    struct err e = { 0 };
    int status = EXIT_CLIENT;

    while (x) {
        char fields[128];
        int n = snprintf(fields, sizeof fields, "Accept: text/event-stream\r\nConnection: close\r\n");
        if (last)
            snprintf(fields + n, sizeof fields - (size_t)n, "Last-Event-ID: %llu\r\n", (unsigned long long)last);
        int r = exchange_open(x, &c->server, "GET", box ? target_box(box, "/events") : "/v1/events", fields,
                              EXCHANGE_NO_BODY, &e);
        bool is_open = r == 0;
        if (r == 0 && (r = exchange_answer(x, &e)) == 0 && x->status != 200) {
            json_t *answer = client_read_json(x);
            status = client_refused(x->status, answer);
            json_decref(answer);
            break;
        }
        if (r == 0) {
            (void)read_events(c, x, &last);
            until = clock_monotonic_us() + PATIENCE_US;
        } else if (clock_monotonic_us() >= until) {
            status = client_complain(&e);
            break;
        }
        if (is_open)
            exchange_close(x);
        nanosleep(&pause, NULL);
    }
    free(x);
    return status;
}

int client_events(int argc, char **argv)
{
    struct client c = { .name = "events", .usage = events_usage };
    struct looking l = { 0 };
    struct words words;
    int status = client_begin(&c, argc, argv, follow_flag, 1, &l, false, &words);

    if (status >= 0)
        return status;
    if (words.n > 1 || (words.n == 0 && !l.follows))
        return client_misused(&c, words.n ? "it takes one box" : "which box? (-f shows the events of all)");
    return l.follows ? watch(&c, words.n ? words.at[0] : NULL) : show_log(&c, words.at[0]);
}
