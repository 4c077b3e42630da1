/* /v1/layers: the caller's layers of packages that this server has. Those of others do not exist, for an admin
 * neither. */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>

#include "doors/native/door.h"
#include "front/boxes/box_layers.h"

static void forget_calls(struct ask *a, enum http_end how)
{
    (void)how;
    layers_ask_cancel(a->front, a);
}

static json_t *boxes_of(const struct ask *a, const char *digest)
{
    json_t *boxes = json_array();

    for (const struct box *b = NULL; (b = box_layers_user(a->front, a->who.name, digest, b));)
        if (strcmp(b->owner, a->who.name) == 0)
            json_array_append_new(boxes, json_string(b->id));
    return boxes;
}

static void on_listed(json_t *answer, const struct err *e, void *arg)
{
    struct ask *a = arg;
    json_t *list, *one;
    size_t i;

    a->on_end = NULL;
    if (e) {
        reply_err(a, e);
        return;
    }
    list = json_array();
    json_array_foreach(answer, i, one) {
        const char *digest = json_string_value(json_object_get(one, "layer"));
        if (digest)
            json_array_append_new(list, json_pack("{s:s,s:O,s:O,s:O,s:O,s:O,s:O,s:o}", "id", digest, "python",
                                                  json_object_get(one, "python"), "packages",
                                                  json_object_get(one, "packages"), "versions",
                                                  json_object_get(one, "versions"), "bytes",
                                                  json_object_get(one, "bytes"), "used_at",
                                                  json_object_get(one, "used"), "path", json_object_get(one, "path"),
                                                  "boxes", boxes_of(a, digest)));
    }
    reply_json(a, 200, json_pack("{s:o}", "layers", list));
}

static void on_removed(json_t *answer, const struct err *e, void *arg)
{
    struct ask *a = arg;

    (void)answer;
    a->on_end = NULL;
    if (e)
        reply_err(a, e);
    else
        reply_none(a);
}

void ask_layer_list(struct ask *a)
{
    static const char *const known[] = { NULL };
    struct err e = { 0 };

    if (!query_only(a, known))
        return;
    if (layers_list(a->front, a->who.name, on_listed, a, &e) < 0)
        reply_err(a, &e);
    else
        a->on_end = forget_calls;
}

void ask_layer_delete(struct ask *a)
{
    struct err e = { 0 };

    if (box_layers_remove(a->front, a->who.name, http_match_get(a->match, "layer").data, on_removed, a, &e) < 0)
        reply_err(a, &e);
    else
        a->on_end = forget_calls;
}
