/* /v1/secrets: names, sizes and times. A value comes in as the body of a PUT, byte by byte as it is, and never goes out
 * again. Secrets of others do not exist for a caller, for an admin neither: an identity is the caller's own. */
#define _GNU_SOURCE
#include <string.h>

#include "doors/native/door.h"
#include "front/keys/keys.h"
#include "front/secrets/secrets.h"

void ask_secret_list(struct ask *a)
{
    static const char *const known[] = { NULL };

    if (query_only(a, known))
        reply_json(a, 200, json_pack("{s:o}", "secrets", secrets_json(a->front, a->who.name)));
}

static void store(struct http_request *r, const struct http_collected *b, void *arg)
{
    struct ask *a = arg;
    struct secret *s;
    struct err e = { 0 };

    if (b->status == 413) {
        reply_fail(a, 413, "too_large", "a secret may have %d bytes", SECRET_BYTES_MAX);
        return;
    }
    if (b->status) {
        error_reply(r, b->status, b->status == 429 ? "quota_exceeded" : "invalid", b->why, NULL);
        return;
    }
    int result = secret_store(a->front, a->who.name, http_match_get(a->match, "secret").data, b->data, b->size,
                              a->work != NULL, &s, &e);
    if (b->size)
        explicit_bzero((char *)(uintptr_t)b->data, b->size);
    http_body_drop(r);
    if (result < 0) {
        reply_err(a, &e);
        return;
    }
    keys_secret_changed(a->front, a->who.name, http_match_get(a->match, "secret").data);
    reply_json(a, 200, secret_json(s));
}

void ask_secret_put(struct ask *a)
{
    static const char *const known[] = { "replace", NULL };
    bool replaces = false;

    if (!query_only(a, known) || !query_bool(a, "replace", &replaces))
        return;
    a->work = replaces ? a : NULL;
    http_body_collect(a->r, SECRET_BYTES_MAX, store, a);
}

void ask_secret_delete(struct ask *a)
{
    const char *name = http_match_get(a->match, "secret").data;
    struct err e = { 0 };

    if (secret_remove(a->front, a->who.name, name, &e) < 0) {
        reply_err(a, &e);
        return;
    }
    keys_secret_changed(a->front, a->who.name, name);
    reply_none(a);
}
