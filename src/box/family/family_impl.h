/* Shared by the family_*.c files only. */
#ifndef CARREL_BOX_FAMILY_FAMILY_IMPL_H
#define CARREL_BOX_FAMILY_FAMILY_IMPL_H

#include "box/family/family.h"
#include "box/init.h"
#include "box/plan.h"
#include "proto/zygote.h"
#include "sys/cgroup.h"

_Static_assert((int)ZYGOTE_RULES == (int)PLAN_RULES && (int)ZYGOTE_CONTROLLERS == (int)CG_CONTROLLERS,
               "the zygote's frame holds a plan");

struct zygote_job {
    const struct engine_box   *family;
    const struct start *start;
    int                 link, control;
};

/* From birth in the family's pid namespace to the exec of the program. */
_Noreturn void zygote_run(const struct zygote_job *job);

/* Checks that pid is our child and sealed, in this box and its cgroup; *ret is then its process. */
MUST_CHECK int family_check(const struct engine_box *box, pid_t pid, struct process *ret, struct err *e);
/* The number of seccomp filters on this process; UINT_MAX if the kernel does not show it. */
unsigned       family_count_filters(void);
/* -ECHILD if it is not our child. */
MUST_CHECK int family_is_child(pid_t pid);

/* The living child of ours that is PID 1 of a pid namespace and has its root on this device; 0: there is none. */
pid_t          family_find_init(dev_t root);

/* Reaps every dead child of ours in the pid namespace of this box, or of a family's own, except its init. */
void           family_sweep(const struct engine_box *box);

#endif
