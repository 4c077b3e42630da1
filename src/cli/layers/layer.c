/* `carrel layer`: shared package layers, each made once. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/jsonout.h"
#include "base/outfile.h"
#include "base/parse.h"
#include "cli/commands.h"
#include "cli/layers/layers.h"

/* The size limit of a layer. */
static uint64_t most_bytes = UINT64_C(16) << 30;

static const char layer_help[] =
    "usage: carrel layer build [--python PROGRAM] PACKAGE...\n"
    "       carrel layer build [--python PROGRAM] [--disk 16G] --requirements FILE\n"
    "       carrel layer list [--everybody] [--here] [--json] [--url URL]\n"
    "       carrel layer rm [--here] [--url URL] LAYER...\n"
    "       carrel layer prune [--unused 30d] [--here] [--url URL]\n"
    "\n"
    "A layer is a Python environment with the packages of one list. It is made once, in a box that may only reach the "
    "index\n"
    "of packages, and never changes; boxes see it read-only at " PACKAGES_PLACE ". 'carrel run --packages' makes a\n"
    "missing layer.\n"
    "\n"
    "  build                   make the layer of a list, if it is not there; prints its name\n"
    "  list                    show the layers, their sizes and packages; --everybody: of all owners of this folder\n"
    "  rm                      remove layers that no box uses; the first letters of a name are enough\n"
    "  prune                   remove all that no box has used for this long\n"
    "\n"
    "list, rm and prune also concern the layers that a running server has made for you; --here: not those.\n"
    "Layers are in /var/lib/carrel/layers (root) or ~/.local/share/carrel/layers; CARREL_LAYERS names another place.\n";

static int open_own(struct layers *ret, struct err *e)
{
    char place[LAYER_PATH], identity[32], owner[PACKAGES_OWNER];

    layers_place(place);
    snprintf(identity, sizeof identity, "uid:%u", (unsigned)geteuid());
    packages_owner(identity, owner);
    return layers_open(place, owner, ret, e);
}

/* ---- making one, with a line of progress ---- */

