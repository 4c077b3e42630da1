/* Whole folders as tar, both ways. */
#define _GNU_SOURCE
#include <string.h>

#include "base/list.h"
#include "doors/native/files/transfer.h"

static bool begin(struct transfer *t)
{
    struct http_request *r = t->ask->r;

    t->started = true;
    if (http_reply_header(r, "Content-Type", "application/x-tar") == 0
        && http_reply_header(r, "Content-Disposition", "attachment") == 0
        && http_reply_start(r, 200, HTTP_CHUNKED) == 0)
        return true;
    box_files_close(&t->user, false);
    http_request_abort(r);
    return false;
}

static void on_data(struct box_files_user *u, const char *data, size_t size)
{
    struct transfer *t = container_of(u, struct transfer, user);

    if (t->started || begin(t))
        transfer_hand_down(t, data, size);
}

static void packed(struct transfer *t, const struct files_done *done)
{
    (void)done;
    transfer_over(t);
    if (t->started || begin(t))
        http_reply_finish(t->ask->r);
}

static struct transfer *start(struct ask *a)
{
    static const char *const known[] = { "path", NULL };
    const char *path = "";      /* the home folder */

    if (!query_only(a, known) || !query_text(a, "path", &path))
        return NULL;
    return transfer_new(a, path);
}

void ask_archive_get(struct ask *a)
{
    struct transfer *t = start(a);
    struct files_request q = { .op = FILES_PACK };

    if (!t)
        return;
    t->user.on_data = on_data;
    transfer_ask(t, &q, NULL, packed);
}

static void unpacked(struct transfer *t, const struct files_done *done)
{
    transfer_over(t);
    reply_json(t->ask, 200,
               json_pack("{s:I,s:I}", "entries", (json_int_t)done->entries, "bytes", (json_int_t)done->bytes));
}

void ask_archive_put(struct ask *a)
{
    struct transfer *t = start(a);
    struct files_request q = { .op = FILES_UNPACK, .flags = FILES_PARENTS, .mode = 0755 };

    if (t)
        transfer_upload(t, &q, unpacked);
}
