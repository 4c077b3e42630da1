/* carrel ps, pause, resume, stop, start, rm. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/client.h"
#include "client/commands.h"

/* ---- ps ---- */

static const char ps_usage[] =
    "usage: carrel ps [-a] [-q] [--label K[=V]]... [--phase PHASE]... [--everybody] [--json] [--url URL]\n"
    "\n"
    "Lists your boxes, newest first. -a: those that are gone, too; -q: ids only; --everybody: of all identities, for "
    "admins.\n"
    "Phases: creating running paused stopped failed deleting deleted.\n";

enum { QUERY_MAX = 8192, CURSOR_MAX = 64 };

struct shown_boxes {
    bool       gone, quiet, everybody, phases;
    struct buf query;
};

static int set_gone(void *into, const char *value, struct err *e)
{
    (void)value;
    (void)e;
    ((struct shown_boxes *)into)->gone = true;
    return 0;
}

static int set_quiet(void *into, const char *value, struct err *e)
{
    (void)value;
    (void)e;
    ((struct shown_boxes *)into)->quiet = true;
    return 0;
}

static int set_everybody(void *into, const char *value, struct err *e)
{
    (void)value;
    (void)e;
    struct shown_boxes *l = into;
    if (!l->everybody)
        buf_add_text(&l->query, "&all=true");
    l->everybody = true;
    return 0;
}

static int add_label(void *into, const char *value, struct err *e)
{
    (void)e;
    target_add(&((struct shown_boxes *)into)->query, "&label=", value);
    return 0;
}

static int add_phase(void *into, const char *value, struct err *e)
{
    (void)e;
    struct shown_boxes *l = into;
    l->phases = true;
    target_add(&l->query, "&phase=", value);
    return 0;
}

static const char *show_labels(const json_t *labels)
{
    static char text[400];
    struct buf out;
    const char *key;
    json_t *value;

    text[0] = '\0';
    buf_init_fixed(&out, text, sizeof text);
    json_object_foreach((json_t *)(uintptr_t)labels, key, value)
        buf_printf(&out, "%s%s=%s", out.length ? "," : "", key, json_string_value(value));
    return text;
}

static void add_box(struct table *t, const json_t *box, bool everybody)
{
    const json_t *limits = json_object_get(box, "limits");
    const char *phase = text_of(box, "phase"), *reason = text_of(box, "reason");
    const char *id = text_of(box, "id"), *name = text_of(box, "name"), *age = show_age(text_of(box, "created_at"));
    /* 0: this server's host cannot enforce the limit. */
    uint64_t bytes = (uint64_t)json_integer_value(json_object_get(limits, "memory"));
    double processors = json_number_value(json_object_get(limits, "cpus"));
    const char *memory = bytes ? show_bytes(bytes) : "-";
    const char *cpus = processors > 0 ? show_format("%g", processors) : "-";
    const char *execs = show_number((uint64_t)json_integer_value(json_object_get(box, "execs_running")));
    const char *labels = show_labels(json_object_get(box, "labels"));

    if (everybody)
        table_add(t, id, name, phase, reason, age, memory, cpus, execs, labels, text_of(box, "owner"));
    else
        table_add(t, id, name, phase, reason, age, memory, cpus, execs, labels);
}

/* Reads all pages into one list; NULL after it reported an error. */
static json_t *fetch(const struct client *c, struct shown_boxes *l)
{
    json_t *all = json_array();
    char cursor[CURSOR_MAX] = "";

    do {
        struct buf target;
        json_t *page = NULL;
        buf_init(&target, 2 * QUERY_MAX);
        target_add(&target, "/v1/boxes?limit=1000", NULL);
        buf_add_text(&target, buf_string(&l->query));
        if (cursor[0])
            target_add(&target, "&cursor=", cursor);
        int r = buf_error(&target) < 0 ? -1 : client_call(c, "GET", target.data, NULL, &page);
        buf_done(&target);
        if (r < 0) {
            json_decref(all);
            return NULL;
        }
        json_array_extend(all, json_object_get(page, "boxes"));
        snprintf(cursor, sizeof cursor, "%s", text_of(page, "next"));
        json_decref(page);
    } while (cursor[0]);
    return all;
}

