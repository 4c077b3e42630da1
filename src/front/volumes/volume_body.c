/* A volume as JSON: for callers, and for its row. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "front/boxes/box_parts.h"
#include "front/front.h"
#include "front/volumes/volume_private.h"

uint64_t volume_number(const struct volume *v)
{
    return v->number;
}

const char *volume_id(const struct volume *v)
{
    return v->id;
}

bool volume_is_of(const struct volume *v, const char *owner)
{
    return strcmp(v->owner, owner) == 0;
}

bool volume_is_shared_with(const struct volume *v, const char *who)
{
    size_t i;
    json_t *one;

    if (json_is_string(v->shared))
        return true;
    json_array_foreach(v->shared, i, one)
        if (strcmp(json_string_value(one), who) == 0)
            return true;
    return false;
}

const char *volume_name_for(const struct volume *v, const char *viewer, char room[VOLUME_NAME_SIZE])
{
    if (strcmp(v->owner, viewer) == 0)
        return v->name;
    snprintf(room, VOLUME_NAME_SIZE, "%s/%s", v->owner, v->name);
    return room;
}

static json_t *boxes_of(const struct volume *v, const char *viewer, unsigned *ret_others)
{
    json_t *list = json_array();

    *ret_others = 0;
    for (const struct box *b = v->front->boxes.first; b; b = b->next) {
        const struct box_mounts *mounts = &b->settings.mounts;
        for (uint32_t i = 0; box_is_alive(b) && i < mounts->n; i++) {
            if (mounts->at[i].kind != MOUNT_VOLUME || mounts->at[i].number != v->number)
                continue;
            if (strcmp(b->owner, viewer) == 0)
                json_array_append_new(list, json_pack("{s:s,s:s?,s:b}", "id", b->id, "name", b->name, "read_only",
                                                      !mounts->at[i].writable));
            else
                ++*ret_others;
        }
    }
    return list;
}

json_t *volume_json(const struct volume *v, const char *viewer)
{
    char room[VOLUME_NAME_SIZE];
    unsigned others;
    bool is_own = strcmp(v->owner, viewer) == 0, is_limited = v->front->boxes.volumes != VOLUMES_FREE;
    json_t *o = json_object();

    json_object_set_new(o, "id", json_string(v->id));
    json_object_set_new(o, "name", json_string(volume_name_for(v, viewer, room)));
    json_object_set_new(o, "owner", json_string(v->owner));
    json_object_set_new(o, "phase", json_string(volume_state_names[v->state]));
    json_object_set_new(o, "size", json_integer((json_int_t)v->bytes));
    json_object_set_new(o, "size_is_enforced", json_boolean(is_limited));
    json_object_set_new(o, "used", is_limited ? json_integer((json_int_t)v->used_bytes) : json_null());
    json_object_set_new(o, "many", json_boolean(v->many));
    /* A reader has no business with the other readers. */
    json_object_set_new(o, "shared_with", is_own ? json_incref(v->shared) : json_null());
    json_object_set_new(o, "created_at", front_time_json(v->created_ms));
    json_object_set_new(o, "boxes", boxes_of(v, viewer, &others));
    json_object_set_new(o, "other_boxes", json_integer(others));
    return o;
}

json_t *volumes_json(struct front *front, const char *viewer, bool is_admin)
{
    json_t *list = json_array();

    for (const struct volume *v = front->volumes->first; v; v = v->next)
        if (is_admin || strcmp(v->owner, viewer) == 0 || volume_is_shared_with(v, viewer))
            json_array_append_new(list, volume_json(v, viewer));
    return list;
}

json_t *volume_row(const struct volume *v)
{
    return json_pack("{s:s,s:I,s:b,s:O,s:I}", "state", volume_state_names[v->state], "size", (json_int_t)v->bytes,
                     "many", v->many, "shared_with", v->shared, "created_ms", (json_int_t)v->created_ms);
}

int volume_from_row(struct volume *v, json_t *body)
{
    const char *state = json_string_value(json_object_get(body, "state"));
    json_t *shared = json_object_get(body, "shared_with");

    while (state && v->state < VOLUME_STATES && strcmp(volume_state_names[v->state], state) != 0)
        v->state++;
    if (!state || v->state == VOLUME_STATES || !(json_is_array(shared) || json_is_string(shared)))
        return -1;
    json_decref(v->shared);
    v->shared = json_incref(shared);
    v->bytes = (uint64_t)json_integer_value(json_object_get(body, "size"));
    v->many = json_is_true(json_object_get(body, "many"));
    v->created_ms = json_integer_value(json_object_get(body, "created_ms"));
    return 0;
}
