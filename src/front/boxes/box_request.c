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
#include "front/net/net.h"
#include "front/request/fields.h"
#include "proto/checks.h"

#define MEMORY_ALL UINT64_MAX       /* "max": what this server may give to one box */

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
            return err_set(e, EINVAL, STEP_USAGE, "limits.%s may be %s on this server, not %s", limit->name,
                           limit_show(limit, most).text, limit_show(limit, asked).text);
    }
    if (config->host_cpu_milli && l->cpu_milli > config->host_cpu_milli)
        return err_set(e, EINVAL, STEP_USAGE, "limits.cpus may be %u.%03u on this server",
                       config->host_cpu_milli / 1000, config->host_cpu_milli % 1000);
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

static int take_root(const char *name, json_t *v, void *into, struct err *e)
{
    struct box_request *c = into;
    const struct config *config = &c->front->config;
    const char *text;
    int r = body_text(name, v, 63, &text, e);

    if (r < 0 || strcmp(text, "host") == 0)
        return r;
    for (uint32_t i = 0; i < config->n_roots; i++)
        if (strcmp(config->root_name[i], text) == 0) {
            c->settings.root = i + 1;
            return 0;
        }
    return err_set(e, EINVAL, STEP_USAGE, "%s: there is no root '%s' on this server; GET /v1/info lists them", name,
                   parse_quote(text).text);
}

