/* Calls of functions: /v1/services/NAME/call for the service's owner, /v1/grant/call for holders of a grant. Arguments
 * and results are passed on unchanged; the worker checks them. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/jsonout.h"
#include "doors/native/services/service.h"
#include "proto/link.h"
#include "proto/service.h"

enum { PRINTS_MOST = 64 << 10, ANSWER_MOST = LINK_MESSAGE_MOST + 2 * PRINTS_MOST + 4096 };

struct api_call {
    struct lines         lines;         /* first: lines.c */
    struct ask          *ask;
    struct service_call *call;          /* NULL: over */
    bool                 stream;
    bool                 prints, is_cut;
    struct buf           printed[SERVICE_STREAMS];      /* the insides of JSON strings */
    size_t               charged;
};

/* ---- the body ---- */

static int take_timeout(struct jsonslice value, uint64_t *ret, struct err *e)
{
    json_t *v = json_loadb(value.data, value.size, JSON_DECODE_ANY, NULL);
    int r = json_is_null(v) ? 0 : body_duration("timeout", v, ret, e);

    json_decref(v);
    return r;
}

static bool is_kind(struct jsonslice value, char first)
{
    return value.size > 0 && value.data[0] == first;
}

int call_body_read(const char *data, size_t size, bool with_service, struct call_body *b, struct err *e)
{
    struct jsonwalk w = jsonscan_walk((struct jsonslice){ data, size });
    int r = 0;

    *b = (struct call_body){ 0 };
    while (r == 0 && jsonscan_next(&w)) {
        struct jsonslice name = w.key, value = w.value;
        bool is_null = value.size == 4 && memcmp(value.data, "null", 4) == 0;
        if (jsonscan_is(name, "function")) {
            if (!jsonscan_text(value, b->function, sizeof b->function))
                r = err_set(e, EINVAL, STEP_USAGE, "function must be a name");
        } else if (with_service && jsonscan_is(name, "service")) {
            if (!is_null && !jsonscan_text(value, b->service, sizeof b->service))
                r = err_set(e, EINVAL, STEP_USAGE, "service must be a name");
        } else if (jsonscan_is(name, "args")) {
            if (!is_null && !is_kind(value, '['))
                r = err_set(e, EINVAL, STEP_USAGE, "args must be a list");
            b->args = is_null ? (struct jsonslice){ 0 } : value;
        } else if (jsonscan_is(name, "kwargs")) {
            if (!is_null && !is_kind(value, '{'))
                r = err_set(e, EINVAL, STEP_USAGE, "kwargs must be an object");
            b->kwargs = is_null ? (struct jsonslice){ 0 } : value;
        } else if (jsonscan_is(name, "timeout")) {
            r = take_timeout(value, &b->timeout_ms, e);
        } else if (jsonscan_is(name, "prints")) {
            b->prints = is_kind(value, 't');
            if (!b->prints && !is_kind(value, 'f') && !is_null)
                r = err_set(e, EINVAL, STEP_USAGE, "prints must be true or false");
        } else {
            char text[40] = "?";
            (void)jsonscan_text(name, text, sizeof text);
            r = err_set(e, EINVAL, STEP_USAGE, "unknown field '%s'", text);
        }
    }
    if (r == 0 && !b->function[0])
        r = err_set(e, EINVAL, STEP_USAGE, "function is missing: name the function to call");
    return r;
}

/* ---- the answer ---- */

static void add_prints(struct buf *out, const struct api_call *w)
{
    for (unsigned i = 0; i < SERVICE_STREAMS && w->prints; i++) {
        buf_printf(out, "\"%s\":\"", service_stream_name((enum service_stream)i));
        buf_add(out, buf_string(&w->printed[i]), w->printed[i].length);
        buf_add_text(out, "\",");
    }
    if (w->prints)
        buf_add_text(out, w->is_cut ? "\"truncated\":true," : "\"truncated\":false,");
}