static void show(const json_t *boxes, const struct shown_boxes *l)
{
    static const char *const titles[] = { "ID",   "NAME",    "PHASE",  "REASON", "AGE", "MEMORY",
                                          "CPUS", "RUNNING", "LABELS", "OWNER",  NULL };
    static const char *const own_titles[] = { "ID",     "NAME", "PHASE",   "REASON", "AGE",
                                              "MEMORY", "CPUS", "RUNNING", "LABELS", NULL };
    struct table t;
    size_t i;
    json_t *box;

    table_init(&t, l->everybody ? titles : own_titles, 1u << 4 | 1u << 5 | 1u << 6 | 1u << 7);
    json_array_foreach(boxes, i, box) {
        if (l->quiet)
            puts(text_of(box, "id"));
        else
            add_box(&t, box, l->everybody);
    }
    if (!l->quiet)
        table_print(&t);
    table_done(&t);
}

int client_ps(int argc, char **argv)
{
    static const struct flag flags[] = {
        { "gone", 'a', false, set_gone }, { "quiet", 'q', false, set_quiet }, { "everybody", 0, false, set_everybody },
        { "label", 'l', true, add_label }, { "phase", 0, true, add_phase },
    };
    struct client c = { .name = "ps", .usage = ps_usage };
    struct shown_boxes l = { 0 };
    struct words words;

    buf_init(&l.query, QUERY_MAX);
    int status = client_begin(&c, argc, argv, flags, sizeof flags / sizeof *flags, &l, false, &words);
    if (status < 0 && words.n > 0)
        status = client_misused(&c, "it takes no names");
    if (status < 0) {
        if (l.gone && !l.phases)
            buf_add_text(
                &l.query,
                "&phase=creating&phase=running&phase=paused&phase=stopped&phase=failed&phase=deleting&phase=deleted");
        json_t *boxes = fetch(&c, &l);
        status = boxes ? 0 : EXIT_CLIENT;
        if (boxes && c.json)
            print_json(boxes);
        else if (boxes)
            show(boxes, &l);
        json_decref(boxes);
    }
    buf_done(&l.query);
    return status;
}

/* ---- one request per box ---- */

static int for_each(const char *name, const char *usage, int (*ask)(const struct client *, const char *box), int argc,
                    char **argv)
{
    struct client c = { .name = name, .usage = usage };
    struct words words;
    int status = client_begin(&c, argc, argv, NULL, 0, NULL, false, &words);

    if (status >= 0)
        return status;
    if (words.n == 0)
        return client_misused(&c, "which box?");
    status = 0;
    for (int i = 0; i < words.n; i++)
        if (ask(&c, words.at[i]) != 0)
            status = EXIT_CLIENT;
    return status;
}

static int post(const struct client *c, const char *box, const char *rest)
{
    json_t *answer = NULL;

    if (client_call(c, "POST", target_box(box, rest), NULL, &answer) < 0)
        return EXIT_CLIENT;
    if (c->json && answer)
        print_json(answer);
    json_decref(answer);
    return 0;
}

static int pause_one(const struct client *c, const char *box)
{
    return post(c, box, "/pause");
}

static int resume_one(const struct client *c, const char *box)
{
    return post(c, box, "/resume");
}

static int stop_one(const struct client *c, const char *box)
{
    return post(c, box, "/stop");
}

int client_pause(int argc, char **argv)
{
    return for_each("pause", "usage: carrel pause BOX... [--json] [--url URL]\n\nFreezes every process of the boxes.\n",
                    pause_one, argc, argv);
}

int client_resume(int argc, char **argv)
{
    return for_each("resume", "usage: carrel resume BOX... [--json] [--url URL]\n\nLets frozen boxes go on.\n",
                    resume_one, argc, argv);
}

int client_stop(int argc, char **argv)
{
    return for_each("stop",
                    "usage: carrel stop BOX... [--json] [--url URL]\n\nEnds the boxes' processes; their files stay.\n",
                    stop_one, argc, argv);
}

