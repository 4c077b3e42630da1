/* From HTTP to a call. One endpoint serves the stateless revision and the older ones with a handshake (envelope.c tells
 * them apart). A session has no state but its box, which has the session's name as a label (box.c); so a restarted
 * server continues, and sessions of an earlier server remain valid.
 *
 * A call is cancelled when its client goes away, and by notifications/cancelled of the same caller and session. */
#define _GNU_SOURCE
#include "doors/mcp/mcp.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/jsonscan.h"
#include "base/list.h"
#include "doors/mcp/door.h"
#include "front/identity/caller.h"

#define PATH "/mcp"
#define SERVICES "/mcp/services/"
#define BOXES "/mcp/boxes/"
#define SESSION "Mcp-Session-Id"

/* ---- the life of a call ---- */

void mcp_call_done(struct mcp_call *c)
{
    if (c->back) {
        LIST_REMOVE(c);
        loop_timer_cancel(c->front->loop, &c->tick);
    }
    json_decref(c->m.root);
    json_decref(c->net);
    c->net = NULL;
    c->m = (struct mcp_envelope){ .is_modern = c->m.is_modern };
    (void)share_move_bytes(&c->r->share, c->weight, 0);
    c->weight = 0;
    buf_done(&c->pending);
    (void)mcp_keep(c, 0);
}

bool mcp_keep(struct mcp_call *c, size_t bytes)
{
    if (!share_move_bytes(&c->r->share, c->kept, bytes))
        return false;
    c->kept = bytes;
    return true;
}

static void stop(struct mcp_call *c)
{
    void (*on_gone)(struct mcp_call *) = c->on_gone;

    c->on_gone = NULL;
    if (on_gone)
        on_gone(c);
}

static void on_end(struct http_request *r, enum http_end how)
{
    struct mcp_call *c = r->owner;

    (void)how;
    stop(c);
    mcp_call_done(c);
}

static void keep(struct mcp_call *c)
{
    LIST_ADD(c->mcp->calls, c);
    c->tick.on_expire = mcp_on_tick;
    loop_timer_set(c->front->loop, &c->tick, MCP_TICK_MS);
}

/* Clients of one identity use the same request numbers, so only the session identifies a call. Clients of the stateless
 * revision have no session: they cancel by closing the connection. */
static bool may_cancel(const struct mcp_call *by, const struct mcp_call *c)
{
    return !c->is_over && !c->m.is_modern && strcmp(c->who.name, by->who.name) == 0
           && strcmp(c->session, by->session) == 0;
}

static void cancel(const struct mcp_call *by, json_t *id)
{
    struct mcp_call *next;

    for (struct mcp_call *c = by->mcp->calls; c; c = next) {
        next = c->next;
        if (may_cancel(by, c) && json_equal(c->m.id, id)) {
            stop(c);
            mcp_error(c, MCP_INTERNAL, "cancelled");
        }
    }
}

/* ---- methods ---- */

/* There are no resources or prompts, but their lists can be read. */
static json_t *capabilities(void)
{
    return json_pack("{s:{},s:{},s:{}}", "tools", "resources", "prompts");
}

/* A new reference. */
static json_t *instructions(const struct mcp_call *c)
{
    struct buf text;

    if (c->service)
        return json_string("Functions of one service. They run in an isolated box.");
    buf_init(&text, MCP_TEXT_MOST);
    buf_add_text(&text, c->box ? "One isolated box. Variables and files stay in it. "
                               : "Runs code in isolated boxes. The first call makes a box, and later calls go on in "
                                 "it: variables of run_code and files stay. The last line of a result names the box; "
                                 "pass another one in `box` to work there. A box that was idle for half an hour is "
                                 "deleted. A box sees no file of the host. ");
    mcp_add_reach(&text, c);
    json_t *said = json_string(buf_string(&text));
    buf_done(&text);
    return said;
}

static void discover(struct mcp_call *c)
{
    mcp_result_json(c, json_pack("{s:o,s:o,s:o,s:i,s:s}", "supportedVersions", mcp_versions_json(), "capabilities",
                                 capabilities(), "instructions", instructions(c), "ttlMs", MCP_FRESH_MS, "cacheScope",
                                 "private"));
}

static void initialize(struct mcp_call *c)
{
    const char *asked = json_string_value(json_object_get(c->m.params, "protocolVersion"));

    if (!asked) {
        mcp_error(c, MCP_INVALID_PARAMS, "params.protocolVersion must be a string");
        return;
    }
    /* An unknown revision is answered with the newest that has a handshake; the client decides. */
    const char *spoken = mcp_is_handshake_version(asked, strlen(asked)) ? asked : mcp_versions[1];
    char session[16];
    front_make_id('m', session);
    (void)http_reply_header(c->r, SESSION, session);
    mcp_result_json(c, json_pack("{s:s,s:o,s:{s:s,s:s},s:o}", "protocolVersion", spoken, "capabilities",
                                 capabilities(), "serverInfo", "name", "carrel", "version", CARREL_VERSION,
                                 "instructions", instructions(c)));
}

