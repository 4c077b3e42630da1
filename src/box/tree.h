/* The keeper's half of a box's file system: trees that are complete and detached before the box exists. */
#ifndef CARREL_BOX_TREE_H
#define CARREL_BOX_TREE_H

#include "base/err.h"
#include "box/box.h"
#include "box/plan.h"

/* Owned fds, -1 where there is none. */
struct trees {
    dev_t device;           /* of the root */
    int root, scratch;
    int mount[PLAN_MOUNTS];
};

/* Makes the root, the scratch and a clone of every host tree of the plan. On failure nothing is left. */
MUST_CHECK int trees_make(const struct box_host *host, const struct plan *plan, const struct ids *ids, bool keep_own,
                          struct trees *ret, struct err *e);
void           trees_close(struct trees *trees, size_t n);

/* Makes the box's files and hands them to its init, which was born before, so that the first payload makes the network
 * meanwhile, on another processor. n: the number of the plan's mounts. */
MUST_CHECK int trees_give(const struct box_host *host, const struct plan *plan, struct engine_box *box, struct err *e);
MUST_CHECK int trees_receive(int link, size_t n, struct trees *ret, struct err *e);

#endif
