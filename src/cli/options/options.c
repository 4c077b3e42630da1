/* A table of options, each with a function that reads its value into struct run_options. Values that depend on one
 * another (user and profile, the default environment) are settled after all options. The last occurrence of an option
 * counts; --env, --env-file, --pass-env, --mount, --allow and --deny add, and two different --net are refused. */
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
#include "cli/options/netarg.h"
#include "base/suggest.h"
#include "devices/cdi.h"
#include "proto/certificates.h"
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

static int read_request_memory(struct option_reader *r, const char *value, struct err *e)
{
    return parse_size("--request-memory", value, 1 << 20, &r->options->request_memory_bytes, e);
}

static int read_request_cpus(struct option_reader *r, const char *value, struct err *e)
{
    return parse_cpus("--request-cpus", value, &r->options->box.limits.cpu_request_milli, e);
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

/* A variable missing in the caller's environment is no error: one list serves many callers. */
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

/* So are secrets. */
static int read_secret(struct option_reader *r, const char *value, struct err *e)
{
    struct run_options *o = r->options;
    const char *equals = strchr(value, '=');

    if (!equals || equals == value || !equals[1] || o->n_secrets == SPEC_SECRETS_MAX)
        return err_set(e, EINVAL, STEP_USAGE, "--secret wants NAME=VARIABLE or NAME=" BOX_SECRETS "/FILE, at most %d "
                       "times, not '%s'", SPEC_SECRETS_MAX, parse_quote(value).text);
    o->secret[o->n_secrets++] = value;
    return 0;
}

/* Volumes are a server's, so the server runs the command. */
static int read_volume(struct option_reader *r, const char *value, struct err *e)
{
    struct run_options *o = r->options;
    const char *colon = strstr(value, ":/");

    if (!colon || colon == value)
        return err_set(e, EINVAL, STEP_USAGE, "--volume wants NAME:/PATH or NAME:/PATH:ro, not '%s'",
                       parse_quote(value).text);
    if (o->n_volumes == KEEPER_VOLUMES)
        return err_set(e, EINVAL, STEP_USAGE, "more than %d volumes", KEEPER_VOLUMES);
    o->volume[o->n_volumes++] = value;
    return 0;
}

static int read_packages(struct option_reader *r, const char *value, struct err *e)
{
    return packages_add(&r->options->packages, "--packages", value, e);
}

static int read_requirements(struct option_reader *r, const char *value, struct err *e)
{
    return packages_read_file(&r->options->packages, "--requirements", value, e);
}

static int read_python(struct option_reader *r, const char *value, struct err *e)
{
    (void)e;
    r->options->python = value;
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
    return netarg_add(r->options, "--net", value, e);
}

static int read_allow(struct option_reader *r, const char *value, struct err *e)
{
    return netarg_add(r->options, "--allow", value, e);
}

static int read_deny(struct option_reader *r, const char *value, struct err *e)
{
    return netarg_add(r->options, "--deny", value, e);
}

static int read_net_limit(struct option_reader *r, const char *value, struct err *e)
{
    return netarg_add(r->options, "--net-limit", value, e);
}

static int read_key(struct option_reader *r, const char *value, struct err *e)
{
    return keyarg_add(r->options, value, r->environment, e);
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

static int read_help(struct option_reader *r, const char *value, struct err *e)
{
    (void)value, (void)e;
    r->options->help = true;
    return 0;
}

static const struct rule rules[] = {
    { "--request-memory", "256M", read_request_memory },
    { "--request-cpus", "0.5", read_request_cpus },
    { "--timeout", "30s", read_timeout },
    { "--output-limit", "10M", read_output_limit },
    { "--env", "NAME=VALUE", read_env },
    { "--env-file", "secrets.env", read_env_file },
    { "--pass-env", "NAME,NAME", read_pass_env },
    { "--mount", "/data:/data:ro", read_mount },
    { "--device", "vendor.com/gpu=0", read_device },
    { "--volume", "data:/data", read_volume },
    { "--secret", "hf=HF_TOKEN", read_secret },
    { "--packages", "'numpy<2'", read_packages },
    { "--requirements", "requirements.txt", read_requirements },
    { "--python", "3.12", read_python },
    { "--workdir", "/tmp", read_workdir },
    { "--hostname", "box", read_hostname },
    { "--user", "1000:1000", read_user },
    { "--root", "host", read_root },
    { "--writable-root", NULL, read_writable_root },
    { "--no-proc", NULL, read_no_proc },
    { "--net", "public", read_net },
    { "--allow", "index.example.org", read_allow },
    { "--deny", "10.0.0.0/8", read_deny },
    { "--key", "OPENAI_API_KEY@api.openai.com", read_key },
    { "--net-limit", "connections=100", read_net_limit },
    { "--profile", "standard", read_profile },
    { "--report", "report.json", read_report },
    { "--zygote", "python3", read_zygote },
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
    const char *nearest = suggest_nearest(name, names, n), *instead = suggest_option(name);
    if (instead)
        return err_set(e, EINVAL, STEP_USAGE, "unknown option %s; %s", parse_quote(name).text, instead);
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

/* Reads the option at word, with next for its value if that is a separate word. Returns how many words it used. */
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

/* The default environment of every box; the user's values override it. */
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

/* The layer's programs come first, unless the user gave a PATH. */
static int settle_packages(struct option_reader *reader, struct err *e)
{
    struct run_options *o = reader->options;
    const char *path = envlist_get(&reader->env, "PATH");

    if (o->packages.n == 0)
        return o->python ? err_set(e, EINVAL, STEP_USAGE, "--python is the interpreter of --packages; name some") : 0;
    if (spec_root(&o->box))
        return err_set(e, EINVAL, STEP_USAGE, "--packages are for the host's own interpreters; a box with a --root has "
                       "none of them");
    bool is_usual = path && strcmp(path, BOX_PATH) == 0;
    int r = is_usual ? set_default(reader, "PATH", BOX_FIRST ":" PACKAGES_PLACE "/bin:" BOX_LAST_PATH, e) : 0;
    return r == 0 && !envlist_has(&reader->env, "VIRTUAL_ENV", 11)
               ? set_default(reader, "VIRTUAL_ENV", PACKAGES_PLACE, e) : r;
}

/* -t sets TERM, unless the user gave one. */
static int settle_terminal(struct option_reader *reader, struct err *e)
{
    const char *term = environment_value(reader->environment, "TERM", 4);

    if (!reader->options->command.terminal || envlist_has(&reader->env, "TERM", 4))
        return 0;
    return set_default(reader, "TERM", term && term[0] ? term : "xterm", e);
}

/* A network sets the paths of CA certificates, unless the user gave them. With keys they are the box's own. */
static int settle_certificates(struct option_reader *reader, struct err *e)
{
    static const char *const usual[] = CERTIFICATES_VARIABLES, *const all[] = CERTIFICATES_OF_BOX_VARIABLES;
    bool has_keys = reader->options->n_keys > 0;
    bool is_wanted = reader->options->net.mode != NET_NONE && !spec_root(&reader->options->box);
    const char *file = has_keys ? CERTIFICATES_OF_BOX : is_wanted ? certificates_find() : NULL;
    const char *const *names = has_keys ? all : usual;
    size_t n = has_keys ? sizeof all / sizeof *all : sizeof usual / sizeof *usual;
    int r = 0;

    for (size_t i = 0; file && i < n && r == 0; i++)
        if (!envlist_has(&reader->env, names[i], strlen(names[i])))
            r = set_default(reader, names[i], file, e);
    return r;
}

/* With a network, packages can be installed while the box lives (guest/box). */
static int settle_site(struct option_reader *reader, struct err *e)
{
    bool has_network = reader->options->net.mode != NET_NONE;

    return has_network && !envlist_has(&reader->env, "PYTHONPATH", 10) ? set_default(reader, "PYTHONPATH", BOX_SITE, e)
                                                                       : 0;
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
    if (options->box.limits.cpu_milli && options->box.limits.cpu_request_milli > options->box.limits.cpu_milli)
        return err_set(e, EINVAL, STEP_USAGE, "--request-cpus is more than --cpus");
    if (options->given.memory_bytes && options->request_memory_bytes > options->box.limits.memory_bytes)
        return err_set(e, EINVAL, STEP_USAGE, "--request-memory is more than --memory");
    int r = netarg_settle(options, e);
    if (r == 0)
        r = settle_terminal(reader, e);
    if (r == 0)
        r = keyarg_settle(options, &reader->env, reader->environment, e);
    if (r == 0)
        r = settle_certificates(reader, e);
    if (r == 0)
        r = settle_site(reader, e);
    if (r == 0)
        r = settle_packages(reader, e);
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
    for (size_t i = 0; i < options->n_keys; i++) {
        explicit_bzero(options->key[i], sizeof *options->key[i]);
        free(options->key[i]);
    }
    packages_done(&options->packages);
    arena_reset(&options->arena);
    *options = (struct run_options){ 0 };
}
