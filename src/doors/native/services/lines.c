/* Lines of JSON to a client that may be slow: lines that it does not take are queued here and charged to it. The
 * service never waits, because one slow caller must not stop it: prints beyond a bound are dropped, and an event says
 * so. */
#define _GNU_SOURCE
#include <string.h>

#include "doors/native/services/service.h"

enum { PRINTS_MOST = 1 << 20, PENDING_MOST = 128 << 20 };

static void on_writable(struct http_request *r)
{
    struct lines *l = ((struct ask *)r->owner)->work;   /* the first member of the handler's own struct */

    if (l->pending.length > 0) {
        if (http_reply_write(r, l->pending.data, l->pending.length) < 0)
            return;
        buf_clear(&l->pending);
        (void)share_move_bytes(&r->share, l->charged, 0);
        l->charged = 0;
    }
    if (!l->is_over)
        return;
    l->ask->on_end = NULL;
    lines_done(l);
    http_reply_finish(r);
}

bool lines_start(struct lines *l, struct ask *a)
{
    l->ask = a;
    buf_init(&l->pending, PENDING_MOST);
    a->r->on_writable = on_writable;
    if (http_reply_header(a->r, "Content-Type", "application/x-ndjson") == 0 &&
        http_reply_header(a->r, "Cache-Control", "no-store") == 0 && http_reply_start(a->r, 200, HTTP_CHUNKED) == 0)
        return true;
    http_request_abort(a->r);
    return false;
}

static void put(struct lines *l, const char *data, size_t size)
{
    struct http_request *r = l->ask->r;

    if (l->pending.length == 0 && http_reply_write(r, data, size) == 0)
        return;
    (void)http_reply_room(r);           /* arms on_writable */
    buf_add(&l->pending, data, size);
    if (l->pending.failure || !share_move_bytes(&r->share, l->charged, l->pending.length))
        http_request_abort(r);
    else
        l->charged = l->pending.length;
}

void lines_put(struct lines *l, const char *data, size_t size)
{
    struct buf line;

    buf_init(&line, PENDING_MOST);
    buf_add(&line, data, size);
    for (size_t i = 0; !line.failure && i < line.length; i++)
        if (line.data[i] == '\n' || line.data[i] == '\r')
            line.data[i] = ' ';
    buf_add_char(&line, '\n');
    if (line.failure)
        http_request_abort(l->ask->r);
    else
        put(l, line.data, line.length);
    buf_done(&line);
}

void lines_print(struct lines *l, const char *stream, struct jsonslice text)
{
    struct buf line;

    if (l->is_cut)
        return;
    buf_init(&line, PENDING_MOST);
    l->is_cut = l->pending.length + text.size > PRINTS_MOST;
    if (l->is_cut)
        buf_add_text(&line, "{\"type\":\"stderr\",\"text\":\"[further prints are dropped: they are "
                            "not read]\"}");
    else
        buf_printf(&line, "{\"type\":\"%s\",\"text\":%.*s}", stream, (int)text.size, text.data);
    if (!line.failure)
        lines_put(l, line.data, line.length);
    buf_done(&line);
}

void lines_end(struct lines *l)
{
    l->is_over = true;
    if (l->pending.length > 0)
        return;         /* on_writable() ends it */
    l->ask->on_end = NULL;
    struct http_request *r = l->ask->r;
    lines_done(l);
    http_reply_finish(r);
}

void lines_done(struct lines *l)
{
    if (!l->ask)
        return;
    buf_done(&l->pending);
    (void)share_move_bytes(&l->ask->r->share, l->charged, 0);
    l->charged = 0;
}
