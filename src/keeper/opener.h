/* Children that open what callers want mounted, so that the keeper need not: see opener.c. */
#ifndef CARREL_KEEPER_OPENER_H
#define CARREL_KEEPER_OPENER_H

#include "keeper/keeper.h"

/* Starts to open the mounts of a create request; closes all of fds. The box waits. */
MUST_CHECK int keeper_open_mounts(struct keeper *keeper, struct kept_box *box, const struct request_create *q, int *fds,
                                  struct err *e);
/* 1: the mounts are in box->waiting; 0: not yet. */
MUST_CHECK int keeper_take_mounts(struct keeper *keeper, struct kept_box *box, struct err *e);
/* Nothing here holds its descriptors any more: it may end. */
void           keeper_free_opener(struct keeper *keeper, struct opener *opener);
void           keeper_opener_ended(struct keeper *keeper, unsigned place);

#endif
