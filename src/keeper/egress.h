/* The keeper's side of carrel-egress: boxes with network get sockets, egress gets those. */
#ifndef CARREL_KEEPER_EGRESS_H
#define CARREL_KEEPER_EGRESS_H

#include "keeper/keeper.h"

/* Connects if it is not connected and it is time to. */
void           keeper_egress_connect(struct keeper *keeper);
/* Its link is readable: it has nothing to say, so it has gone. */
void           keeper_egress_ended(struct keeper *keeper);
/* A front is there: it and egress get a link to each other. */
void           keeper_egress_introduce(struct keeper *keeper);

/* Init has prepared the box's network, or the box has none. */
void           keeper_egress_box_ready(struct keeper *keeper, struct kept_box *box);
void           keeper_egress_box_gone(struct keeper *keeper, struct kept_box *box);
/* REQUEST_NET: a ready box gets a network, or egress forgets it. Answered by EVENT_DONE when that is done. */
MUST_CHECK int keeper_egress_change(struct keeper *keeper, struct kept_box *box, const struct request_net *q,
                                    struct err *e);
/* Init tells which names programs of a box without network asked for. */
void           keeper_door_speaks(struct keeper *keeper, struct kept_box *box);
/* The child that prepares a box's network has spoken. */
void           keeper_egress_job_done(struct keeper *keeper);
/* When all boxes are gone. */
void           keeper_egress_close(struct keeper *keeper);

#endif