static void ping(struct mcp_call *c)
{
    mcp_result(c, "", 0);
}

static void no_resources(struct mcp_call *c)
{
    mcp_list_result(c, "resources", json_array());
}

static void no_templates(struct mcp_call *c)
{
    mcp_list_result(c, "resourceTemplates", json_array());
}

static void no_prompts(struct mcp_call *c)
{
    mcp_list_result(c, "prompts", json_array());
}

static const struct method {
    const char *name;
    bool        modern, handshake;
    void (*run)(struct mcp_call *c);
} methods[] = {
    { "server/discover", true, false, discover },
    { "initialize", false, true, initialize },
    { "ping", false, true, ping },
    { "tools/list", true, true, mcp_tools_list },
    { "tools/call", true, true, mcp_tools_call },
    { "resources/list", true, true, no_resources },
    { "resources/templates/list", true, true, no_templates },
    { "prompts/list", true, true, no_prompts },
};

static void run(struct mcp_call *c)
{
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (strcmp(methods[i].name, c->m.method) == 0 && (c->m.is_modern ? methods[i].modern : methods[i].handshake)) {
            keep(c);
            methods[i].run(c);
            return;
        }
    mcp_error(c, MCP_NO_METHOD, "there is no method %.100s here", c->m.method);
}

/* ---- the body ---- */

static void accepted(struct http_request *r)
{
    if (http_reply(r, 202, NULL, NULL, 0) < 0)
        http_request_abort(r);
}

/* The tree of a message may take a hundred times its size; it is charged before it is made. */
static bool charge(struct mcp_call *c, const char *data, size_t size)
{
    size_t weight = jsonscan_weight(data, size);

    if (!share_move_bytes(&c->r->share, 0, weight))
        return false;
    c->weight = weight;
    return true;
}

static void on_body(struct http_request *r, const struct http_collected *b, void *arg)
{
    struct mcp_call *c = r->owner;
    struct mcp_fault why;

    (void)arg;
    if (b->status) {
        mcp_refuse(r, b->status, b->status < 429 ? MCP_INVALID_REQUEST : MCP_REFUSED, b->why, NULL);
        return;
    }
    if (!charge(c, b->data, b->size)) {
        mcp_refuse(r, 429, MCP_REFUSED, SHARE_FULL, NULL);
        return;
    }
    switch (mcp_envelope_read(&r->head, b->data, b->size, &c->m, &why)) {
    case MCP_BAD:
        mcp_refuse(r, 400, why.code, why.text, c->m.id);
        break;
    case MCP_NOTIFICATION:
        if (strcmp(c->m.method, "notifications/cancelled") == 0)
            cancel(c, json_object_get(c->m.params, "requestId"));
        accepted(r);
        break;
    case MCP_ANSWER:        /* we have sent no request */
        accepted(r);
        break;
    case MCP_REQUEST:
        if (mcp_check(c))
            run(c);
        break;
    }
}

/* ---- letting in ---- */

static bool is_type(struct http_text list, const char *type)
{
    const char *at = list.data ? memmem(list.data, list.size, type, strlen(type)) : NULL;
    return at != NULL;
}

static bool read_head(struct mcp_call *c)
{
    struct http_request *r = c->r;
    struct http_text type = http_head_get(&r->head, "Content-Type"), accept = http_head_get(&r->head, "Accept");
    bool any = !accept.data || is_type(accept, "*/*");

    if (!http_text_is(r->head.method, "POST")) {
        (void)http_reply_header(r, "Allow", "POST, DELETE");
        mcp_refuse(r, 405, MCP_INVALID_REQUEST, "this endpoint takes POST, and DELETE for the end of a session", NULL);
        return false;
    }
    if (!mcp_is_media_type(type, "application/json")) {
        mcp_refuse(r, 415, MCP_INVALID_REQUEST, "Content-Type must be application/json", NULL);
        return false;
    }
    c->takes_stream = any || is_type(accept, "text/event-stream");
    if (any || c->takes_stream || is_type(accept, "application/json"))
        return true;
    mcp_refuse(r, 406, MCP_INVALID_REQUEST, "Accept must name application/json and text/event-stream", NULL);
    return false;
}

