/* carrel create: from options to the body of POST /v1/boxes. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/parse.h"
#include "client/client.h"
#include "client/commands.h"
#include "client/progress.h"
#include "proto/limits.h"

#define LIMIT_USAGE(field, type, name, kind, least, most, run, server, server_most, flags, example, ...) \
    "  --" name " " example
enum { LOOK_MS = 20 };

static const char usage[] =
    "usage: carrel create [OPTIONS]\n"
    "\n"
    "Makes a box that lives until it is removed, and prints its id.\n"
    "\n"
    "  --name NAME             a name of yours for it: a-z, 0-9 and -\n"
    LIMIT_ROWS(LIMIT_USAGE) "    limits\n"
    "  --request-memory 256M  --request-cpus 0.5           guaranteed\n"
    "  --store memory|disk     where its files are; with disk they stay when it is stopped\n"
    "  --profile strict|standard|system\n"
    "  --root NAME             'host', or a root of the server's configuration\n"
    "  --writable-root         changes to the root are private to the box\n"
    "  --template NAME         the template of its kernels, which are then ready at once: python\n"
    "  --mount SRC:DST[:ro|rw] a directory or file of yours on the server's host, read-only unless rw\n"
    "  --volume NAME:DST[:ro]  a volume ('carrel volume --help'); may be given often\n"
    "  --device VENDOR/CLASS=NAME  a device that the server allows; GET /v1/info lists them\n"
    "  --allow RULE            a destination: a name, *.name, an address, a network, each with or without :PORT;\n"
    "                          may be given often\n"
    "  --deny RULE             the same; overrides --allow\n"
    "  --net none|public|NAME  public: every public address; NAME: a network of the server's configuration\n"
    "  --net-limit connections=100,bandwidth=4M   at a time, and bytes in a second; one of them or both\n"
    "  --packages 'numpy<2'    Python packages, installed once and shared; may be given often; --requirements FILE\n"
    "  --python 3.12           their interpreter: one that the server lists\n"
    "  --env K=V               for every command in it; may be given often, as may --label, --mount and --device\n"
    "  --secret NAME=PLACE     a secret ('carrel secret --help') for every command in it: PLACE is a variable, or a\n"
    "                          file in /run/secrets; may be given often\n"
    "  --label K=V\n"
    "  --ttl 2h                it is removed then\n"
    "  --idle-timeout 10m      it is removed (or --on-idle pause) after so long without requests\n"
    "  --on-idle delete|pause\n"
    "  --hostname NAME  --user UID[:GID]\n"
    "  --key NAME[=SECRET]@HOST[:HEADER]   requests to HOST carry the secret ('carrel secret --help'); in the box\n"
    "                          NAME is a placeholder. The header is 'Authorization: Bearer {}' if none is given\n"
    "  --idempotency-key KEY   asking again with the same key gives the same box\n"
    "  --json  --url URL\n";

struct create {
    json_t         *body, *limits, *requests, *env, *labels, *devices;
    const char     *same;
    struct handover mounts;
};

#define SETTER(function, call)                                                     \
    static int function(void *into, const char *value, struct err *e)             \
    {                                                                              \
        struct create *c = into;                                                   \
        return call;                                                               \
    }

#define TAKE_SIZE  take_size
#define TAKE_CPUS  take_cpus
#define TAKE_COUNT take_count
#define LIMIT_SETTER(field, type, name, kind, ...) \
    SETTER(set_##field, TAKE_##kind("--" name, value, c->limits, name, e))
LIMIT_ROWS(LIMIT_SETTER)
SETTER(set_request_memory, take_size("--request-memory", value, c->requests, "memory", e))
SETTER(set_request_cpus, take_cpus("--request-cpus", value, c->requests, "cpus", e))
SETTER(set_env, take_pair("--env", value, c->env, e))
SETTER(set_label, take_pair("--label", value, c->labels, e))
SETTER(set_device, json_array_append_new(c->devices, json_string(value)) < 0
                       ? err_set(e, EINVAL, STEP_USAGE, "--device is not UTF-8") : 0)
SETTER(set_ttl, take_duration("--ttl", value, c->body, "ttl", e))
SETTER(set_idle, take_duration("--idle-timeout", value, c->body, "idle_timeout", e))

static int put_text(json_t *object, const char *key, const char *option, const char *value, struct err *e)
{
    return json_object_set_new(object, key, json_string(value)) < 0
               ? err_set(e, EINVAL, STEP_USAGE, "%s is not UTF-8", option)
               : 0;
}

SETTER(set_net, take_net("--net", value, c->body, e))
SETTER(set_allow, take_net("--allow", value, c->body, e))
SETTER(set_deny, take_net("--deny", value, c->body, e))
SETTER(set_net_limit, take_net("--net-limit", value, c->body, e))
SETTER(set_packages, take_packages("--packages", value, c->body, e))
SETTER(set_requirements, take_packages("--requirements", value, c->body, e))
SETTER(set_python, take_python(value, c->body, e))
SETTER(set_volume, take_volume("--volume", value, c->body, e))
SETTER(set_key, take_key("--key", value, c->body, e))
SETTER(set_secret, take_secret("--secret", value, c->body, e))
SETTER(set_name, put_text(c->body, "name", "--name", value, e))
SETTER(set_profile, put_text(c->body, "profile", "--profile", value, e))
SETTER(set_template, put_text(c->body, "template", "--template", value, e))
SETTER(set_root, put_text(c->body, "root", "--root", value, e))
SETTER(set_on_idle, put_text(c->body, "on_idle", "--on-idle", value, e))
SETTER(set_hostname, put_text(c->body, "hostname", "--hostname", value, e))
SETTER(set_store, put_text(c->body, "store", "--store", value, e))
SETTER(set_user, put_text(c->body, "user", "--user", value, e))

static int set_writable_root(void *into, const char *value, struct err *e)
{
    (void)value;
    (void)e;
    return json_object_set_new(((struct create *)into)->body, "writable_root", json_true());
}

static int set_same(void *into, const char *value, struct err *e)
{
    ((struct create *)into)->same = value;
    return strpbrk(value, "\r\n") ? err_set(e, EINVAL, STEP_USAGE, "--idempotency-key must be one line") : 0;
}

/* SRC:DST[:ro|rw]. */
static int set_mount(void *into, const char *value, struct err *e)
{
    struct create *c = into;
    char source[4096], target[4096], what[128];
    const char *first = strchr(value, ':'), *second = first ? strchr(first + 1, ':') : NULL;
    bool writable = second && strcmp(second, ":rw") == 0;

    if (!first || first == value || (second && !writable && strcmp(second, ":ro") != 0))
        return err_set(e, EINVAL, STEP_USAGE,
                       "--mount wants SOURCE:TARGET, SOURCE:TARGET:ro or SOURCE:TARGET:rw, not '%s'",
                       parse_quote(value).text);
    snprintf(source, sizeof source, "%.*s", (int)(first - value), value);
    snprintf(target, sizeof target, "%.*s", second ? (int)(second - first - 1) : (int)strlen(first + 1), first + 1);
    snprintf(what, sizeof what, "--mount %s", parse_quote(value).text);
    return handover_add(&c->mounts, what, source, target, writable, e);
}

