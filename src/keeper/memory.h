/* A box that has run out of memory: the reports of its commands' ends, and requests to start more meanwhile. */
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

/* A box that is being cleared after it ran out of memory. */
struct kept_shortage {
    uint64_t             next_us, step_us, end_us;      /* the next check, the interval, the last check */
    unsigned             n_held;
    struct held_request *held;                          /* queue, the oldest first */
};

/* The kernel has notified us that memory ran out (v1). */
void keeper_memory_ran_out(struct keeper *keeper, struct kept_box *box);
/* A command has ended, see p->how: reports it now or when the box has settled. */
void keeper_command_ended(struct keeper *keeper, struct kept_box *box, struct kept_payload *p);
/* Before a process is started in the box: takes over a request that must wait, and its descriptors. 1: it waits; 0:
 * execute it now; -errno. */
MUST_CHECK int keeper_hold(struct keeper *keeper, struct kept_box *box, const void *frame, size_t size, int *fds,
                           size_t n_fds, struct err *e);
/* A check of a settling box is due. */
void keeper_settle_on(struct keeper *keeper, struct kept_box *box, uint64_t now);
/* The box has settled, or is dying: reports the delayed ends, and executes the queued requests. */
void keeper_settle_end(struct keeper *keeper, struct kept_box *box);
/* The front that sent the requests is gone. */
void keeper_forget_held(struct keeper *keeper);
/* A box's usage in the form of frames (keeper.c). */
void keeper_fill_usage(const struct box_usage *full, struct frame_usage *ret);

#endif
