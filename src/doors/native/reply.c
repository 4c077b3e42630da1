/* Answers. Errors have the shape of front/request/error.h. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "doors/native/door.h"

#define JSON_TYPE "application/json"

/* Bytes that the caller does not take at once are queued and charged. */
static void answer(struct http_request *r, int status, const char *data, size_t size)
{
    if (size > SHARE_SMALL_BYTES && !share_fits(&r->share, size + SHARE_SMALL_BYTES))
        error_reply_full(r);
    else if (http_reply(r, status, JSON_TYPE, data, size) < 0)
        http_request_abort(r);
}

void reply_data(struct ask *a, int status, const char *data, size_t size)
{
    answer(a->r, status, data, size);
}

void reply_json(struct ask *a, int status, json_t *body)
{
    char *text = body ? json_dumps(body, ASK_DUMP) : NULL;

    json_decref(body);
    if (text)
        answer(a->r, status, text, strlen(text));
    else
        error_reply(a->r, 503, "out_of_memory", "the answer cannot be put together", NULL);
    free(text);
}

void reply_none(struct ask *a)
{
    if (http_reply(a->r, 204, NULL, NULL, 0) < 0)
        http_request_abort(a->r);
}

void reply_buf(struct ask *a, int status, struct buf *text)
{
    if (buf_error(text) < 0)
        error_reply(a->r, 503, "out_of_memory", "the answer is too large", NULL);
    else
        answer(a->r, status, text->data, text->length);
    buf_done(text);
}

void reply_join(struct buf *out, json_t *head, const struct buf *tail)
{
    char *text = head ? json_dumps(head, ASK_DUMP) : NULL;

    if (!text) {
        out->failure = out->failure ? out->failure : ENOMEM;
        return;
    }
    size_t size = strlen(text);
    buf_add(out, text, size - 1);
    if (size > 2)
        buf_add_char(out, ',');
    if (buf_error(tail) < 0)
        out->failure = tail->failure;
    else
        buf_add(out, tail->data + 1, tail->length - 1);
    free(text);
}

void reply_fail(struct ask *a, int status, const char *code, const char *format, ...)
{
    char text[512];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    error_reply(a->r, status, code, text, NULL);
}

static json_t *free_json(const struct front *front)
{
    const struct limits left = boxes_left(front);

    return json_pack("{s:{s:I,s:f}}", "free", "memory", (json_int_t)left.memory_bytes, "cpus",
                     (double)left.cpu_milli / 1000);
}

void reply_err(struct ask *a, const struct err *e)
{
    const char *code;

    (void)error_status(e, &code);
    error_reply_err(a->r, e, strcmp(code, "host_full") == 0 ? free_json(a->front) : NULL);
}
