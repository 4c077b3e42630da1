/* The fields "packages", "python" and "layer" of a box: one mount, with the list as its source, the interpreter as its
 * number and the layer as its target. The caller may name the fields in any order. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "front/boxes/box_mounts.h"
#include "front/boxes/box_request.h"
#include "front/front.h"
#include "proto/packages.h"

static int add_packages(struct packages *packages, const char *name, json_t *v, struct err *e)
{
    size_t i;
    json_t *one;
    int r = 0;

    if (json_is_string(v))      /* the text of a requirements file */
        return packages_add_file(packages, name, json_string_value(v), e);
    if (!json_is_array(v))
        return err_set(e, EINVAL, STEP_USAGE, "%s must be a list of requirements, like [\"numpy<2\"], or the text of a "
                       "requirements file", name);
    json_array_foreach(v, i, one) {
        if (r == 0 && !json_is_string(one))
            r = err_set(e, EINVAL, STEP_USAGE, "%s[%zu] must be a string, like \"numpy<2\"", name, i);
        if (r == 0)
            r = packages_add(packages, name, json_string_value(one), e);
    }
    return r;
}

static int read_packages(const char *name, json_t *v, struct box_mounts *into, struct err *e)
{
    struct packages packages = { 0 };
    int r = json_is_null(v) ? 0 : add_packages(&packages, name, v, e);

    if (r == 0 && packages.n) {
        packages_sort(&packages);
        char *text = packages_join(&packages);
        r = text ? box_mounts_set_packages(into, text, 0, e) : err_at(e, ENOMEM, STEP_MEMORY, 0, "packages");
        free(text);
    }
    packages_done(&packages);
    return r;
}

int box_packages_take(const char *name, json_t *v, void *into, struct err *e)
{
    struct box_request *c = into;

    c->settings.packages_said = !json_is_null(v);
    return read_packages(name, v, &c->settings.mounts, e);
}

json_t *box_packages_show(const struct front *front, const struct box_mounts *list)
{
    const struct box_mount *m = box_mounts_find(list, MOUNT_PACKAGES);
    json_t *shown = json_array();

    (void)front;
    for (const char *at = m && m->source ? m->source : ""; *at; at += strcspn(at, "\n"), at += *at == '\n')
        json_array_append_new(shown, json_stringn(at, strcspn(at, "\n")));
    return shown;
}

int box_packages_load(const struct front *front, json_t *value, struct box_mounts *into, struct err *e)
{
    (void)front;
    return read_packages("packages", value, into, e);
}

int box_python_take(const char *name, json_t *v, void *into, struct err *e)
{
    struct box_request *c = into;
    const struct config *config = &c->front->config;
    const char *text;
    int r = json_is_null(v) ? 0 : body_text(name, v, 63, &text, e);

    if (r < 0 || json_is_null(v))
        return r;
    uint32_t number = config_python_find(config, text);
    if (!number)
        return config_python_refuse(config, name, text, e);
    return box_mounts_set_packages(&c->settings.mounts, NULL, config->n_templates + number, e);
}

json_t *box_python_show(const struct front *front, const struct box_mounts *list)
{
    uint64_t number = box_mounts_number(list, MOUNT_PACKAGES);
    const struct config *c = &front->config;

    return number > c->n_templates && number <= c->n_templates + c->n_pythons
               ? json_string(c->python[number - c->n_templates - 1].name) : json_null();
}

int box_python_load(const struct front *front, json_t *value, struct box_mounts *into, struct err *e)
{
    const char *text = json_string_value(value);
    uint32_t number = text ? config_python_find(&front->config, text) : 0;

    if (!text)
        return 0;
    if (!number)        /* the box runs on; a stopped one cannot be started with another interpreter */
        return box_mounts_set_packages(into, NULL, UINT32_MAX, e);
    return box_mounts_set_packages(into, NULL, front->config.n_templates + number, e);
}

int box_layer_take(const char *name, json_t *v, void *into, struct err *e)
{
    (void)into;
    return json_is_null(v) ? 0 : err_set(e, EINVAL, STEP_USAGE, "%s is read-only; set \"packages\" instead", name);
}

json_t *box_layer_show(const struct front *front, const struct box_mounts *list)
{
    const struct box_mount *m = box_mounts_find(list, MOUNT_PACKAGES);

    (void)front;
    return m && m->target[0] ? json_string(m->target) : json_null();
}

int box_layer_load(const struct front *front, json_t *value, struct box_mounts *into, struct err *e)
{
    (void)front;
    return json_is_string(value) && box_mounts_find(into, MOUNT_PACKAGES)
               ? box_mounts_name(into, MOUNT_PACKAGES, json_string_value(value), e) : 0;
}
