/* Answers. If a call ends before it sent anything, the answer is JSON with a meaningful status; the first notification,
 * or the first tick of a long call, turns the answer into a stream of events with status 200. So no tool has to choose,
 * and no proxy sees a connection that is silent for long. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/jsonout.h"
#include "base/list.h"
#include "doors/mcp/door.h"

#define JSON_TYPE "application/json"

/* ---- the stream ---- */

static bool commit_stream(struct mcp_call *c)
{
    struct http_request *r = c->r;

    if (c->is_streaming)
        return true;
    if (!c->takes_stream)
        return false;
    if (http_reply_header(r, "Content-Type", "text/event-stream") < 0
        || http_reply_header(r, "Cache-Control", "no-cache, no-transform") < 0
        || http_reply_header(r, "X-Accel-Buffering", "no") < 0 || http_reply_start(r, 200, HTTP_CHUNKED) < 0) {
        http_request_abort(r);
        return false;
    }
    c->is_streaming = true;
    return true;
}

static void end_stream(struct mcp_call *c)
{
    struct http_request *r = c->r;

    mcp_call_done(c);
    http_reply_finish(r);
}

void mcp_on_writable(struct http_request *r)
{
    struct mcp_call *c = r->owner;

    if (c->pending.length == 0)
        return;
    (void)mcp_keep(c, 0);       /* the server charges what it has taken */
    if (http_reply_write(r, c->pending.data, c->pending.length) < 0) {
        (void)mcp_keep(c, c->pending.length);
        return;
    }
    buf_clear(&c->pending);
    if (c->is_over)
        end_stream(c);
}

void mcp_on_tick(struct loop_timer *t)
{
    struct mcp_call *c = container_of(t, struct mcp_call, tick);

    if (c->is_over)
        return;
    if (commit_stream(c) && c->pending.length == 0)
        (void)!http_reply_write(c->r, ": ping\n\n", 8);
    loop_timer_set(c->front->loop, t, MCP_TICK_MS);
}

/* ---- messages ---- */

