/* carrel layer list|rm|prune with a server: its layers of this identity beside those of this user's own folder, which
 * the engine (`carrel layer ... --here`) knows. `build` is the engine's alone. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/guest.h"
#include "base/parse.h"
#include "client/client.h"
#include "client/commands.h"
#include "client/layers.h"

static const char usage[] =
    "usage: carrel layer list [--everybody] [--here] [--json] [--url URL]\n"
    "       carrel layer rm [--here] [--url URL] LAYER...\n"
    "       carrel layer prune [--unused 30d] [--here] [--url URL]\n"
    "\n"
    "Shows and removes your layers of packages: those in your own folder, and those that a running server has made\n"
    "for you, in its own. --here: not those. 'carrel layer --help' tells more.\n";

enum { SHORTEST = 4, SHOWN = 12 };

struct layer_words {
    bool        everybody;
    const char *unused;
};

static int set_everybody(void *into, const char *value, struct err *e)
{
    (void)value;
    (void)e;
    ((struct layer_words *)into)->everybody = true;
    return 0;
}

static int set_unused(void *into, const char *value, struct err *e)
{
    (void)e;
    ((struct layer_words *)into)->unused = value;
    return 0;
}

/* ---- the engine ---- */

/* Runs `carrel layer WORDS... --here`. ret: what it prints as JSON; NULL: it prints for the caller. Its exit status. */
static int run_here(const char *const *words, json_t **ret)
{
    char program[PATH_MAX];
    const char **argv;
    int ends[2] = { -1, -1 }, status = 0;
    size_t n = 0;

    while (words[n])
        n++;
    if (!(argv = calloc(n + 4, sizeof *argv)))
        return EXIT_CLIENT;
    argv[0] = "carrel";
    argv[1] = "layer";
    memcpy(argv + 2, words, n * sizeof *argv);
    argv[n + 2] = "--here";
    guest_find_program(program, sizeof program);
    fflush(NULL);
    pid_t pid = ret && pipe2(ends, O_CLOEXEC) < 0 ? -1 : fork();
    if (pid == 0) {
        if (!ret || dup2(ends[1], STDOUT_FILENO) >= 0)
            execvp(program, (char **)(uintptr_t)argv);
        _exit(127);
    }
    free(argv);
    fd_close(ends[1]);
    if (ret && pid > 0)
        *ret = json_loadfd(ends[0], 0, NULL);
    fd_close(ends[0]);
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return pid > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_CLIENT;
}

/* ---- both places ---- */

static bool has_path(const json_t *list, const char *path)
{
    const json_t *one;
    size_t i;

    json_array_foreach(list, i, one)
        if (strcmp(text_of(one, "path"), path) == 0)
            return true;
    return false;
}

static void mark_here(json_t *list)
{
    json_t *one;
    size_t i;

    json_array_foreach(list, i, one)
        json_object_set_new(one, "where", json_string("here"));
}

static int add_servers(const struct client *c, json_t *list)
{
    json_t *answer = NULL, *one;
    size_t i;

    if (client_call(c, "GET", "/v1/layers", NULL, &answer) < 0)
        return -1;
    json_array_foreach(json_object_get(answer, "layers"), i, one)
        if (!has_path(list, text_of(one, "path")))
            json_array_append_new(list, json_pack("{s:O,s:O,s:O,s:O,s:O,s:O,s:O,s:s}", "layer",
                                                  json_object_get(one, "id"), "path", json_object_get(one, "path"),
                                                  "bytes", json_object_get(one, "bytes"), "used",
                                                  json_object_get(one, "used_at"), "python",
                                                  json_object_get(one, "python"), "packages",
                                                  json_object_get(one, "packages"), "versions",
                                                  json_object_get(one, "versions"), "where", "server"));
    json_decref(answer);
    return 0;
}

json_t *layers_read(const struct client *c, bool everybody)
{
    const char *words[] = { "list", "--json", everybody ? "--everybody" : NULL, NULL };
    json_t *list = NULL;

    if (run_here(words, &list) != 0 || !json_is_array(list)) {
        json_decref(list);
        return NULL;
    }
    mark_here(list);
    if (!c || add_servers(c, list) == 0)
        return list;
    json_decref(list);
    return NULL;
}

/* ---- commands ---- */

static const char *show_words(const json_t *words)
{
    static char text[512];
    struct buf out;
    const json_t *one;
    size_t i;

    buf_init_fixed(&out, text, sizeof text);
    json_array_foreach(words, i, one)
        buf_printf(&out, "%s%s", i ? " " : "", json_string_value(one));
    return text;
}

static int list(const struct client *c, bool everybody)
{
    static const char *const titles[] = { "LAYER", "SIZE", "USED", "WHERE", "PYTHON", "PACKAGES", NULL };
    json_t *layers = layers_read(c, everybody), *one;
    struct table t;
    size_t i;

    if (!layers)
        return EXIT_CLIENT;
    if (c->json) {
        print_json(layers);
    } else if (json_array_size(layers) == 0) {
        fputs("carrel: you have no layers, here and on the server\n", stderr);
    } else {
        table_init(&t, titles, 1u << 1);
        json_array_foreach(layers, i, one)
            table_add(&t, show_format("%.*s", SHOWN, text_of(one, "layer")),
                      show_bytes((uint64_t)json_integer_value(json_object_get(one, "bytes"))),
                      show_age(text_of(one, "used")),
                      text_of(one, "owner")[0] ? text_of(one, "owner") : text_of(one, "where"), text_of(one, "python"),
                      show_words(json_object_get(one, "packages")));
        table_print(&t);
        table_done(&t);
    }
    json_decref(layers);
    return 0;
}

