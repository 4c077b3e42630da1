/* The field "volumes": which volumes a box has, and where. Whether it may have them now is checked when it is made, and
 * again when it starts (front/volumes/volume_use.c). */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/parse.h"
#include "front/boxes/box_private.h"
#include "front/boxes/box_request.h"
#include "front/front.h"
#include "front/identity/auth.h"
#include "front/volumes/volumes.h"
#include "proto/checks.h"
#include "proto/defaults.h"

struct volume_body {
    const char *name, *path;
    bool        read_only;
};

static int take_name(const char *name, json_t *v, void *into, struct err *e)
{
    return body_text(name, v, VOLUME_NAME_SIZE - 1, &((struct volume_body *)into)->name, e);
}

static int take_path(const char *name, json_t *v, void *into, struct err *e)
{
    return body_text(name, v, BOX_TARGET_MAX, &((struct volume_body *)into)->path, e);
}

static int take_read_only(const char *name, json_t *v, void *into, struct err *e)
{
    return body_bool(name, v, &((struct volume_body *)into)->read_only, e);
}

/* What box_json() shows may be sent back. */
static int take_id(const char *name, json_t *v, void *into, struct err *e)
{
    (void)into;
    return json_is_string(v) ? 0 : err_set(e, EINVAL, STEP_USAGE, "%s must be a string", name);
}

static int check_new(const struct box_mounts *list, const char *where, uint64_t number, const char *path, struct err *e)
{
    for (uint32_t i = 0; i < list->n; i++) {
        const struct box_mount *m = &list->at[i];
        if (m->kind == MOUNT_VOLUME && m->number == number)
            return err_set(e, EINVAL, STEP_USAGE, "%s: the box has the volume '%s' already", where, m->source);
        if (m->kind == MOUNT_VOLUME && strcmp(m->target, path) == 0)
            return err_set(e, EINVAL, STEP_USAGE, "%s: two volumes at %s", where, parse_quote(path).text);
    }
    return 0;
}

static int add(const struct front *front, const char *owner, struct box_mounts *list, const char *where,
               const struct volume_body *m, struct err *e)
{
    char room[VOLUME_NAME_SIZE];
    struct box_mount *added;

    if (!m->name || !m->path || !target_is_plain(m->path, strlen(m->path) + 1))
        return err_set(e, EINVAL, STEP_USAGE, "%s needs name and path, an absolute path without . and .., and not in "
                       "/proc or /dev", where);
    const struct volume *v = volume_find(front, owner, false, m->name);
    if (!v)
        return err_set(e, ENOENT, STEP_USAGE, "%s: there is no volume '%s'; make it with 'carrel volume create' "
                       "(another's is OWNER/NAME)", where, parse_quote(m->name).text);
    int r = check_new(list, where, volume_number(v), m->path, e);
    if (r == 0)
        r = box_mounts_add(list, MOUNT_VOLUME, volume_number(v), m->path, volume_name_for(v, owner, room),
                           &added, e);
    if (r == 0)
        added->writable = !m->read_only;
    return r;
}

int box_volumes_take(const char *name, json_t *v, void *into, struct err *e)
{
    static const struct body_field fields[] = {
        { "name", take_name }, { "path", take_path }, { "read_only", take_read_only }, { "id", take_id }
    };
    struct box_request *c = into;
    size_t i;
    json_t *one;
    int r = 0;

    c->settings.volumes_said = true;
    if (!json_is_array(v) || json_array_size(v) > KEEPER_VOLUMES)
        return err_set(e, EINVAL, STEP_USAGE, "%s must be a list of at most %d objects", name, KEEPER_VOLUMES);
    json_array_foreach(v, i, one) {
        struct volume_body m = { 0 };
        char where[32];
        snprintf(where, sizeof where, "%s[%zu].", name, i);
        r = body_fields(one, where, fields, sizeof fields / sizeof *fields, &m, e);
        snprintf(where, sizeof where, "%s[%zu]", name, i);
        if (r == 0)
            r = add(c->front, c->who->name, &c->settings.mounts, where, &m, e);
        if (r < 0)
            return r;
    }
    return 0;
}

int box_volumes_default(const struct front *front, const char *owner, struct box_settings *s, struct err *e)
{
    const struct config_template *t = config_template(&front->config, box_mounts_template(&s->mounts));
    char word[512], where[96];
    int r = 0;

    if (!t || s->volumes_said)
        return 0;
    snprintf(where, sizeof where, "templates.%s.volumes", t->name);
    for (const char *at = t->volumes; *at && r == 0; at += strcspn(at, " "), at += *at == ' ') {
        snprintf(word, sizeof word, "%.*s", (int)strcspn(at, " "), at);
        char *path = strstr(word, ":/");
        if (!path)
            continue;
        size_t length = strlen(path);
        bool read_only = length > 4 && strcmp(path + length - 3, ":ro") == 0;
        bool is_marked = read_only || (length > 4 && strcmp(path + length - 3, ":rw") == 0);
        path[is_marked ? length - 3 : length] = '\0';
        *path++ = '\0';
        const struct volume_body m = { .name = word, .path = path, .read_only = read_only };
        r = add(front, owner, &s->mounts, where, &m, e);
    }
    return r;
}

json_t *box_volumes_show(const struct front *front, const struct box_mounts *list)
{
    json_t *shown = json_array();

    for (uint32_t i = 0; i < list->n; i++) {
        const struct box_mount *m = &list->at[i];
        if (m->kind != MOUNT_VOLUME)
            continue;
        const struct volume *v = volume_by_number(front, m->number);
        json_array_append_new(shown, json_pack("{s:s?,s:s,s:s,s:b}", "id", v ? volume_id(v) : NULL, "name",
                                               m->source ? m->source : "", "path", m->target, "read_only",
                                               !m->writable));
    }
    return shown;
}

int box_volumes_load(const struct front *front, json_t *value, struct box_mounts *into, struct err *e)
{
    size_t i;
    json_t *one;
    int r = 0;

    json_array_foreach(value, i, one) {
        const char *id = json_string_value(json_object_get(one, "id"));
        const char *name = json_string_value(json_object_get(one, "name"));
        const char *path = json_string_value(json_object_get(one, "path"));
        const struct volume *v = volume_find(front, "", true, id ? id : "");
        struct box_mount *added;
        if (r < 0 || i == KEEPER_VOLUMES)
            break;
        r = box_mounts_add(into, MOUNT_VOLUME, v ? volume_number(v) : 0, path ? path : "", name ? name : "", &added, e);
        if (r == 0)
            added->writable = !json_is_true(json_object_get(one, "read_only"));
    }
    return r;
}
