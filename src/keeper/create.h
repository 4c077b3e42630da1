/* From the frame that asks for a box to the box. */
#ifndef CARREL_KEEPER_CREATE_H
#define CARREL_KEEPER_CREATE_H

#include "keeper/keeper.h"

/* Answered when the box is complete. */
MUST_CHECK int keeper_create(struct keeper *keeper, const struct request_create *q, int *fds, size_t n_fds,
                             struct err *e);
/* Refuses a store that a box uses. */
MUST_CHECK int keeper_check_store(const struct keeper *keeper, uint64_t store, struct err *e);
/* The child that mounts a box's store has ended: makes the box, or tells why not. */
void           keeper_store_ended(struct keeper *keeper, struct kept_box *box);
/* The child that opens a box's mounts has spoken. */
void           keeper_mounts_opened(struct keeper *keeper, struct kept_box *box);
/* The midwife of a box has spoken, or has ended. */
void           keeper_birth_goes_on(struct keeper *keeper, struct kept_box *box);
/* Makes those boxes whose turn it is, and lets go of those that are not to be made any more. */
void           keeper_take_turns(struct keeper *keeper);
/* Forgets what a box waits for, once the child has ended or is about to. */
void           keeper_free_create(struct keeper *keeper, struct kept_box *box);

#endif
