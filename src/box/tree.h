/* The keeper's half of a box's file system: trees that are complete and detached before the box exists. */
#ifndef CARREL_BOX_TREE_H
#define CARREL_BOX_TREE_H

#include "base/err.h"
#include "box/box.h"
#include "box/plan.h"

/* Owned fds, -1 where there is none. */
struct trees {
    int root, scratch;
    int mount[PLAN_MOUNTS];
};

/* Makes the root, the scratch and a clone of every host tree of the plan. On failure nothing is left. */
MUST_CHECK int trees_make(const struct box_host *host, const struct plan *plan, const struct ids *ids, bool keep_own,
                          struct trees *ret, struct err *e);
void           trees_close(struct trees *trees, size_t n);

#endif
