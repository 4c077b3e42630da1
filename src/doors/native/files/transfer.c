/* Bytes between a client and the file helper. Nothing is queued: bytes that one side cannot take are not read from the
 * other. */
#define _GNU_SOURCE
#include "doors/native/files/transfer.h"

#include <errno.h>
#include <string.h>

#include "base/list.h"

enum { UPLOAD_BYTES = 1 << 18 };

/* The frame's head stands before the data. */
static _Alignas(8) char upload[sizeof(struct files_head) + UPLOAD_BYTES];

void transfer_over(struct transfer *t)
{
    t->ask->r->on_body = NULL;
    box_files_close(&t->user, !t->uploading);
}

void transfer_fail(struct transfer *t, int code, const char *text)
{
    const char *name;
    int status = error_file_status(code, &name);

    transfer_over(t);
    if (t->started) {
        http_request_abort(t->ask->r);
        return;
    }
    error_reply(t->ask->r, status, name, text[0] ? text : strerror(code), NULL);
}

/* ---- from the helper ---- */

static struct transfer *of(struct box_files_user *u)
{
    return container_of(u, struct transfer, user);
}

static void on_entries(struct box_files_user *u, const char *data, size_t size)
{
    struct transfer *t = of(u);
    struct files_entry entry;
    const char *name, *link;

    while (file_entry_next(&data, &size, &entry, &name, &link)) {
        if (t->list.limit) {
            if (t->listed++)
                buf_add_char(&t->list, ',');
            file_entry_json(&t->list, &entry, name, link, NULL);
            continue;
        }
        t->entry = entry;
        t->has_entry = true;
        if (entry.link_size >= sizeof t->link)
            t->entry.link_size = sizeof t->link - 1;
        memcpy(t->link, link, t->entry.link_size);
    }
}

static void on_data(struct box_files_user *u, const char *data, size_t size)
{
    transfer_hand_down(of(u), data, size);
}

static void on_done(struct box_files_user *u, const struct files_done *done)
{
    struct transfer *t = of(u);

    if (done->code)
        transfer_fail(t, done->code, done->text);
    else
        t->on_done(t, done);
}

static void on_lost(struct box_files_user *u, const struct err *e)
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

    /* There was room before this piece; if the client is gone, on_end follows. */
    if (result < 0 && result != -EPIPE) {
        box_files_close(&t->user, false);
        http_request_abort(r);
        return;
    }
    if (http_reply_room(r) == 0)
        box_files_hold(&t->user, true);
}

static void on_writable(struct http_request *r)
{
    struct transfer *t = ((struct ask *)r->owner)->work;
    box_files_hold(&t->user, false);
}

static void on_end(struct ask *a, enum http_end how)
{
    struct transfer *t = a->work;

    (void)how;
    box_files_close(&t->user, false);
    buf_done(&t->list);
}

/* ---- to the helper ---- */

static void pump(struct http_request *r)
{
    struct transfer *t = ((struct ask *)r->owner)->work;
    char *data = upload + sizeof(struct files_head);

    while (t->uploading && box_files_has_room(&t->user)) {
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
        box_files_send(&t->user, n ? FILES_DATA : FILES_END, data, (size_t)n);
        box_touch(t->ask->box);
    }
}

static void on_room(struct box_files_user *u)
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
    if (box_files_open(a->box, &t->user, &e) < 0) {
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
    if (box_files_ask(&t->user, q, t->path, other, &e) < 0) {
        transfer_over(t);
        reply_err(t->ask, &e);
    }
}

void transfer_upload(struct transfer *t, struct files_request *q,
                     void (*done)(struct transfer *, const struct files_done *))
{
    struct err e = { 0 };

    t->on_done = done;
    if (box_files_ask(&t->user, q, t->path, NULL, &e) < 0) {
        transfer_over(t);
        reply_err(t->ask, &e);
        return;
    }
    t->uploading = true;
    t->ask->r->on_body = pump;
    pump(t->ask->r);
}
