/* PID 1 of a box: builds the file system, then only reaps. */
#ifndef CARREL_BOX_INIT_H
#define CARREL_BOX_INIT_H

#include "box/plan.h"
#include "box/tree.h"

/* What init tells the keeper and the waiting payload. */
struct note {
    int        kind;
    struct err err;
};
enum { NOTE_READY = 1, NOTE_FAILED = 2, NOTE_TERMINAL = 3 };

struct init_job {
    const struct plan  *plan;
    const struct trees *trees;
    int                 link;       /* report to the keeper; also "go" from it */
    int                 gate;       /* the first payload waits at the other end */
    int                 keeper;     /* pidfd of the keeper */
    bool                wait_maps;  /* the id maps must be there before anything is made */
    bool                can_setgroups;
    bool                quiet;      /* report only a failure */
};

_Noreturn void init_run(const struct init_job *job);

#endif
