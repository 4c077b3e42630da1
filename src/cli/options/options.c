/* A table of options, each with a function that reads its value into struct run_options. The values that depend on one
 * another (user and profile, the default environment) are settled when all options have been read. Where an option is
 * given twice the last one counts; --env, --env-file, --pass-env, --mount, --allow and --deny add. */
#include "cli/options/options.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/parse.h"
#include "cli/options/envfile.h"
#include "cli/options/envlist.h"
#include "cli/options/exec_limits.h"
#include "cli/options/mountarg.h"
#include "cli/options/suggest.h"
#include "devices/cdi.h"
#include "proto/checks.h"
#include "proto/defaults.h"

struct option_reader {
    struct run_options *options;
    struct envlist      env;
    char *const        *environment;
    bool                has_user;
};

struct rule {
    const char *name;       /* with its dashes, as in messages */
    const char *example;    /* NULL: takes no value */
    int       (*read)(struct option_reader *reader, const char *value, struct err *e);
};

static int read_limit(struct option_reader *r, const struct limit *limit, const char *value, struct err *e)
{
    char option[40];

    snprintf(option, sizeof option, "--%s", limit->name);
    limit_set(&r->options->given, limit, 1);
    return limit_parse(limit, option, value, &r->options->box.limits, e);
}

static int read_timeout(struct option_reader *r, const char *value, struct err *e)
{
    return parse_duration("--timeout", value, &r->options->command.timeout_ms, e);
}

static int read_output_limit(struct option_reader *r, const char *value, struct err *e)
{
    return parse_size("--output-limit", value, 1, &r->options->command.output_bytes, e);
}

static int read_env(struct option_reader *r, const char *value, struct err *e)
{
    const char *equals = strchr(value, '=');

    if (!equals)
        return err_set(e, EINVAL, STEP_USAGE,
                       "--env needs NAME=VALUE; to hand on a variable of your own use --pass-env NAME");
    return envlist_set_from(&r->env, "--env", value, (size_t)(equals - value), equals + 1, strlen(equals + 1), e);
}

static int read_env_file(struct option_reader *r, const char *value, struct err *e)
{
    return envfile_read(value, &r->env, e);
}

static const char *environment_value(char *const *environment, const char *name, size_t length)
{
    for (; environment && *environment; environment++)
        if (!strncmp(*environment, name, length) && (*environment)[length] == '=')
            return *environment + length + 1;
    return NULL;
}

/* A variable that the caller does not have is not an error: one list serves many callers. */
static int read_pass_env(struct option_reader *r, const char *value, struct err *e)
{
    for (const char *name = value;;) {
        size_t length = strcspn(name, ",");
        if (!envlist_name_is_valid(name, length))
            return err_set(e, EINVAL, STEP_USAGE, "--pass-env %s: use names of variables with ',' between them",
                           parse_quote(value).text);
        const char *found = environment_value(r->environment, name, length);
        int code = found ? envlist_set_from(&r->env, "--pass-env", name, length, found, strlen(found), e) : 0;
        if (code < 0)
            return code;
        if (!name[length])
            return 0;
        name += length + 1;
    }
}

static int read_mount(struct option_reader *r, const char *value, struct err *e)
{
    return mountarg_add(&r->options->box, value, &r->options->arena, e);
}

static int read_device(struct option_reader *r, const char *value, struct err *e)
{
    struct run_options *o = r->options;

    if (!cdi_name_is_valid(value))
        return err_set(e, EINVAL, STEP_USAGE, "--device %s: name it like vendor.com/class=device; 'carrel doctor' "
                       "shows those of this host", parse_quote(value).text);
    if (o->n_devices == KEEPER_DEVICES)
        return err_set(e, EINVAL, STEP_USAGE, "more than %d devices", KEEPER_DEVICES);
    o->device[o->n_devices++] = value;
    return 0;
}

static int read_workdir(struct option_reader *r, const char *value, struct err *e)
{
    if (value[0] != '/' || strlen(value) >= PATH_MAX)
        return err_set(e, EINVAL, STEP_USAGE, "--workdir %s: use an absolute path in the box, e.g. /tmp",
                       parse_quote(value).text);
    r->options->command.workdir = value;
    return 0;
}

