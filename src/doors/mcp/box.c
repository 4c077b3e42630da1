/* Tools for boxes: make, list, delete; and the choice of the box that another tool works in.
 *
 * A session's own box is found by a label, so it is still the session's after a restart of the server. */
#define _GNU_SOURCE
#include <stdio.h>
#include <errno.h>
#include <string.h>

#include "doors/mcp/door.h"
#include "front/boxes/box_request.h"
#include "front/kernels/kernels.h"

enum { IDLE_S = 1800 };
#define SESSION_LABEL "carrel/mcp-session"

static struct box *live_box(const struct mcp_call *c, const char *id)
{
    struct box *box = boxes_find(c->front, c->who.name, id);

    if (!box && (c->who.scopes & SCOPE_ADMIN))
        box = boxes_find(c->front, NULL, id);
    if (box && (box->phase == PHASE_DELETED || box->phase == PHASE_DELETING))
        box = NULL;
    return box;
}

static bool is_usable(const struct box *b)
{
    return b->phase == PHASE_CREATING || b->phase == PHASE_RUNNING || b->phase == PHASE_PAUSED;
}

/* NULL: the session has none; *ret_lost: it had one. */
static struct box *session_box(const struct mcp_call *c, bool *ret_lost)
{
    *ret_lost = false;
    for (struct box *b = c->session[0] ? c->front->boxes.first : NULL; b; b = b->next) {
        const char *label = json_string_value(json_object_get(b->settings.labels, SESSION_LABEL));
        if (!label || strcmp(label, c->session) != 0 || strcmp(b->owner, c->who.name) != 0)
            continue;
        if (is_usable(b))
            return b;
        *ret_lost = true;
    }
    return NULL;
}

/* The box named by the argument or by the address. NULL: *ret_named says whether one was named. */
static struct box *named_box(struct mcp_call *c, json_t *arguments, bool *ret_named)
{
    json_t *given = json_object_get(arguments, "box");
    const char *id = json_is_string(given) ? json_string_value(given) : c->box;
    struct box *box = id ? live_box(c, id) : NULL;

    *ret_named = given || c->box;
    if (given && c->box)
        mcp_tool_fail(c, "box is no argument here: there is one box");
    else if (given && !json_is_string(given))
        mcp_tool_fail(c, "box must be a string: the name or id of a box");
    else if (id && !box)
        mcp_tool_fail(c, "there is no box %.64s (any more)%s", id, c->box ? "" : "; leave `box` out to use your own");
    else
        return box;
    return NULL;
}

struct box *mcp_find_box(struct mcp_call *c, json_t *arguments)
{
    bool is_named, is_lost;
    struct box *box = named_box(c, arguments, &is_named);

    if (is_named)
        return box;
    box = session_box(c, &is_lost);
    if (!box)
        mcp_tool_fail(c, is_lost ? "the session's box is gone, with its files; run_code, run_command and write_file "
                                   "make a new one"
                                 : "there is no box yet; name one in `box`, or begin with run_code, run_command or "
                                   "write_file, which make one");
    return box;
}

void mcp_add_place(struct buf *out, const struct mcp_call *c, const char *box_id, uint64_t wall_ms)
{
    if (c->box)
        return;
    buf_printf(out, "[box %s%s", box_id,
               !c->is_new_box    ? ""
               : c->has_lost_box ? ", new: the earlier one is gone, with its variables and files"
               : c->session[0]   ? ", new"
                                 : ", new: name it in `box` to go on there");
    if (wall_ms != MCP_UNTIMED)
        buf_printf(out, ", %llu ms", (unsigned long long)wall_ms);
    buf_add_char(out, ']');
}

bool mcp_box_check(struct mcp_call *c)
{
    if (live_box(c, c->box))
        return true;
    mcp_refuse(c->r, 404, MCP_REFUSED, "there is no such box for you", NULL);
    return false;
}

const struct kernel *mcp_kernel_of(const struct mcp_call *c, struct box *box)
{
    return c->box ? kernel_in_box(box, "default") : NULL;
}

static void made_on_gone(struct mcp_call *c)
{
    struct box *box = boxes_by_number(c->front, c->making);
    struct err ignored;

    boxes_cancel(c->front, c);
    if (box && !json_object_get(box->settings.labels, SESSION_LABEL))       /* other calls of the session may wait for
                                                                             * it */
        (void)!box_delete(box, BOX_REASON_CALLER_GONE, NULL, NULL, &ignored);
}

static void on_made(struct box *box, const struct err *e, void *arg)
{
    struct mcp_call *c = arg;

    c->on_gone = NULL;
    c->making = 0;
    if (e)
        mcp_tool_err(c, e);
    else
        c->then(c, box);
}

/* asked: like the body of POST /v1/boxes. */
static void make(struct mcp_call *c, json_t *asked)
{
    if (asked && c->net)
        (void)!json_object_set(asked, "net", c->net);
    struct box_request body = { .front = c->front, .who = &c->who, .r = c->r };
    struct box *box = NULL;
    struct err e = { 0 };
    bool existed;
    int r = asked ? box_request_read(&body, asked, &e) : err_at(&e, ENOMEM, STEP_MEMORY, 0, "a box");

    if (r == 0)
        box_mounts_want_template(&body.settings.mounts);
    if (r == 0)
        r = boxes_create(c->front, c->who.name, c->who.uid, c->who.gid, body.name, NULL, &body.settings, on_made, c,
                         &box, &existed, &e);
    if (r < 0 || !box) {
        mcp_tool_err(c, &e);
        return;
    }
    c->making = box->number;
    c->is_new_box = true;
    c->on_gone = made_on_gone;
}

