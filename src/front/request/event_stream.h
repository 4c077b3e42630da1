/* An answer of server-sent events. Embedded in its owner; the request's on_writable and on_end stay the owner's. */
#ifndef CARREL_FRONT_REQUEST_EVENT_STREAM_H
#define CARREL_FRONT_REQUEST_EVENT_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "http/loop.h"

struct http_request;

struct event_stream {
    struct http_request *r;             /* NULL: not begun */
    struct loop_timer    keepalive;     /* sends a comment now and then, so that no proxy drops the connection */
};

/* Answers 200 and begins; false: the connection is cut. */
bool event_stream_start(struct event_stream *s, struct http_request *r);
/* data: one line. False: the client does not take it for now (http_reply_room() arms on_writable), or is gone. */
bool event_stream_send(struct event_stream *s, uint64_t id, const char *type, const char *data, size_t size);
/* Call it in on_end. */
void event_stream_done(struct event_stream *s);

#endif
