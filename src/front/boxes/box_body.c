/* A box as JSON, and back. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>

#include <string.h>

#include "front/boxes/box_private.h"
#include "front/front.h"
#include "front/keys/keys.h"

json_t *limits_json(const struct limits *l, unsigned flags)
{
    json_t *o = json_object();

    for (size_t i = 0; i < LIMITS; i++) {
        const struct limit *limit = &limit_table[i];
        uint64_t value = limit_get(l, limit);
        if ((limit->flags & flags) != flags)
            continue;
        json_object_set_new(o, limit->name,
                            limit->kind == LIMIT_CPUS ? json_real((double)value / 1000)
                                                      : json_integer((json_int_t)value));
    }
    return o;
}

/* A reader of boxes sees which variables there are; their values are for the box. */
static json_t *names_of(json_t *env)
{
    json_t *names = json_array(), *value;
    const char *key;

    json_object_foreach(env, key, value)
        json_array_append_new(names, json_string(key));
    return names;
}

json_t *box_json(const struct box *b)
{
    const struct box_settings *s = &b->settings;
    json_t *o = json_object();

    json_object_set_new(o, "id", json_string(b->id));
    json_object_set_new(o, "name", b->name ? json_string(b->name) : json_null());
    json_object_set_new(o, "owner", json_string(b->owner));
    json_object_set_new(o, "phase", json_string(phase_names[b->phase]));
    json_object_set_new(o, "reason", b->reason ? json_string(box_reason_name(b->reason)) : json_null());
    json_object_set_new(o, "message", b->message[0] ? json_string(b->message) : json_null());
    json_object_set_new(o, "created_at", front_time_json(b->created_ms));
    json_object_set_new(o, "ready_at", front_time_json(b->ready_ms));
    json_object_set_new(o, "changed_at", front_time_json(b->changed_ms));
    json_object_set_new(o, "expires_at", front_time_json(b->expires_ms));
    box_mounts_show(b->front, &s->mounts, o);
    json_object_set_new(o, "profile", json_string(profile_name(s->profile)));
    json_object_set_new(o, "hostname", json_string(s->hostname));
    json_object_set_new(o, "user", json_pack("{s:I,s:I}", "uid", (json_int_t)s->uid, "gid", (json_int_t)s->gid));
    json_object_set_new(o, "limits", limits_json(&s->limits, 0));
    json_object_set_new(o, "requests", limits_json(&s->requests, LIMIT_REQUEST));
    json_object_set_new(o, "env", names_of(s->env));
    json_object_set_new(o, "secrets", s->secrets ? json_incref(s->secrets) : json_array());
    json_object_set_new(o, "labels", json_incref(s->labels));
    json_object_set_new(o, "net", s->net ? json_incref(s->net) : json_string("none"));
    json_object_set_new(o, "keys", s->keys ? json_incref(s->keys) : json_array());
    json_object_set_new(o, "ttl", json_integer(s->ttl_s));
    json_object_set_new(o, "idle_timeout", json_integer(s->idle_s));
    json_object_set_new(o, "on_idle", json_string(s->pause_when_idle ? "pause" : "delete"));
    json_object_set_new(o, "from_pool", json_boolean(b->token != 0));
    json_object_set_new(o, "execs_running", json_integer(b->running));
    return o;
}

static int64_t time_of(json_t *body, const char *key)
{
    return front_time_parse(json_string_value(json_object_get(body, key)));
}

static uint64_t number_of(json_t *o, const char *key)
{
    return (uint64_t)json_integer_value(json_object_get(o, key));
}

static void limits_of(json_t *o, struct limits *l)
{
    for (size_t i = 0; i < LIMITS; i++) {
        const struct limit *limit = &limit_table[i];
        limit_set(l, limit,
                  limit->kind == LIMIT_CPUS
                      ? (uint64_t)(json_number_value(json_object_get(o, limit->name)) * 1000 + 0.5)
                      : number_of(o, limit->name));
    }
}

static void text_of(json_t *o, const char *key, char *text, size_t size)
{
    const char *value = json_string_value(json_object_get(o, key));
    snprintf(text, size, "%s", value ? value : "");
}

int box_from_json(struct box *b, json_t *body, struct err *e)
{
    struct box_settings *s = &b->settings;
    char text[64];

    text_of(body, "phase", text, sizeof text);
    for (b->phase = 0; b->phase < PHASE_COUNT && strcmp(phase_names[b->phase], text) != 0; b->phase++)
        ;
    if (b->phase == PHASE_COUNT)
        return err_set(e, EPROTO, STEP_NONE, "box %s in the database has the phase '%s'", b->id, text);
    b->reason = box_reason_parse(json_string_value(json_object_get(body, "reason")));
    text_of(body, "message", b->message, sizeof b->message);
    text_of(body, "hostname", s->hostname, sizeof s->hostname);
    text_of(body, "profile", text, sizeof text);
    if (profile_parse(text) < PROFILE_COUNT)
        s->profile = profile_parse(text);
    b->created_ms = time_of(body, "created_at");
    b->ready_ms = time_of(body, "ready_at");
    b->changed_ms = time_of(body, "changed_at");
    b->expires_ms = time_of(body, "expires_at");
    b->used_ms = front_now_ms();
    s->uid = (uint32_t)number_of(json_object_get(body, "user"), "uid");
    s->gid = (uint32_t)number_of(json_object_get(body, "user"), "gid");
    limits_of(json_object_get(body, "limits"), &s->limits);
    limits_of(json_object_get(body, "requests"), &s->requests);
    s->env = json_incref(json_object_get(body, "env"));
    json_t *secrets = json_object_get(body, "secrets");
    s->secrets = json_array_size(secrets) > 0 ? json_incref(secrets) : NULL;
    s->labels = json_incref(json_object_get(body, "labels"));
    json_t *net = json_object_get(body, "net");
    s->net = net && strcmp(json_is_string(net) ? json_string_value(net) : "", "none") != 0 ? json_incref(net) : NULL;
    json_t *keys = json_object_get(body, "keys");
    s->keys = json_array_size(keys) > 0 ? json_incref(keys) : NULL;
    s->ttl_s = (uint32_t)number_of(body, "ttl");
    s->idle_s = (uint32_t)number_of(body, "idle_timeout");
    text_of(body, "on_idle", text, sizeof text);
    s->pause_when_idle = strcmp(text, "pause") == 0;
    json_t *hidden = json_object_get(body, "_");
    b->token = number_of(hidden, "token");
    keys_load_seed(b, json_object_get(hidden, "seed"));
    b->owner_uid = (uid_t)number_of(hidden, "uid");
    b->owner_gid = (gid_t)number_of(hidden, "gid");
    return box_mounts_load(b->front, body, &s->mounts, e);
}
