/* Layers of templates with packages. They are made when the server starts, so that kernels are warm, or by the first
 * box; then the builder goes on even if that box is deleted, because all other boxes need the same layer. */
#define _GNU_SOURCE
#include <stdlib.h>

#include "front/boxes/box_private.h"
#include "front/boxes/families.h"
#include "front/front.h"
#include "front/layers/layers.h"

struct template_layer {
    struct front *front;
    bool          is_awaited;
};

static void warm(struct front *front, uint32_t number)
{
    struct box_settings s;
    struct err ignored;
    char own[32];

    front_own_identity(front, own);
    box_settings_init(&s);
    box_mounts_set(&s.mounts, MOUNT_LAYER, number, false);
    if (box_packages_settle(front, own, &s, &ignored) < 0)
        ;
    else if (box_packages_are_awaited(&s.mounts))
        templates_await(front, number);
    else
        (void)families_for(front, own, &s);
    box_settings_done(&s);
}

static void on_layer(const char *name, const struct err *e, void *arg)
{
    struct template_layer *layer = arg;
    struct front *front = layer->front;
    uint32_t number = (uint32_t)(layer - front->boxes.template_layers) + 1;
    const struct config_template *t = config_template(&front->config, number);
    char why[256];

    layer->is_awaited = false;
    if (name) {
        front_log("info", "the packages of a template are there", "template", t->name, NULL);
        if (t->pool && front->ready)
            warm(front, number);
        return;
    }
    err_text(e, why, sizeof why);
    front_log("warning", "the packages of a template cannot be installed; its next box tries again", "template",
              t->name, "why", why, NULL);
}

void templates_await(struct front *front, uint32_t number)
{
    struct template_layer *layer = &front->boxes.template_layers[number - 1];
    const struct config_template *t = config_template(&front->config, number);
    struct err e = { 0 };
    char own[32];

    if (layer->is_awaited)
        return;
    front_own_identity(front, own);
    *layer = (struct template_layer){ .front = front, .is_awaited = true };
    if (layers_want(front, own, number, t->packages, on_layer, NULL, layer, &e) < 0)
        on_layer(NULL, &e, layer);
}

void templates_on_synced(struct front *front)
{
    for (uint32_t i = 1; i <= front->config.n_templates; i++)
        if (front->config.template[i - 1].pool)
            warm(front, i);
}

void templates_init(struct front *front)
{
    front->boxes.template_layers = calloc(CONFIG_TEMPLATES, sizeof *front->boxes.template_layers);
    if (!front->boxes.template_layers)
        abort();
}

void templates_free(struct front *front)
{
    free(front->boxes.template_layers);
    front->boxes.template_layers = NULL;
}
