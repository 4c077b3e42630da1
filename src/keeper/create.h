/* From the frame that requests a box to the box. */
#ifndef CARREL_KEEPER_CREATE_H
#define CARREL_KEEPER_CREATE_H

#include "keeper/keeper.h"

/* Answered when the box is complete. */
MUST_CHECK int keeper_create(struct keeper *keeper, const struct request_create *q, int *fds, size_t n_fds,
                             struct err *e);
/* For a box that waits: with its frame, and no job yet. NULL: out of memory. */
struct kept_create *keeper_new_create(const struct request_create *q);
/* Refuses a store that a box uses. */
MUST_CHECK int keeper_check_store(const struct keeper *keeper, uint64_t store, struct err *e);
/* The child that mounts a box's store has ended: makes the box, or answers with the error. */
void           keeper_store_ended(struct keeper *keeper, struct kept_box *box);
/* The child that opens a box's mounts has answered. */
void           keeper_mounts_opened(struct keeper *keeper, struct kept_box *box);
/* The midwife of a box has answered, or has ended. */
void           keeper_birth_goes_on(struct keeper *keeper, struct kept_box *box);
/* Makes the boxes whose turn it is, and drops cancelled ones. */
void           keeper_take_turns(struct keeper *keeper);
/* Frees what the box waits for, once the child has ended or is about to. */
void           keeper_free_create(struct keeper *keeper, struct kept_box *box);

#endif
