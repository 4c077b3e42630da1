/* Answers and errors. An error is always {"error":{"code","message","details"}}: the code is for programs and never
 * changes, the message is for people. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/jsonout.h"
#include "doors/native/door.h"

#define JSON_TYPE "application/json"

/* What the caller does not take at once is kept for it. */
static void answer(struct http_request *r, int status, const char *data, size_t size)
{
    if (size > SHARE_SMALL_BYTES && !share_fits(&r->share, size + SHARE_SMALL_BYTES))
        reply_full(r);
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
        reply_error(a->r, 503, "out_of_memory", "the answer cannot be put together", NULL);
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
        reply_error(a->r, 503, "out_of_memory", "the answer is too large", NULL);
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

void reply_error(struct http_request *r, int status, const char *code, const char *message, json_t *details)
{
    char storage[2048];
    struct buf text;
    struct jsonout j;
    char *extra = details ? json_dumps(details, ASK_DUMP) : NULL;

    json_decref(details);
    buf_init_fixed(&text, storage, sizeof storage);
    jsonout_init(&j, &text);
    jsonout_open_object(&j, NULL);
    jsonout_open_object(&j, "error");
    jsonout_string(&j, "code", code);
    jsonout_string(&j, "message", message);
    jsonout_close(&j);
    jsonout_close(&j);
    if (jsonout_finish(&j) == 0 && text.length > 2) {
        text.length -= 2;
        buf_printf(&text, ",\"details\":%s}}", extra ? extra : "{}");
    }
    free(extra);
    if (buf_error(&text) < 0)
        answer(r, 500, "{\"error\":{\"code\":\"internal\",\"message\":\"\",\"details\":{}}}", 57);
    else
        answer(r, status, text.data, text.length);
}

void reply_full(struct http_request *r)
{
    (void)http_reply_header(r, "Retry-After", "1");
    reply_error(r, 429, "quota_exceeded", SHARE_FULL, NULL);
}

void reply_fail(struct ask *a, int status, const char *code, const char *format, ...)
{
    char text[512];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    reply_error(a->r, status, code, text, NULL);
}

static const struct {
    int         number, status;
    const char *code;
} statuses[] = {
    { EINVAL, 400, "invalid" },
    { ENAMETOOLONG, 400, "invalid" },
    { EEXIST, 409, "exists" },
    { ENOENT, 404, "not_found" },
    { EDQUOT, 429, "quota_exceeded" },
    { ENOSPC, 503, "host_full" },
    { EBUSY, 409, "wrong_phase" },
    { EALREADY, 409, "wrong_phase" },
    { EAGAIN, 429, "too_many" },
    { ENOBUFS, 429, "too_many" },
    { EPIPE, 409, "ended" },
    { EMSGSIZE, 413, "too_large" },
    { ECONNREFUSED, 503, "unavailable" },
    { ECONNRESET, 503, "unavailable" },
    { ENOTCONN, 503, "unavailable" },
    { ESRCH, 409, "ended" },
    { ECANCELED, 409, "ended" },
    { E2BIG, 413, "too_large" },
    { EFBIG, 413, "too_large" },
    { ENOTTY, 409, "no_terminal" },
    { EPERM, 403, "forbidden" },
    { EACCES, 403, "forbidden" },
    { ENOMEM, 503, "out_of_memory" },
    { ENOSYS, 501, "not_implemented" },
    { EOPNOTSUPP, 501, "not_implemented" },
};

int reply_status(const struct err *e, const char **ret_code)
{
    /* Only the admission speaks of the host; otherwise it is our own disk that is full. */
    if ((e->code == ENOSPC || e->code == EDQUOT) && e->step != STEP_USAGE) {
        *ret_code = "disk_full";
        return 507;
    }
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++)
        if (statuses[i].number == e->code) {
            *ret_code = statuses[i].code;
            return statuses[i].status;
        }
    *ret_code = "internal";
    return 500;
}

static json_t *free_json(const struct front *front)
{
    const struct frame_limits left = boxes_left(front);

    return json_pack("{s:{s:I,s:f}}", "free", "memory", (json_int_t)left.memory_bytes, "cpus",
                     (double)left.cpu_milli / 1000);
}

void reply_err(struct ask *a, const struct err *e)
{
    char text[512];
    const char *code;
    int status = reply_status(e, &code);

    err_text(e, text, sizeof text);
    if (status == 429 || status == 503)
        (void)http_reply_header(a->r, "Retry-After", "1");
    reply_error(a->r, status, code, text, strcmp(code, "host_full") == 0 ? free_json(a->front) : NULL);
}
