/* The text is freed as soon as its tree was passed on; its charge stays for the tree meanwhile. */
#include "front/request/body.h"

#include <stdint.h>
#include <stdio.h>

#include "base/jsonscan.h"
#include "http/server.h"

static void fail(struct http_request *r, const struct body_reader *reader, int status, const char *code,
                 const char *why)
{
    if (status == 429)
        (void)http_reply_header(r, "Retry-After", "1");
    reader->on_fail(r->owner, status, code, why);
}

static const char *code_of(int status)
{
    switch (status) {
    case 413:
        return "too_large";
    case 429:
        return "quota_exceeded";
    case 503:
        return "out_of_memory";
    default:
        return "invalid";
    }
}

static void parse(struct http_request *r, const struct http_collected *b, const struct body_reader *reader)
{
    json_error_t where = { 0 };
    char why[sizeof where.text + 96];
    size_t weight = jsonscan_weight(b->data, b->size);

    /* A tree may take a hundred times the memory of its text. */
    if (weight > SHARE_SMALL_BYTES && !share_fits(&r->share, weight)) {
        fail(r, reader, 429, "quota_exceeded", SHARE_FULL);
        return;
    }
    const size_t flags = JSON_REJECT_DUPLICATES | (reader->null_is_empty ? JSON_DECODE_ANY : 0);
    json_t *root = b->size ? json_loadb(b->data, b->size, flags, &where) : json_object();
    if (reader->null_is_empty && json_is_null(root)) {
        json_decref(root);
        root = json_object();
    }
    if (!root) {
        snprintf(why, sizeof why, "the body is not JSON: %s (line %d, column %d)", where.text, where.line,
                 where.column);
        fail(r, reader, 400, "invalid_json", why);
    } else if (!json_is_object(root)) {
        fail(r, reader, 400, "invalid", "the body must be a JSON object");
    } else {
        reader->on_json(r->owner, root);
    }
    json_decref(root);
}

static void on_collected(struct http_request *r, const struct http_collected *b, void *arg)
{
    const struct body_reader *reader = arg;

    if (b->status)
        fail(r, reader, b->status, code_of(b->status), b->why);
    else if (reader->on_json)
        parse(r, b, reader);
    else if (b->size == 0)
        reader->on_text(r->owner, "{}", 2);
    else if (jsonscan_is_object(b->data, b->size))
        reader->on_text(r->owner, b->data, b->size);
    else
        fail(r, reader, 400, "invalid_json", "the body is no JSON object");
    http_body_drop(r);
}

void body_read(struct http_request *r, size_t most_bytes, const struct body_reader *reader)
{
    http_body_collect(r, most_bytes, on_collected, (void *)(uintptr_t)reader);
}
