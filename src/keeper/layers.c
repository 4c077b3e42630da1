#define _GNU_SOURCE
#include "keeper/layers.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "base/list.h"
#include "box/layer.h"
#include "proto/checks.h"

static int open_layer(const struct keeper *keeper, const char *name, int *ret, struct err *e)
{
    const char *slash = strchr(name, '/');
    struct layers layers;
    char owner[LAYER_TARGET_MAX];

    snprintf(owner, sizeof owner, "%.*s", (int)(slash - name), name);
    int r = layers_open(keeper->layers_place, owner, &layers, e);
    if (r < 0)
        return r;
    r = layer_open(&layers, slash + 1, ret);
    layers_close(&layers);
    if (r == -ENOENT || r == -EBUSY)        /* the front has it made again */
        return err_set(e, ENOPKG, STEP_USAGE, "the packages %.12s of this box are %s", slash + 1,
                       r == -EBUSY ? "being removed" : "not there any more");
    return r < 0 ? err_at(e, -r, STEP_HOST, 0, "packages") : 0;
}

static struct kept_layer *find(const struct keeper *keeper, const char *name)
{
    struct kept_layer *layer = keeper->layers;

    while (layer && strcmp(layer->name, name) != 0)
        layer = layer->next;
    return layer;
}

int keeper_hold_layer(struct keeper *keeper, const struct frame_mounts *list, struct kept_layer **ret, struct err *e)
{
    const struct frame_mount *m = frame_mount_find(list, MOUNT_PACKAGES);

    *ret = NULL;
    if (!m)
        return 0;
    if (!layer_target_is_plain(m->target, sizeof m->target))
        return err_at(e, EINVAL, STEP_PROTOCOL, 0, "packages");
    struct kept_layer *layer = find(keeper, m->target);
    if (!layer) {
        FD fd = -1;
        int r = open_layer(keeper, m->target, &fd, e);
        if (r < 0)
            return r;
        layer = calloc(1, sizeof *layer);
        if (!layer)
            return err_at(e, ENOMEM, STEP_MEMORY, 0, "packages");
        snprintf(layer->name, sizeof layer->name, "%.*s", (int)sizeof layer->name - 1, m->target);
        layer->fd = TAKE_FD(fd);
        LIST_ADD(keeper->layers, layer);
    }
    layer->users++;
    *ret = layer;
    return 0;
}

void keeper_release_layer(struct kept_layer *layer)
{
    if (!layer || --layer->users > 0)
        return;
    LIST_REMOVE(layer);
    fd_close(layer->fd);
    free(layer);
}

int keeper_find_layer(const struct keeper *keeper, const char *name)
{
    const struct kept_layer *layer = find(keeper, name);

    return layer ? layer->fd : -1;
}
