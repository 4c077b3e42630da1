#include "front/request/event_stream.h"

#include <stdio.h>

#include "base/list.h"
#include "http/server.h"

enum { KEEPALIVE_MS = 15000 };

static void on_keepalive(struct loop_timer *t)
{
    struct event_stream *s = container_of(t, struct event_stream, keepalive);

    if (http_reply_room(s->r) > 0 && http_reply_write(s->r, ":\n\n", 3) < 0)
        return;
    loop_timer_set(s->r->loop, t, KEEPALIVE_MS);
}

bool event_stream_start(struct event_stream *s, struct http_request *r)
{
    *s = (struct event_stream){ .keepalive.on_expire = on_keepalive };
    if (http_reply_header(r, "Content-Type", "text/event-stream") < 0
        || http_reply_header(r, "Cache-Control", "no-store") < 0 || http_reply_start(r, 200, HTTP_CHUNKED) < 0
        || http_reply_write(r, ":\n\n", 3) < 0) {
        http_request_abort(r);
        return false;
    }
    s->r = r;
    loop_timer_set(r->loop, &s->keepalive, KEEPALIVE_MS);
    return true;
}

bool event_stream_send(struct event_stream *s, uint64_t id, const char *type, const char *data, size_t size)
{
    char head[128];
    int n = snprintf(head, sizeof head, "id: %llu\nevent: %.64s\ndata: ", (unsigned long long)id, type);
    const struct iovec v[] = { { head, (size_t)n },
                               { (void *)(uintptr_t)data, size },
                               { (void *)(uintptr_t) "\n\n", 2 } };

    return http_reply_writev(s->r, v, 3) == 0;
}

void event_stream_done(struct event_stream *s)
{
    if (s->r)
        loop_timer_cancel(s->r->loop, &s->keepalive);
    s->r = NULL;
}
