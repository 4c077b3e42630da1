/* Bytes between a client and the file helper. Nothing is kept on the way: what the client does not read is not taken
 * from the helper, what the helper does not take is not read from the client. */
#define _GNU_SOURCE
#include "doors/native/files/transfer.h"

#include <errno.h>
#include <string.h>

#include "base/list.h"

enum { UPLOAD_BYTES = 1 << 18 };

/* The frame's head goes before the data. */
static _Alignas(8) char upload[sizeof(struct files_head) + UPLOAD_BYTES];

static const struct {
    int         number, status;
    const char *code;
} statuses[] = {
    { ENOENT, 404, "file_not_found" },
    { ENOTDIR, 409, "not_a_directory" },
    { EISDIR, 409, "is_a_directory" },
    { EEXIST, 409, "file_exists" },
    { ENOTEMPTY, 409, "directory_not_empty" },
    { EACCES, 403, "permission_denied" },
    { EPERM, 403, "permission_denied" },
    { EROFS, 403, "read_only" },
    { ELOOP, 400, "too_many_links" },
    { ENAMETOOLONG, 400, "invalid" },
    { EINVAL, 400, "invalid" },
    { EBADMSG, 400, "invalid" },
    { ENODATA, 400, "invalid" },
    { EPROTO, 400, "invalid" },
    { EXDEV, 409, "other_file_system" },
    { EBUSY, 409, "file_busy" },
    { ETXTBSY, 409, "file_busy" },
    { ESTALE, 409, "file_changed" },
    { ENOSPC, 507, "disk_full" },
    { EDQUOT, 507, "disk_full" },
    { ENOMEM, 507, "out_of_memory" },
    { EFBIG, 413, "too_large" },
    { E2BIG, 413, "too_large" },
    { EMLINK, 409, "invalid" },
};

void transfer_over(struct transfer *t)
{
    t->ask->r->on_body = NULL;
    helper_close(&t->user, !t->uploading);
}

void transfer_fail(struct transfer *t, int code, const char *text)
{
    int status = 500;
    const char *name = "internal";

    transfer_over(t);
    if (t->started) {
        http_request_abort(t->ask->r);
        return;
    }
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++)
        if (statuses[i].number == code) {
            status = statuses[i].status;
            name = statuses[i].code;
        }
    reply_error(t->ask->r, status, name, text[0] ? text : strerror(code), NULL);
}

/* ---- from the helper ---- */

static struct transfer *of(struct helper_user *u)
{
    return container_of(u, struct transfer, user);
}

static void on_entries(struct helper_user *u, const char *data, size_t size)
{
    struct transfer *t = of(u);
    struct files_entry entry;
    const char *name, *link;

    while (entry_next(&data, &size, &entry, &name, &link)) {
        if (t->list.limit) {
            if (t->listed++)
                buf_add_char(&t->list, ',');
            entry_add(&t->list, &entry, name, link, NULL);
            continue;
        }
        t->entry = entry;
        t->has_entry = true;
        if (entry.link_size >= sizeof t->link)
            t->entry.link_size = sizeof t->link - 1;
        memcpy(t->link, link, t->entry.link_size);
    }
}

static void on_data(struct helper_user *u, const char *data, size_t size)
{
    transfer_hand_down(of(u), data, size);
}

static void on_done(struct helper_user *u, const struct files_done *done)
{
    struct transfer *t = of(u);

    if (done->code)
        transfer_fail(t, done->code, done->text);
    else
        t->on_done(t, done);
}

static void on_lost(struct helper_user *u, const struct err *e)
{
    struct transfer *t = of(u);

    t->ask->r->on_body = NULL;
    if (t->started)
        http_request_abort(t->ask->r);
    else
        reply_err(t->ask, e);
}

void transfer_hand_down(struct transfer *t, const char *data, size_t size)
{
    struct http_request *r = t->ask->r;
    int result = http_reply_write(r, data, size);

    /* Before this piece there was room; if the client is gone, on_end comes. */
    if (result < 0 && result != -EPIPE) {
        helper_close(&t->user, false);
        http_request_abort(r);
        return;
    }
    if (http_reply_room(r) == 0)
        helper_hold(&t->user, true);
}

static void on_writable(struct http_request *r)
{
    struct transfer *t = ((struct ask *)r->owner)->work;
    helper_hold(&t->user, false);
}

static void on_end(struct ask *a, enum http_end how)
{
    struct transfer *t = a->work;

    (void)how;
    helper_close(&t->user, false);
    buf_done(&t->list);
}

/* ---- to the helper ---- */

static void pump(struct http_request *r)
{
    struct transfer *t = ((struct ask *)r->owner)->work;
    char *data = upload + sizeof(struct files_head);

    while (t->uploading && helper_has_room(&t->user)) {
        ssize_t n = http_body_read(r, data, UPLOAD_BYTES);
        if (n == -EAGAIN || n == -EPIPE)
            return;
        if (n < 0) {
            transfer_over(t);
            reply_fail(t->ask, n == -EFBIG ? 413 : 400, n == -EFBIG ? "too_large" : "invalid",
                       "the body is malformed or too large");
            return;
        }
        if (n == 0) {
            t->uploading = false;
            r->on_body = NULL;
        }
        helper_send(&t->user, n ? FILES_DATA : FILES_END, data, (size_t)n);
        box_touch(t->ask->box);
    }
}

static void on_room(struct helper_user *u)
{
    struct transfer *t = of(u);

    if (t->uploading)
        pump(t->ask->r);
}

struct transfer *transfer_new(struct ask *a, const char *path)
{
    struct transfer *t = arena_alloc(&a->r->arena, sizeof *t);
    struct err e = { 0 };

    if (!t) {
        http_request_abort(a->r);
        return NULL;
    }
    *t = (struct transfer){ .ask = a,
                            .path = path,
                            .user = { .on_entries = on_entries,
                                      .on_data = on_data,
                                      .on_done = on_done,
                                      .on_room = on_room,
                                      .on_lost = on_lost } };
    if (helper_open(a->box, &t->user, &e) < 0) {
        reply_err(a, &e);
        return NULL;
    }
    a->work = t;
    a->on_end = on_end;
    a->r->on_writable = on_writable;
    return t;
}

void transfer_ask(struct transfer *t, struct files_request *q, const char *other,
                  void (*done)(struct transfer *, const struct files_done *))
{
    struct err e = { 0 };

    t->on_done = done;
    if (helper_ask(&t->user, q, t->path, other, &e) < 0) {
        transfer_over(t);
        reply_err(t->ask, &e);
    }
}

void transfer_upload(struct transfer *t, struct files_request *q,
                     void (*done)(struct transfer *, const struct files_done *))
{
    struct err e = { 0 };

    t->on_done = done;
    if (helper_ask(&t->user, q, t->path, NULL, &e) < 0) {
        transfer_over(t);
        reply_err(t->ask, &e);
        return;
    }
    t->uploading = true;
    t->ask->r->on_body = pump;
    pump(t->ask->r);
}
