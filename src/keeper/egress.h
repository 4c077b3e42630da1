/* The keeper's side of carrel-egress: it makes sockets in boxes with network and passes them to egress. */
#ifndef CARREL_KEEPER_EGRESS_H
#define CARREL_KEEPER_EGRESS_H

#include "keeper/keeper.h"

/* Connects if it is not connected and a retry is due. */
void           keeper_egress_connect(struct keeper *keeper);
/* Its link is readable: egress never sends, so it has gone. */
void           keeper_egress_ended(struct keeper *keeper);
/* A front has connected: gives it and egress a link to each other. */
void           keeper_egress_introduce(struct keeper *keeper);
/* Its requests have no answer any more: another front numbers its own from the start. */
void           keeper_egress_front_gone(struct keeper *keeper);

/* Init has prepared the box's network, or the box has none. */
void           keeper_egress_box_ready(struct keeper *keeper, struct kept_box *box);
void           keeper_egress_box_gone(struct keeper *keeper, struct kept_box *box);
/* REQUEST_NET: gives a ready box a network, or makes egress forget it. Answered by EVENT_DONE afterwards. */
MUST_CHECK int keeper_egress_change(struct keeper *keeper, struct kept_box *box, const struct request_net *q,
                                    struct err *e);
/* Init reports the names that programs of a box without network looked up. */
void           keeper_door_speaks(struct keeper *keeper, struct kept_box *box);
/* A command has failed: reports that addresses were tried since the last one did, in a box without network. */
void           keeper_count_unrouted(struct keeper *keeper, struct kept_box *box);
/* REQUEST_NAMES: passes on what init has reported, and makes it report all names again. */
void           keeper_begin_command(struct keeper *keeper, struct kept_box *box);
/* The child that prepares a box's network has answered. */
void           keeper_egress_job_done(struct keeper *keeper);
/* Call it when all boxes are gone. */
void           keeper_egress_close(struct keeper *keeper);

#endif
