/* The steps of making a box that its two makers share: box.c for a plain one, family_box.c for one of a family. */
#ifndef CARREL_BOX_MAKING_H
#define CARREL_BOX_MAKING_H

#include "box/box.h"

/* An empty box with its plan and its ids. After a failure call box_release. */
MUST_CHECK int       box_begin(struct box_host *host, const struct plan *plan, struct engine_box *ret, struct err *e);

/* The channel to init for payloads' seccomp listeners; *ret_init is init's end, or -1 if the profile has no netlink. */
MUST_CHECK int       box_make_door(struct engine_box *box, int *ret_init, struct err *e);

/* Chooses how many files its processes may have open, once its user is known. */
void                 box_settle_files(struct engine_box *box);

/* The namespaces of its init, except the network's. */
MUST_CHECK int       box_open_namespaces(pid_t pid, struct box_namespaces *ns);

struct cgroup_limits box_leaf_limits(const struct box_host *host, const struct engine_box *box, bool freezer);
/* The cgroups in which the box's leaf is made, changed and removed. */
const struct cgroup_host *box_cgroups(const struct box_host *host, const struct engine_box *box);
MUST_CHECK int box_make_leaf(struct box_host *host, struct engine_box *box, const struct cgroup_limits *limits,
                             struct err *e);

/* Init's report: 1 ready, 0 nothing yet, -errno with the reason; -ECHILD if it ended without one. */
MUST_CHECK int       box_init_report(struct engine_box *box, bool block, struct err *e);

/* Gives the pipes to the box's user. */
void                 box_give_pipes(const struct engine_box *box, const int stdio[3]);

/* Gives a waiting payload its command. */
MUST_CHECK int       box_order_start(struct payload *payload, const struct start *start, struct err *e);

#endif
