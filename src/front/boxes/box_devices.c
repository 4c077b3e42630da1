#define _GNU_SOURCE
#include "front/boxes/box_devices.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/parse.h"
#include "devices/cdi_host.h"
#include "front/front.h"

void box_devices_open(struct front *front)
{
    if (!front->config.device_kinds[0])
        return;
    front->devices = calloc(1, sizeof *front->devices);
    if (front->devices)
        devices_read(false, front->devices);
    if (front->devices && front->devices->n_wrong)
        front_log("warning", "a specification of devices cannot be used", "why", front->devices->wrong.what, NULL);
}

void box_devices_free(struct front *front)
{
    if (front->devices)
        devices_free(front->devices);
    free(front->devices);
    front->devices = NULL;
}

static bool is_allowed(const struct front *front, const char *name)
{
    char kind[CDI_NAME_MAX];

    snprintf(kind, sizeof kind, "%.*s", (int)strcspn(name, "="), name);
    return front->devices && cdi_kind_is_allowed(front->config.device_kinds, kind);
}

int box_devices_take(const struct front *front, const char *name, json_t *value, struct box_mounts *into,
                     struct err *e)
{
    const struct cdi_file *file;
    const struct cdi_device *device;
    size_t i;
    json_t *one;

    if (!json_is_array(value) || json_array_size(value) > KEEPER_DEVICES)
        return err_set(e, EINVAL, STEP_USAGE, "%s must be a list of at most %d names", name, KEEPER_DEVICES);
    json_array_foreach(value, i, one) {
        const char *text = json_string_value(one);
        if (!text || !cdi_name_is_valid(text))
            return err_set(e, EINVAL, STEP_USAGE, "%s[%zu] must be a name like vendor.com/class=device", name, i);
        if (!is_allowed(front, text))
            return err_set(e, EPERM, STEP_USAGE, "%s: devices like %s are not allowed on this server (devices.allow)",
                           name, parse_quote(text).text);
        int r = devices_find(front->devices, text, &file, &device, e);
        if (r == -ENOENT)
            e->code = EINVAL;       /* the request is wrong, not its address */
        if (r < 0)
            return -e->code;
        r = box_mounts_add(into, MOUNT_DEVICE, 0, text, NULL, NULL, e);
        if (r < 0)
            return r;
    }
    return 0;
}

static int add_variables(const struct cdi_edits *edits, json_t *env)
{
    int r = 0;

    for (size_t i = 0; i < edits->n_env && r == 0; i++) {
        const char *equals = strchr(edits->env[i], '=');
        char name[256];
        if (snprintf(name, sizeof name, "%.*s", (int)(equals - edits->env[i]), edits->env[i]) >= (int)sizeof name)
            continue;
        if (!json_object_get(env, name))
            r = json_object_set_new(env, name, json_string(equals + 1));
    }
    return r;
}

int box_devices_env(const struct front *front, struct box_settings *s, struct err *e)
{
    const struct cdi_file *file;
    const struct cdi_device *device;

    if (!box_mounts_count(&s->mounts, MOUNT_DEVICE))
        return 0;
    json_t *env = s->env ? json_deep_copy(s->env) : json_object();
    int r = env ? 0 : -1;
    for (uint32_t i = 0; i < s->mounts.n; i++) {
        const struct box_mount *m = &s->mounts.at[i];
        if (m->kind == MOUNT_DEVICE && r == 0 && (r = devices_find(front->devices, m->target, &file, &device, e)) == 0
            && (r = add_variables(&device->edits, env)) == 0)
            r = add_variables(&file->edits, env);
    }
    json_decref(s->env);
    s->env = env;
    return r < 0 ? err_set(e, EINVAL, STEP_USAGE, "devices: a variable of theirs is not UTF-8") : 0;
}

struct listing {
    const struct front *front;
    json_t             *list;
};

static void list_one(const char *name, const char *refused, void *arg)
{
    const struct listing *l = arg;

    if (is_allowed(l->front, name))
        json_array_append_new(l->list, json_pack("{s:s,s:o}", "name", name, "refused",
                                                 refused[0] ? json_string(refused) : json_null()));
}

json_t *box_devices_json(const struct front *front)
{
    struct listing l = { front, json_array() };

    if (front->devices)
        devices_each(front->devices, list_one, &l);
    return l.list;
}
