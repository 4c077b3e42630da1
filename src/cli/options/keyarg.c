#define _GNU_SOURCE
#include "cli/options/keyarg.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/parse.h"
#include "cli/options/envlist.h"
#include "cli/options/options.h"

#define HOW "use NAME@HOST, as in OPENAI_API_KEY@api.openai.com, or NAME@HOST:'x-api-key: {}'"

enum { RANDOM_BYTES = 12 };

static char *find_variable(char *const *environment, const char *name)
{
    size_t n = strlen(name);

    for (; environment && *environment; environment++)
        if (strncmp(*environment, name, n) == 0 && (*environment)[n] == '=')
            return *environment + n + 1;
    return NULL;
}

static int read_file(struct keyarg *k, const char *path, struct err *e)
{
    uint8_t text[BROKER_VALUE_MOST + 8];
    size_t size = 0;
    ssize_t n = 0;
    FD fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return err_set(e, errno, STEP_USAGE, "--key %s: %.100s: %s", k->name, path, strerror(errno));
    while (size < sizeof text && (n = read(fd, text + size, sizeof text - size)) > 0)
        size += (size_t)n;
    int r = n < 0 ? err_set(e, errno, STEP_USAGE, "--key %s: %.100s: %s", k->name, path, strerror(errno))
                  : key_take_value(k->what, path, text, size, &k->key, e);
    explicit_bzero(text, sizeof text);
    return r;
}

static int read_variable(struct keyarg *k, char *const *environment, struct err *e)
{
    const char *value = find_variable(environment, k->name);

    if (!value || !value[0])
        return err_set(e, ENOENT, STEP_USAGE, "--key %s: your environment has no %s; set it, or name a file with "
                       "'%s=FILE@HOST'", k->name, k->name, k->name);
    return key_take_value(k->what, "your environment", value, strlen(value), &k->key, e);
}

static int make_placeholder(struct keyarg *k, struct err *e)
{
    uint8_t random[RANDOM_BYTES];
    int at = snprintf(k->key.placeholder, sizeof k->key.placeholder, "carrel-placeholder-");

    if (getrandom(random, sizeof random, 0) != sizeof random)
        return err_at(e, errno, STEP_HOST, 0, "random bytes");
    for (size_t i = 0; i < sizeof random; i++, at += 2)
        snprintf(k->key.placeholder + at, sizeof k->key.placeholder - (size_t)at, "%02x", random[i]);
    return 0;
}

static int parse(const char *text, char *const *environment, struct keyarg *ret, struct err *e)
{
    struct key_text parts;
    char path[4096];

    *ret = (struct keyarg){ .key.head.type = BROKER_KEY };
    if (!key_split(text, &parts))
        return err_set(e, EINVAL, STEP_USAGE, "--key %s: " HOW, parse_quote(text).text);
    memcpy(ret->name, parts.name, sizeof ret->name);
    snprintf(ret->what, sizeof ret->what, "--key %s", ret->name);
    int r = key_take_host(ret->what, parts.host, &ret->key, e);
    if (r == 0)
        r = key_take_header(ret->what, parts.header, &ret->key, e);
    if (r == 0)
        r = make_placeholder(ret, e);
    if (r < 0)
        return r;
    if (!parts.source)
        return read_variable(ret, environment, e);
    if (parts.source_size == 0 || parts.source_size >= sizeof path)
        return err_set(e, EINVAL, STEP_USAGE, "--key %s: the file's name is missing or too long", ret->name);
    snprintf(path, sizeof path, "%.*s", (int)parts.source_size, parts.source);
    return read_file(ret, path, e);
}

int keyarg_add(struct run_options *o, const char *text, char *const *environment, struct err *e)
{
    char rule[NET_NAME_SIZE + 8];

    if (o->n_keys == BROKER_KEYS)
        return err_set(e, EINVAL, STEP_USAGE, "more than %d keys", BROKER_KEYS);
    struct keyarg *k = o->key[o->n_keys] = malloc(sizeof *k);
    if (!k)
        return err_at(e, ENOMEM, STEP_MEMORY, 0, "--key");
    o->n_keys++;
    int r = parse(text, environment, k, e);
    if (r < 0)
        return r;
    /* One variable, so one placeholder: for several hosts, or for programs that use different headers. */
    for (size_t i = 0; i + 1 < o->n_keys; i++)
        if (strcmp(o->key[i]->name, k->name) == 0)
            memcpy(k->key.placeholder, o->key[i]->key.placeholder, sizeof k->key.placeholder);
    snprintf(rule, sizeof rule, "%s:%d", k->key.host, BROKER_PORT);
    return net_policy_add(&o->net, "--key", rule, false, e);
}

int keyarg_settle(const struct run_options *o, struct envlist *env, char *const *environment, struct err *e)
{
    int r = 0;

    for (size_t i = 0; i < o->n_keys; i++) {
        const struct keyarg *k = o->key[i];
        if (envlist_has(env, k->name, strlen(k->name)))
            return err_set(e, EINVAL, STEP_USAGE, "--key %s: the box would get %s itself by --env, --env-file or "
                           "--pass-env; leave that out", k->name, k->name);
        if (net_judge_name(&o->net, k->key.host, BROKER_PORT) == NET_REFUSED)
            return err_set(e, EINVAL, STEP_USAGE, "--key %s: %s is denied by --deny", k->name, k->key.host);
    }
    for (size_t i = 0; i < o->n_keys && r == 0; i++) {
        const struct keyarg *k = o->key[i];
        char *value = find_variable(environment, k->name);
        r = envlist_set_from(env, "--key", k->name, strlen(k->name), k->key.placeholder, strlen(k->key.placeholder), e);
        if (value)
            explicit_bzero(value, strlen(value));
    }
    return r;
}
