/* PID 1 of a box: builds the file system, then reaps and makes netlink sockets (desk.h). */
#ifndef CARREL_BOX_INIT_H
#define CARREL_BOX_INIT_H

#include "box/plan.h"
#include "box/tree.h"

/* Init's report to the keeper and to the waiting payload. */
struct note {
    int        kind;
    struct err err;
    uint32_t   way, has;        /* of NOTE_EGRESS: as in struct egress_sockets, whose descriptors come beside it */
};
enum { NOTE_READY = 1, NOTE_FAILED = 2, NOTE_TERMINAL = 3, NOTE_BORN = 4, NOTE_STARTED = 5, NOTE_EGRESS = 6 };

/* The part of the box that init makes. */
enum init_stage {
    INIT_WHOLE,
    INIT_FAMILY,    /* the whole box, but child user namespaces stay possible: its boxes */
    INIT_LATE,      /* the part of a family's box that init_build_early left */
};

struct init_job {
    enum init_stage     stage;
    const struct plan  *plan;
    struct trees       *trees;
    bool                trees_come; /* over the link, after "go"; else they were inherited */
    int                 link;       /* report to the keeper; also "go" from it */
    int                 gate;       /* the first payload waits at the other end; -1: none does */
    int                 door;       /* for payloads' seccomp listeners; -1: none */
    int                 keeper;     /* pidfd of the keeper */
    bool                wait_maps;  /* wait for the id maps before anything is made */
    bool                can_setgroups;
    bool                one_id;     /* the payload's user is the box's only id */
    bool                quiet;      /* report only a failure */
};

_Noreturn void init_run(const struct init_job *job);

/* Makes the part that a process which can join the box must not be able to undo. Runs in a mount namespace of the
 * family: init's copy of it belongs to a less privileged user namespace, so the kernel locks every mount and every flag
 * in it. */
MUST_CHECK int init_build_early(const struct plan *plan, struct trees *trees, struct err *e);

#endif
