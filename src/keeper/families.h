/* The keeper's families and templates: zygotes, and boxes forked from them. */
#ifndef CARREL_KEEPER_FAMILIES_H
#define CARREL_KEEPER_FAMILIES_H

#include "keeper/keeper.h"

/* NAME=DIR:DIR... from the command line. */
MUST_CHECK int keeper_add_template(struct keeper *keeper, const char *text, struct err *e);
MUST_CHECK int keeper_make_family(struct keeper *keeper, const struct request_family *q, const int *fds, size_t n_fds,
                                  struct err *e);
MUST_CHECK int keeper_end_family(struct keeper *keeper, const struct request_family_end *q, struct err *e);
/* The family for a new box. */
MUST_CHECK int keeper_find_family(const struct keeper *keeper, const struct request_create *q, struct kept_family **ret,
                                  struct err *e);
void           keeper_leave_family(struct kept_box *box);
/* One of them has an event. */
void           keeper_look_at_families(struct keeper *keeper);
/* Does the due work; returns how long to wait at most, in ms, given the other limit wait_ms. */
int            keeper_keep_families(struct keeper *keeper, int wait_ms);
void           keeper_tell_families(struct keeper *keeper);
/* Blocks; after all boxes have gone. */
void           keeper_end_families(struct keeper *keeper);
/* A payload from the zygote (forks.c): the parked one, or a new one, which is still forking then, or queued. */
MUST_CHECK int keeper_fork(struct kept_box *box, struct kept_payload *p, const struct start *start, struct err *e);
void           keeper_fork_speaks(struct keeper *keeper, struct kept_box *box, unsigned slot);
void           keeper_fork_failed(struct keeper *keeper, struct kept_box *box, unsigned slot, const struct err *e);
/* After a bad child: ends its box and the zygote. After several late children: ends the zygote. */
void           keeper_judge_fork(struct keeper *keeper, struct kept_box *box, const struct err *e);
/* The payload is freed. */
void           keeper_cancel_fork(struct keeper *keeper, struct kept_payload *p);
/* Requests the forks whose turn it is. */
void           keeper_take_fork_turns(struct keeper *keeper);
/* Ends the zygote. */
void           keeper_stop_family(struct keeper *keeper, struct kept_family *f, const struct err *cause);
/* The number of places that know this child. */
unsigned       keeper_count_known(const struct keeper *keeper, pid_t pid);

#endif
