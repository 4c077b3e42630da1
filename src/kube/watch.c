/* States:
 *
 *              +--------------------- 410, or too many failures --------------------+
 *              v                                                                    |
 *   OFF -> LISTING -- last page --> WATCHING -- end, failure --> WAITING -------+--> WATCHING from the newest version
 *
 * Data from the server may be cut, late or repeated: a line that is no JSON ends the connection, and the watch resumes
 * from the newest version that was seen. If the server has forgotten that version, it answers HTTP 410 or sends an
 * ERROR line with code 410 below HTTP 200; both lead to a new list. */
#include "kube/watch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"

enum { LINE_MAX_BYTES = 32 << 20, SILENCE_MS = 180000, FAILURES_UNTIL_LIST = 5, LIST_DEADLINE_MS = 60000,
       FAILURES_UNTIL_TOLD = 3, REFUSALS_UNTIL_TOLD = 7,
       STEADY_MS = 1000 };     /* a watch that stays open for so long is no failure */

static void list(struct kube_watch *w);
static void watch(struct kube_watch *w);

uint32_t kube_backoff_ms(unsigned n)
{
    uint32_t base = n > 9 ? 30000 : 100u << (n > 0 ? n - 1 : 0);

    if (base > 30000)
        base = 30000;
    return base + arc4random_uniform(base + 1);
}

enum kube_line kube_line_parse(const char *line, size_t size, struct kube_line_parts *ret)
{
    unsigned long long code = 0, seconds = 0;

    *ret = (struct kube_line_parts){ 0 };
    if (!jsonscan_is_object(line, size))
        return KUBE_LINE_BAD;
    struct jsonslice whole = { line, size }, type = jsonscan_find(whole, "type");
    ret->object = jsonscan_find(whole, "object");
    if (!ret->object.data || *ret->object.data != '{')
        return KUBE_LINE_BAD;
    if (jsonscan_is(type, "ERROR")) {
        struct jsonslice after = jsonscan_find(jsonscan_find(ret->object, "details"), "retryAfterSeconds");
        (void)jsonscan_number(jsonscan_find(ret->object, "code"), &code);
        if (jsonscan_number(after, &seconds))
            ret->retry_after_ms = (uint32_t)(seconds > 600 ? 600 : seconds) * 1000;
        bool expired = code == 410 || jsonscan_is(jsonscan_find(ret->object, "reason"), "Expired");
        return expired ? KUBE_LINE_EXPIRED : KUBE_LINE_ERROR;
    }
    ret->version = jsonscan_find(jsonscan_find(ret->object, "metadata"), "resourceVersion");
    struct jsonslice inside = jsonscan_inside(ret->version);
    if (inside.size == 0 || inside.size >= 64)
        return KUBE_LINE_BAD;
    if (jsonscan_is(type, "ADDED") || jsonscan_is(type, "MODIFIED"))
        return KUBE_LINE_SET;
    if (jsonscan_is(type, "DELETED"))
        return KUBE_LINE_DELETED;
    return jsonscan_is(type, "BOOKMARK") ? KUBE_LINE_BOOKMARK : KUBE_LINE_BAD;
}

static void take_version(struct kube_watch *w, struct jsonslice version)
{
    char text[sizeof w->version];

    if (jsonscan_text(version, text, sizeof text))
        memcpy(w->version, text, sizeof text);
}

static void well(struct kube_watch *w)
{
    w->failures = w->repeats = 0;
    w->status = 0;
    if (w->told && w->on_trouble)
        w->on_trouble(w, "");
    w->told = false;
}

/* An API server that has just started answers 403 until it has read its roles. If it allowed this before, a refusal is
 * only reported after 6 to 13 seconds. */
bool kube_watch_should_tell(const struct kube_watch *w)
{
    return w->repeats >= (w->status == 403 && w->synced ? REFUSALS_UNTIL_TOLD : FAILURES_UNTIL_TOLD);
}

/* After a failure: retries later, by a new list if necessary. */
static void later(struct kube_watch *w, const char *text)
{
    w->failures++;
    snprintf(w->why, sizeof w->why, "%s", text);
    w->n_failures++;
    if (w->failures >= FAILURES_UNTIL_LIST)
        w->relist = true;
    w->repeats = w->failures > 1 && w->status == w->last_status ? w->repeats + 1 : 1;
    w->last_status = w->status;
    if ((!w->told || w->told_status != w->status) && kube_watch_should_tell(w) && w->on_trouble) {
        w->told = true;
        w->told_status = w->status;
        w->on_trouble(w, text);
    }
    uint32_t wait = kube_backoff_ms(w->failures);
    if (wait < w->retry_after_ms)
        wait = w->retry_after_ms;
    w->retry_after_ms = 0;
    w->phase = KUBE_WATCH_WAITING;
    loop_timer_set(w->loop, &w->again, wait);
}

