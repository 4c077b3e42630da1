/* Families: the second way to put a payload into a box is to fork it from a warmed program, the zygote. A family is a
 * confined tree of its own, in which the zygote lives and of which the boxes are children; it belongs to one tenant and
 * one template.
 *
 *   struct family f;   family_create()       namespaces, root, limits, init; the zygote is on its way
 *                      family_ready()        when f.zygote_link or f.control is readable: has it imported all?
 *   struct engine_box box;
 *                      family_box_create()   as box_create; a midwife gives birth to its init
 *                      family_box_born()     when box.birth or box.midwife.pidfd is readable: is it there? Then its
 *                                            first payload is asked for, which is forked and sealed, and waits
 *                      box_ready(), box_start_payload(), box_destroy()   as for every box; further payloads are exec'd
 *   struct payload p;  family_fork()         a further payload from the zygote
 *                      family_forked()       when p.link is readable: is it there, and sealed?
 *                      family_order()        gives it its command
 *                      family_destroy()      after its boxes; nothing is left
 *
 * The zygote's program links guest/zygote. Nothing that it does or says is believed: see family_check.c. */
#ifndef CARREL_BOX_FAMILY_FAMILY_H
#define CARREL_BOX_FAMILY_FAMILY_H

#include "box/box.h"

enum { FAMILY_PIDS_DEFAULT = 256, FAMILY_READY_MS = 60000, FAMILY_FORK_MS = 10000 };

struct family {
    struct engine_box  box;             /* the tree itself: init, namespaces, cgroup, ids */
    struct process     zygote;
    int                zygote_link;     /* owned; until its program is exec'd, then -1 */
    int                control;         /* owned; requests to the zygote */
    pid_t              group;           /* process group of the zygote and of the helpers between it and its children */
    unsigned           filters;         /* seccomp filters that a sealed child has at least */
    struct process_end zygote_end;      /* once zygote.pidfd is -1 */
    struct cgroup_host cgroups;         /* where leaves of its boxes are made; borrowed */
    struct cgroup      own;             /* on v1: of the zygote's processes, within the leaf that bounds them all */
    uint64_t           pids;            /* that bound: what the zygote and all boxes may have; 0: there is none */
};

/* The plan of a family for boxes of this plan: the same root without the caller's mounts, with a whole /proc, which the
 * zygote does not see. */
void           family_plan(struct plan *plan);

/* plan was prepared by family_plan. zygote: its command and its stdio. On failure nothing is left. */
MUST_CHECK int family_create(struct box_host *host, const struct plan *plan, const struct start *zygote,
                             struct family *ret, struct err *e);
/* 1: the zygote is ready; 0: not yet; -errno with the reason. Waits at most timeout_ms. */
MUST_CHECK int family_ready(struct family *family, int timeout_ms, struct err *e);

/* As box_create without a start, and waits for nobody. plan's profile must be the family's. On failure nothing is left.
 * The family must outlive the box. */
MUST_CHECK int family_box_create(struct box_host *host, struct family *family, const struct plan *plan, bool freezer,
                                 struct engine_box *ret, struct err *e);

/* Of a box that is being born. 1: its init is there, and the zygote was asked for its first payload; 0: not yet; -errno
 * with the reason: then box->init is whoever was born all the same, and killed, or none. */
MUST_CHECK int family_box_born(struct engine_box *box, struct err *e);
/* Of a box that was killed while it was being born. 1: the midwife has ended, and box->init is whoever it gave birth
 * to, and killed, or none; 0: not yet (never with block). */
MUST_CHECK int family_box_call_off(struct engine_box *box, bool block);

/* A box in which a child was refused (EPERM, EPROTO) holds a stranger and must be destroyed. */
MUST_CHECK int family_fork(struct engine_box *box, struct payload *ret, struct err *e);
/* 1: it is there, sealed, and waits; 0: not yet; -errno with the reason. Waits at most timeout_ms. */
MUST_CHECK int family_forked(struct engine_box *box, struct payload *payload, int timeout_ms, struct err *e);
MUST_CHECK int family_order(const struct engine_box *box, struct payload *payload, const struct start *start,
                            struct err *e);

/* Reaps the helpers of forks, and notices the zygote's end: then zygote.pidfd is -1. Cheap; called by every fork. */
void           family_reap(struct family *family);

/* Ends the zygote; its boxes live on. It is reaped by family_reap(). */
void           family_stop(struct family *family);
/* Ends the zygote and the tree. Its boxes must be gone. */
void           family_kill(struct family *family);
/* 1: all of it has ended, and nothing is left; 0: not yet, call it again. */
MUST_CHECK int family_release(struct box_host *host, struct family *family);
/* The last two, waiting in between. */
void           family_destroy(struct box_host *host, struct family *family);

/* Reaps what a hostile zygote, or whoever else could, left in a killed box as our children. The payloads that the
 * caller holds must have been reaped. */
void           family_box_sweep(struct engine_box *box);
/* Reaps those dead children of ours of whom is_known says that they are nobody's. */
void           family_sweep_unknown(bool (*is_known)(pid_t pid, void *arg), void *arg);
/* For life.c: this box of a family may have so many processes from now on (0: it is gone). On v1 a zygote can move its
 * processes into its boxes' cgroups, and the kernel lets them in above the limit; so all of the family are in one pids
 * cgroup, which has the sum. */
MUST_CHECK int family_bound_pids(struct engine_box *box, uint32_t pids, struct err *e);
/* For box.c: box_ready's first step, and its last. */
MUST_CHECK int family_box_wait_born(struct engine_box *box, bool block, struct err *e);
MUST_CHECK int family_box_forked(struct engine_box *box, bool block, struct err *e);

#endif