static void message_begin(struct buf *out, json_t *id)
{
    char *text = id ? json_dumps(id, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;

    buf_add_text(out, "{\"jsonrpc\":\"2.0\",\"id\":");
    buf_add_text(out, text ? text : "null");
    free(text);
}

/* Values of a kernel or a worker are passed on unchanged, and their JSON may have line ends between tokens. A reader by
 * lines would take the rest for another message. Strings have no raw line ends. */
static void make_one_line(struct buf *message)
{
    for (size_t i = 0; i < message->length; i++)
        if (message->data[i] == '\n' || message->data[i] == '\r')
            message->data[i] = ' ';
}

static void send_whole(struct mcp_call *c, int status, const struct buf *message)
{
    struct http_request *r = c->r;
    json_t *id = json_incref(c->m.id);

    mcp_call_done(c);
    if (message->length > SHARE_SMALL_BYTES && !share_fits(&r->share, message->length + SHARE_SMALL_BYTES))
        mcp_refuse(r, 429, MCP_REFUSED, "too much waits for you to take it already; read it, or ask for less", id);
    else if (http_reply(r, status, JSON_TYPE, message->data, message->length) < 0)
        http_request_abort(r);
    json_decref(id);
}

/* The call's last message. */
static void send_last(struct mcp_call *c, int status, struct buf *message)
{
    struct http_request *r = c->r;

    c->on_gone = NULL;
    (void)mcp_keep(c, 0);
    if (buf_error(message) < 0) {
        http_request_abort(r);
        return;
    }
    make_one_line(message);
    if (!c->is_streaming) {
        send_whole(c, status, message);
        return;
    }
    struct buf *out = &c->pending;
    buf_add_text(out, "event: message\ndata: ");
    buf_add(out, message->data, message->length);
    buf_add_text(out, "\n\n");
    c->is_over = true;
    if (buf_error(out) < 0) {
        http_request_abort(r);
    } else if (http_reply_write(r, out->data, out->length) == 0) {
        buf_clear(out);
        end_stream(c);
    } else if (!mcp_keep(c, out->length)) {
        http_request_abort(r);
    }       /* otherwise mcp_on_writable() ends it */
}

void mcp_result(struct mcp_call *c, const char *members, size_t size)
{
    struct buf out;

    buf_init(&out, MCP_ANSWER_MOST);
    message_begin(&out, c->m.id);
    buf_add_text(&out, ",\"result\":{");
    if (c->m.is_modern)
        buf_add_text(&out, "\"resultType\":\"complete\",\"_meta\":{\"io.modelcontextprotocol/serverInfo\":"
                           "{\"name\":\"carrel\",\"version\":\"" CARREL_VERSION "\"}}");
    if (c->m.is_modern && size)
        buf_add_char(&out, ',');
    buf_add(&out, members, size);
    buf_add_text(&out, "}}");
    send_last(c, 200, &out);
    buf_done(&out);
}

void mcp_result_json(struct mcp_call *c, json_t *object)
{
    char *text = object ? json_dumps(object, MCP_DUMP) : NULL;
    size_t n = text ? strlen(text) : 0;

    json_decref(object);
    if (text)
        mcp_result(c, text + 1, n - 2);
    else
        mcp_error(c, MCP_INTERNAL, "out of memory");
    free(text);
}

static int status_of(int code)
{
    switch (code) {
    case MCP_NO_METHOD:
        return 404;
    case MCP_REFUSED:
        return 403;
    case MCP_PARSE:
    case MCP_INVALID_REQUEST:
    case MCP_INVALID_PARAMS:
    case MCP_HEADER_MISMATCH:
    case MCP_MISSING_CAPABILITY:
    case MCP_UNSUPPORTED_VERSION:
        return 400;
    default:
        return 200;
    }
}

static void add_error(struct buf *out, json_t *id, int code, const char *message, json_t *data)
{
    struct jsonout j;
    char *text = data ? json_dumps(data, MCP_DUMP) : NULL;

    message_begin(out, id);
    buf_printf(out, ",\"error\":{\"code\":%d,\"message\":", code);
    jsonout_init(&j, out);
    jsonout_string(&j, NULL, message);
    if (jsonout_finish(&j) < 0 && !out->failure)
        out->failure = EINVAL;
    if (text) {
        buf_add_text(out, ",\"data\":");
        buf_add_text(out, text);
    }
    buf_add_text(out, "}}");
    free(text);
    json_decref(data);
}

void mcp_error_data(struct mcp_call *c, int code, const char *message, json_t *data)
{
    struct buf out;

    buf_init(&out, MCP_ANSWER_MOST);
    add_error(&out, c->m.id, code, message, data);
    /* Handshake revisions use status 200 for JSON-RPC errors; their clients ignore bodies of other statuses. */
    send_last(c, c->m.is_modern || code == MCP_HEADER_MISMATCH ? status_of(code) : 200, &out);
    buf_done(&out);
}

void mcp_error(struct mcp_call *c, int code, const char *format, ...)
{
    char text[512];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    mcp_error_data(c, code, text, NULL);
}

void mcp_refuse(struct http_request *r, int status, int code, const char *message, json_t *id)
{
    struct buf out;

    buf_init(&out, 65536);
    add_error(&out, id, code, message, NULL);
    if (buf_error(&out) < 0 || http_reply(r, status, JSON_TYPE, out.data, out.length) < 0)
        http_request_abort(r);
    buf_done(&out);
}

void mcp_progress(struct mcp_call *c, const char *text, size_t size)
{
    struct buf out;

    if (!c->m.progress_token || c->is_over || c->pending.length || !commit_stream(c))
        return;
    char *token = json_dumps(c->m.progress_token, JSON_COMPACT | JSON_ENCODE_ANY);
    buf_init(&out, MCP_TEXT_MOST);
    buf_printf(&out, "event: message\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":"
                     "{\"progressToken\":%s,\"progress\":%llu,\"message\":", token ? token : "null",
               (unsigned long long)++c->progress);
    buf_add(&out, text, size);
    buf_add_text(&out, "}}\n\n");
    /* Only a hint: if the client does not take it, it is dropped. */
    if (token && buf_error(&out) == 0)
        (void)!http_reply_write(c->r, out.data, out.length);
    buf_done(&out);
    free(token);
}

/* ---- results of tools ---- */

void mcp_tool_result(struct mcp_call *c, const char *text, json_t *structured, bool is_error)
{
    mcp_tool_text(c, json_string(text), structured, is_error);
}

void mcp_tool_text(struct mcp_call *c, json_t *text, json_t *structured, bool is_error)
{
    json_t *content = json_pack("[{s:s,s:o}]", "type", "text", "text", text);
    json_t *result = json_pack("{s:o,s:b}", "content", content, "isError", is_error);

    if (structured && result)
        (void)!json_object_set(result, "structuredContent", structured);
    json_decref(structured);
    mcp_result_json(c, result);
}

void mcp_tool_fail(struct mcp_call *c, const char *format, ...)
{
    char text[1024];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    mcp_tool_result(c, text, NULL, true);
}

void mcp_tool_err(struct mcp_call *c, const struct err *e)
{
    char text[512];

    err_text(e, text, sizeof text);
    mcp_tool_result(c, text, NULL, true);
}
