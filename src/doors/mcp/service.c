/* /mcp/services/NAME: the functions of a service as tools, for its owner and for holders of a grant. For a holder,
 * functions outside the grant do not exist; grants.c decides whether a function may be called. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/jsonout.h"
#include "doors/mcp/door.h"
#include "front/services/grants.h"
#include "front/services/services.h"

struct tool_call {
    struct mcp_call     *call;
    struct service_call *running;
};

static struct service *owned(const struct mcp_call *c)
{
    struct service *s = service_find(c->front, c->who.name, c->service);

    return s || !(c->who.scopes & SCOPE_ADMIN) ? s : service_find(c->front, NULL, c->service);
}

bool mcp_service_check(struct mcp_call *c)
{
    bool is_there;

    if (admitted_is_holder(&c->in)) {
        is_there = grants_name_service(c->front, &c->holder, c->service);
    } else {
        is_there = owned(c) && c->who.scopes & SCOPE_EXEC;
    }
    if (!is_there)
        mcp_refuse(c->r, 404, MCP_REFUSED, "there is no such service for you", NULL);
    return is_there;
}

void mcp_service_list(struct mcp_call *c)
{
    struct service *s = admitted_is_holder(&c->in) ? NULL : owned(c);
    json_t *functions = s              ? service_functions(s, NULL)
                        : admitted_is_holder(&c->in) ? grants_functions(c->front, &c->holder, c->service)
                                       : NULL;
    json_t *list = json_array(), *f;
    size_t i;

    json_array_foreach(functions, i, f) {
        json_t *schema = json_object_get(f, "input_schema");
        json_t *tool =
            json_pack("{s:O,s:o,s:o}", "name", json_object_get(f, "name"), "description",
                      json_incref(json_object_get(f, "doc")), "inputSchema",
                      json_is_object(schema) ? json_incref(schema) : json_pack("{s:s}", "type", "object"));
        if (tool && !json_is_string(json_object_get(tool, "description")))
            (void)!json_object_del(tool, "description");
        (void)!json_array_append_new(list, tool);
    }
    json_decref(functions);
    mcp_list_result(c, "tools", list);
}

/* ---- calls ---- */

static void on_gone(struct mcp_call *c)
{
    struct tool_call *w = c->work;

    if (w->running)
        service_call_abandon(w->running);
    w->running = NULL;
}

static void on_print(struct service_call *call, const char *stream, struct jsonslice text)
{
    struct tool_call *w = call->options.owner;

    (void)stream;
    mcp_progress(w->call, text.data, text.size);
}

/* A line about the service's box, as a text of its own: the function's result stays as it is. */
static void add_refused(struct buf *out, const struct service_call *call)
{
    const struct tool_call *w = call->options.owner;
    struct buf line;
    struct jsonout j;

    if (!call->refused)
        return;
    buf_init(&line, MCP_TEXT_MOST);
    mcp_add_refused(&line, w->call, call->service->box->id, call->refused);
    buf_add_text(out, ",{\"type\":\"text\",\"text\":");
    jsonout_init(&j, out);
    jsonout_bytes(&j, NULL, buf_string(&line), line.length);
    if (jsonout_finish(&j) < 0 && !out->failure)
        out->failure = EINVAL;
    buf_add_char(out, '}');
    buf_done(&line);
}

/* Answers a text as it is; other values as JSON, and also as structured content. */
static void answer_value(struct mcp_call *c, const struct service_call *call)
{
    const struct jsonslice value = call->result;
    struct buf out;
    struct jsonout j;
    bool is_text = jsonscan_inside(value).data != NULL;

    buf_init(&out, MCP_ANSWER_MOST);
    buf_add_text(&out, "\"content\":[{\"type\":\"text\",\"text\":");
    if (is_text) {
        buf_add(&out, value.data, value.size);
    } else {
        jsonout_init(&j, &out);
        jsonout_bytes(&j, NULL, value.data, value.size);
        if (jsonout_finish(&j) < 0 && !out.failure)
            out.failure = EINVAL;
    }
    buf_add_char(&out, '}');
    add_refused(&out, call);
    buf_add_text(&out, "],\"isError\":false");
    /* Before 2026 it could only be an object. */
    if (value.size && (c->m.is_modern ? !is_text : value.data[0] == '{')) {
        buf_add_text(&out, ",\"structuredContent\":");
        buf_add(&out, value.data, value.size);
    }
    if (buf_error(&out) < 0)
        mcp_tool_fail(c, "the result is too large for an answer");
    else
        mcp_result(c, out.data, out.length);
    buf_done(&out);
}

static void answer_error(struct mcp_call *c, const struct service_call *call)
{
    json_t *root = json_loadb(call->result.data, call->result.size, 0, NULL);
    const char *type = json_string_value(json_object_get(root, "type")),
               *message = json_string_value(json_object_get(root, "message")),
               *trace = json_string_value(json_object_get(root, "traceback"));
    struct buf text;

    buf_init(&text, MCP_TEXT_MOST);
    buf_printf(&text, "%s%s%s", type ? type : "", type ? ": " : "", message ? message : "");
    if (trace) {
        buf_add_text(&text, "\n\n");
        buf_add_text(&text, trace);
    }
    if (call->refused)
        buf_add_text(&text, "\n");
    mcp_add_refused(&text, c, call->service->box->id, call->refused);
    mcp_tool_result(c, buf_string(&text), NULL, true);
    buf_done(&text);
    json_decref(root);
}

static void on_over(struct service_call *call)
{
    struct tool_call *w = call->options.owner;
    struct mcp_call *c = w->call;

    w->running = NULL;
    c->on_gone = NULL;
    if (call->outcome == CALL_OK)
        answer_value(c, call);
    else if (call->outcome == CALL_ERROR || call->outcome == CALL_INVALID)
        answer_error(c, call);
    else
        mcp_tool_fail(c, "%s%s%s", call_outcome_name(call->outcome), call->reason ? ": " : "",
                      call->reason ? call->reason : "");
}

void mcp_service_call(struct mcp_call *c, const char *function, json_t *arguments)
{
    struct tool_call *w = arena_alloc(&c->r->arena, sizeof *w);
    struct service *s = NULL;
    struct grant *g = NULL;
    struct err e = { 0 };
    int r = 0;

    if (!w) {
        mcp_error(c, MCP_INTERNAL, "out of memory");
        return;
    }
    *w = (struct tool_call){ .call = c };
    if (admitted_is_holder(&c->in)) {
        r = grant_check(c->front, &c->holder, c->service, function, &g, &e);
        s = g ? g->service : NULL;
    } else {
        s = owned(c);
        if (!s || !service_function(s, function))
            r = err_set(&e, ENOENT, STEP_USAGE, "there is no function %.64s", function);
    }
    char *text = r == 0 ? arguments ? json_dumps(arguments, JSON_COMPACT) : strdup("{}") : NULL;
    struct call_options o = {
        .function = function,
        .who = c->who.name,
        .kwargs = { text, text ? strlen(text) : 0 },
        .owner = w,
        .on_end = on_over,
        .on_print = c->m.progress_token ? on_print : NULL,
    };
    c->work = w;
    if (r == 0) {
        if (g)
            grant_use(g);
        r = service_call_start(s, &o, &w->running, &e);
    }
    free(text);
    if (r == 0) {
        c->on_gone = on_gone;
        return;
    }
    if (r == -ENOENT)
        mcp_error(c, MCP_INVALID_PARAMS, "there is no tool %.100s; tools/list names those that there are", function);
    else
        mcp_tool_err(c, &e);
}
