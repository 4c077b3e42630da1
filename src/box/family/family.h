/* Families: the second way to put a payload into a box is to fork it from a warmed program, the zygote. A family is a
 * confined tree of its own, in which the zygote lives and of which the boxes are children; it belongs to one tenant and
 * one template.
 *
 *   struct family f;   family_create()       namespaces, root, limits, init; the zygote starts
 *                      family_ready()        when f.zygote_link or f.control is readable: has it imported all?
 *   struct engine_box box;
 *                      family_box_create()   as box_create; a midwife gives birth to its init
 *                      family_box_born()     when box.birth or box.midwife.pidfd is readable: does init exist? Then its
 *                                            first payload is requested, which is forked and sealed, and waits
 *                      box_ready(), box_start_payload(), box_destroy()   as for every box; further payloads are exec'd
 *   struct payload p;  family_fork()         a further payload from the zygote
 *                      family_forked()       when p.link is readable: does it exist, sealed?
 *                      family_order()        gives it its command
 *                      family_destroy()      after its boxes; nothing is left
 *
 * The zygote's program links guest/zygote. Nothing that it does or sends is trusted: see family_check.c. */
#ifndef CARREL_BOX_FAMILY_FAMILY_H
#define CARREL_BOX_FAMILY_FAMILY_H

#include "box/box.h"

enum { FAMILY_PIDS_DEFAULT = 256, FAMILY_READY_MS = 60000, FAMILY_FORK_MS = 10000 };

struct family {
    struct engine_box  box;             /* the tree itself: init, namespaces, cgroup, ids */
    struct process     zygote;
    int                zygote_link;     /* owned; until its program is exec'd, then -1 */
    int                control;         /* owned; requests to the zygote */
    pid_t              group;           /* process group of the zygote and of its helpers */
    unsigned           filters;         /* seccomp filters that a sealed child has at least */
    struct process_end zygote_end;      /* once zygote.pidfd is -1 */
    struct cgroup_host cgroups;         /* for leaves of its boxes; borrowed */
    struct cgroup      own;             /* on v1: of the zygote's processes, within the leaf that bounds the family */
    uint64_t           pids;            /* that bound: of the zygote and all boxes together; 0: none */
};

/* Turns the plan of a box into that of its family: the same root without the caller's mounts, with a whole /proc, which
 * the zygote does not see. */
void           family_plan(struct plan *plan);

/* plan was prepared by family_plan. zygote: its command and its stdio. On failure nothing is left. */
MUST_CHECK int family_create(struct box_host *host, const struct plan *plan, const struct start *zygote,
                             struct family *ret, struct err *e);
/* 1: the zygote is ready; 0: not yet; -errno with the reason. Waits at most timeout_ms. */
MUST_CHECK int family_ready(struct family *family, int timeout_ms, struct err *e);

/* Like box_create without a start; never blocks. plan's profile must be the family's. On failure nothing is left. The
 * family must outlive the box. The caller may then set ret->is_blank: no first payload is requested. */
MUST_CHECK int family_box_create(struct box_host *host, struct family *family, const struct plan *plan, bool freezer,
                                 struct engine_box *ret, struct err *e);

/* For a box that is being born. 1: its init exists, and its first payload, if any, was requested; 0: not yet; -errno
 * with the reason: box->init is then a process that was born nevertheless, killed, or none. */
MUST_CHECK int family_box_born(struct engine_box *box, struct err *e);
/* For a box that was killed while it was being born. 1: the midwife has exited, and box->init is its child, killed, or
 * none; 0: not yet (never with block). */
MUST_CHECK int family_box_call_off(struct engine_box *box, bool block);

/* After EPERM or EPROTO the box holds an untrusted process and must be destroyed. */
MUST_CHECK int family_fork(struct engine_box *box, struct payload *ret, struct err *e);
/* 1: it exists, sealed, and waits; 0: not yet; -errno with the reason. Waits at most timeout_ms. */
MUST_CHECK int family_forked(struct engine_box *box, struct payload *payload, int timeout_ms, struct err *e);
MUST_CHECK int family_order(const struct engine_box *box, struct payload *payload, const struct start *start,
                            struct err *e);

/* Reaps the helpers of forks, and notices the zygote's end: then zygote.pidfd is -1. Cheap; called by every fork. */
void           family_reap(struct family *family);

/* Kills the zygote; its boxes live on. family_reap() reaps it. */
void           family_stop(struct family *family);
/* Kills the zygote and the tree. Its boxes must be gone. */
void           family_kill(struct family *family);
/* 1: everything has ended, and nothing is left; 0: not yet, call it again. */
MUST_CHECK int family_release(struct box_host *host, struct family *family);
/* Calls the last two until they are done. */
void           family_destroy(struct box_host *host, struct family *family);

/* Reaps children of ours that a hostile zygote or another process left in a killed box. The caller must have reaped its
 * own payloads. */
void           family_box_sweep(struct engine_box *box);
/* Reaps zombie children of ours for which is_known returns false. */
void           family_sweep_unknown(bool (*is_known)(pid_t pid, void *arg), void *arg);
/* For life.c: changes the pids limit of this box (0: it is gone). On v1 a zygote can move its processes into its boxes'
 * cgroups, and the kernel lets them in above the limit; so the whole family is in one pids cgroup, which has the
 * sum. */
MUST_CHECK int family_bound_pids(struct engine_box *box, uint32_t pids, struct err *e);
/* For box.c: the first step of box_ready, and its last. */
MUST_CHECK int family_box_wait_born(struct engine_box *box, bool block, struct err *e);
MUST_CHECK int family_box_forked(struct engine_box *box, bool block, struct err *e);

#endif
