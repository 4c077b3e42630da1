/* A box that has run out of memory: its commands' ends, and what wants to start in it meanwhile. */
#ifndef CARREL_KEEPER_MEMORY_H
#define CARREL_KEEPER_MEMORY_H

#include "keeper/keeper.h"

/* A request that waits until its box has settled. */
struct held_request {
    struct held_request *next;
    size_t               size, n_fds;
    int                  fds[KEEPER_FDS];               /* owned */
    _Alignas(16) char    frame[];
};

/* A box is being cleared after memory ran out in it. */
struct kept_shortage {
    uint64_t             next_us, step_us, end_us;      /* when to look again, how long after, and when last */
    unsigned             n_held;
    struct held_request *held;                          /* the oldest first */
};

/* The kernel has told that memory ran out (v1). */
void keeper_memory_ran_out(struct keeper *keeper, struct kept_box *box);
/* A command has ended as p->how says: tells it, now or when the box has settled. */
void keeper_command_ended(struct keeper *keeper, struct kept_box *box, struct kept_payload *p);
/* Before a process is started in the box: takes over a request that has to wait; then its descriptors are -1. 1: it
 * waits; 0: it can be carried out now; -errno. */
MUST_CHECK int keeper_hold(struct keeper *keeper, struct kept_box *box, const void *frame, size_t size, int *fds,
                           size_t n_fds, struct err *e);
/* It is time to look at a box that settles. */
void keeper_settle_on(struct keeper *keeper, struct kept_box *box, uint64_t now);
/* Tells what was kept back, and carries out what waits: the box has settled, or is going. */
void keeper_settle_end(struct keeper *keeper, struct kept_box *box);
/* The front that has asked is gone. */
void keeper_forget_held(struct keeper *keeper);
/* What a box used, as frames tell it (keeper.c). */
void keeper_fill_usage(const struct box_usage *full, struct frame_usage *ret);

#endif
