#include "box/spec.h"

const struct mount_spec *spec_find(const struct box_spec *spec, enum mount_kind kind)
{
    for (size_t i = 0; i < spec->n_mounts; i++)
        if (spec->mount[i].kind == kind)
            return &spec->mount[i];
    return NULL;
}

const char *spec_root(const struct box_spec *spec)
{
    const struct mount_spec *root = spec_find(spec, MOUNT_ROOT);

    return root ? root->source : NULL;
}

bool spec_uses_var_tmp(const struct box_spec *spec)
{
    static const char place[] = "/var/tmp";

    for (size_t i = 0; i < spec->n_mounts; i++) {
        const char *target = spec->mount[i].target;
        if (target && strncmp(target, place, sizeof place - 1) == 0
            && (target[sizeof place - 1] == '/' || !target[sizeof place - 1]))
            return true;
    }
    return false;
}