static int read_hostname(struct option_reader *r, const char *value, struct err *e)
{
    if (!hostname_is_plain(value, strlen(value) + 1))
        return err_set(e, EINVAL, STEP_USAGE,
                       "--hostname %s: use up to 64 letters, digits, '-' and '.', a letter or digit first",
                       parse_quote(value).text);
    r->options->box.hostname = value;
    return 0;
}

static int read_user(struct option_reader *r, const char *value, struct err *e)
{
    r->has_user = true;
    return parse_user("--user", value, &r->options->box.uid, &r->options->box.gid, e);
}

static int read_root(struct option_reader *r, const char *value, struct err *e)
{
    if (!value[0] || strlen(value) >= PATH_MAX)
        return err_set(e, EINVAL, STEP_USAGE, "--root: use 'host' or a directory with an unpacked root filesystem");
    mountarg_root(&r->options->box)->source = strcmp(value, "host") ? value : NULL;
    return 0;
}

static int read_writable_root(struct option_reader *r, const char *value, struct err *e)
{
    (void)value, (void)e;
    mountarg_root(&r->options->box)->writable = true;
    return 0;
}

static int read_no_proc(struct option_reader *r, const char *value, struct err *e)
{
    (void)value, (void)e;
    r->options->box.no_proc = true;
    return 0;
}

static int read_net(struct option_reader *r, const char *value, struct err *e)
{
    struct net_policy *net = &r->options->net;

    if (strcmp(value, "public") == 0)
        net->mode = NET_PUBLIC;
    else if (strcmp(value, "none") == 0)
        net->mode = NET_NONE;
    else
        return err_set(e, EINVAL, STEP_USAGE, "--net %s: use none or public; single names and addresses are allowed "
                       "with --allow", parse_quote(value).text);
    return 0;
}

static int read_allow(struct option_reader *r, const char *value, struct err *e)
{
    return net_policy_add(&r->options->net, "--allow", value, false, e);
}

static int read_deny(struct option_reader *r, const char *value, struct err *e)
{
    return net_policy_add(&r->options->net, "--deny", value, true, e);
}

static int read_profile(struct option_reader *r, const char *value, struct err *e)
{
    enum profile profile = profile_parse(value);

    if (profile < PROFILE_COUNT) {
        r->options->box.profile = profile;
        return 0;
    }
    return err_set(e, EINVAL, STEP_USAGE, "--profile %s: use strict, standard or system", parse_quote(value).text);
}

static int read_report(struct option_reader *r, const char *value, struct err *e)
{
    if (!value[0])
        return err_set(e, EINVAL, STEP_USAGE, "--report needs a file");
    r->options->report_path = value;
    return 0;
}

static int read_zygote(struct option_reader *r, const char *value, struct err *e)
{
    if (!value[0])
        return err_set(e, EINVAL, STEP_USAGE, "--zygote needs a program");
    r->options->zygote = value;
    return 0;
}

static int read_interactive(struct option_reader *r, const char *value, struct err *e)
{
    (void)value, (void)e;
    r->options->interactive = true;
    return 0;
}

static int read_terminal(struct option_reader *r, const char *value, struct err *e)
{
    (void)value, (void)e;
    r->options->box.terminal = true;
    r->options->command.terminal = true;
    return 0;
}

static int read_json(struct option_reader *r, const char *value, struct err *e)
{
    (void)value, (void)e;
    r->options->json = true;
    return 0;
}

static int read_trace(struct option_reader *r, const char *value, struct err *e)
{
    (void)value, (void)e;
    r->options->trace = true;
    return 0;
}

static int read_local(struct option_reader *r, const char *value, struct err *e)
{
    (void)value, (void)e;
    r->options->where = RUN_HERE;
    return 0;
}

static int read_server(struct option_reader *r, const char *value, struct err *e)
{
    (void)value, (void)e;
    r->options->where = RUN_BY_SERVER;
    return 0;
}

static int read_help(struct option_reader *r, const char *value, struct err *e)
{
    (void)value, (void)e;
    r->options->help = true;
    return 0;
}

