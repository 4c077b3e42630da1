/* Packages of a box: their layer is found or made (front/layers) before the keeper makes the box. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "front/boxes/box_private.h"
#include "front/boxes/families.h"
#include "front/front.h"
#include "front/layers/layers.h"
#include "proto/defaults.h"
#include "proto/packages.h"

static const struct box_mount *packages_of(const struct box_mounts *list)
{
    return box_mounts_find(list, MOUNT_PACKAGES);
}

/* The keeper's number of the interpreter. */
static uint32_t interpreter_of(const struct box_mounts *list)
{
    const struct box_mount *m = packages_of(list);

    return m->number ? (uint32_t)m->number : box_mounts_template(list);
}

bool box_packages_are_templates(const struct front *front, const struct box_mounts *list)
{
    const struct box_mount *m = packages_of(list);
    const struct config_template *t = config_template(&front->config, box_mounts_template(list));

    return m ? t && m->number == 0 && t->packages[0] && strcmp(m->source, t->packages) == 0 : !t || !t->packages[0];
}

/* The layer of a template belongs to the server's own user, who chose its packages, and all its boxes share it. */
static const char *owner_of_layer(const struct front *front, const char *owner, const struct box_mounts *list,
                                  char room[32])
{
    if (!box_packages_are_templates(front, list))
        return owner;
    front_own_identity(front, room);
    return room;
}

/* Those of the template, if the caller names none. A box without a template may start a kernel of the first one. */
static int add_templates(const struct front *front, struct box_settings *s, struct err *e)
{
    const struct box_mount *m = packages_of(&s->mounts);
    uint32_t number = box_mounts_template(&s->mounts);
    const struct config_template *t = config_template(&front->config, number ? number : 1);

    if (s->packages_said || !t || !t->packages[0] || (m && m->source[0])
        || box_mounts_number(&s->mounts, MOUNT_ROOT))
        return 0;
    return box_mounts_set_packages(&s->mounts, t->packages, 0, e);
}

int box_packages_settle(struct front *front, const char *owner, struct box_settings *s, struct err *e)
{
    char own[32];
    int r = add_templates(front, s, e);
    const struct box_mount *m = r < 0 ? NULL : packages_of(&s->mounts);

    if (!m)
        return r;
    if (box_mounts_number(&s->mounts, MOUNT_ROOT))
        return err_set(e, EINVAL, STEP_USAGE, "packages are for the interpreters of this server; a box with a \"root\" "
                       "of its own has none of them");
    if (m->number > front->boxes.n_templates)
        return err_set(e, ENOTSUP, STEP_USAGE, "python: boxes of this server cannot have that interpreter, because "
                       "they are made by a service that was started before it was listed; restart that");
    /* Kernels with the same packages are forked from one interpreter, like those of a template. */
    box_mounts_want_template(&s->mounts);
    m = packages_of(&s->mounts);
    const char *name = layers_known(front, owner_of_layer(front, owner, &s->mounts, own), interpreter_of(&s->mounts),
                                    m->source);
    return name ? box_mounts_name(&s->mounts, MOUNT_PACKAGES, name, e) : 0;
}

bool box_packages_are_awaited(const struct box_mounts *list)
{
    const struct box_mount *m = packages_of(list);

    return m && !m->target[0];
}

static void on_layer(const char *name, const struct err *e, void *arg)
{
    struct box *b = arg;
    struct err late = { 0 };

    b->awaits_packages = false;
    if (b->phase != PHASE_CREATING && b->phase != PHASE_STARTING)
        return;
    if (name && box_mounts_name(&b->settings.mounts, MOUNT_PACKAGES, name, &late) < 0)
        e = &late;
    if (!name || late.code) {
        box_raised(b, e);
        return;
    }
    box_save(b);
    b->is_held = families_hold(b->front, b->owner, &b->settings);
    b->family = families_for(b->front, b->owner, &b->settings);
    if (!b->is_held)
        box_ask_keeper(b);
}

static void on_progress(const char *text, void *arg)
{
    box_event(arg, "packages", json_pack("{s:s}", "message", text));
}

int box_packages_fetch(struct box *b, struct err *e)
{
    const struct box_mounts *list = &b->settings.mounts;
    char own[32];
    const char *owner = owner_of_layer(b->front, b->owner, list, own);

    b->awaits_packages = true;
    int r = layers_want(b->front, owner, interpreter_of(list), packages_of(list)->source, on_layer, on_progress, b, e);
    if (r == 0 && owner == own)
        templates_await(b->front, box_mounts_template(list));
    return r;
}

bool box_packages_fetch_again(struct box *b)
{
    const struct box_mount *m = packages_of(&b->settings.mounts);
    struct err ignored;

    if (!m || b->fetched_again || (b->phase != PHASE_CREATING && b->phase != PHASE_STARTING))
        return false;
    b->fetched_again = true;
    layers_forget(b->front, m->target);
    b->family = 0;
    return box_mounts_name(&b->settings.mounts, MOUNT_PACKAGES, "", &ignored) == 0
           && box_packages_fetch(b, &ignored) == 0;
}

void box_packages_abandon(struct box *b)
{
    layers_cancel(b->front, b);
    b->awaits_packages = false;
}

const char *box_mounts_python(const struct front *front, const struct box_mounts *list, uint32_t template)
{
    const struct config_template *t = config_template(&front->config, template);

    return packages_of(list) && template == box_mounts_template(list) ? PACKAGES_PLACE "/bin/python"
           : t                                                        ? t->python
                                                                      : NULL;
}

const char *box_mounts_path(const struct front *front, const struct box_mounts *list, uint32_t template,
                            char room[CONFIG_PATH_SIZE])
{
    if (!packages_of(list))
        return config_template_path(&front->config, template, room);
    snprintf(room, CONFIG_PATH_SIZE, "%s", BOX_FIRST ":" PACKAGES_PLACE "/bin:" BOX_LAST_PATH);
    return room;
}