static bool is_here(const json_t *layer)
{
    return strcmp(text_of(layer, "where"), "here") == 0;
}

static int remove_one(const struct client *c, const json_t *layer)
{
    const char *digest = text_of(layer, "layer"), *words[] = { "rm", digest, NULL };
    char text[256];
    struct buf target;

    if (is_here(layer))
        return run_here(words, NULL);
    buf_init_fixed(&target, text, sizeof text);
    target_add(&target, "/v1/layers/", digest);
    return client_call(c, "DELETE", text, NULL, NULL) < 0 ? EXIT_CLIENT : 0;
}

static int remove_named(const struct client *c, const json_t *layers, const char *prefix)
{
    const char *digest = "";
    const json_t *one;
    size_t i;
    bool is_one = true;
    int status = 0;

    if (strlen(prefix) < SHORTEST)
        return client_misused(c, "'%s': write at least four letters of a layer's name", parse_quote(prefix).text);
    json_array_foreach(layers, i, one)
        if (strncmp(text_of(one, "layer"), prefix, strlen(prefix)) == 0) {
            is_one &= !digest[0] || strcmp(digest, text_of(one, "layer")) == 0;
            digest = text_of(one, "layer");
        }
    if (!digest[0] || !is_one)
        return client_misused(c, "'%s' is %s; 'carrel layer list' shows them", parse_quote(prefix).text,
                              digest[0] ? "the beginning of several layers" : "no layer of yours");
    json_array_foreach(layers, i, one)
        if (strcmp(text_of(one, "layer"), digest) == 0 && remove_one(c, one) != 0)
            status = EXIT_CLIENT;
    return status;
}

static int rm(const struct client *c, const struct words *words)
{
    int status = 0;

    if (words->n < 2)
        return client_misused(c, "rm needs a layer");
    for (int i = 1; i < words->n; i++) {
        json_t *layers = layers_read(c, false);
        if (!layers || remove_named(c, layers, words->at[i]) != 0)
            status = EXIT_CLIENT;
        json_decref(layers);
    }
    return status;
}

/* A layer that is in use is left. */
static int prune_one(const struct client *c, const json_t *layer)
{
    char text[256];
    struct buf target;
    struct err e = { 0 };
    json_t *answer = NULL;

    buf_init_fixed(&target, text, sizeof text);
    target_add(&target, "/v1/layers/", text_of(layer, "layer"));
    int r = client_ask(c, "DELETE", text, NULL, &answer, &e);
    if (r < 0)
        return client_complain(&e);
    if (r >= 400 && r != 409)
        return client_refused(r, answer);
    if (r < 400)
        printf("removed %.*s, %s, on the server\n", SHOWN, text_of(layer, "layer"),
               show_bytes((uint64_t)json_integer_value(json_object_get(layer, "bytes"))));
    json_decref(answer);
    return 0;
}

static int prune(const struct client *c, const char *unused)
{
    const char *words[] = { "prune", unused ? "--unused" : NULL, unused, NULL };
    uint64_t unused_ms = UINT64_C(30) * 24 * 3600 * 1000;
    char before[32];
    struct err e = { 0 };
    json_t *one;
    size_t i;

    if (unused && strcmp(unused, "0") == 0)
        unused_ms = 0;
    else if (unused && parse_duration("--unused", unused, &unused_ms, &e) < 0)
        return client_complain(&e);
    int status = run_here(words, NULL);
    time_t when = time(NULL) - (time_t)(unused_ms / 1000);
    strftime(before, sizeof before, "%Y-%m-%dT%H:%M:%SZ", gmtime(&when));
    json_t *layers = layers_read(c, false);
    json_array_foreach(layers, i, one)
        if (!is_here(one) && strcmp(text_of(one, "used"), before) <= 0 && prune_one(c, one) != 0)
            status = EXIT_CLIENT;
    if (!layers)
        status = EXIT_CLIENT;
    json_decref(layers);
    return status;
}

int client_layer(int argc, char **argv)
{
    static const struct flag flags[] = { { "everybody", 0, false, set_everybody }, { "unused", 0, true, set_unused } };
    struct client c = { .name = "layer", .usage = usage, .may_lack_server = true };
    struct layer_words w = { 0 };
    struct words words;
    struct err e = { 0 };
    const char **as_given = calloc((size_t)argc + 1, sizeof *as_given);     /* client_begin() moves options forward */
    if (!as_given)
        abort();
    memcpy(as_given, argv, (size_t)argc * sizeof *as_given);
    int status = client_begin(&c, argc, argv, flags, sizeof flags / sizeof *flags, &w, false, &words);
    const char *word = status < 0 && words.n ? words.at[0] : "";

    if (status >= 0)
        return status;
    if (server_find(c.url, &c.server, &e) < 0) {
        if (c.url || server_named())
            return client_complain(&e);
        return run_here(as_given + 1, NULL);
    }
    if (strcmp(word, "list") == 0 && words.n == 1)
        return list(&c, w.everybody);
    if (strcmp(word, "rm") == 0)
        return rm(&c, &words);
    if (strcmp(word, "prune") == 0 && words.n == 1)
        return prune(&c, w.unused);
    return client_misused(&c, "name an action: list, rm or prune");
}