static const struct rule rules[] = {
    { "--timeout", "30s", read_timeout },
    { "--output-limit", "10M", read_output_limit },
    { "--env", "NAME=VALUE", read_env },
    { "--env-file", "secrets.env", read_env_file },
    { "--pass-env", "NAME,NAME", read_pass_env },
    { "--mount", "/data:/data:ro", read_mount },
    { "--device", "vendor.com/gpu=0", read_device },
    { "--workdir", "/tmp", read_workdir },
    { "--hostname", "box", read_hostname },
    { "--user", "1000:1000", read_user },
    { "--root", "host", read_root },
    { "--writable-root", NULL, read_writable_root },
    { "--no-proc", NULL, read_no_proc },
    { "--net", "public", read_net },
    { "--allow", "index.example.org", read_allow },
    { "--deny", "10.0.0.0/8", read_deny },
    { "--profile", "standard", read_profile },
    { "--report", "report.json", read_report },
    { "--zygote", "python3", read_zygote },
    { "--local", NULL, read_local },
    { "--server", NULL, read_server },
    { "--json", NULL, read_json },
    { "--trace", NULL, read_trace },
    { "--interactive", NULL, read_interactive },
    { "--tty", NULL, read_terminal },
    { "--help", NULL, read_help },
    { NULL, NULL, NULL },
};

static const struct rule *find_rule(const char *name, size_t length)
{
    for (const struct rule *rule = rules; rule->name; rule++)
        if (strlen(rule->name) == length && !memcmp(rule->name, name, length))
            return rule;
    return NULL;
}

static int refuse_unknown(const char *word, size_t length, struct err *e)
{
    const char *names[LIMITS + sizeof rules / sizeof rules[0]];
    char name[64], limits[LIMITS][32];
    size_t n = 0, kept = length < sizeof name ? length : sizeof name - 1;

    for (const struct rule *rule = rules; rule->name; rule++)
        names[n++] = rule->name;
    for (size_t i = 0; i < LIMITS; i++) {
        snprintf(limits[i], sizeof limits[i], "--%s", limit_table[i].name);
        names[n++] = limits[i];
    }
    memcpy(name, word, kept);
    name[kept] = 0;
    const char *nearest = suggest_nearest(name, names, n);
    if (nearest)
        return err_set(e, EINVAL, STEP_USAGE, "unknown option %s; did you mean %s?", parse_quote(name).text, nearest);
    return err_set(e, EINVAL, STEP_USAGE, "unknown option %s; 'carrel run --help' lists them", parse_quote(name).text);
}

/* -i, -t, -h, also together as in -it. */
static int read_short(struct option_reader *reader, const char *word, struct err *e)
{
    for (const char *letter = word + 1; *letter; letter++) {
        int r;
        if (*letter == 'i')
            r = read_interactive(reader, NULL, e);
        else if (*letter == 't')
            r = read_terminal(reader, NULL, e);
        else if (*letter == 'h')
            r = read_help(reader, NULL, e);
        else
            return refuse_unknown(word, strlen(word), e);
        if (r < 0)
            return r;
    }
    return 0;
}

/* Reads the option at word, with next for its value if that is a word of its own. Returns how many words it was. */
static int read_option(struct option_reader *reader, const char *word, const char *next, struct err *e)
{
    int r;

    if (word[1] != '-') {
        r = read_short(reader, word, e);
        return r < 0 ? r : 1;
    }
    size_t length = strcspn(word, "=");
    const char *value = word[length] ? word + length + 1 : NULL;
    const struct rule *rule = find_rule(word, length);
    const struct limit *limit = rule ? NULL : limit_find(word + 2, length - 2);
    if (!rule && !limit)
        return refuse_unknown(word, length, e);
    if (rule && !rule->example) {
        if (value)
            return err_set(e, EINVAL, STEP_USAGE, "%s takes no value", rule->name);
        r = rule->read(reader, NULL, e);
        return r < 0 ? r : 1;
    }
    bool separate = !value;
    if (separate)
        value = next && strcmp(next, "--") ? next : "";
    if (!value[0])
        return err_set(e, EINVAL, STEP_USAGE, "%.*s needs a value, e.g. %.*s %s", (int)length, word, (int)length, word,
                       rule ? rule->example : limit->example);
    r = rule ? rule->read(reader, value, e) : read_limit(reader, limit, value, e);
    return r < 0 ? r : separate ? 2 : 1;
}