static void drop_prints(struct api_call *w)
{
    for (unsigned i = 0; i < SERVICE_STREAMS && w->prints; i++)
        buf_done(&w->printed[i]);
    if (w->prints)
        (void)share_move_bytes(&w->ask->r->share, w->charged, 0);
    w->charged = 0;
    w->prints = false;
}

static void add_members(struct buf *out, const struct service_call *c)
{
    char *refused = c->refused ? json_dumps(c->refused, JSON_COMPACT) : NULL;

    buf_add_text(out, c->outcome == CALL_OK ? "\"ok\":true,\"result\":" : "\"ok\":false,\"error\":");
    buf_add(out, c->result.data, c->result.size);
    if (refused)
        buf_printf(out, ",\"refused\":%s", refused);
    free(refused);
    buf_add_char(out, '}');
}

/* A failure outside of the function: status, code, sentence, details. */
static int refusal(const struct service_call *c, const char **ret_code, char *text, size_t size, json_t **ret_details)
{
    json_t *about = c->result.data ? json_loadb(c->result.data, c->result.size, 0, NULL) : NULL;
    const char *said = json_string_value(json_object_get(about, "message"));

    *ret_details = NULL;
    switch (c->outcome) {
    case CALL_INVALID:
        snprintf(text, size, "%s", said ? said : "the arguments do not fit");
        *ret_code = "invalid_arguments";
        *ret_details = about;
        return 422;
    case CALL_TIMEOUT:
        snprintf(text, size, "the function did not return in time and was interrupted");
        *ret_code = "timeout";
        *ret_details = c->refused ? json_pack("{s:O}", "refused", c->refused) : NULL;
        break;
    case CALL_DIED:
        snprintf(text, size, "the service's worker died: %s", c->reason);
        *ret_code = "worker_died";
        *ret_details = json_pack("{s:s,s:s,s:O*}", "outcome", outcome_name(c->died), "reason", c->reason, "refused",
                                 c->refused);
        break;
    default:
        snprintf(text, size, "the service is not there any more: %s", c->reason ? c->reason : "it has ended");
        *ret_code = "ended";
        break;
    }
    json_decref(about);
    return c->outcome == CALL_TIMEOUT ? 504 : c->outcome == CALL_DIED ? 502 : 409;
}

static void end_stream(struct api_call *w, const struct service_call *c)
{
    struct buf line;

    buf_init(&line, ANSWER_MOST);
    if (c->outcome <= CALL_ERROR) {
        buf_add_text(&line, "{\"type\":\"result\",");
        add_members(&line, c);
    } else {
        const char *code;
        char text[512];
        json_t *details;
        int status = refusal(c, &code, text, sizeof text, &details);
        json_t *error = json_pack("{s:s,s:i,s:{s:s,s:s,s:o}}", "type", "error", "status", status, "error", "code", code,
                                  "message", text, "details", details ? details : json_object());
        char *dump = error ? json_dumps(error, ASK_DUMP) : NULL;
        buf_add_text(&line, dump ? dump : "{}");
        free(dump);
        json_decref(error);
    }
    if (line.failure)
        http_request_abort(w->ask->r);
    else
        lines_put(&w->lines, line.data, line.length);
    buf_done(&line);
    lines_end(&w->lines);
}

static void on_over(struct service_call *c)
{
    struct api_call *w = c->options.owner;
    struct ask *a = w->ask;
    struct buf out;

    w->call = NULL;
    if (w->stream) {
        end_stream(w, c);
        return;
    }
    a->on_end = NULL;
    if (c->outcome > CALL_ERROR) {
        const char *code;
        char text[512];
        json_t *details;
        drop_prints(w);
        int status = refusal(c, &code, text, sizeof text, &details);
        error_reply(a->r, status, code, text, details);
        return;
    }
    buf_init(&out, ANSWER_MOST);
    buf_add_char(&out, '{');
    add_prints(&out, w);
    add_members(&out, c);
    drop_prints(w);
    reply_buf(a, 200, &out);
}

