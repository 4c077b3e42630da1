/* Children that look at what callers want mounted, so that the keeper does not have to: see opener.c. */
#ifndef CARREL_KEEPER_OPENER_H
#define CARREL_KEEPER_OPENER_H

#include "keeper/keeper.h"

/* Begins to open what came with a create; all of fds are closed. The box waits. */
MUST_CHECK int keeper_open_mounts(struct keeper *keeper, struct kept_box *box, const struct request_create *q, int *fds,
                                  struct err *e);
/* 1: they are among what the box waits with; 0: not yet. */
MUST_CHECK int keeper_take_mounts(struct keeper *keeper, struct kept_box *box, struct err *e);
/* Nothing is left here of what it opened: it may go. */
void           keeper_free_opener(struct keeper *keeper, struct opener *opener);
void           keeper_opener_ended(struct keeper *keeper, unsigned place);

#endif
