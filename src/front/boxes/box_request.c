#define _GNU_SOURCE
#include "front/boxes/box_request.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/parse.h"
#include "front/boxes/box_devices.h"
#include "front/front.h"
#include "front/identity/auth.h"
#include "front/keys/keys.h"
#include "front/net/net.h"
#include "front/request/fields.h"
#include "front/secrets/secret_uses.h"
#include "proto/checks.h"

#define MEMORY_ALL UINT64_MAX       /* "max": as much as this server gives to one box */

/* ---- limits ---- */

static int take_limit(const struct limit *limit, const char *name, json_t *v, struct limits *into, struct err *e)
{
    uint64_t value = 0;
    uint32_t small = 0;
    int r = 0;

    if (limit->flags & LIMIT_ALL && json_is_string(v) && strcmp(json_string_value(v), "max") == 0)
        value = MEMORY_ALL;
    else if (limit->kind == LIMIT_SIZE)
        r = body_size(name, v, &value, e);
    else if (limit->kind == LIMIT_CPUS)
        r = body_cpus(name, v, &small, e);
    else
        r = body_count(name, v, (uint32_t)limit->least, (uint32_t)limit->most, &small, e);
    if (limit->kind != LIMIT_SIZE)
        value = small;
    if (r == 0 && value < limit->least)
        r = err_set(e, EINVAL, STEP_USAGE, "%s must be %s or more", name, limit_show(limit, limit->least).text);
    if (r == 0)
        limit_set(into, limit, value);
    return r;
}

int box_request_limits(const char *name, json_t *value, struct limits *into, struct err *e)
{
    const unsigned flags = strcmp(name, "requests") == 0 ? LIMIT_REQUEST : 0;
    const char *key;
    json_t *one;
    int r = 0;

    if (!json_is_object(value))
        return err_set(e, EINVAL, STEP_USAGE, "%s must be an object", name);
    json_object_foreach(value, key, one) {
        const struct limit *limit = limit_find(key, strlen(key));
        char where[96];
        if (!limit || (limit->flags & flags) != flags)
            return err_set(e, EINVAL, STEP_USAGE, "unknown field '%s.%s'", name, parse_quote(key).text);
        snprintf(where, sizeof where, "%s.%s", name, key);
        if ((r = take_limit(limit, where, one, into, e)) < 0)
            return r;
    }
    return 0;
}

int box_request_live_limits(const struct config *config, json_t *value, struct limits *into, struct err *e)
{
    int r = box_request_limits("limits", value, into, e);

    for (size_t i = 0; i < LIMITS && r == 0; i++)
        if (!(limit_table[i].flags & LIMIT_LIVE) && limit_get(into, &limit_table[i]))
            r = err_set(e, EINVAL, STEP_USAGE, "limits.%s cannot be changed once the box is there",
                        limit_table[i].name);
    return r < 0 ? r : box_request_check_limits(config, into, e);
}

int box_request_check_limits(const struct config *config, const struct limits *l, struct err *e)
{
    if (l->memory_bytes == MEMORY_ALL)
        return err_set(e, EINVAL, STEP_USAGE, "limits.memory may be \"max\" for a new box only");
    for (size_t i = 0; i < LIMITS; i++) {
        const struct limit *limit = &limit_table[i];
        uint64_t asked = limit_get(l, limit), most = limit_get(&config->most, limit);
        if (most && asked > most)
            return err_set(e, EINVAL, STEP_USAGE, "limits.%s may be at most %s on this server, not %s", limit->name,
                           limit_show(limit, most).text, limit_show(limit, asked).text);
    }
    if (config->host_cpu_milli && l->cpu_milli > config->host_cpu_milli)
        return err_set(e, EINVAL, STEP_USAGE, "limits.cpus may be at most %g on this server, not %g",
                       config->host_cpu_milli / 1000.0, l->cpu_milli / 1000.0);
    return 0;
}

static int take_limits(const char *name, json_t *v, void *into, struct err *e)
{
    return box_request_limits(name, v, &((struct box_request *)into)->settings.limits, e);
}

static int take_requests(const char *name, json_t *v, void *into, struct err *e)
{
    return box_request_limits(name, v, &((struct box_request *)into)->settings.requests, e);
}

/* ---- the rest ---- */

static int take_name(const char *name, json_t *v, void *into, struct err *e)
{
    struct box_request *c = into;

    if (json_is_null(v))
        return 0;
    if (!json_is_string(v) || !body_name_is_valid(json_string_value(v)))
        return err_set(e, EINVAL, STEP_USAGE, "%s must be 1 to 63 of a-z, 0-9 and -, and neither begin nor end with -",
                       name);
    c->name = json_string_value(v);
    return 0;
}

static int take_profile(const char *name, json_t *v, void *into, struct err *e)
{
    struct box_request *c = into;
    enum profile profile = profile_parse(json_string_value(v));

    if (profile < PROFILE_COUNT) {
        c->settings.profile = profile;
        return 0;
    }
    return err_set(e, EINVAL, STEP_USAGE, "%s must be \"strict\", \"standard\" or \"system\"", name);
}

static int take_env(const char *name, json_t *v, void *into, struct err *e)
{
    struct box_request *c = into;
    int r = body_env(name, v, e);

    if (r == 0)
        c->settings.env = json_incref(v);
    return r;
}

static int take_secrets(const char *name, json_t *v, void *into, struct err *e)
{
    struct box_request *c = into;
    int r = secret_uses_check(name, v, e);

    if (r == 0 && json_array_size(v) > 0)
        c->settings.secrets = json_incref(v);
    return r;
}

