#define _GNU_SOURCE
#include "front/boxes/box_layers.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "front/boxes/box_private.h"
#include "front/boxes/families.h"
#include "front/front.h"
#include "proto/packages.h"

static void name_of(const char *owner, const char *digest, char ret[LAYER_TARGET_MAX])
{
    char folder[PACKAGES_OWNER];

    packages_owner(owner, folder);
    snprintf(ret, LAYER_TARGET_MAX, "%s/%.64s", folder, digest);
}

const struct box *box_layers_user(const struct front *front, const char *owner, const char *digest,
                                  const struct box *after)
{
    char name[LAYER_TARGET_MAX];

    name_of(owner, digest, name);
    for (const struct box *b = after ? after->next : front->boxes.first; b; b = b->next) {
        const struct box_mount *m =
            b->slot == BOX_NO_SLOT ? NULL : box_mounts_find(&b->settings.mounts, MOUNT_PACKAGES);
        if (m && strcmp(m->target, name) == 0)
            return b;
    }
    return NULL;
}

int box_layers_remove(struct front *front, const char *owner, const char *digest, layers_answer *call, void *arg,
                      struct err *e)
{
    const struct box *b = box_layers_user(front, owner, digest, NULL);
    char name[LAYER_TARGET_MAX];

    if (b && strcmp(b->owner, owner) == 0)
        return err_set(e, ETXTBSY, STEP_USAGE, "the box %s%s%s%s uses the layer %.12s; remove the box first", b->id,
                       b->name ? " (" : "", b->name ? b->name : "", b->name ? ")" : "", digest);
    if (b)
        return err_set(e, ETXTBSY, STEP_USAGE, "a box of %s uses the layer %.12s", b->owner, digest);
    name_of(owner, digest, name);
    layers_forget(front, name);
    families_end_of_layer(front, name);
    return layers_remove(front, owner, digest, call, arg, e);
}
