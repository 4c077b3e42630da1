/* carrel create: from options to the body of POST /v1/boxes. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "base/parse.h"
#include "client/client.h"
#include "client/commands.h"
#include "client/envelope.h"

static const char usage[] =
    "usage: carrel create [OPTIONS]\n"
    "\n"
    "Makes a box that lives until it is removed, and prints its id.\n"
    "\n"
    "  --name NAME             a name of yours for it: a-z, 0-9 and -\n"
    "  --memory 512M  --cpus 1.5  --pids 128  --disk 1G    limits\n"
    "  --request-memory 256M  --request-cpus 0.5           what is guaranteed\n"
    "  --store memory|disk     where its files are; with disk they stay when it is stopped\n"
    "  --profile strict|standard|system\n"
    "  --root NAME             'host', or a root of the server's configuration\n"
    "  --writable-root         changes to the root are private to the box\n"
    "  --mount SRC:DST[:ro|rw] a directory or file of yours on the server's host, read-only unless rw\n"
    "  --env K=V               for every command in it; may be given often, as may --label and --mount\n"
    "  --label K=V\n"
    "  --ttl 2h                it is removed then\n"
    "  --idle-timeout 10m      it is removed (or --on-idle pause) when nothing was asked of it for so long\n"
    "  --on-idle delete|pause\n"
    "  --hostname NAME  --user UID[:GID]\n"
    "  --key KEY               asking again with the same key gives the same box\n"
    "  --json  --url URL\n";

struct create {
    json_t     *body, *limits, *requests, *env, *labels, *mounts;
    const char *key;
    int         fds[EXCHANGE_FDS];      /* owned: what is mounted */
    size_t      n_fds;
};

#define SETTER(function, call)                                                     \
    static int function(void *into, const char *value, struct err *e)             \
    {                                                                              \
        struct create *c = into;                                                   \
        return call;                                                               \
    }

SETTER(set_memory, take_size("--memory", value, c->limits, "memory", e))
SETTER(set_disk, take_size("--disk", value, c->limits, "disk", e))
SETTER(set_cpus, take_cpus("--cpus", value, c->limits, "cpus", e))
SETTER(set_pids, take_count("--pids", value, c->limits, "pids", e))
SETTER(set_request_memory, take_size("--request-memory", value, c->requests, "memory", e))
SETTER(set_request_cpus, take_cpus("--request-cpus", value, c->requests, "cpus", e))
SETTER(set_env, take_pair("--env", value, c->env, e))
SETTER(set_label, take_pair("--label", value, c->labels, e))
SETTER(set_ttl, take_duration("--ttl", value, c->body, "ttl", e))
SETTER(set_idle, take_duration("--idle-timeout", value, c->body, "idle_timeout", e))

static int put_text(json_t *object, const char *key, const char *option, const char *value, struct err *e)
{
    return json_object_set_new(object, key, json_string(value)) < 0
               ? err_set(e, EINVAL, STEP_USAGE, "%s is not UTF-8", option)
               : 0;
}

SETTER(set_name, put_text(c->body, "name", "--name", value, e))
SETTER(set_profile, put_text(c->body, "profile", "--profile", value, e))
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

static int set_key(void *into, const char *value, struct err *e)
{
    ((struct create *)into)->key = value;
    return strpbrk(value, "\r\n") ? err_set(e, EINVAL, STEP_USAGE, "--key must be one line") : 0;
}

/* SRC:DST[:ro|rw]. It is opened here, with the rights of whoever asks, and handed over; a server may be root, and must
 * not open for anybody what only root may. */
static int set_mount(void *into, const char *value, struct err *e)
{
    struct create *c = into;
    char path[4096], target[4096];
    const char *first = strchr(value, ':'), *second = first ? strchr(first + 1, ':') : NULL;
    bool writable = second && strcmp(second, ":rw") == 0;

    if (!first || first == value || (second && !writable && strcmp(second, ":ro") != 0))
        return err_set(e, EINVAL, STEP_USAGE,
                       "--mount wants SOURCE:TARGET, SOURCE:TARGET:ro or SOURCE:TARGET:rw, not '%s'",
                       parse_quote(value).text);
    if (c->n_fds == EXCHANGE_FDS)
        return err_set(e, EINVAL, STEP_USAGE, "a box may have %d mounts", EXCHANGE_FDS);
    char source[4096];
    snprintf(source, sizeof source, "%.*s", (int)(first - value), value);
    FD fd = realpath(source, path) ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY) : -1;
    if (fd < 0)
        return err_set(e, errno, STEP_USAGE, "--mount %s: %s", parse_quote(value).text, strerror(errno));
    snprintf(target, sizeof target, "%.*s", second ? (int)(second - first - 1) : (int)strlen(first + 1), first + 1);
    json_t *mount =
        json_pack("{s:s,s:s,s:b,s:i}", "source", path, "target", target, "writable", writable, "fd", (int)c->n_fds);
    if (!mount)
        return err_set(e, EINVAL, STEP_USAGE, "--mount: not UTF-8");
    int r = envelope_make(fd, &c->fds[c->n_fds]);
    if (r < 0) {
        json_decref(mount);
        return err_set(e, -r, STEP_USAGE, "--mount: %s", strerror(-r));
    }
    c->n_fds++;
    return json_array_append_new(c->mounts, mount);
}

