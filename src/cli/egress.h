/* `carrel run --allow`: starts a carrel-egress for this run. */
#ifndef CARREL_CLI_EGRESS_H
#define CARREL_CLI_EGRESS_H

#include <sys/types.h>

#include "box/box.h"
#include "proto/net.h"
#include "proto/refusals.h"

/* The number of the one box. */
enum { RUN_EGRESS_BOX = 1 };

struct run_egress {
    int             link;           /* owned; -1: the box has no network */
    pid_t           pid;
    uint32_t        way;            /* enum egress_way */
    struct refusals refusals;
};

/* Starts it, before this process enters a user namespace. With a policy of no network nothing is started. */
MUST_CHECK int run_egress_open(struct run_egress *egress, const struct net_policy *policy,
                               const struct net_bounds *bounds, struct err *e);
/* Passes the box's sockets on, once init has sent them. */
MUST_CHECK int run_egress_attach(struct run_egress *egress, struct engine_box *box, struct err *e);
/* Collects refusals so far, from egress or, in a box without network, from its init. Never blocks. */
void           run_egress_hear(struct run_egress *egress, const struct engine_box *box);
/* The command has failed: if it tried addresses in a box without network, that is recorded, too. */
void           run_egress_count(struct run_egress *egress, const struct engine_box *box);
void           run_egress_close(struct run_egress *egress);

#endif
