/* /v1/volumes: create, list, read, change, delete. */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>

#include "base/parse.h"
#include "doors/native/door.h"
#include "front/identity/auth.h"
#include "front/volumes/volumes.h"

static void forget_calls(struct ask *a, enum http_end how)
{
    (void)how;
    volumes_cancel(a->front, a);
}

static bool is_admin(const struct ask *a)
{
    return (a->who.scopes & SCOPE_ADMIN) != 0;
}

/* Of another identity only for an admin, or if reading is enough. */
static struct volume *find(struct ask *a, bool to_change)
{
    const char *name = http_match_get(a->match, "volume").data;
    struct volume *v = volume_find(a->front, a->who.name, is_admin(a), name);

    if (!v)
        reply_fail(a, 404, "not_found", "there is no volume '%s'", parse_quote(name).text);
    else if (to_change && !is_admin(a) && !volume_is_of(v, a->who.name))
        reply_fail(a, 403, "forbidden", "the volume %s belongs to another, who alone may change it",
                   parse_quote(name).text);
    else
        return v;
    return NULL;
}

/* ---- bodies ---- */

static int take_name(const char *name, json_t *v, void *into, struct err *e)
{
    if (!json_is_string(v) || !body_name_is_valid(json_string_value(v)))
        return err_set(e, EINVAL, STEP_USAGE, "%s must be 1 to 63 of a-z, 0-9 and -, and neither begin nor end with -",
                       name);
    ((struct volume_wish *)into)->name = json_string_value(v);
    return 0;
}

static int take_size(const char *name, json_t *v, void *into, struct err *e)
{
    struct volume_wish *wish = into;
    int r = body_size(name, v, &wish->bytes, e);

    return r == 0 && !wish->bytes ? err_set(e, EINVAL, STEP_USAGE, "%s must be 16M or more", name) : r;
}

static int take_many(const char *name, json_t *v, void *into, struct err *e)
{
    bool many = false;
    int r = body_bool(name, v, &many, e);

    ((struct volume_wish *)into)->many = many;
    return r;
}

static int take_shared(const char *name, json_t *v, void *into, struct err *e)
{
    struct volume_wish *wish = into;
    size_t i;
    json_t *one;

    wish->shared = v;
    if (json_is_string(v) && strcmp(json_string_value(v), "all") == 0)
        return 0;
    if (!json_is_array(v) || json_array_size(v) > VOLUME_SHARES)
        return err_set(e, EINVAL, STEP_USAGE, "%s must be \"all\" or a list of at most %d identities", name,
                       VOLUME_SHARES);
    json_array_foreach(v, i, one)
        if (!json_is_string(one) || !json_string_length(one) || json_string_length(one) > 79
            || strlen(json_string_value(one)) != json_string_length(one))
            return err_set(e, EINVAL, STEP_USAGE, "%s[%zu] must be an identity, like \"uid:1000\" or that of a token",
                           name, i);
    return 0;
}

/* ---- requests ---- */

static void on_measured(struct volume *v, const struct err *e, void *arg)
{
    struct ask *a = arg;

    (void)e;
    a->on_end = NULL;
    if (v)
        reply_json(a, 200, volume_json(v, a->who.name));
    else
        reply_fail(a, 404, "not_found", "the volume was removed meanwhile");
}

static void on_listed(struct volume *v, const struct err *e, void *arg)
{
    struct ask *a = arg;

    (void)v;
    (void)e;
    a->on_end = NULL;
    reply_json(a, 200, json_pack("{s:o}", "volumes", volumes_json(a->front, a->who.name, a->work != NULL)));
}

static void on_created(struct volume *v, const struct err *e, void *arg)
{
    struct ask *a = arg;

    a->on_end = NULL;
    if (e) {
        reply_err(a, e);
        return;
    }
    const char *place = arena_printf(&a->r->arena, "/v1/volumes/%s", volume_id(v));
    if (place)
        (void)http_reply_header(a->r, "Location", place);
    reply_json(a, 201, volume_json(v, a->who.name));
}

static void on_updated(struct volume *v, const struct err *e, void *arg)
{
    struct ask *a = arg;

    a->on_end = NULL;
    if (e)
        reply_err(a, e);
    else
        reply_json(a, 200, volume_json(v, a->who.name));
}

static void on_deleted(struct volume *v, const struct err *e, void *arg)
{
    struct ask *a = arg;

    (void)v;
    a->on_end = NULL;
    if (e)
        reply_err(a, e);
    else
        reply_none(a);
}

static void create(struct ask *a, json_t *root)
{
    static const struct body_field fields[] = {
        { "name", take_name }, { "size", take_size }, { "many", take_many }, { "shared_with", take_shared }
    };
    struct volume_wish wish = { 0 };
    struct err e = { 0 };
    int r = body_fields(root, "", fields, sizeof fields / sizeof *fields, &wish, &e);

    if (r == 0 && !wish.name)
        r = err_set(&e, EINVAL, STEP_USAGE, "name is missing");
    if (r == 0)
        r = volume_create(a->front, a->who.name, &wish, on_created, a, &e);
    if (r < 0)
        reply_err(a, &e);
    else
        a->on_end = forget_calls;
}

void ask_volume_create(struct ask *a)
{
    body_json(a, BODY_SMALL, create);
}

void ask_volume_list(struct ask *a)
{
    static const char *const known[] = { "all", NULL };
    bool all = false;

    if (!query_only(a, known) || !query_bool(a, "all", &all))
        return;
    if (all && !is_admin(a)) {
        reply_fail(a, 403, "forbidden", "?all=true is for admins");
        return;
    }
    a->work = all ? a : NULL;
    a->on_end = forget_calls;
    volumes_measure(a->front, NULL, a->who.name, all, on_listed, a);
}

void ask_volume_get(struct ask *a)
{
    struct volume *v = find(a, false);

    if (!v)
        return;
    a->on_end = forget_calls;
    volumes_measure(a->front, v, a->who.name, false, on_measured, a);
}

static void update(struct ask *a, json_t *root)
{
    static const struct body_field fields[] = { { "size", take_size }, { "shared_with", take_shared } };
    struct volume_wish wish = { 0 };
    struct err e = { 0 };
    int r = body_fields(root, "", fields, sizeof fields / sizeof *fields, &wish, &e);
    struct volume *v = r < 0 ? NULL : find(a, true);

    if (r == 0 && !v)
        return;
    if (r == 0)
        r = volume_update(v, &wish, on_updated, a, &e);
    if (r < 0)
        reply_err(a, &e);
    else if (r == 0)
        reply_json(a, 200, volume_json(v, a->who.name));
    else
        a->on_end = forget_calls;
}

void ask_volume_update(struct ask *a)
{
    body_json(a, BODY_SMALL, update);
}

void ask_volume_delete(struct ask *a)
{
    struct volume *v = find(a, true);
    struct err e = { 0 };

    if (!v)
        return;
    if (volume_delete(v, on_deleted, a, &e) < 0)
        reply_err(a, &e);
    else
        a->on_end = forget_calls;
}