static void on_again(struct loop_timer *t)
{
    struct kube_watch *w = container_of(t, struct kube_watch, again);

    if (w->relist || !w->version[0])
        list(w);
    else
        watch(w);
}

/* ---- the list ---- */

static void start_page(struct kube_watch *w)
{
    char page[32];

    snprintf(page, sizeof page, "%u", w->page ? w->page : 500);
    free(w->call.path);
    w->call.path = kube_path("%r?limit=%r%r%r%r%s", w->path, page, w->selector ? "&labelSelector=" : "",
                             w->selector ? w->selector : "", w->more ? "&continue=" : "", w->more ? w->more : "");
    w->call.method = "GET";
    w->call.on_data = NULL;
    w->call.deadline_ms = LIST_DEADLINE_MS;
    w->call.silence_ms = 0;
    if (!w->call.path)
        later(w, "memory");
    else
        kube_call_start(w->client, &w->call);
}

static void drop_more(struct kube_watch *w)
{
    free(w->more);
    w->more = NULL;
}

static void drop_page(struct kube_watch *w)
{
    loop_task_cancel(w->loop, &w->digest);
    buf_done(&w->page_text);
}

/* Reads the list's version from a page, and whether more pages follow. False: it is no list. */
static bool take_head(struct kube_watch *w, struct jsonslice page)
{
    struct jsonslice meta = jsonscan_find(page, "metadata"), more = jsonscan_find(meta, "continue");
    struct jsonslice version = jsonscan_find(meta, "resourceVersion");

    if (!jsonscan_inside(version).size)
        return false;
    take_version(w, version);
    drop_more(w);
    if (jsonscan_inside(more).size > 0) {
        w->more = malloc(more.size + 1);
        return w->more && jsonscan_text(more, w->more, more.size + 1);
    }
    return true;
}

/* Processes a page's objects while the server makes the next page: that request is sent one turn of the loop after it
 * was made, so the page waits one more turn. */
static void on_digest(struct loop_task *t)
{
    struct kube_watch *w = container_of(t, struct kube_watch, digest);

    if (!w->is_asked) {
        w->is_asked = true;
        loop_task_add(w->loop, t);
        return;
    }
    struct jsonwalk i = jsonscan_walk(w->items);
    while (jsonscan_next(&i))
        if (*i.value.data == '{')
            w->on_object(w, i.value, false);
    buf_done(&w->page_text);
    if (w->more)
        return;
    w->synced = true;
    w->relist = false;
    w->n_lists++;
    well(w);
    w->on_listed(w);
    watch(w);
}

static void on_page(struct kube_call *call)
{
    struct kube_watch *w = container_of(call, struct kube_watch, call);
    const char *text = buf_string(&call->answer);
    struct jsonslice page = { text, call->answer.length };
    char why[240];

    w->status = call->status;
    w->retry_after_ms = call->retry_after_ms;
    if (call->status == 200 && jsonscan_is_object(text, call->answer.length)) {
        w->items = jsonscan_find(page, "items");
        if (w->items.data && (*w->items.data == '[' || *w->items.data == 'n') && take_head(w, page)) {
            w->page_text = call->answer;
            buf_init(&call->answer, 0);
            w->is_asked = !w->more;
            if (w->more)
                start_page(w);
            loop_task_add(w->loop, &w->digest);
            return;
        }
    }
    drop_page(w);
    drop_more(w);
    w->version[0] = '\0';
    if (call->status == 404 && w->on_absent)
        w->on_absent(w);
    if (call->status == 200)
        snprintf(why, sizeof why, "the answer is no list");
    else
        kube_call_text(call, why, sizeof why);
    later(w, why);
}

static void list(struct kube_watch *w)
{
    w->phase = KUBE_WATCH_LISTING;
    drop_more(w);
    w->on_listing(w);
    w->call.on_done = on_page;
    start_page(w);
}

/* ---- the watch ---- */

static void cut(struct kube_watch *w, const char *why)
{
    kube_call_cancel(&w->call);
    if (!w->status)
        w->status = 200;        /* it did answer */
    later(w, why);
}

