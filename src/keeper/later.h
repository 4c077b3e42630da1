/* What is not waited for: children that were killed and die slowly, and boxes that are being frozen. */
#ifndef CARREL_KEEPER_LATER_H
#define CARREL_KEEPER_LATER_H

#include "keeper/keeper.h"

/* A child of ours that was killed, and that nothing else in here waits for. */
struct kept_dying {
    struct kept_dying *next;
    struct process     process;
};

/* Takes over a child that was killed or is about to end; it is none afterwards. */
void           keeper_reap_later(struct keeper *keeper, struct process *process);
/* Reaps those that have ended; block: all of them. */
void           keeper_reap_dying(struct keeper *keeper, bool block);

/* 1: the box is frozen; 0: the answer comes later; -errno. */
MUST_CHECK int keeper_freeze(struct keeper *keeper, struct kept_box *box, uint32_t serial, struct err *e);
/* It is time to look at it again. */
void           keeper_freeze_on(struct keeper *keeper, struct kept_box *box, uint64_t now);
/* If it is being frozen, it runs again. tell: whoever waits for it is told. */
void           keeper_freeze_cancel(struct keeper *keeper, struct kept_box *box, bool tell);

#endif
