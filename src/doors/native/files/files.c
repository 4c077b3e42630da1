/* /v1/boxes/{id}/files/{path}: a path in the box, from its root. A GET first looks at the type: it lists a folder and
 * sends a file. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/list.h"
#include "base/parse.h"
#include "doors/native/files/transfer.h"

enum { LIST_DEFAULT = 1000, LIST_MAX = 10000, LIST_BYTES_MAX = 16 << 20 };

static const char *path_of(struct ask *a)
{
    struct http_text rest = http_match_get(a->match, "path");

    /* The router refuses a NUL in a name. */
    return arena_printf(&a->r->arena, "/%s", rest.data);
}

/* ---- list and stat ---- */

static void listed(struct transfer *t, const struct files_done *done)
{
    transfer_over(t);
    if (done->cursor)
        buf_printf(&t->list, "],\"next\":\"%llu\"}", (unsigned long long)done->cursor);
    else
        buf_add_text(&t->list, "],\"next\":null}");
    reply_buf(t->ask, 200, &t->list);
}

static void list(struct transfer *t)
{
    struct ask *a = t->ask;
    uint64_t limit = LIST_DEFAULT, cursor = 0;

    if (!query_number(a, "limit", LIST_MAX, &limit) || !query_number(a, "cursor", INT64_MAX, &cursor)) {
        transfer_over(t);
        return;
    }
    struct files_request q = { .op = FILES_LIST, .limit = (uint32_t)(limit ? limit : LIST_DEFAULT), .offset = cursor };
    buf_init(&t->list, LIST_BYTES_MAX);
    buf_add_text(&t->list, "{\"entries\":[");
    transfer_ask(t, &q, NULL, listed);
}

static void told(struct transfer *t, const struct files_done *done)
{
    struct buf out;
    const char *name = strrchr(t->path, '/') + 1;

    (void)done;
    transfer_over(t);
    buf_init(&out, 65536);
    t->entry.name_size = (uint16_t)strlen(name);
    file_entry_json(&out, &t->entry, name, t->link, t->path);
    reply_buf(t->ask, 200, &out);
}

/* ---- read ---- */