static int take_template(const char *name, json_t *v, void *into, struct err *e)
{
    struct box_request *c = into;
    const char *text;
    int r = json_is_null(v) ? 0 : body_text(name, v, 63, &text, e);

    if (r < 0 || json_is_null(v))
        return r;
    c->settings.template = config_template_find(&c->front->config, text);
    return c->settings.template ? 0
                                : err_set(e, EINVAL, STEP_USAGE, "%s: there is no template '%s' on this server; its "
                                          "configuration names them", name, parse_quote(text).text);
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

static int take_labels(const char *name, json_t *v, void *into, struct err *e)
{
    struct box_request *c = into;
    int r = body_labels(name, v, e);

    if (r == 0)
        c->settings.labels = json_incref(v);
    return r;
}

static int take_devices(const char *name, json_t *v, void *into, struct err *e)
{
    struct box_request *c = into;

    return box_devices_take(c->front, name, v, &c->settings, e);
}

static int take_net(const char *name, json_t *v, void *into, struct err *e)
{
    struct box_request *c = into;

    c->settings.net_said = true;
    return net_take(&c->front->config, name, v, &c->settings.net, e);
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

static int take_store(const char *name, json_t *v, void *into, struct err *e)
{
    struct box_request *c = into;
    const char *text = json_is_string(v) ? json_string_value(v) : "";

    if (strcmp(text, "memory") != 0 && strcmp(text, "disk") != 0)
        return err_set(e, EINVAL, STEP_USAGE, "%s must be \"memory\" or \"disk\"", name);
    c->settings.on_disk = text[0] == 'd';
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

static int take_writable_root(const char *name, json_t *v, void *into, struct err *e)
{
    return body_bool(name, v, &((struct box_request *)into)->settings.writable_root, e);
}

/* ---- mounts ---- */

struct mount_body {
    const char *source, *target;
    bool        writable, has_fd;
    uint32_t    fd;             /* which of the descriptors that came with the request */
};

static int take_fd(const char *name, json_t *v, void *into, struct err *e)
{
    struct mount_body *m = into;

    m->has_fd = true;
    return body_count(name, v, 0, HTTP_FDS_MAX - 1, &m->fd, e);
}

static int take_source(const char *name, json_t *v, void *into, struct err *e)
{
    return body_text(name, v, 4095, &((struct mount_body *)into)->source, e);
}

static int take_target(const char *name, json_t *v, void *into, struct err *e)
{
    return body_text(name, v, sizeof(((struct frame_mount *)0)->target) - 1, &((struct mount_body *)into)->target, e);
}

static int take_writable(const char *name, json_t *v, void *into, struct err *e)
{
    return body_bool(name, v, &((struct mount_body *)into)->writable, e);
}

/* What is mounted was opened by the caller, under the caller's rights, and comes in an envelope (keeper/envelope.h)
 * with the request; else a root server would open for anybody what only root may. Only the user whom this server runs
 * as may name a path instead: its rights are the same. */
static int open_source(const struct box_request *c, const char *name, const struct mount_body *m, int *ret,
                       struct err *e)
{
    struct ucred maker;
    socklen_t size = sizeof maker;
    FD fd = -1;

    if (m->has_fd) {
        if (m->fd >= c->r->n_fds)
            return err_set(e, EINVAL, STEP_USAGE, "%s.fd: no descriptor %u came with the request", name, m->fd);
        fd = fcntl(c->r->fds[m->fd], F_DUPFD_CLOEXEC, 3);
        if (fd < 0 || !fd_is_socket_pair(fd) || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &maker, &size) < 0)
            return err_set(e, EINVAL, STEP_USAGE,
                           "%s.fd must be one end of a socket pair with the opened directory in it", name);
        if (c->who->uid == (uid_t)-1 || maker.uid != c->who->uid)
            return err_set(e, EPERM, STEP_USAGE, "%s.fd: another user than %s made the socket pair", name,
                           c->who->name);
    } else if (c->who->uid != (uid_t)-1 && c->who->uid == geteuid()) {
        fd = open(m->source, O_PATH | O_CLOEXEC);
        if (fd < 0)
            return err_set(e, EINVAL, STEP_USAGE, "%s.source %s: %s", name, parse_quote(m->source).text,
                           strerror(errno));
    } else {
        return err_set(e, EPERM, STEP_USAGE,
                       "%s: this server cannot open a path with the rights of %s; 'carrel create --mount' and the SDK "
                       "hand the opened directory over through the unix socket",
                       name, c->who->name);
    }
    *ret = TAKE_FD(fd);
    return 0;
}

static int take_mounts(const char *name, json_t *v, void *into, struct err *e)
{
    static const struct body_field fields[] = {
        { "source", take_source }, { "target", take_target }, { "writable", take_writable }, { "fd", take_fd }
    };
    struct box_request *c = into;
    struct box_settings *s = &c->settings;
    size_t i;
    json_t *one;

    if (!json_is_array(v) || json_array_size(v) > KEEPER_MOUNTS)
        return err_set(e, EINVAL, STEP_USAGE, "%s must be a list of at most %d objects", name, KEEPER_MOUNTS);
    json_array_foreach(v, i, one) {
        struct mount_body m = { 0 };
        char where[32];
        snprintf(where, sizeof where, "%s[%zu].", name, i);
        int r = body_fields(one, where, fields, sizeof fields / sizeof *fields, &m, e);
        if (r < 0)
            return r;
        if (!m.source || !m.target || m.source[0] != '/' || !target_is_plain(m.target, strlen(m.target) + 1))
            return err_set(e, EINVAL, STEP_USAGE,
                           "%s[%zu] needs source and target, both absolute paths without . and ..; no target "
                           "is in /proc or /dev", name, i);
        snprintf(where, sizeof where, "%s[%zu]", name, i);
        r = open_source(c, where, &m, &s->mount_fd[i], e);
        if (r < 0)
            return r;
        s->mount_source[i] = strdup(m.source);
        s->n_mounts = (uint32_t)i + 1;
        s->mount[i].writable = m.writable;
        snprintf(s->mount[i].target, sizeof s->mount[i].target, "%s", m.target);
    }
    return 0;
}

int box_request_read_mounts(struct box_request *c, json_t *root, struct err *e)
{
    static const struct body_field fields[] = { { "mounts", take_mounts } };

    box_settings_init(&c->settings);
    return body_fields(root, "", fields, 1, c, e);
}

static int check_requests(const struct config *config, const struct box_settings *s, struct err *e)
{
    uint64_t memory = s->limits.memory_bytes ? s->limits.memory_bytes : config->defaults.memory_bytes;
    uint32_t cpus = s->limits.cpu_milli ? s->limits.cpu_milli : config->defaults.cpu_milli;

    if (memory && s->requests.memory_bytes > memory)
        return err_set(e, EINVAL, STEP_USAGE, "requests.memory is more than limits.memory, which is %llu",
                       (unsigned long long)memory);
    if (cpus && s->requests.cpu_milli > cpus)
        return err_set(e, EINVAL, STEP_USAGE, "requests.cpus is more than limits.cpus, which is %u.%03u", cpus / 1000,
                       cpus % 1000);
    return 0;
}

static uint64_t smaller(uint64_t a, uint64_t b)     /* 0: no bound */
{
    return !a ? b : !b ? a : a < b ? a : b;
}

/* A host that cannot limit memory has no default for it, either: then none is what there is. */
static uint64_t most_memory(const struct config *config)
{
    return !config->defaults.memory_bytes
             ? 0
             : smaller(smaller(config->most.memory_bytes, config->quota.memory_bytes), config->host_memory_bytes);
}

int box_request_read(struct box_request *c, json_t *root, struct err *e)
{
    static const struct body_field fields[] = {
        { "name", take_name },       { "root", take_root },
        { "net", take_net },
        { "profile", take_profile }, { "requests", take_requests },
        { "limits", take_limits },   { "env", take_env },
        { "mounts", take_mounts },   { "labels", take_labels },
        { "ttl", take_ttl },         { "idle_timeout", take_idle },
        { "on_idle", take_on_idle }, { "hostname", take_hostname },
        { "user", take_user },       { "writable_root", take_writable_root },
        { "store", take_store },     { "template", take_template },
        { "devices", take_devices },
    };
    const struct config *config = &c->front->config;

    box_settings_init(&c->settings);
    int r = body_fields(root, "", fields, sizeof fields / sizeof *fields, c, e);
    if (c->settings.limits.memory_bytes == MEMORY_ALL)
        c->settings.limits.memory_bytes = most_memory(config);
    if (r == 0 && c->settings.requests.memory_bytes == MEMORY_ALL)
        r = err_set(e, EINVAL, STEP_USAGE, "requests.memory cannot be \"max\"");
    if (r == 0)
        r = box_request_check_limits(config, &c->settings.limits, e);
    if (r == 0)
        r = check_requests(config, &c->settings, e);
    if (r == 0)
        r = box_devices_env(c->front, &c->settings, e);
    /* What is written is kept in memory: a small box gets no more disk than memory unless it asks for it. */
    struct limits *l = &c->settings.limits;
    uint64_t memory = l->memory_bytes ? l->memory_bytes : config->defaults.memory_bytes;
    if (r == 0 && !l->disk_bytes && !c->settings.on_disk && config->defaults.disk_bytes > memory)
        l->disk_bytes = memory;
    if (r < 0)
        box_settings_done(&c->settings);
    return r;
}
