#include "box/leafview.h"

#include "sys/mountfd.h"

void leafview_add(const struct plan *plan, const struct cgroup *leaf, struct trees *trees)
{
    bool on_v1 = leaf->dir[CG_MEMORY] >= 0 || leaf->dir[CG_PIDS] >= 0 || leaf->dir[CG_CPU] >= 0;

    for (size_t i = 0; i < plan->n_mounts; i++) {
        const struct plan_mount *mount = &plan->mount[i];
        if (mount->source != FROM_LEAF)
            continue;
        int dir = mount->fd == LEAF_VIEW_MEMORY ? leaf->dir[CG_MEMORY]
                  : mount->fd == LEAF_VIEW_PIDS ? leaf->dir[CG_PIDS]
                  : mount->fd == LEAF_VIEW_CPU  ? leaf->dir[CG_CPU]
                  : on_v1                       ? -1    /* on a hybrid host that one has no limits */
                                                : leaf->v2;
        if (dir < 0 || mountfd_clone(dir, "", false, mount->flags, &trees->mount[i]) < 0)
            trees->mount[i] = -1;
    }
}