static void wait_for(struct mcp_call *c, struct box *box)
{
    c->making = box->number;
    c->on_gone = made_on_gone;
    box_wait(box, on_made, c);
}

void mcp_with_box(struct mcp_call *c, json_t *arguments, void (*then)(struct mcp_call *c, struct box *box))
{
    bool is_named;
    struct box *box = named_box(c, arguments, &is_named);

    if (!is_named)
        box = session_box(c, &c->has_lost_box);
    c->then = then;
    if (box && box->phase == PHASE_CREATING) {
        wait_for(c, box);
        return;
    }
    if (box)
        then(c, box);
    if (box || is_named)
        return;
    if (!(c->who.scopes & SCOPE_WRITE)) {
        mcp_tool_fail(c, "%s may not make boxes (its token lacks the scope boxes:write); name one in `box`",
                      c->who.name);
        return;
    }
    json_t *asked = json_pack("{s:i,s:{}}", "idle_timeout", IDLE_S, "labels");
    if (asked && c->session[0])
        (void)!json_object_set_new(json_object_get(asked, "labels"), SESSION_LABEL, json_string(c->session));
    make(c, asked);
    json_decref(asked);
}

/* ---- the tools ---- */

/* For the model: the box's name and state. */
static void add_line(struct buf *out, const struct box *box)
{
    const char *label = json_string_value(json_object_get(box->settings.labels, SESSION_LABEL));

    buf_printf(out, "box %s%s%s is %s%s\n", box->id, box->name ? ", named " : "", box->name ? box->name : "",
               phase_names[box->phase], label ? "; it is a session's own" : "");
}

static void reply_made(struct mcp_call *c, struct box *box)
{
    struct buf text;

    buf_init(&text, MCP_TEXT_MOST);
    add_line(&text, box);
    mcp_tool_result(c, buf_string(&text), box_json(box), false);
    buf_done(&text);
}

/* Settings as in the native API, but only a name, a ttl and limits: the rest, above all the network, is the user's
 * choice. NULL: answered. */
static json_t *create_settings(struct mcp_call *c, json_t *arguments)
{
    json_t *root = json_pack("{s:{}}", "limits"), *value;
    const char *key;

    json_object_foreach(arguments, key, value) {
        bool is_plain = strcmp(key, "name") == 0 || strcmp(key, "ttl") == 0;
        if (is_plain || limit_find(key, strlen(key))) {
            (void)!json_object_set(is_plain ? root : json_object_get(root, "limits"), key, value);
            continue;
        }
        mcp_tool_fail(c, strcmp(key, "net") == 0 ? "the user chooses the network of boxes; it is not an argument: %.64s"
                                                 : "create_box has no argument %.64s", key);
        json_decref(root);
        return NULL;
    }
    return root;
}

void mcp_create_box(struct mcp_call *c, json_t *arguments)
{
    json_t *root = create_settings(c, arguments);

    if (!root)
        return;
    c->then = reply_made;
    make(c, root);
    json_decref(root);
}

void mcp_list_boxes(struct mcp_call *c, json_t *arguments)
{
    json_t *list = json_array();
    struct buf text;

    (void)arguments;
    buf_init(&text, MCP_TEXT_MOST);
    for (const struct box *b = c->front->boxes.first; b; b = b->next)
        if (strcmp(b->owner, c->who.name) == 0 && b->phase != PHASE_DELETED) {
            (void)!json_array_append_new(list, box_json(b));
            add_line(&text, b);
        }
    mcp_tool_result(c, text.length ? text.data : "no boxes", json_pack("{s:o}", "boxes", list), false);
    buf_done(&text);
}

static void deleted_on_gone(struct mcp_call *c)
{
    boxes_cancel(c->front, c);
}

static void on_deleted(struct box *box, const struct err *e, void *arg)
{
    struct mcp_call *c = arg;
    char text[64];

    c->on_gone = NULL;
    snprintf(text, sizeof text, "box %s is deleted", box->id);
    if (e)
        mcp_tool_err(c, e);
    else
        mcp_tool_result(c, text, json_pack("{s:s}", "deleted", box->id), false);
}

void mcp_delete_box(struct mcp_call *c, json_t *arguments)
{
    struct err e = { 0 };
    struct box *box = mcp_find_box(c, arguments);

    if (!box)
        return;
    if (box_delete(box, BOX_REASON_DELETED, on_deleted, c, &e) < 0)
        mcp_tool_err(c, &e);
    else
        c->on_gone = deleted_on_gone;
}

static void on_session_over(struct box *box, const struct err *e, void *arg)
{
    struct mcp_call *c = arg;

    (void)box;
    (void)e;
    c->on_gone = NULL;
    if (http_reply(c->r, 204, NULL, NULL, 0) < 0)
        http_request_abort(c->r);
}

void mcp_end_session(struct mcp_call *c)
{
    bool is_lost;
    struct box *box = session_box(c, &is_lost);
    struct err e = { 0 };

    c->on_gone = deleted_on_gone;
    if (!box || box_delete(box, BOX_REASON_DELETED, on_session_over, c, &e) < 0)
        on_session_over(NULL, NULL, c);
}
