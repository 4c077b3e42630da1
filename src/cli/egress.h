/* `carrel run --allow`: a carrel-egress of this run's own. */
#ifndef CARREL_CLI_EGRESS_H
#define CARREL_CLI_EGRESS_H

#include <sys/types.h>

#include "box/box.h"
#include "proto/net.h"
#include "proto/refusals.h"

struct run_egress {
    int             link;           /* owned; -1: the box has no network */
    pid_t           pid;
    uint32_t        way;            /* enum egress_way */
    struct refusals refusals;
};

/* Starts it, before this process may enter a user namespace: it needs nothing from there. With a policy of no network
 * nothing is started. */
MUST_CHECK int run_egress_open(struct run_egress *egress, const struct net_policy *policy, struct err *e);
/* Hands the box's sockets on, if init has sent them. */
MUST_CHECK int run_egress_attach(struct run_egress *egress, struct engine_box *box, struct err *e);
/* Notes what was refused so far, by egress or, in a box without network, by its init. Never waits. */
void           run_egress_hear(struct run_egress *egress, const struct engine_box *box);
void           run_egress_close(struct run_egress *egress);

#endif