static void put_if_filled(json_t *body, const char *key, json_t *value)
{
    if (json_object_size(value) + json_array_size(value) > 0)
        json_object_set(body, key, value);
    json_decref(value);
}

static int send_create(struct client *c, struct create *o)
{
    struct err e = { 0 };
    json_t *answer = NULL;
    char fields[512];
    struct exchange *x = malloc(sizeof *x);
    char *text = json_dumps(o->body, JSON_COMPACT);
    int status = EXIT_CLIENT;

    snprintf(fields, sizeof fields, "Content-Type: application/json\r\nConnection: close\r\n%s%.300s%s",
             o->key ? "Idempotency-Key: " : "", o->key ? o->key : "", o->key ? "\r\n" : "");
    if (o->n_fds && !c->server.is_unix)
        fputs("carrel: --mount needs a server on this machine, reached by its unix socket\n", stderr);
    else if (!x || !text)
        fputs("carrel: out of memory\n", stderr);
    else if (exchange_open_with(x, &c->server, "POST", "/v1/boxes", fields, (int64_t)strlen(text), o->fds, o->n_fds,
                                &e) < 0) {
        client_complain(&e);
    } else {
        (void)!exchange_send(x, text, strlen(text));
        if (exchange_answer(x, &e) < 0) {
            client_complain(&e);
        } else {
            answer = client_read_json(x);
            status = x->status < 300 ? 0 : client_refused(x->status, answer);
        }
        exchange_close(x);
    }
    if (status == 0 && c->json)
        print_json(answer);
    else if (status == 0)
        puts(text_of(answer, "id"));
    json_decref(answer);
    free(text);
    free(x);
    return status;
}

int client_create(int argc, char **argv)
{
    static const struct flag flags[] = {
        { "name", 0, true, set_name },
        { "memory", 'm', true, set_memory },
        { "cpus", 0, true, set_cpus },
        { "pids", 0, true, set_pids },
        { "disk", 0, true, set_disk },
        { "request-memory", 0, true, set_request_memory },
        { "request-cpus", 0, true, set_request_cpus },
        { "profile", 0, true, set_profile },
        { "root", 0, true, set_root },
        { "writable-root", 0, false, set_writable_root },
        { "mount", 0, true, set_mount },
        { "env", 'e', true, set_env },
        { "label", 'l', true, set_label },
        { "ttl", 0, true, set_ttl },
        { "idle-timeout", 0, true, set_idle },
        { "on-idle", 0, true, set_on_idle },
        { "hostname", 0, true, set_hostname },
        { "user", 0, true, set_user },
        { "store", 0, true, set_store },
        { "key", 0, true, set_key },
    };
    struct client c = { .name = "create", .usage = usage };
    struct create o = { json_object(), json_object(), json_object(),
                        json_object(), json_object(), json_array(),
                        NULL,          { 0 },         0 };
    struct words words;
    int status = client_begin(&c, argc, argv, flags, sizeof flags / sizeof *flags, &o, false, &words);

    if (status < 0 && words.n > 0)
        status =
            client_misused(&c, "'%s' is not an option; a name is given with --name", parse_quote(words.at[0]).text);
    put_if_filled(o.body, "limits", o.limits);
    put_if_filled(o.body, "requests", o.requests);
    put_if_filled(o.body, "env", o.env);
    put_if_filled(o.body, "labels", o.labels);
    put_if_filled(o.body, "mounts", o.mounts);
    if (status < 0)
        status = send_create(&c, &o);
    for (size_t i = 0; i < o.n_fds; i++)
        fd_close(o.fds[i]);
    json_decref(o.body);
    return status;
}