void layer_show(const char *text, void *arg)
{
    (void)arg;
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\r\033[K  %.100s", text);
    else if (strncmp(text, "Downloading ", 12) == 0 || strncmp(text, "Building ", 9) == 0)
        fprintf(stderr, "  %s\n", text);
    fflush(stderr);
}

void layer_show_end(void)
{
    if (isatty(STDERR_FILENO))
        fputs("\r\033[K", stderr);
}

static void note_minor(const char *version, const char *path, void *arg)
{
    unsigned long minor = strtoul(version + 2, NULL, 10);

    (void)path;
    if (minor < 64)
        *(uint64_t *)arg |= UINT64_C(1) << minor;
}

/* The versions that --python takes on this machine. */
static void add_pythons(struct err *e)
{
    uint64_t minors = 0;
    size_t n = strlen(e->what);
    const char *between = "; --python here: ";

    interpreters_each(note_minor, &minors);
    for (int i = 0; i < 64 && n < sizeof e->what; i++)
        if (minors >> i & 1) {
            n += (size_t)snprintf(e->what + n, sizeof e->what - n, "%s3.%d", between, i);
            between = ", ";
        }
}

static int make(const struct layers *layers, struct packages *packages, const char *python, const char *key,
                char ret[LAYER_NAME], struct err *e)
{
    struct layer_build build = { .layers = layers, .python = python, .packages = packages, .most_bytes = most_bytes,
                                 .say = layer_show };
    uint64_t start_us = clock_monotonic_us();

    const char *what = packages->n == 1 ? packages->line[0] : "the packages", *hash = strstr(what, " --hash=");
    fprintf(stderr, "carrel: installing %.*s for %s, once\n", (int)(hash ? (size_t)(hash - what) : strlen(what)), what,
            python);
    int r = layer_make(&build, key, ret, e);
    layer_show_end();
    if (r == -ENOEXEC)
        add_pythons(e);
    if (r == 0)
        fprintf(stderr, "carrel: installed in %.1f s\n", (double)(clock_monotonic_us() - start_us) / 1e6);
    return r;
}

/* Finds or makes the layer of a list, and opens it. */
static int get(const struct layers *layers, struct packages *packages, const char *wanted, char ret_digest[LAYER_NAME],
               int *ret_fd, struct err *e)
{
    char python[PYTHON_MAX], real[4096], index[INDEX_MAX], key[SHA256_HEX + 1];
    int r = interpreter_find(wanted, python, e);

    if (r < 0)
        return r;
    packages_sort(packages);
    if (!realpath(python, real))
        return err_file(e, errno, "%s", python);
    index_name(index);
    packages_key(packages, real, index, key);
    /* Another process may remove it between the two. */
    for (int i = 0; i < 3; i++) {
        r = layer_find(layers, key, ret_digest);
        if (r == 0 && (r = layer_open(layers, ret_digest, ret_fd)) == 0)
            return 0;
        if ((r = make(layers, packages, python, key, ret_digest, e)) < 0)
            return r;
    }
    return err_set(e, EBUSY, STEP_USAGE, "the packages are being removed");
}

int layer_get(struct packages *packages, const char *python, int *ret_fd, char ret_path[LAYER_PATH], struct err *e)
{
    struct layers layers;
    char digest[LAYER_NAME];
    int r = open_own(&layers, e);

    if (r == 0)
        r = get(&layers, packages, python, digest, ret_fd, e);
    if (r == 0 && snprintf(ret_path, LAYER_PATH, "%s/%s", layers.path, digest) >= LAYER_PATH) {
        *ret_fd = fd_close(*ret_fd);
        r = err_set(e, ENAMETOOLONG, STEP_HOST, "the directory of packages %s", layers.path);
    }
    layers_close(&layers);
    return r;
}

/* ---- commands ---- */

static int complain(const struct err *e)
{
    cli_complain(e);
    return EXIT_CARREL;
}

static int misused(const char *text)
{
    fprintf(stderr, "carrel: layer: %s; 'carrel layer --help' tells more\n", text);
    return EXIT_CARREL;
}

static int build_main(int argc, char **argv)
{
    struct packages packages = { 0 };
    const char *python = NULL, *owner = NULL;
    struct layers layers;
    struct err e = { 0 };
    char digest[LAYER_NAME];
    bool is_wire = false;
    int r = 0, fd = -1;

    for (int i = 1; i < argc && r == 0; i++) {
        bool has_value = strcmp(argv[i], "--python") == 0 || strcmp(argv[i], "--requirements") == 0
                         || strcmp(argv[i], "--owner") == 0 || strcmp(argv[i], "--disk") == 0;
        if (has_value && !argv[i + 1])
            return misused("an option lacks its value");
        if (strcmp(argv[i], "--python") == 0)
            python = argv[++i];
        else if (strcmp(argv[i], "--disk") == 0)
            r = parse_size("--disk", argv[++i], 1 << 20, &most_bytes, &e);
        else if (strcmp(argv[i], "--wire") == 0)
            is_wire = true;
        else if (strcmp(argv[i], "--owner") == 0)
            owner = argv[++i];
        else if (strcmp(argv[i], "--requirements") == 0)
            r = packages_read_file(&packages, "--requirements", argv[++i], &e);
        else if (argv[i][0] == '-')
            return misused("build takes --python, --disk and --requirements");
        else
            r = packages_add(&packages, "build", argv[i], &e);
    }
    if (is_wire && owner && packages.n == 0)
        return layer_wire_build(owner, python, most_bytes);
    if (r == 0 && packages.n == 0)
        return misused("build needs a package");
    if (r == 0)
        r = open_own(&layers, &e);
    if (r < 0)
        return complain(&e);
    r = get(&layers, &packages, python, digest, &fd, &e);
    if (r == 0)
        puts(digest);
    fd_close(fd);
    layers_close(&layers);
    packages_done(&packages);
    return r < 0 ? complain(&e) : 0;
}

struct layer_listing {
    bool                 is_json;
    const struct layers *layers;
    const char          *owner;
    struct jsonout       json;
    unsigned             n;
};

/* Calls for each line of a description with this first word. */
static void each_line(const char *text, const char *first, void (*call)(const char *rest, int length, void *arg),
                      void *arg)
{
    size_t length = strlen(first);

    for (const char *at = text; *at; at += strcspn(at, "\n"), at += *at == '\n')
        if (strncmp(at, first, length) == 0 && at[length] == ' ')
            call(at + length + 1, (int)strcspn(at + length + 1, "\n"), arg);
}

static void print_word(const char *rest, int length, void *arg)
{
    bool *is_first = arg;

    printf("%s%.*s", *is_first ? "" : " ", length, rest);
    *is_first = false;
}

static void write_word(const char *rest, int length, void *arg)
{
    char line[PACKAGES_LINE];

    snprintf(line, sizeof line, "%.*s", length, rest);
    jsonout_string(arg, NULL, line);
}

static void show_python(const struct layer_info *info, char ret[PYTHON_MAX])
{
    ret[0] = '\0';
    if (strncmp(info->text, "python ", 7) == 0)
        snprintf(ret, PYTHON_MAX, "%.*s", (int)strcspn(info->text + 7, "\n"), info->text + 7);
}

void layer_write(struct jsonout *json, const char *folder, const char *owner, const struct layer_info *info)
{
    char used[32], python[PYTHON_MAX], path[LAYER_PATH];
    time_t when = (time_t)info->used_s;

    show_python(info, python);
    strftime(used, sizeof used, "%Y-%m-%dT%H:%M:%SZ", gmtime(&when));
    snprintf(path, sizeof path, "%s/%s", folder, info->digest);
    jsonout_open_object(json, NULL);
    jsonout_string(json, "layer", info->digest);
    jsonout_string(json, "path", path);
    if (owner)
        jsonout_string(json, "owner", owner);
    jsonout_unsigned(json, "bytes", info->bytes);
    jsonout_string(json, "used", used);
    jsonout_string(json, "python", python);
    jsonout_open_array(json, "packages");
    each_line(info->text, "asked", write_word, json);
    jsonout_close(json);
    jsonout_open_array(json, "versions");
    each_line(info->text, "lock", write_word, json);
    jsonout_close(json);
    jsonout_close(json);
}

static void list_one(const struct layer_info *info, void *arg)
{
    struct layer_listing *listing = arg;
    bool is_first = true;
    char used[32], python[PYTHON_MAX];
    time_t when = (time_t)info->used_s;

    listing->n++;
    if (listing->is_json) {
        layer_write(&listing->json, listing->layers->path, listing->owner, info);
        return;
    }
    show_python(info, python);
    strftime(used, sizeof used, "%Y-%m-%d %H:%M", gmtime(&when));
    if (listing->owner)
        printf("%-12s  ", listing->owner);
    printf("%.12s  %9s  %s  %s  ", info->digest, parse_show_size(info->bytes & ~UINT64_C(1048575)).text, used, python);
    each_line(info->text, "asked", print_word, &is_first);
    putchar('\n');
}

static void list_owner(const struct layers *layers, const char *owner, void *arg)
{
    struct layer_listing *listing = arg;
    struct err e = { 0 };

    listing->owner = owner;
    listing->layers = layers;
    if (layers_each(layers, list_one, listing, &e) < 0)
        cli_complain(&e);
}

static int list_main(int argc, char **argv)
{
    struct layers layers;
    struct layer_listing listing = { .layers = &layers };
    struct buf out;
    struct err e = { 0 };
    bool everybody = false;

    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--json") == 0)
            listing.is_json = true;
        else if (strcmp(argv[i], "--everybody") == 0)
            everybody = true;
        else if (strcmp(argv[i], "--here") != 0)
            return misused("list takes --everybody, --here and --json");
    int r = open_own(&layers, &e);
    if (r < 0)
        return complain(&e);
    buf_init(&out, 64 << 20);
    jsonout_init(&listing.json, &out);
    if (listing.is_json)
        jsonout_open_array(&listing.json, NULL);
    char place[LAYER_PATH];
    layers_place(place);
    r = everybody ? layers_owners(place, list_owner, &listing, &e) : layers_each(&layers, list_one, &listing, &e);
    if (listing.is_json) {
        jsonout_close(&listing.json);
        puts(buf_string(&out));
    } else if (r == 0 && listing.n == 0) {
        fprintf(stderr, "carrel: there are no layers in %s\n", layers.path);
    }
    buf_done(&out);
    layers_close(&layers);
    return r < 0 ? complain(&e) : 0;
}

struct choice {
    const struct layers *layers;
    const char          *prefix;        /* NULL: selects by age */
    int64_t              before_s;
    unsigned             found, removed;
    bool                 failed;
    char                 digest[LAYER_NAME];
};

static void choose(const struct layer_info *info, void *arg)
{
    struct choice *choice = arg;
    struct err e = { 0 };

    if (choice->prefix) {
        if (strncmp(info->digest, choice->prefix, strlen(choice->prefix)) == 0) {
            choice->found++;
            memcpy(choice->digest, info->digest, LAYER_NAME);
        }
        return;
    }
    if (info->used_s > choice->before_s)
        return;
    int r = layer_remove(choice->layers, info->digest, &e);
    if (r == 0) {
        printf("removed %.12s, %s\n", info->digest, parse_show_size(info->bytes & ~UINT64_C(1048575)).text);
        choice->removed++;
    } else if (r != -EBUSY) {
        cli_complain(&e);
        choice->failed = true;
    }
}

static int remove_one(const struct layers *layers, const char *prefix, struct err *e)
{
    struct choice choice = { .layers = layers, .prefix = prefix };

    if (strlen(prefix) < 4)
        return err_set(e, EINVAL, STEP_USAGE, "'%s': write at least four letters of a layer's name",
                       parse_quote(prefix).text);
    int r = layers_each(layers, choose, &choice, e);
    if (r == 0 && choice.found != 1)
        r = err_set(e, choice.found ? EEXIST : ENOENT, STEP_USAGE, "'%s' is %s; 'carrel layer list' shows them",
                    parse_quote(prefix).text, choice.found ? "the beginning of several layers" : "no layer of yours");
    return r < 0 ? r : layer_remove(layers, choice.digest, e);
}

static int rm_main(int argc, char **argv)
{
    struct layers layers;
    struct err e = { 0 };
    int status = 0;

    if (argc < 2 || (argc == 2 && strcmp(argv[1], "--here") == 0))
        return misused("rm needs a layer");
    if (open_own(&layers, &e) < 0)
        return complain(&e);
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--here") != 0 && remove_one(&layers, argv[i], &e) < 0)
            status = complain(&e);
    layers_close(&layers);
    return status;
}

static int prune_main(int argc, char **argv)
{
    uint64_t unused_ms = UINT64_C(30) * 24 * 3600 * 1000;
    struct layers layers;
    struct err e = { 0 };
    int r = 0;

    if (argc > 1 && strcmp(argv[argc - 1], "--here") == 0)
        argc--;
    if (argc == 3 && strcmp(argv[1], "--unused") == 0)
        r = strcmp(argv[2], "0") == 0 ? (unused_ms = 0, 0) : parse_duration("--unused", argv[2], &unused_ms, &e);
    else if (argc > 1)
        return misused("prune takes --unused TIME");
    if (r == 0)
        r = open_own(&layers, &e);
    if (r < 0)
        return complain(&e);
    struct choice choice = { .layers = &layers, .before_s = (int64_t)time(NULL) - (int64_t)(unused_ms / 1000) };
    r = layers_each(&layers, choose, &choice, &e);
    layers_close(&layers);
    return r < 0 ? complain(&e) : choice.failed;
}

/* ---- carrel gc ---- */

struct collection {
    const struct layers *layers;
    int64_t              before_s;
    void               (*call)(const char *layer, uint64_t bytes, void *arg);
    void                *arg;
};

static void collect_one(const struct layer_info *info, void *arg)
{
    struct collection *c = arg;
    struct err e = { 0 };

    if (info->used_s <= c->before_s && layer_remove(c->layers, info->digest, &e) == 0)
        c->call(info->digest, info->bytes, c->arg);
}

static void collect_owner(const struct layers *layers, const char *owner, void *arg)
{
    struct collection *c = arg;
    struct err e = { 0 };

    (void)owner;
    c->layers = layers;
    for (unsigned n = layers_sweep(layers); n > 0; n--)
        c->call("", 0, c->arg);
    (void)!layers_each(layers, collect_one, c, &e);
}

int cli_collect_layers(uint64_t unused_ms, void (*call)(const char *layer, uint64_t bytes, void *arg), void *arg,
                       struct err *e)
{
    struct collection c = { .before_s = (int64_t)time(NULL) - (int64_t)(unused_ms / 1000), .call = call, .arg = arg };
    char place[LAYER_PATH];

    layers_place(place);
    return layers_owners(place, collect_owner, &c, e);
}

/* The client also asks a server, and runs us with --here for the folder of this user. */
static bool is_for_server(int argc, char **argv)
{
    bool is_here = strcmp(argv[1], "build") == 0;

    for (int i = 2; i < argc; i++)
        is_here |= strcmp(argv[i], "--here") == 0;
    return !is_here && cli_has_program("carrel-server");
}

int layer_main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int       (*run)(int argc, char **argv);
    } verbs[] = { { "build", build_main }, { "list", list_main }, { "rm", rm_main }, { "prune", prune_main } };

    if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        fputs(layer_help, argc < 2 ? stderr : stdout);
        return argc < 2 ? EXIT_CARREL : 0;
    }
    if (argc > 4 && strcmp(argv[2], "--wire") == 0 && strcmp(argv[3], "--owner") == 0 && strcmp(argv[1], "build") != 0)
        return layer_wire_ask(argv[4], strcmp(argv[1], "rm") == 0);
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++)
        if (strcmp(argv[1], verbs[i].name) == 0)
            return is_for_server(argc, argv) ? cli_hand_over(argv - 1) : verbs[i].run(argc - 1, argv + 1);
    return misused("there is no such command");
}
