/* One table from errno to an answer: for the front, and for files in a box, where the same number has another
 * meaning. */
#include "front/request/error.h"

#include <errno.h>
#include <stdlib.h>

#include "base/buf.h"
#include "base/jsonout.h"
#include "http/server.h"

#define DUMP (JSON_COMPACT | JSON_REAL_PRECISION(12))

struct meaning {
    int         status;
    const char *code;       /* NULL: this number cannot come from there */
};

static const struct {
    int            number;
    struct meaning front, file;
} meanings[] = {
    { EINVAL, { 400, "invalid" }, { 400, "invalid" } },
    { ENAMETOOLONG, { 400, "invalid" }, { 400, "invalid" } },
    { EEXIST, { 409, "exists" }, { 409, "file_exists" } },
    { ENOENT, { 404, "not_found" }, { 404, "file_not_found" } },
    { EDQUOT, { 429, "quota_exceeded" }, { 507, "disk_full" } },
    { ENOSPC, { 503, "host_full" }, { 507, "disk_full" } },
    { EBUSY, { 409, "wrong_phase" }, { 409, "file_busy" } },
    { EALREADY, { 409, "wrong_phase" }, { 0 } },
    { EAGAIN, { 429, "too_many" }, { 0 } },
    { ENOBUFS, { 429, "too_many" }, { 0 } },
    { EPIPE, { 409, "ended" }, { 0 } },
    { EMSGSIZE, { 413, "too_large" }, { 0 } },
    { ECONNREFUSED, { 503, "unavailable" }, { 0 } },
    { ECONNRESET, { 503, "unavailable" }, { 0 } },
    { ENOTCONN, { 503, "unavailable" }, { 0 } },
    { ESRCH, { 409, "ended" }, { 0 } },
    { ECANCELED, { 409, "ended" }, { 0 } },
    { E2BIG, { 413, "too_large" }, { 413, "too_large" } },
    { EFBIG, { 413, "too_large" }, { 413, "too_large" } },
    { ENOTTY, { 409, "no_terminal" }, { 0 } },
    { EPERM, { 403, "forbidden" }, { 403, "permission_denied" } },
    { EACCES, { 403, "forbidden" }, { 403, "permission_denied" } },
    { ENOMEM, { 503, "out_of_memory" }, { 507, "out_of_memory" } },
    { ENOSYS, { 501, "not_implemented" }, { 0 } },
    { EOPNOTSUPP, { 501, "not_implemented" }, { 0 } },
    { ENOTDIR, { 0 }, { 409, "not_a_directory" } },
    { EISDIR, { 0 }, { 409, "is_a_directory" } },
    { ENOTEMPTY, { 0 }, { 409, "directory_not_empty" } },
    { EROFS, { 0 }, { 403, "read_only" } },
    { ELOOP, { 0 }, { 400, "too_many_links" } },
    { EBADMSG, { 0 }, { 400, "invalid" } },
    { ENODATA, { 0 }, { 400, "invalid" } },
    { EPROTO, { 0 }, { 400, "invalid" } },
    { EXDEV, { 0 }, { 409, "other_file_system" } },
    { ETXTBSY, { 409, "in_use" }, { 409, "file_busy" } },
    { ESTALE, { 0 }, { 409, "file_changed" } },
    { ENOPKG, { 422, "packages_failed" }, { 0 } },
    { EMLINK, { 0 }, { 409, "invalid" } },
};

static int look_up(int number, bool is_file, const char **ret_code)
{
    for (size_t i = 0; i < sizeof meanings / sizeof *meanings; i++) {
        const struct meaning *m = is_file ? &meanings[i].file : &meanings[i].front;
        if (meanings[i].number == number && m->code) {
            *ret_code = m->code;
            return m->status;
        }
    }
    *ret_code = "internal";
    return 500;
}

int error_status(const struct err *e, const char **ret_code)
{
    /* Only the admission refers to the host; otherwise our own disk is full. */
    if ((e->code == ENOSPC || e->code == EDQUOT) && e->step != STEP_USAGE) {
        *ret_code = "disk_full";
        return 507;
    }
    return look_up(e->code, false, ret_code);
}

int error_file_status(int number, const char **ret_code)
{
    return look_up(number, true, ret_code);
}

/* Bytes that the caller does not take at once are queued and charged. */
static void answer(struct http_request *r, int status, const char *data, size_t size)
{
    if (size > SHARE_SMALL_BYTES && !share_fits(&r->share, size + SHARE_SMALL_BYTES))
        error_reply_full(r);
    else if (http_reply(r, status, "application/json", data, size) < 0)
        http_request_abort(r);
}

void error_reply(struct http_request *r, int status, const char *code, const char *message, json_t *details)
{
    char storage[2048];
    struct buf text;
    struct jsonout j;
    char *extra = details ? json_dumps(details, DUMP) : NULL;

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

void error_reply_err(struct http_request *r, const struct err *e, json_t *details)
{
    char text[512];
    const char *code;
    int status = error_status(e, &code);

    err_text(e, text, sizeof text);
    if (status == 429 || status == 503)
        (void)http_reply_header(r, "Retry-After", "1");
    error_reply(r, status, code, text, details);
}

void error_reply_full(struct http_request *r)
{
    (void)http_reply_header(r, "Retry-After", "1");
    error_reply(r, 429, "quota_exceeded", SHARE_FULL, NULL);
}