/* False: stop reading this connection. */
static bool take_line(struct kube_watch *w, const char *line, size_t size)
{
    struct kube_line_parts parts;
    enum kube_line kind = kube_line_parse(line, size, &parts);

    switch (kind) {
    case KUBE_LINE_SET:
    case KUBE_LINE_DELETED:
        w->n_events++;
        w->is_heard = true;
        w->on_object(w, parts.object, kind == KUBE_LINE_DELETED);
        take_version(w, parts.version);
        well(w);
        return true;
    case KUBE_LINE_BOOKMARK:
        w->is_heard = true;
        take_version(w, parts.version);
        well(w);
        return true;
    case KUBE_LINE_EXPIRED:
        w->relist = true;
        w->status = 410;
        cut(w, "the version is too old; listing again");
        return false;
    case KUBE_LINE_ERROR: {
        char text[200];
        struct jsonslice message = jsonscan_find(parts.object, "message");
        w->retry_after_ms = parts.retry_after_ms;
        if (!jsonscan_text(message, text, sizeof text))
            snprintf(text, sizeof text, "the watch ended with an error");
        cut(w, text);
        return false;
    }
    default:
        cut(w, "a line of the watch is no event");
        return false;
    }
}

static void on_bytes(struct kube_call *call, const char *data, size_t size)
{
    struct kube_watch *w = container_of(call, struct kube_watch, call);
    const char *end;

    while ((end = memchr(data, '\n', size))) {
        size_t n = (size_t)(end - data);
        const char *line = data;
        size_t length = n;
        if (w->line.length > 0) {
            buf_add(&w->line, data, n);
            line = buf_string(&w->line);
            length = w->line.length;
        }
        if (buf_error(&w->line) < 0) {
            cut(w, "a line of the watch is too long");
            return;
        }
        if (length > 0 && !take_line(w, line, length))
            return;
        buf_clear(&w->line);
        data += n + 1;
        size -= n + 1;
    }
    buf_add(&w->line, data, size);
    if (w->line.length == 0 && w->line.capacity > 65536)
        buf_done(&w->line), buf_init(&w->line, LINE_MAX_BYTES);
}

static void on_watched(struct kube_call *call)
{
    struct kube_watch *w = container_of(call, struct kube_watch, call);
    char why[240];

    w->status = call->status;
    w->retry_after_ms = call->retry_after_ms;
    if (call->status == 410 || call->status == 404)
        w->relist = true;
    if (w->is_heard && loop_now_ms() - w->begun_ms >= STEADY_MS && (call->status == 200 || call->status == 0)) {
        watch(w);       /* its time was over, or the server ended; the first retry is immediate */
        return;
    }
    if (call->status == 200)
        snprintf(why, sizeof why, "the watch ended at once");
    else
        kube_call_text(call, why, sizeof why);
    later(w, why);
}

static void watch(struct kube_watch *w)
{
    char seconds[16];

    w->phase = KUBE_WATCH_WATCHING;
    w->is_heard = false;
    w->begun_ms = loop_now_ms();
    buf_done(&w->line);
    buf_init(&w->line, LINE_MAX_BYTES);
    snprintf(seconds, sizeof seconds, "%u", 300 + arc4random_uniform(300));
    free(w->call.path);
    w->call.path = kube_path("%r?watch=1&allowWatchBookmarks=true&timeoutSeconds=%r&resourceVersion=%s%r%r", w->path,
                             seconds, w->version, w->selector ? "&labelSelector=" : "", w->selector ? w->selector : "");
    w->call.method = "GET";
    w->call.on_data = on_bytes;
    w->call.on_done = on_watched;
    w->call.deadline_ms = 0;
    w->call.silence_ms = SILENCE_MS;
    if (!w->call.path)
        later(w, "memory");
    else
        kube_call_start(w->client, &w->call);
}

bool kube_watch_is_failing(const struct kube_watch *w)
{
    bool lasts = w->phase == KUBE_WATCH_WATCHING && w->call.status == 200 && loop_now_ms() - w->begun_ms >= STEADY_MS;

    return w->told && !lasts;
}

void kube_watch_start(struct kube_watch *w)
{
    w->again.on_expire = on_again;
    w->digest.on_run = on_digest;
    buf_init(&w->line, LINE_MAX_BYTES);
    list(w);
}

void kube_watch_stop(struct kube_watch *w)
{
    if (w->phase == KUBE_WATCH_OFF)
        return;
    loop_timer_cancel(w->loop, &w->again);
    kube_call_done(&w->call);
    drop_page(w);
    buf_done(&w->line);
    drop_more(w);
    w->phase = KUBE_WATCH_OFF;
}
