/* Work that is not waited for: killed children that die slowly, and boxes that are being frozen. */
#ifndef CARREL_KEEPER_LATER_H
#define CARREL_KEEPER_LATER_H

#include "keeper/keeper.h"

/* A killed child that no other part waits for. */
struct kept_dying {
    struct kept_dying *next;
    struct process     process;
};

/* Takes over a child that was killed or is about to end; *process is empty afterwards. */
void           keeper_reap_later(struct keeper *keeper, struct process *process);
/* Reaps the ended ones; block: all of them. */
void           keeper_reap_dying(struct keeper *keeper, bool block);

/* 1: the box is frozen; 0: the answer comes later; -errno. */
MUST_CHECK int keeper_freeze(struct keeper *keeper, struct kept_box *box, uint32_t serial, struct err *e);
/* The next check is due. */
void           keeper_freeze_on(struct keeper *keeper, struct kept_box *box, uint64_t now);
/* If it is being frozen, thaws it. tell: answers the waiting request. */
void           keeper_freeze_cancel(struct keeper *keeper, struct kept_box *box, bool tell);

/* Descriptors for all boxes, if we may raise the limit that we were given; returns how many boxes there can be. */
uint32_t keeper_raise_descriptors(void);

#endif
