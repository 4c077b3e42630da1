/* Events of boxes: a page of the log, or a stream of server-sent events. The log in the database is authoritative; a
 * watcher only learns that there is more. A stream that cannot keep up ignores notifications and reads on from the log
 * when there is room, so nothing is lost and nothing is queued in memory. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "doors/native/door.h"
#include "front/db/db.h"
#include "front/request/event_stream.h"

enum { PAGE_DEFAULT = 100, PAGE_MAX = 1000, BATCH = 64, PAGE_BYTES_MAX = 16 << 20 };
#define NOT_YET UINT64_MAX

struct event_watch {
    struct ask         *ask;
    struct box_watcher  watcher;
    struct loop_task    task;
    struct event_stream stream;
    uint64_t            box;            /* number; 0: all that the caller may see */
    uint64_t            last;           /* number of the last event sent or skipped */
    bool                all;            /* of all owners */
};

static json_t *event_json(const char *box, uint64_t number, int64_t time_ms, const char *type, json_t *body)
{
    char text[32];

    front_time_text(time_ms, text);
    return json_pack("{s:I,s:s,s:s,s:s,s:O}", "number", (json_int_t)number, "box", box, "time", text, "type", type,
                     "body", body);
}

static bool may_see(const struct event_watch *w, const struct box *b)
{
    return b && (w->box ? b->number == w->box : w->all || strcmp(b->owner, w->ask->who.name) == 0);
}

/* ---- a page ---- */

struct page {
    struct event_watch *watch;
    struct buf   *out;
    unsigned      n;
};

static char *event_text(struct event_watch *w, const struct db_event *event)
{
    const struct box *b = boxes_by_number(w->ask->front, event->box);

    if (!may_see(w, b))
        return NULL;
    json_t *body = event->body ? json_loads(event->body, 0, NULL) : NULL;
    if (!body)
        body = json_object();
    json_t *o = event_json(b->id, event->number, event->time_ms, event->type, body);
    char *text = o ? json_dumps(o, ASK_DUMP) : NULL;
    json_decref(o);
    json_decref(body);
    return text;
}

static int add_to_page(const struct db_event *event, void *arg)
{
    struct page *page = arg;
    char *text = event_text(page->watch, event);

    page->watch->last = event->number;
    page->n++;
    if (text) {
        if (page->out->data[page->out->length - 1] != '[')
            buf_add_char(page->out, ',');
        buf_add_text(page->out, text);
    }
    free(text);
    return 0;
}

static void reply_page(struct ask *a, uint64_t after, uint64_t limit)
{
    struct event_watch w = { .ask = a, .box = a->box->number, .last = after };
    struct buf out;
    struct page page = { .watch = &w, .out = &out };
    struct err e;

    buf_init(&out, PAGE_BYTES_MAX);
    buf_add_text(&out, "{\"events\":[");
    if (db_events(a->front->db, w.box, after, (unsigned)limit, add_to_page, &page, &e) < 0) {
        buf_done(&out);
        reply_err(a, &e);
        return;
    }
    if (page.n == limit)
        buf_printf(&out, "],\"next\":%llu}", (unsigned long long)w.last);
    else
        buf_add_text(&out, "],\"next\":null}");
    reply_buf(a, 200, &out);
}

/* ---- a stream ---- */

static int replay_one(const struct db_event *event, void *arg)
{
    struct page *page = arg;
    char *text = event_text(page->watch, event);
    bool sent = !text || event_stream_send(&page->watch->stream, event->number, event->type, text, strlen(text));

    free(text);
    if (!sent)
        return 1;
    page->n++;
    page->watch->last = event->number;
    return 0;
}

/* Reads on from the log, in batches, while there is room. */
static void replay(struct event_watch *w)
{
    struct page page = { .watch = w };
    struct err e;

    if (w->last == NOT_YET || http_reply_room(w->ask->r) == 0)
        return;         /* on_event or on_writable follows */
    if (db_events(w->ask->front->db, w->box, w->last, BATCH, replay_one, &page, &e) < 0)
        http_request_abort(w->ask->r);
    else if (page.n > 0)
        loop_task_add(w->ask->r->loop, &w->task);
}

static void on_task(struct loop_task *t)
{
    replay(container_of(t, struct event_watch, task));
}

static void on_writable(struct http_request *r)
{
    replay(((struct ask *)r->owner)->work);
}

static void on_event(struct box_watcher *watcher, const struct box *box, uint64_t number, const char *type,
                     json_t *body)
{
    struct event_watch *w = container_of(watcher, struct event_watch, watcher);

    (void)type;
    (void)body;
    if (!may_see(w, box))
        return;
    if (w->last == NOT_YET)
        w->last = number - 1;
    loop_task_add(w->ask->r->loop, &w->task);
}

static void on_end(struct ask *a, enum http_end how)
{
    struct event_watch *w = a->work;

    (void)how;
    boxes_unwatch(&w->watcher);
    loop_task_cancel(a->r->loop, &w->task);
    event_stream_done(&w->stream);
}

/* Where to begin: after the client's Last-Event-ID; else at the start of a box's log or, for all boxes, with the next
 * event. */
static bool find_start(struct ask *a, uint64_t *ret)
{
    struct http_text id = http_head_get(&a->r->head, "Last-Event-ID");
    char text[24], *end;

    *ret = a->box ? 0 : NOT_YET;
    if (!id.data)
        return query_number(a, "after", INT64_MAX, ret);
    snprintf(text, sizeof text, "%.*s", (int)(id.size < 23 ? id.size : 23), id.data);
    *ret = strtoull(text, &end, 10);
    if (*end || text[0] < '0' || text[0] > '9' || *ret > INT64_MAX) {
        reply_fail(a, 400, "invalid", "Last-Event-ID must be a number that an event had");
        return false;
    }
    return true;
}

static void stream(struct ask *a, bool all)
{
    struct event_watch *w = arena_alloc(&a->r->arena, sizeof *w);
    uint64_t after;

    if (!find_start(a, &after))
        return;
    if (!w) {
        http_request_abort(a->r);
        return;
    }
    *w = (struct event_watch){ .ask = a,
                         .box = a->box ? a->box->number : 0,
                         .last = after,
                         .all = all,
                         .watcher.on_event = on_event,
                         .task.on_run = on_task };
    if (!event_stream_start(&w->stream, a->r))
        return;
    a->work = w;
    a->on_end = on_end;
    a->r->on_writable = on_writable;
    w->watcher.owner = all || a->box ? NULL : a->who.name;
    boxes_watch(a->front, &w->watcher);
    replay(w);
}

void ask_box_events(struct ask *a)
{
    static const char *const known[] = { "watch", "after", "limit", NULL };
    bool watch = ask_accepts(a, "text/event-stream");
    uint64_t after = 0, limit = PAGE_DEFAULT;

    if (!query_only(a, known) || !query_bool(a, "watch", &watch))
        return;
    if (watch) {
        stream(a, false);
        return;
    }
    if (!query_number(a, "after", INT64_MAX, &after) || !query_number(a, "limit", PAGE_MAX, &limit))
        return;
    reply_page(a, after, limit ? limit : PAGE_DEFAULT);
}

void ask_events(struct ask *a)
{
    static const char *const known[] = { "watch", "after", "all", NULL };
    bool all = false;

    if (!query_only(a, known) || !query_bool(a, "all", &all))
        return;
    if (all && !(a->who.scopes & SCOPE_ADMIN)) {
        reply_fail(a, 403, "forbidden", "?all=true is for admins");
        return;
    }
    stream(a, all);
}
