/* Tokens, for admins, and what a caller may know of itself. A token's secret is told once, when it is made. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/parse.h"
#include "doors/native/door.h"
#include "front/db/db.h"
#include "front/identity/token.h"

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
        r = err_set(&e, EINVAL, STEP_USAGE, "identity is missing: whose token is it to be?");
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
    int r = db_token_revoke(a->front->db, http_match_get(a->match, "token").data, &e);

    if (r == -ENOENT)
        reply_fail(a, 404, "not_found", "there is no such token");
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

    for (unsigned i = 0; i < 6; i++)
        if (a->who.scopes >> i & 1)
            json_array_append_new(scopes, json_string(names[i]));
    for (struct box *b = a->front->boxes.first; b; b = b->next)
        if (b->slot != BOX_NO_SLOT && strcmp(b->owner, a->who.name) == 0) {
            boxes++;
            memory += (json_int_t)b->settings.limits.memory_bytes;
            cpu += b->settings.limits.cpu_milli;
        }
    reply_json(a, 200,
               json_pack("{s:s,s:o,s:{s:I,s:I,s:f},s:{s:I,s:I,s:f}}", "identity", a->who.name, "scopes", scopes, "used",
                         "boxes", boxes, "memory", memory, "cpus", (double)cpu / 1000, "quota", "boxes",
                         (json_int_t)q->boxes, "memory", (json_int_t)q->memory_bytes, "cpus",
                         (double)q->cpu_milli / 1000));
}