static void add_headers(struct transfer *t)
{
    struct http_request *r = t->ask->r;
    char text[64];
    time_t seconds = (time_t)(t->entry.mtime_ns / 1000000000);
    struct tm tm;

    snprintf(text, sizeof text, "\"%llx-%llx-%llx\"", (unsigned long long)t->entry.inode,
             (unsigned long long)t->entry.mtime_ns, (unsigned long long)t->entry.size);
    (void)http_reply_header(r, "ETag", text);
    if (gmtime_r(&seconds, &tm) && strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S GMT", &tm))
        (void)http_reply_header(r, "Last-Modified", text);
    snprintf(text, sizeof text, "%04o", t->entry.mode & 07777);
    (void)http_reply_header(r, "X-File-Mode", text);
    (void)http_reply_header(r, "Accept-Ranges", "bytes");
    (void)http_reply_header(r, "Content-Type", "application/octet-stream");
    /* A file of a box must not run as a page of this server. */
    (void)http_reply_header(r, "Content-Disposition", "attachment");
    (void)http_reply_header(r, "X-Content-Type-Options", "nosniff");
    if (t->is_range) {
        snprintf(text, sizeof text, "bytes %llu-%llu/%llu", (unsigned long long)t->from,
                 (unsigned long long)(t->from + t->length - 1), (unsigned long long)t->entry.size);
        (void)http_reply_header(r, "Content-Range", text);
    }
}

static bool begin(struct transfer *t, int64_t size)
{
    add_headers(t);
    t->started = true;
    if (http_reply_start(t->ask->r, t->is_range ? 206 : 200, size) == 0)
        return true;
    box_files_close(&t->user, false);
    http_request_abort(t->ask->r);
    return false;
}

static void sent(struct transfer *t, const struct files_done *done)
{
    (void)done;
    transfer_over(t);
    if (t->started || begin(t, 0))
        http_reply_finish(t->ask->r);
}

/* The first piece of the file. Its size was known just before; a file of /proc has none, and is sent until it ends. */
static void first_data(struct box_files_user *u, const char *data, size_t size)
{
    struct transfer *t = container_of(u, struct transfer, user);

    if (!t->started) {
        bool unsized = t->entry.size == 0 && !t->is_range;
        if (!unsized && t->from + t->length > t->entry.size) {
            box_files_close(u, false);
            reply_fail(t->ask, 409, "file_changed", "the file became shorter meanwhile");
            return;
        }
        if (!begin(t, unsized ? HTTP_CHUNKED : (int64_t)t->length))
            return;
    }
    transfer_hand_down(t, data, size);
}

static bool number(const char **at, uint64_t *ret)
{
    const char *start = *at;

    for (*ret = 0; **at >= '0' && **at <= '9' && *at - start < 19; ++*at)
        *ret = *ret * 10 + (uint64_t)(**at - '0');
    return *at > start;
}

/* 0: the whole file. 1: a part of it. -ERANGE: there is no such part. Several ranges at once get the whole file, as the
 * RFC allows. */
static int read_range(struct transfer *t, const char *text)
{
    uint64_t size = t->entry.size, first = 0, last = size ? size - 1 : 0, n;

    if (strncmp(text, "bytes=", 6) != 0)
        return 0;
    text += 6;
    if (*text == '-') {
        text++;
        if (!number(&text, &n) || *text)
            return 0;
        if (n == 0 || size == 0)
            return -ERANGE;
        first = n < size ? size - n : 0;
    } else {
        if (!number(&text, &first) || *text++ != '-')
            return 0;
        if (*text && (!number(&text, &last) || *text || last < first))
            return 0;
        if (first >= size)
            return -ERANGE;
        if (last >= size)
            last = size - 1;
    }
    t->from = first;
    t->length = last - first + 1;
    return 1;
}

static void send_file(struct transfer *t)
{
    struct http_text range = http_head_get(&t->ask->r->head, "Range"),
                     condition = http_head_get(&t->ask->r->head, "If-Range");
    char text[96];
    int r = 0;

    t->length = t->entry.size;
    if (range.data && !condition.data) {
        snprintf(text, sizeof text, "%.*s", (int)(range.size < 95 ? range.size : 95), range.data);
        r = read_range(t, text);
    }
    if (r < 0) {
        transfer_over(t);
        snprintf(text, sizeof text, "bytes */%llu", (unsigned long long)t->entry.size);
        (void)http_reply_header(t->ask->r, "Content-Range", text);
        reply_fail(t->ask, 416, "invalid_range", "the file has %llu bytes", (unsigned long long)t->entry.size);
        return;
    }
    t->is_range = r > 0;
    if (http_text_is(t->ask->r->head.method, "HEAD")) {
        transfer_over(t);
        if (begin(t, (int64_t)t->length))
            http_reply_finish(t->ask->r);
        return;
    }
    struct files_request q = { .op = FILES_READ,
                               .offset = t->from,
                               .length = t->is_range || t->length ? t->length : INT64_MAX };
    t->user.on_data = first_data;
    transfer_ask(t, &q, NULL, sent);
}

static void looked(struct transfer *t, const struct files_done *done)
{
    (void)done;
    if (!t->has_entry)
        transfer_fail(t, EPROTO, "the file helper said nothing");
    else if (S_ISDIR(t->entry.mode))
        list(t);
    else if (S_ISREG(t->entry.mode))
        send_file(t);
    else
        transfer_fail(t, EINVAL, "this is neither a file nor a folder; ?stat=true has its type");
}

void ask_file_get(struct ask *a)
{
    static const char *const known[] = { "stat", "follow", "limit", "cursor", NULL };
    const char *path = path_of(a);
    bool only_stat = false, follow = true;

    if (!query_only(a, known) || !query_bool(a, "stat", &only_stat) || !query_bool(a, "follow", &follow))
        return;
    struct transfer *t = path ? transfer_new(a, path) : NULL;
    if (!t)
        return;
    struct files_request q = { .op = FILES_STAT, .flags = only_stat && !follow ? FILES_NOFOLLOW : 0 };
    transfer_ask(t, &q, NULL, only_stat ? told : looked);
}

/* ---- write ---- */

static void written(struct transfer *t, const struct files_done *done)
{
    transfer_over(t);
    reply_json(t->ask, 200, json_pack("{s:I}", "bytes", (json_int_t)done->bytes));
}

static bool read_mode(struct ask *a, uint32_t *ret)
{
    const char *text = NULL;
    struct err e = { 0 };

    if (!query_text(a, "mode", &text))
        return false;
    if (text && body_mode_text("?mode=", text, ret, &e) < 0) {
        reply_err(a, &e);
        return false;
    }
    return true;
}

void ask_file_put(struct ask *a)
{
    static const char *const known[] = { "mode", "append", "offset", "parents", NULL };
    const char *path = path_of(a);
    struct files_request q = { .op = FILES_WRITE, .mode = 0644, .flags = FILES_CREATE, .offset = UINT64_MAX };
    bool append = false, parents = false;

    if (!query_only(a, known) || !read_mode(a, &q.mode) || !query_bool(a, "append", &append)
        || !query_bool(a, "parents", &parents) || !query_number(a, "offset", INT64_MAX, &q.offset))
        return;
    if (append && q.offset != UINT64_MAX) {
        reply_fail(a, 400, "invalid", "?append= and ?offset= exclude each other");
        return;
    }
    if (append)
        q.flags |= FILES_APPEND;
    else if (q.offset == UINT64_MAX)
        q.flags |= FILES_TRUNCATE | FILES_ATOMIC;
    if (parents)
        q.flags |= FILES_PARENTS;
    if (q.offset == UINT64_MAX)
        q.offset = 0;
    struct transfer *t = path ? transfer_new(a, path) : NULL;
    if (t)
        transfer_upload(t, &q, written);
}

/* ---- change ---- */

struct file_action {
    const char *action, *to;
    uint32_t    mode;
    bool        parents, overwrite, has_mode;
};

static int take_action(const char *name, json_t *v, void *into, struct err *e)
{
    return body_text(name, v, 16, &((struct file_action *)into)->action, e);
}

static int take_to(const char *name, json_t *v, void *into, struct err *e)
{
    struct file_action *x = into;
    int r = body_text(name, v, FILES_PATH_MAX, &x->to, e);

    return r == 0 && x->to[0] != '/' ? err_set(e, EINVAL, STEP_USAGE, "%s must be an absolute path", name) : r;
}

static int take_mode(const char *name, json_t *v, void *into, struct err *e)
{
    ((struct file_action *)into)->has_mode = true;
    return body_mode(name, v, &((struct file_action *)into)->mode, e);
}

static int take_parents(const char *name, json_t *v, void *into, struct err *e)
{
    return body_bool(name, v, &((struct file_action *)into)->parents, e);
}

static int take_overwrite(const char *name, json_t *v, void *into, struct err *e)
{
    return body_bool(name, v, &((struct file_action *)into)->overwrite, e);
}

static int read_action(json_t *root, struct file_action *x, struct files_request *q, struct err *e)
{
    static const struct body_field fields[] = {
        { "action", take_action },       { "to", take_to }, { "mode", take_mode }, { "parents", take_parents },
        { "overwrite", take_overwrite },
    };
    int r = body_fields(root, "", fields, sizeof fields / sizeof *fields, x, e);

    if (r < 0)
        return r;
    q->mode = x->mode;
    q->flags = x->parents ? FILES_PARENTS : 0;
    if (x->action && strcmp(x->action, "mkdir") == 0) {
        q->op = FILES_MKDIR;
    } else if (x->action && strcmp(x->action, "move") == 0) {
        q->op = FILES_MOVE;
        q->flags = (uint16_t)(q->flags | (x->overwrite ? 0 : FILES_EXCLUSIVE));
        if (!x->to)
            return err_set(e, EINVAL, STEP_USAGE, "to is missing: where is it to be moved?");
    } else if (x->action && strcmp(x->action, "chmod") == 0) {
        q->op = FILES_CHMOD;
        if (!x->has_mode)
            return err_set(e, EINVAL, STEP_USAGE, "mode is missing");
    } else {
        return err_set(e, EINVAL, STEP_USAGE, "action must be \"mkdir\", \"move\" or \"chmod\"");
    }
    return 0;
}

static void changed(struct transfer *t, const struct files_done *done)
{
    (void)done;
    transfer_over(t);
    reply_none(t->ask);
}

static void post(struct ask *a, json_t *root)
{
    struct file_action x = { .mode = 0755 };
    struct files_request q = { 0 };
    struct err e = { 0 };
    const char *path = path_of(a);

    if (read_action(root, &x, &q, &e) < 0) {
        reply_err(a, &e);
        return;
    }
    struct transfer *t = path ? transfer_new(a, path) : NULL;
    if (t)
        transfer_ask(t, &q, x.to, changed);
}

void ask_file_post(struct ask *a)
{
    body_json(a, BODY_SMALL, post);
}

void ask_file_delete(struct ask *a)
{
    static const char *const known[] = { "recursive", NULL };
    const char *path = path_of(a);
    bool recursive = false;

    if (!query_only(a, known) || !query_bool(a, "recursive", &recursive))
        return;
    struct transfer *t = path ? transfer_new(a, path) : NULL;
    if (!t)
        return;
    struct files_request q = { .op = FILES_REMOVE, .flags = recursive ? FILES_RECURSIVE : 0 };
    transfer_ask(t, &q, NULL, changed);
}