static void put_if_filled(json_t *body, const char *key, json_t *value)
{
    if (json_object_size(value) + json_array_size(value) > 0)
        json_object_set(body, key, value);
    json_decref(value);
}

/* A box whose packages may have to be installed first: shows how far that is. */
static int follow_create(struct client *c, json_t **box)
{
    struct packages_progress progress;
    struct err ignored;

    progress_init(&progress, c, text_of(*box, "id"));
    while (strcmp(text_of(*box, "phase"), "creating") == 0) {
        json_t *now = NULL;
        progress_look(&progress);
        (void)poll(NULL, 0, LOOK_MS);
        if (client_call(c, "GET", target_box(progress.box, ""), NULL, &now) < 0)
            return EXIT_CLIENT;
        json_decref(*box);
        *box = now;
    }
    bool failed = strcmp(text_of(*box, "phase"), "failed") == 0;
    progress_done(&progress, !failed);
    if (!failed)
        return 0;
    struct buf words;
    buf_init(&words, 4096);
    client_words(text_of(*box, "message"), &words);
    fprintf(stderr, "carrel: %s\n", show_text(buf_string(&words)));
    buf_done(&words);
    json_t *gone = NULL;
    (void)!client_ask(c, "DELETE", target_box(progress.box, ""), NULL, &gone, &ignored);
    json_decref(gone);
    return EXIT_CLIENT;
}