static int take_labels(const char *name, json_t *v, void *into, struct err *e)
{
    struct box_request *c = into;
    int r = body_labels(name, v, e);

    if (r == 0)
        c->settings.labels = json_incref(v);
    return r;
}

static int take_net(const char *name, json_t *v, void *into, struct err *e)
{
    struct box_request *c = into;

    c->settings.net_said = true;
    return net_take(&c->front->config, name, v, &c->settings.net, e);
}

static int take_keys(const char *name, json_t *v, void *into, struct err *e)
{
    struct box_request *c = into;

    c->settings.keys_said = true;
    return keys_take(name, v, &c->settings.keys, e);
}

static int take_seconds(const char *name, json_t *v, uint32_t *ret, struct err *e)
{
    uint64_t ms;
    int r = body_duration(name, v, &ms, e);

    if (r == 0)
        *ret = (uint32_t)((ms + 999) / 1000);
    return r;
}

static int take_ttl(const char *name, json_t *v, void *into, struct err *e)
{
    return take_seconds(name, v, &((struct box_request *)into)->settings.ttl_s, e);
}

static int take_idle(const char *name, json_t *v, void *into, struct err *e)
{
    return take_seconds(name, v, &((struct box_request *)into)->settings.idle_s, e);
}

static int take_on_idle(const char *name, json_t *v, void *into, struct err *e)
{
    struct box_request *c = into;
    const char *text = json_is_string(v) ? json_string_value(v) : "";

    if (strcmp(text, "pause") != 0 && strcmp(text, "delete") != 0)
        return err_set(e, EINVAL, STEP_USAGE, "%s must be \"delete\" or \"pause\"", name);
    c->settings.pause_when_idle = text[0] == 'p';
    return 0;
}

static int take_hostname(const char *name, json_t *v, void *into, struct err *e)
{
    struct box_request *c = into;
    const char *text;
    int r = body_text(name, v, sizeof c->settings.hostname - 1, &text, e);

    if (r < 0)
        return r;
    if (!text[0])
        return err_set(e, EINVAL, STEP_USAGE, "%s must not be empty", name);
    if (!hostname_is_plain(text, strlen(text) + 1))
        return err_set(e, EINVAL, STEP_USAGE, "%s may have letters, digits, - and .", name);
    snprintf(c->settings.hostname, sizeof c->settings.hostname, "%s", text);
    return 0;
}

static int take_user(const char *name, json_t *v, void *into, struct err *e)
{
    struct box_settings *s = &((struct box_request *)into)->settings;
    return body_user(name, v, &s->uid, &s->gid, e);
}

int box_request_read_mounts(struct box_request *c, json_t *root, struct err *e)
{
    struct body_field fields[BOX_MOUNT_FIELDS];
    size_t n = 0;

    box_settings_init(&c->settings);
    for (size_t i = 0; i < BOX_MOUNT_FIELDS; i++)
        if (box_mount_fields[i].is_handed_over)
            fields[n++] = box_mount_fields[i].body;
    return body_fields(root, "", fields, n, c, e);
}

static uint64_t smaller(uint64_t a, uint64_t b)     /* 0: unbounded */
{
    return !a ? b : !b ? a : a < b ? a : b;
}

/* A host that cannot limit memory has no default for it either; then there is no limit. */
static uint64_t most_memory(const struct config *config)
{
    return !config->defaults.memory_bytes
             ? 0
             : smaller(smaller(config->most.memory_bytes, config->quota.memory_bytes), config->host_memory_bytes);
}

int box_request_read(struct box_request *c, json_t *root, struct err *e)
{
    enum { OWN_FIELDS = 14 };
    struct body_field fields[OWN_FIELDS + BOX_MOUNT_FIELDS] = {
        { "name", take_name },       { "net", take_net },
        { "profile", take_profile }, { "requests", take_requests },
        { "limits", take_limits },   { "env", take_env },
        { "labels", take_labels },   { "ttl", take_ttl },
        { "idle_timeout", take_idle }, { "on_idle", take_on_idle },
        { "hostname", take_hostname }, { "user", take_user },
        { "keys", take_keys },
        { "secrets", take_secrets },
    };
    const struct config *config = &c->front->config;

    box_settings_init(&c->settings);
    if (!(c->who->scopes & SCOPE_WRITE))
        return err_set(e, EPERM, STEP_USAGE, "%s lacks the scope boxes:write: this makes a box", c->who->name);
    for (size_t i = 0; i < BOX_MOUNT_FIELDS; i++)
        fields[OWN_FIELDS + i] = box_mount_fields[i].body;
    int r = body_fields(root, "", fields, sizeof fields / sizeof *fields, c, e);
    if (c->settings.limits.memory_bytes == MEMORY_ALL)
        c->settings.limits.memory_bytes = most_memory(config);
    if (r == 0 && c->settings.requests.memory_bytes == MEMORY_ALL)
        r = err_set(e, EINVAL, STEP_USAGE, "requests.memory cannot be \"max\"");
    if (r == 0)
        r = box_request_check_limits(config, &c->settings.limits, e);
    if (r == 0)
        r = secret_uses_check_env(c->settings.secrets, c->settings.env, e);
    if (r == 0)
        r = box_devices_env(c->front, &c->settings, e);
    /* Files are kept in memory: a small box gets no more disk than memory unless it requests it. */
    struct limits *l = &c->settings.limits;
    uint64_t memory = l->memory_bytes ? l->memory_bytes : config->defaults.memory_bytes;
    if (r == 0 && !l->disk_bytes && !box_mounts_on_disk(&c->settings.mounts) && config->defaults.disk_bytes > memory)
        l->disk_bytes = memory;
    if (r < 0)
        box_settings_done(&c->settings);
    return r;
}