static void on_print(struct service_call *c, const char *stream, struct jsonslice text)
{
    struct api_call *w = c->options.owner;

    lines_print(&w->lines, stream, text);
}

/* For the answer, which has the beginning of each stream. */
static void keep_print(struct service_call *c, const char *stream, struct jsonslice text)
{
    struct api_call *w = c->options.owner;
    struct buf *out = &w->printed[strcmp(stream, service_stream_name(SERVICE_STDERR)) == 0];
    struct jsonslice inside = jsonscan_inside(text);
    size_t all = w->printed[0].length + w->printed[1].length;

    w->is_cut |= inside.size > PRINTS_MOST - out->length ||
                 !share_move_bytes(&w->ask->r->share, w->charged, all + inside.size);
    if (w->is_cut)
        return;
    w->charged = all + inside.size;
    buf_add(out, inside.data, inside.size);
}

static void on_end(struct ask *a, enum http_end how)
{
    struct api_call *w = a->work;

    (void)how;
    if (w->call)
        service_call_abandon(w->call);
    w->call = NULL;
    drop_prints(w);
    lines_done(&w->lines);
}

void call_begin(struct ask *a, struct service *s, struct call_options *o, bool prints)
{
    struct api_call *w = arena_alloc(&a->r->arena, sizeof *w);
    struct err e = { 0 };

    if (!w) {
        http_request_abort(a->r);
        return;
    }
    *w = (struct api_call){ .ask = a, .stream = ask_accepts(a, "application/x-ndjson") };
    w->prints = prints && !w->stream;
    for (unsigned i = 0; i < SERVICE_STREAMS && w->prints; i++)
        buf_init(&w->printed[i], PRINTS_MOST);
    a->work = w;
    o->owner = w;
    o->on_end = on_over;
    o->on_print = w->stream ? on_print : w->prints ? keep_print : NULL;
    if (service_call_start(s, o, &w->call, &e) < 0) {
        drop_prints(w);
        reply_err(a, &e);
        return;
    }
    a->on_end = on_end;
    if (w->stream)
        (void)lines_start(&w->lines, a);        /* service_call_start causes no event before it returns */
}

/* ---- the two ways ---- */

static void call_own(struct ask *a, const char *data, size_t size)
{
    struct service *s = ask_service(a, http_match_get(a->match, "service").data);
    struct call_body b;
    struct err e = { 0 };

    if (!s)
        return;
    if (call_body_read(data, size, false, &b, &e) < 0) {
        reply_err(a, &e);
        return;
    }
    struct call_options o = { .function = b.function, .who = a->who.name, .args = b.args, .kwargs = b.kwargs,
                              .timeout_ms = b.timeout_ms };
    call_begin(a, s, &o, b.prints);
}

void ask_service_call(struct ask *a)
{
    body_raw(a, SERVICE_CALL_BYTES, call_own);
}

static void call_granted(struct ask *a, const char *data, size_t size)
{
    struct grant *g = NULL;
    struct call_body b;
    struct err e = { 0 };
    int r = call_body_read(data, size, true, &b, &e);

    if (r == 0)
        r = grant_check(a->front, &a->holder, b.service[0] ? b.service : NULL, b.function, &g, &e);
    if (r < 0) {
        reply_err(a, &e);
        return;
    }
    char who[96];
    snprintf(who, sizeof who, "%s", a->who.name);
    struct call_options o = { .function = b.function, .who = who, .args = b.args, .kwargs = b.kwargs,
                              .timeout_ms = b.timeout_ms };
    grant_use(g);
    call_begin(a, g->service, &o, b.prints);
}

void ask_grant_call(struct ask *a)
{
    body_raw(a, SERVICE_CALL_BYTES, call_granted);
}

void ask_grant_own(struct ask *a)
{
    reply_json(a, 200, json_pack("{s:o}", "services", grants_of(a->front, &a->holder)));
}