static bool admit(struct mcp_call *c)
{
    struct refusal why;
    /* Each tool has its own scopes. */
    bool is_in = c->holder.box ? caller_admit_holder(&c->in, &why) : caller_admit(&c->in, 0, &why);

    if (!is_in)
        mcp_refuse(c->r, why.status, MCP_REFUSED, why.why, NULL);
    return is_in;
}

static bool begins(struct http_text text, const char *with)
{
    size_t n = strlen(with);
    return text.size > n && memcmp(text.data, with, n) == 0;
}

/* ?tools=run_code,read_file: the tools to offer. */
static bool read_query(struct mcp_call *c)
{
    struct http_text only = { 0 };
    int r = c->r->head.query.data ? http_query_get(&c->r->arena, c->r->head.query, "tools", &only) : -ENOENT;

    if (r == 0 && !(c->only = arena_copy(&c->r->arena, only.data, only.size)))
        r = -ENOMEM;
    if (r == -ENOENT)
        return true;
    if (r == 0 && !c->service)
        return mcp_only_check(c);
    mcp_refuse(c->r, 400, MCP_INVALID_REQUEST, "tools= cannot be read, or is not for a service", NULL);
    return false;
}

/* DELETE by a client that had a handshake. */
static bool is_farewell(const struct mcp_call *c)
{
    return http_text_is(c->r->head.method, "DELETE") && !c->service && !c->box && c->session[0];
}

static void say_farewell(struct mcp_call *c)
{
    if (c->who.scopes & SCOPE_WRITE)
        mcp_end_session(c);
    else
        mcp_refuse(c->r, 403, MCP_REFUSED, "the token lacks the scope boxes:write, so the session's box stays", NULL);
}

/* Allowed by the protocol and as a label. */
static bool is_session(const char *text)
{
    size_t n = strlen(text);

    for (size_t i = 0; i < n; i++)
        if (text[i] <= ' ' || text[i] > '~')
            return false;
    return n <= 255;
}

/* inlet: the box whose inlet the request came over; NULL: it came over another listener. */
static bool begin(struct open_door *d, struct http_request *r, struct box *inlet)
{
    struct http_text path = r->head.path, session = http_head_get(&r->head, SESSION);
    bool of_service = begins(path, SERVICES), of_box = begins(path, BOXES);

    if (!of_service && !of_box && !http_text_is(path, PATH))
        return false;
    struct mcp_call *c = arena_alloc(&r->arena, sizeof *c);
    size_t n = of_service ? strlen(SERVICES) : of_box ? strlen(BOXES) : path.size;
    char *name = c ? arena_copy(&r->arena, path.data + n, path.size - n) : NULL;
    char *from = c ? arena_copy(&r->arena, session.data, session.size) : NULL;
    if (!c || !from || !name) {
        http_request_abort(r);
        return true;
    }
    *c = (struct mcp_call){ .mcp = d->state,
                            .front = d->front,
                            .r = r,
                            .holder.box = inlet,
                            .service = of_service ? name : NULL,
                            .box = of_box ? name : NULL,
                            .session = from };
    buf_init(&c->pending, MCP_ANSWER_MOST);
    r->owner = c;
    r->on_end = on_end;
    r->on_writable = mcp_on_writable;
    if (!is_session(from)) {
        mcp_refuse(r, 400, MCP_INVALID_REQUEST, SESSION " must be at most 255 visible ASCII characters", NULL);
        return true;
    }
    if (!admit(c))
        return true;
    if (is_farewell(c))
        say_farewell(c);
    else if (read_head(c) && (!c->service || mcp_service_check(c)) && (!c->box || mcp_box_check(c))
        && read_query(c) && mcp_net_read(c))
        http_body_collect(r, MCP_BODY_MOST, on_body, NULL);
    return true;
}

static bool dispatch(struct open_door *d, struct http_request *r)
{
    return begin(d, r, NULL);
}

/* Code in a box sees the services that the box was granted, and none of our tools. */
static bool dispatch_inlet(struct open_door *d, struct http_request *r, struct box *box)
{
    return begins(r->head.path, SERVICES) && begin(d, r, box);
}

static int open_mcp(struct open_door *d, struct err *e)
{
    d->state = calloc(1, sizeof(struct mcp));
    return d->state ? 0 : err_at(e, ENOMEM, STEP_MEMORY, 0, "the MCP door");
}

static void close_mcp(struct open_door *d)
{
    free(d->state);
}

static const char *const under[] = { PATH, NULL };

const struct door mcp_door = {
    .name = "mcp",
    .under = under,
    .open = open_mcp,
    .dispatch = dispatch,
    .dispatch_inlet = dispatch_inlet,
    .close = close_mcp,
};