static int set_default(struct option_reader *reader, const char *name, const char *value, struct err *e)
{
    return envlist_set_from(&reader->env, name, name, strlen(name), value, strlen(value), e);
}

/* What every box has, before anything that was asked for, which may replace it. */
static int set_default_environment(struct option_reader *reader, struct err *e)
{
    int r = set_default(reader, "PATH", BOX_PATH, e);

    if (r == 0)
        r = set_default(reader, "LANG", "C.UTF-8", e);
    if (r == 0)
        r = set_default(reader, "LC_ALL", "C.UTF-8", e);
    if (r == 0)
        r = set_default(reader, "HOME", BOX_HOME, e);
    return r;
}

/* TERM comes with -t, unless it was asked for. */
static int settle_terminal(struct option_reader *reader, struct err *e)
{
    const char *term = environment_value(reader->environment, "TERM", 4);

    if (!reader->options->command.terminal || envlist_has(&reader->env, "TERM", 4))
        return 0;
    return set_default(reader, "TERM", term && term[0] ? term : "xterm", e);
}

static int settle_command(struct option_reader *reader, const char *word, char **argv, struct err *e)
{
    struct run_options *options = reader->options;

    if (!argv[0])
        return err_set(e, EINVAL, STEP_USAGE, "no command; use carrel %s [OPTIONS] -- COMMAND [ARGUMENTS]",
                       parse_quote(word).text);
    if (!argv[0][0])
        return err_set(e, EINVAL, STEP_USAGE,
                       "the command is an empty word; use carrel %s [OPTIONS] -- COMMAND [ARGUMENTS]",
                       parse_quote(word).text);
    if (options->zygote && options->n_devices)
        return err_set(e, ENOTSUP, STEP_USAGE, "--device and --zygote exclude each other: a zygote would reach every "
                       "device of its boxes");
    if (options->zygote && options->net.mode != NET_NONE)
        return err_set(e, ENOTSUP, STEP_USAGE, "--allow and --net cannot be used with --zygote");
    int r = settle_terminal(reader, e);
    if (r < 0)
        return r;
    if (!reader->has_user)
        options->box.uid = options->box.gid = options->box.profile == PROFILE_SYSTEM ? 0 : BOX_ID;
    options->command.argv = argv;
    r = envlist_finish(&reader->env, &options->command.env);
    if (r < 0)
        return err_at(e, -r, STEP_MEMORY, 0, "environment");
    return exec_limits_check(argv, options->command.env, e);
}

static int read_words(struct option_reader *reader, int argc, char **argv, struct err *e)
{
    int at = 1, r = set_default_environment(reader, e);

    if (r < 0)
        return r;
    while (at < argc) {
        const char *word = argv[at];
        if (!strcmp(word, "--")) {
            at++;
            break;
        }
        if (word[0] != '-' || !word[1])
            break;
        r = read_option(reader, word, argv[at + 1], e);
        if (r < 0)
            return r;
        if (reader->options->help)
            return 0;
        at += r;
    }
    return settle_command(reader, argc ? argv[0] : "run", argv + (at < argc ? at : argc), e);
}

int options_parse(int argc, char **argv, char *const *environment, struct run_options *ret, struct err *e)
{
    struct option_reader reader = { .options = ret, .environment = environment };

    *ret = (struct run_options){ 0 };
    ret->box.profile = PROFILE_STANDARD;
    for (size_t i = 0; i < LIMITS; i++)
        limit_set(&ret->box.limits, &limit_table[i], limit_table[i].run_usual);
    envlist_init(&reader.env, &ret->arena);
    int r = read_words(&reader, argc, argv, e);
    envlist_done(&reader.env);
    if (r < 0)
        options_done(ret);
    return r;
}

void options_done(struct run_options *options)
{
    free(options->command.env);
    arena_reset(&options->arena);
    *options = (struct run_options){ 0 };
}
