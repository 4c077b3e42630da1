/* The box's own cgroup, read-only at /sys/fs/cgroup, so that Java, Go and node find its limits there.
 *
 * Only the leaf's own directories are mounted, never one above them: a box sees its limits and its usage, and neither
 * names nor numbers of others. The clone is read-only before the box can reach it. The kernel refuses writes then,
 * whatever a file's owner and mode: v1's cgroup.event_control may be written by everyone, and `tasks` of a family's
 * boxes belongs to the zygote. */
#ifndef CARREL_BOX_LEAFVIEW_H
#define CARREL_BOX_LEAFVIEW_H

#include "box/plan.h"
#include "box/tree.h"
#include "sys/cgroup.h"

/* Adds the views that the leaf has to the trees that init attaches. A directory that cannot be cloned (one of another
 * mount namespace) is left out. */
void leafview_add(const struct plan *plan, const struct cgroup *leaf, struct trees *trees);

#endif
