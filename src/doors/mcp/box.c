/* Boxes as tools: making, listing, deleting them; and the box that another tool works in. */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>

#include "doors/mcp/door.h"
#include "front/boxes/box_request.h"
#include "front/kernels/kernels.h"

enum { IDLE_S = 1800 };

static struct box *live_box(const struct mcp_call *c, const char *id)
{
    struct box *box = boxes_find(c->front, c->who.name, id);

    if (!box && (c->who.scopes & SCOPE_ADMIN))
        box = boxes_find(c->front, NULL, id);
    if (box && (box->phase == PHASE_DELETED || box->phase == PHASE_DELETING))
        box = NULL;
    return box;
}

struct box *mcp_find_box(struct mcp_call *c, const char *id)
{
    struct box *box = live_box(c, id);

    if (!box)
        mcp_tool_fail(c, "there is no box %.64s (any more)%s", id, c->box ? "" : "; without `box` a new one is made");
    return box;
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
    if (box)
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

/* asked: as the body of POST /v1/boxes. */
static void make(struct mcp_call *c, json_t *asked)
{
    struct box_request body = { .front = c->front, .who = &c->who, .r = c->r };
    struct box *box = NULL;
    struct err e = { 0 };
    bool existed;
    int r = asked ? box_request_read(&body, asked, &e) : err_at(&e, ENOMEM, STEP_MEMORY, 0, "a box");

    if (r == 0 && body.settings.template == 0)
        body.settings.template = 1;
    if (r == 0)
        r = boxes_create(c->front, c->who.name, c->who.uid, c->who.gid, body.name, NULL, &body.settings, on_made, c,
                         &box, &existed, &e);
    if (r < 0 || !box) {
        mcp_tool_err(c, &e);
        return;
    }
    c->making = box->number;
    c->on_gone = made_on_gone;
}

void mcp_with_box(struct mcp_call *c, const char *id, void (*then)(struct mcp_call *c, struct box *box))
{
    if (c->box && id) {
        mcp_tool_fail(c, "box is no argument here: there is one box");
        return;
    }
    if (id || c->box) {
        struct box *box = mcp_find_box(c, id ? id : c->box);
        if (box)
            then(c, box);
        return;
    }
    if (!(c->who.scopes & SCOPE_WRITE)) {
        mcp_tool_fail(c, "%s may not make boxes (its token lacks the scope boxes:write); name one in `box`",
                      c->who.name);
        return;
    }
    json_t *asked = json_pack("{s:i}", "idle_timeout", IDLE_S);
    c->then = then;
    make(c, asked);
    json_decref(asked);
}

/* ---- the tools ---- */

static void reply_made(struct mcp_call *c, struct box *box)
{
    char text[128];

    snprintf(text, sizeof text, "box %s is ready", box->name ? box->name : box->id);
    mcp_tool_result(c, text, box_json(box), false);
}

/* The names that a model is likely to use, as the native API has them. */
static json_t *create_settings(json_t *arguments)
{
    json_t *root = json_deep_copy(arguments), *in = json_object();

    for (size_t i = 0; i < LIMITS; i++) {
        const char *name = limit_table[i].name;
        json_t *value = json_object_get(root, name);
        if (value) {
            (void)!json_object_set(in, name, value);
            (void)!json_object_del(root, name);
        }
    }
    if (json_object_size(in) > 0)
        (void)!json_object_set(root, "limits", in);
    json_decref(in);
    return root;
}

void mcp_create_box(struct mcp_call *c, json_t *arguments)
{
    json_t *root = create_settings(arguments);

    c->then = reply_made;
    make(c, root);
    json_decref(root);
}

void mcp_list_boxes(struct mcp_call *c, json_t *arguments)
{
    json_t *list = json_array();
    char text[64];

    (void)arguments;
    for (const struct box *b = c->front->boxes.first; b; b = b->next)
        if (strcmp(b->owner, c->who.name) == 0 && b->phase != PHASE_DELETED)
            (void)!json_array_append_new(list, box_json(b));
    snprintf(text, sizeof text, "%zu boxes", json_array_size(list));
    mcp_tool_result(c, text, json_pack("{s:o}", "boxes", list), false);
}

static void deleted_on_gone(struct mcp_call *c)
{
    boxes_cancel(c->front, c);
}

static void on_deleted(struct box *box, const struct err *e, void *arg)
{
    struct mcp_call *c = arg;

    c->on_gone = NULL;
    if (e)
        mcp_tool_err(c, e);
    else
        mcp_tool_result(c, "the box is gone", json_pack("{s:s}", "deleted", box->id), false);
}

void mcp_delete_box(struct mcp_call *c, json_t *arguments)
{
    const char *id = json_string_value(json_object_get(arguments, "box"));
    struct err e = { 0 };

    if (!id) {
        mcp_tool_fail(c, "box must be a string: the name or id of a box");
        return;
    }
    struct box *box = mcp_find_box(c, id);
    if (!box)
        return;
    if (box_delete(box, BOX_REASON_DELETED, on_deleted, c, &e) < 0)
        mcp_tool_err(c, &e);
    else
        c->on_gone = deleted_on_gone;
}
