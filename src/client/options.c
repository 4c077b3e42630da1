/* The command line, by getopt_long with our own messages. Values are checked here where possible, so that the message
 * names the option and not a member of the request; they are sent as written, because the server understands the same
 * units. */
#define _GNU_SOURCE
#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/parse.h"
#include "base/suggest.h"
#include "client/client.h"

enum { FLAGS_MAX = 40, COMMON_URL = 1000, COMMON_JSON, COMMON_HELP, FIRST_FLAG = 2000 };

int client_misused(const struct client *c, const char *format, ...)
{
    va_list args;

    fprintf(stderr, "carrel: %s: ", c->name);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fprintf(stderr, "; 'carrel %s --help' tells more\n", c->name);
    return EXIT_CLIENT;
}

struct reading {
    struct client     *c;
    const struct flag *flags;
    size_t             n_flags;
    void              *into;
    struct option      longs[FLAGS_MAX + 4];
    char               shorts[3 * FLAGS_MAX + 8];
};

static void prepare(struct reading *r)
{
    size_t at = 0, n = 0;

    r->shorts[at++] = '+';
    r->shorts[at++] = ':';
    for (; n < r->n_flags && n < FLAGS_MAX; n++) {
        const struct flag *f = &r->flags[n];
        r->longs[n] =
            (struct option){ f->name, f->takes_value ? required_argument : no_argument, NULL, FIRST_FLAG + (int)n };
        if (f->letter) {
            r->shorts[at++] = f->letter;
            if (f->takes_value)
                r->shorts[at++] = ':';
        }
    }
    r->longs[n++] = (struct option){ "url", required_argument, NULL, COMMON_URL };
    r->longs[n++] = (struct option){ "json", no_argument, NULL, COMMON_JSON };
    r->longs[n++] = (struct option){ "help", no_argument, NULL, COMMON_HELP };
    r->longs[n] = (struct option){ 0 };
    r->shorts[at++] = 'h';
    r->shorts[at] = '\0';
}

static const struct flag *find_flag(const struct reading *r, int found)
{
    if (found >= FIRST_FLAG)
        return &r->flags[found - FIRST_FLAG];
    for (size_t i = 0; i < r->n_flags; i++)
        if (r->flags[i].letter && r->flags[i].letter == found)
            return &r->flags[i];
    return NULL;
}

static int refuse_unknown(const struct reading *r, const char *word)
{
    const char *names[FLAGS_MAX + 4], *instead = suggest_option(word);
    char bare[64];
    size_t n = 0;

    if (instead)
        return client_misused(r->c, "there is no option %s; %s", parse_quote(word).text, instead);
    snprintf(bare, sizeof bare, "%.*s", (int)strcspn(word + strspn(word, "-"), "="), word + strspn(word, "-"));
    for (const struct option *o = r->longs; o->name; o++)
        names[n++] = o->name;
    const char *nearest = word[1] == '-' ? suggest_nearest(bare, names, n) : NULL;
    return nearest ? client_misused(r->c, "there is no option %s; did you mean --%s?", parse_quote(word).text, nearest)
                   : client_misused(r->c, "there is no option %s", parse_quote(word).text);
}

/* -1: continue. */
static int take_option(struct reading *r, int found, char **argv)
{
    struct err e = { 0 };
    const struct flag *f = find_flag(r, found);

    if (f) {
        int result = f->take(r->into, optarg, &e);
        return result < 0 ? client_complain(&e) : -1;
    }
    switch (found) {
    case COMMON_URL:
        r->c->url = optarg;
        return -1;
    case COMMON_JSON:
        r->c->json = true;
        return -1;
    case COMMON_HELP:
    case 'h':
        fputs(r->c->usage, stdout);
        return 0;
    case ':':
        return client_misused(r->c, "%s needs a value", argv[optind - 1]);
    default:
        if (optopt && optopt < 256)
            return refuse_unknown(r, (const char[]){ '-', (char)optopt, '\0' });
        return refuse_unknown(r, argv[optind - 1]);
    }
}

/* Options up to the first operand. *ret_dashes: they ended with "--". */
static int take_options(struct reading *r, int argc, char **argv, bool *ret_dashes)
{
    int found, status = -1;

    optind = 0;
    opterr = 0;
    *ret_dashes = false;
    while (status < 0 && (found = getopt_long(argc, argv, r->shorts, r->longs, NULL)) != -1)
        status = take_option(r, found, argv);
    *ret_dashes = status < 0 && optind > 1 && strcmp(argv[optind - 1], "--") == 0;
    return status;
}

int client_begin(struct client *c, int argc, char **argv, const struct flag *flags, size_t n_flags, void *into,
                 bool stops, struct words *ret)
{
    struct reading r = { .c = c, .flags = flags, .n_flags = n_flags, .into = into };
    struct err e = { 0 };
    bool dashes = false;
    int status = -1;

    prepare(&r);
    *ret = (struct words){ .n = 0, .at = argv };
    /* getopt takes argv[0] for a program's name: each round starts one word earlier. Operands are moved to the front,
     * over words that were read. */
    for (int at = 0; at < argc && status < 0;) {
        status = take_options(&r, argc - at, argv + at, &dashes);
        at += optind;
        bool command = stops && ret->n == 1;
        if (status >= 0 || at >= argc)
            break;
        if (dashes || command || c->operand_ends) {
            while (at < argc)
                ret->at[ret->n++] = argv[at++];
            break;
        }
        ret->at[ret->n++] = argv[at];   /* it is now the word before */
    }
    if (status >= 0)
        return status;
    ret->at[ret->n] = NULL;
    if (!c->may_lack_server && server_find(c->url, &c->server, &e) < 0)
        return client_complain(&e);
    return -1;
}

int take_size(const char *name, const char *value, json_t *object, const char *key, struct err *e)
{
    uint64_t bytes;
    int r = parse_size(name, value, 1, &bytes, e);

    if (r == 0)
        json_object_set_new(object, key, json_integer((json_int_t)bytes));
    return r;
}

int take_cpus(const char *name, const char *value, json_t *object, const char *key, struct err *e)
{
    uint32_t milli;
    int r = parse_cpus(name, value, &milli, e);

    if (r == 0)
        json_object_set_new(object, key, json_real((double)milli / 1000));
    return r;
}

int take_count(const char *name, const char *value, json_t *object, const char *key, struct err *e)
{
    uint32_t count;
    int r = parse_count(name, value, 1, 4194304, &count, e);

    if (r == 0)
        json_object_set_new(object, key, json_integer(count));
    return r;
}

int take_duration(const char *name, const char *value, json_t *object, const char *key, struct err *e)
{
    uint64_t ms;
    int r = parse_duration(name, value, &ms, e);

    if (r == 0)
        json_object_set_new(object, key, json_real((double)ms / 1000));
    return r;
}

int take_pair(const char *name, const char *value, json_t *object, struct err *e)
{
    const char *equals = strchr(value, '=');

    if (!equals || equals == value)
        return err_set(e, EINVAL, STEP_USAGE, "%s wants NAME=VALUE, not '%s'", name, parse_quote(value).text);
    json_t *text = json_string(equals + 1);
    if (!text || json_object_setn_new(object, value, (size_t)(equals - value), text) < 0)
        return err_set(e, EINVAL, STEP_USAGE, "%s %s is not UTF-8", name, parse_quote(value).text);
    return 0;
}