static int send_create(struct client *c, struct create *o)
{
    bool has_packages = json_object_get(o->body, "packages") || json_object_get(o->body, "python")
                        || json_object_get(o->body, "template");
    int status = 0;
    json_t *answer = NULL;
    char field[400] = "";

    if (o->same)
        snprintf(field, sizeof field, "Idempotency-Key: %.300s\r\n", o->same);
    if (client_call_with(c, "POST", has_packages ? "/v1/boxes?wait=false" : "/v1/boxes", field, json_incref(o->body),
                         &o->mounts, &answer) < 0)
        return EXIT_CLIENT;
    if (has_packages)
        status = follow_create(c, &answer);
    if (status == 0 && c->json)
        print_json(answer);
    else if (status == 0)
        puts(text_of(answer, "id"));
    json_decref(answer);
    return status;
}

int client_create(int argc, char **argv)
{
#define LIMIT_FLAG(field, type, name, ...) { name, strcmp(name, "memory") == 0 ? 'm' : 0, true, set_##field },
    const struct flag flags[] = {
        { "name", 0, true, set_name },
        LIMIT_ROWS(LIMIT_FLAG)
        { "request-memory", 0, true, set_request_memory },
        { "request-cpus", 0, true, set_request_cpus },
        { "profile", 0, true, set_profile },
        { "root", 0, true, set_root },
        { "template", 0, true, set_template },
        { "writable-root", 0, false, set_writable_root },
        { "mount", 0, true, set_mount },
        { "volume", 0, true, set_volume },
        { "secret", 0, true, set_secret },
        { "device", 0, true, set_device },
        NET_FLAGS(set_net, set_allow, set_deny) { "net-limit", 0, true, set_net_limit },
        PACKAGE_FLAGS(set_packages, set_requirements)
        { "python", 0, true, set_python },
        { "env", 'e', true, set_env },
        { "label", 'l', true, set_label },
        { "ttl", 0, true, set_ttl },
        { "idle-timeout", 0, true, set_idle },
        { "on-idle", 0, true, set_on_idle },
        { "hostname", 0, true, set_hostname },
        { "user", 0, true, set_user },
        { "store", 0, true, set_store },
        { "key", 0, true, set_key },
        { "idempotency-key", 0, true, set_same },
    };
    struct client c = { .name = "create", .usage = usage };
    struct create o = { json_object(), json_object(), json_object(), json_object(), json_object(), json_array(), NULL,
                        { 0 } };
    struct words words;

    handover_init(&o.mounts);
    int status = client_begin(&c, argc, argv, flags, sizeof flags / sizeof *flags, &o, false, &words);

    if (status < 0 && words.n > 0)
        status =
            client_misused(&c, "'%s' is not an option; a name is given with --name", parse_quote(words.at[0]).text);
    put_if_filled(o.body, "limits", o.limits);
    put_if_filled(o.body, "requests", o.requests);
    put_if_filled(o.body, "env", o.env);
    put_if_filled(o.body, "labels", o.labels);
    put_if_filled(o.body, "devices", o.devices);
    put_if_filled(o.body, "mounts", json_incref(o.mounts.list));
    if (status < 0)
        status = send_create(&c, &o);
    handover_done(&o.mounts);
    json_decref(o.body);
    return status;
}
