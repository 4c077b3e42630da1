/* carrel stats: resource usage of boxes. With --watch the processor share is that of the last round. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "client/client.h"
#include "client/commands.h"

static const char usage[] = "usage: carrel stats [--watch] [BOX...] [--json] [--url URL]\n"
                            "\n"
                            "Shows the resource usage of boxes (without names: all your running ones). --watch: again "
                            "and again, until it is interrupted.\n";

enum { ROUND_MS = 1000, KNOWN_MAX = 4096 };

/* A box's processor time at the last round. */
struct known {
    char     id[16];
    double   cpu_ms;
    uint64_t at_us;
};

struct stats {
    struct client client;
    bool          watch;
    struct words  words;
    struct known *known;    /* owned: KNOWN_MAX */
    size_t        n_known;
    struct table  table;
    json_t       *all;      /* owned: for --json */
};

static int set_watch(void *into, const char *value, struct err *e)
{
    (void)value;
    (void)e;
    ((struct stats *)into)->watch = true;
    return 0;
}

/* "12%", or the total time in the first round. */
static const char *show_cpu(struct stats *s, const char *id, double cpu_ms)
{
    uint64_t now = clock_monotonic_us();
    size_t i = 0;

    while (i < s->n_known && strcmp(s->known[i].id, id) != 0)
        i++;
    if (i == KNOWN_MAX)
        return "-";
    struct known *k = &s->known[i], before = *k;
    bool is_new = i == s->n_known;
    snprintf(k->id, sizeof k->id, "%s", id);
    k->cpu_ms = cpu_ms;
    k->at_us = now;
    s->n_known += is_new;
    if (!s->watch)
        return cpu_ms < 10000 ? show_format("%.0fms", cpu_ms) : show_format("%.1fs", cpu_ms / 1000);
    return is_new || now == before.at_us
               ? "-"
               : show_format("%.1f%%", (cpu_ms - before.cpu_ms) * 100000 / (double)(now - before.at_us));
}

static const char *show_share(uint64_t used, uint64_t limit, bool bytes)
{
    const char *part = bytes ? show_bytes(used) : show_number(used);
    return limit ? show_format("%s / %s", part, bytes ? show_bytes(limit) : show_number(limit)) : part;
}

static uint64_t number_of(const json_t *object, const char *key)
{
    return (uint64_t)json_integer_value(json_object_get(object, key));
}

static bool is_counted(const json_t *usage_of_box, const char *key)
{
    return json_is_number(json_object_get(usage_of_box, key));
}

/* "-": nothing counts it. limit 0: none. */
static const char *show_use(const json_t *usage_of_box, const char *key, uint64_t limit, bool bytes)
{
    return is_counted(usage_of_box, key) ? show_share(number_of(usage_of_box, key), limit, bytes) : "-";
}

static void add_box(struct stats *s, const json_t *box, json_t *usage_of_box)
{
    const json_t *limits = json_object_get(box, "limits"), *net = json_object_get(usage_of_box, "net");

    if (s->client.json) {
        json_object_set(usage_of_box, "name", json_object_get(box, "name"));
        json_object_set(usage_of_box, "phase", json_object_get(box, "phase"));
        json_object_set(usage_of_box, "limits", json_object_get(box, "limits"));
        json_array_append(s->all, usage_of_box);
        return;
    }
    table_add(&s->table, text_of(box, "id"), text_of(box, "name"),
              is_counted(usage_of_box, "cpu_ms")
                  ? show_cpu(s, text_of(box, "id"), json_number_value(json_object_get(usage_of_box, "cpu_ms")))
                  : "-",
              show_use(usage_of_box, "memory_bytes", number_of(limits, "memory"), true),
              show_use(usage_of_box, "memory_peak_bytes", 0, true),
              show_use(usage_of_box, "disk_bytes", number_of(limits, "disk"), true),
              show_use(usage_of_box, "pids", number_of(limits, "pids"), false),
              show_number(number_of(usage_of_box, "execs_running")), show_use(usage_of_box, "oom_kills", 0, false),
              show_bytes(number_of(net, "bytes_sent")), show_bytes(number_of(net, "bytes_received")));
}

/* A box that is gone by now is left out unless it was named. */
static int add_one(struct stats *s, const json_t *box, bool is_named)
{
    json_t *answer = NULL;
    struct err e = { 0 };
    int status = client_ask(&s->client, "GET", target_box(text_of(box, "id"), "/usage"), NULL, &answer, &e), r = 0;

    if (status < 0) {
        r = client_complain(&e);
    } else if (status == 200) {
        add_box(s, box, answer);
    } else if (is_named) {
        r = client_refused(status, answer);
    }
    json_decref(answer);
    return r;
}

static int one_round(struct stats *s)
{
    json_t *answer = NULL, *box;
    size_t i;
    int status = 0;

    for (int n = 0; n < s->words.n; n++) {
        if (client_call(&s->client, "GET", target_box(s->words.at[n], ""), NULL, &answer) < 0 ||
            add_one(s, answer, true) != 0)
            status = EXIT_CLIENT;
        json_decref(answer);
        answer = NULL;
    }
    if (s->words.n == 0) {
        if (client_call(&s->client, "GET", "/v1/boxes?limit=1000&phase=running&phase=paused", NULL, &answer) < 0)
            return EXIT_CLIENT;
        json_array_foreach(json_object_get(answer, "boxes"), i, box)
            if (add_one(s, box, false) != 0)
                status = EXIT_CLIENT;
        json_decref(answer);
    }
    if (s->client.json) {
        print_json(s->all);
        json_array_clear(s->all);
    } else {
        if (s->watch && isatty(STDOUT_FILENO))
            fputs("\033[H\033[J", stdout);
        if (status == 0 || s->table.n > 0)     /* a header alone says nothing after an error */
            table_print(&s->table);
    }
    fflush(stdout);
    return status;
}

int client_stats(int argc, char **argv)
{
    static const struct flag flags[] = { { "watch", 'w', false, set_watch } };
    static const char *const titles[] = {
        "ID", "NAME", "CPU", "MEMORY", "PEAK", "DISK", "PIDS", "RUNNING", "OOM", "SENT", "RECEIVED", NULL
    };
    const struct timespec pause = { .tv_sec = ROUND_MS / 1000 };
    struct stats s = { .client = { .name = "stats", .usage = usage },
                       .known = calloc(KNOWN_MAX, sizeof *s.known),
                       .all = json_array() };
    int status = s.known ? client_begin(&s.client, argc, argv, flags, 1, &s, false, &s.words) : EXIT_CLIENT;

    table_init(&s.table, titles, 0x7fcu);
    if (status < 0)
        while ((status = one_round(&s)) == 0 && s.watch)
            nanosleep(&pause, NULL);
    table_done(&s.table);
    json_decref(s.all);
    free(s.known);
    return status;
}
