/* Tokens, for admins, and a caller's own identity. A token's secret is shown once, when it is made. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/parse.h"
#include "doors/native/door.h"
#include "front/boxes/box_disk.h"
#include "front/db/db.h"
#include "front/identity/token.h"
#include "front/volumes/volumes.h"

struct token_body {
    const char *identity, *scopes;
    uint64_t    expires_in_ms;
    char        list[160];
};

static int take_identity(const char *name, json_t *v, void *into, struct err *e)
{
    return body_text(name, v, 79, &((struct token_body *)into)->identity, e);
}

/* "exec files", or ["exec", "files"]. */
static int take_scopes(const char *name, json_t *v, void *into, struct err *e)
{
    struct token_body *t = into;
    struct buf list;
    size_t i;
    json_t *one;

    if (!json_is_array(v))
        return body_text(name, v, sizeof t->list - 1, &t->scopes, e);
    buf_init_fixed(&list, t->list, sizeof t->list);
    json_array_foreach(v, i, one) {
        if (!json_is_string(one))
            return err_set(e, EINVAL, STEP_USAGE, "%s[%zu] must be a string", name, i);
        buf_printf(&list, "%s%s", i ? " " : "", json_string_value(one));
    }
    if (buf_error(&list) < 0)
        return err_set(e, EINVAL, STEP_USAGE, "%s is too long", name);
    t->scopes = t->list;
    return 0;
}

static int take_expires(const char *name, json_t *v, void *into, struct err *e)
{
    return json_is_null(v) ? 0 : body_duration(name, v, &((struct token_body *)into)->expires_in_ms, e);
}

static void create(struct ask *a, json_t *root)
{
    static const struct body_field fields[] = { { "identity", take_identity },
                                                { "scopes", take_scopes },
                                                { "expires_in", take_expires } };
    struct token_body t = { .scopes = "boxes:read boxes:write exec files ports" };
    char id[TOKEN_ID_SIZE], secret[TOKEN_SECRET_SIZE];
    struct err e = { 0 };
    int r = body_fields(root, "", fields, 3, &t, &e);
    int64_t expires = t.expires_in_ms ? front_now_ms() + (int64_t)t.expires_in_ms : 0;

    if (r == 0 && !t.identity)
        r = err_set(&e, EINVAL, STEP_USAGE, "identity is missing: name the identity that the token is for");
    if (r == 0)
        r = auth_token_create(a->front->auth, t.identity, t.scopes, expires, id, secret, sizeof secret, &e);
    if (r < 0) {
        reply_err(a, &e);
        return;
    }
    (void)http_reply_header(a->r, "Cache-Control", "no-store");
    reply_json(a, 201,
               json_pack("{s:s,s:s,s:s,s:s,s:o}", "id", id, "identity", t.identity, "scopes", t.scopes, "token", secret,
                         "expires_at", front_time_json(expires)));
    explicit_bzero(secret, sizeof secret);
}

void ask_token_create(struct ask *a)
{
    body_json(a, BODY_SMALL, create);
}

static int add_token(const struct db_token *t, void *arg)
{
    json_array_append_new(arg, json_pack("{s:s,s:s,s:s,s:o,s:o,s:o,s:b}", "id", t->id, "identity", t->identity,
                                         "scopes", t->scopes, "created_at", front_time_json(t->created_ms),
                                         "expires_at", front_time_json(t->expires_ms), "used_at",
                                         front_time_json(t->used_ms), "revoked", t->revoked));
    return 0;
}

void ask_token_list(struct ask *a)
{
    json_t *list = json_array();
    struct err e;

    if (db_tokens(a->front->db, add_token, list, &e) < 0) {
        json_decref(list);
        reply_err(a, &e);
        return;
    }
    reply_json(a, 200, json_pack("{s:o}", "tokens", list));
}

void ask_token_delete(struct ask *a)
{
    struct err e;
    const char *id = http_match_get(a->match, "token").data;
    int r = db_token_revoke(a->front->db, id, &e);

    if (r == -ENOENT)
        reply_fail(a, 404, "not_found", "there is no token '%s'", parse_quote(id).text);
    else if (r < 0)
        reply_err(a, &e);
    else
        reply_none(a);
}

void ask_me(struct ask *a)
{
    static const char *const names[] = { "boxes:read", "boxes:write", "exec", "files", "ports", "admin" };
    const struct config_quota *q = &a->front->config.quota;
    json_t *scopes = json_array();
    json_int_t boxes = 0, memory = 0, cpu = 0;
    const struct disk_use disk = box_disk_use(a->front, a->who.name);
    struct limits requests = { 0 };

    for (unsigned i = 0; i < 6; i++)
        if (a->who.scopes >> i & 1)
            json_array_append_new(scopes, json_string(names[i]));
    for (struct box *b = a->front->boxes.first; b; b = b->next)
        if (b->slot != BOX_NO_SLOT && strcmp(b->owner, a->who.name) == 0) {
            boxes++;
            memory += (json_int_t)b->settings.limits.memory_bytes;
            cpu += b->settings.limits.cpu_milli;
            requests.memory_bytes += b->settings.requests.memory_bytes;
            requests.cpu_milli += b->settings.requests.cpu_milli;
        }
    reply_json(a, 200,
               json_pack("{s:s,s:o,s:{s:I,s:I,s:f,s:o,s:I,s:{s:I,s:I,s:I}},s:{s:I,s:I,s:f,s:o,s:I}}", "identity",
                         a->who.name, "scopes", scopes, "used", "boxes", boxes, "memory", memory, "cpus",
                         (double)cpu / 1000, "requests", limits_json(&requests, LIMIT_REQUEST), "disk",
                         (json_int_t)box_disk_sum(&disk), "disk_by", "volumes", (json_int_t)disk.volumes, "boxes",
                         (json_int_t)disk.boxes, "output", (json_int_t)disk.output, "quota", "boxes",
                         (json_int_t)q->boxes, "memory", (json_int_t)q->memory_bytes, "cpus",
                         (double)q->cpu_milli / 1000, "requests", limits_json(&q->requests, LIMIT_REQUEST), "disk",
                         (json_int_t)q->disk_bytes));
}

static json_t *disk_json(const struct front *front, const char *owner)
{
    const struct disk_use use = box_disk_use(front, owner);

    return json_pack("{s:s,s:I,s:I,s:I}", "owner", owner, "volumes", (json_int_t)use.volumes, "boxes",
                     (json_int_t)use.boxes, "output", (json_int_t)use.output);
}

void ask_disk(struct ask *a)
{
    static const char *const known[] = { "all", NULL };
    json_t *owners = json_object(), *volumes, *list, *v;
    const char *name;
    bool all = false;
    size_t i;

    if (!query_only(a, known) || !query_bool(a, "all", &all)) {
        json_decref(owners);
        return;
    }
    if (all && !(a->who.scopes & SCOPE_ADMIN)) {
        json_decref(owners);
        reply_fail(a, 403, "forbidden", "?all=true is for admins");
        return;
    }
    json_object_set_new(owners, a->who.name, json_null());
    for (struct box *b = a->front->boxes.first; b && all; b = b->next)
        json_object_set_new(owners, b->owner, json_null());
    volumes = all ? volumes_json(a->front, a->who.name, true) : NULL;
    json_array_foreach(volumes, i, v)
        json_object_set_new(owners, json_string_value(json_object_get(v, "owner")), json_null());
    list = json_array();
    json_object_foreach(owners, name, v)
        json_array_append_new(list, disk_json(a->front, name));
    json_decref(volumes);
    json_decref(owners);
    reply_json(a, 200, json_pack("{s:o}", "owners", list));
}