static const char start_usage[] =
    "usage: carrel start BOX... [--json] [--url URL]\n"
    "\n"
    "Starts stopped boxes. Their mounts are opened again with your rights and passed to the server.\n";

/* Opens the box's mounts again. */
static int open_again(const json_t *box, struct handover *h)
{
    const json_t *mount, *list = json_object_get(box, "mounts");
    struct err e = { 0 };
    size_t i;

    json_array_foreach(list, i, mount) {
        const char *what = show_format("the mount at %s (%s)", text_of(mount, "target"), text_of(mount, "source"));
        if (handover_add_again(h, what, text_of(mount, "source"), text_of(mount, "target"),
                               json_is_true(json_object_get(mount, "writable")), &e) < 0)
            return client_complain(&e);
    }
    return 0;
}

static int start_one(const struct client *c, const char *name)
{
    json_t *box = NULL, *body = NULL, *answer = NULL;
    struct handover h;
    int status = EXIT_CLIENT;

    if (client_call(c, "GET", target_box(name, ""), NULL, &box) < 0)
        return EXIT_CLIENT;
    handover_init(&h);
    /* A running box has them already. */
    if (strcmp(text_of(box, "phase"), "running") == 0 || open_again(box, &h) == 0) {
        if (h.n)
            body = json_pack("{s:O}", "mounts", h.list);
        if (client_call_with(c, "POST", target_box(name, "/start"), NULL, body, &h, &answer) == 0) {
            if (c->json)
                print_json(answer);
            status = 0;
        }
    }
    json_decref(answer);
    json_decref(box);
    handover_done(&h);
    return status;
}

int client_start(int argc, char **argv)
{
    return for_each("start", start_usage, start_one, argc, argv);
}

/* ---- rm ---- */

static const char rm_usage[] =
    "usage: carrel rm BOX... [--url URL]\n"
    "       carrel rm --all [--label K[=V]]\n"
    "\n"
    "Deletes boxes with all their contents. --all: all of yours. Prints the deleted ones.\n";

struct removal {
    struct shown_boxes listing;
    bool           all;
};

static int set_all(void *into, const char *value, struct err *e)
{
    (void)value;
    (void)e;
    ((struct removal *)into)->all = true;
    return 0;
}

static int remove_label(void *into, const char *value, struct err *e)
{
    return add_label(&((struct removal *)into)->listing, value, e);
}

static int remove_one(const struct client *c, const char *box)
{
    if (client_call(c, "DELETE", target_box(box, ""), NULL, NULL) < 0)
        return EXIT_CLIENT;
    puts(box);
    return 0;
}

static int remove_all(const struct client *c, struct removal *r)
{
    json_t *boxes = fetch(c, &r->listing), *box;
    int status = boxes ? 0 : EXIT_CLIENT;
    size_t i;

    json_array_foreach(boxes, i, box)
        if (strcmp(text_of(box, "phase"), "deleting") != 0 && remove_one(c, text_of(box, "id")) != 0)
            status = EXIT_CLIENT;
    json_decref(boxes);
    return status;
}

int client_rm(int argc, char **argv)
{
    static const struct flag flags[] = { { "all", 'a', false, set_all }, { "label", 'l', true, remove_label } };
    struct client c = { .name = "rm", .usage = rm_usage };
    struct removal r = { 0 };
    struct words words;

    buf_init(&r.listing.query, QUERY_MAX);
    int status = client_begin(&c, argc, argv, flags, 2, &r, false, &words);
    if (status < 0 && (words.n == 0) != r.all)
        status = client_misused(&c, r.all ? "--all leaves no boxes to name" : "which box?");
    if (status < 0 && r.listing.query.length && !r.all)
        status = client_misused(&c, "--label goes with --all");
    if (status < 0 && r.all)
        status = remove_all(&c, &r);
    if (status < 0) {
        status = 0;
        for (int i = 0; i < words.n; i++)
            if (remove_one(&c, words.at[i]) != 0)
                status = EXIT_CLIENT;
    }
    buf_done(&r.listing.query);
    return status;
}
