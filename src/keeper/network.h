/* Sockets in a box's network that the front gets. */
#ifndef CARREL_KEEPER_NETWORK_H
#define CARREL_KEEPER_NETWORK_H

#include "base/err.h"
#include "box/box.h"
#include "proto/keeper.h"

/* Each returns a descriptor of the caller's, or -errno. */
MUST_CHECK int keeper_connect(const struct box *box, const struct request_connect *q, struct err *e);
/* The box's inlet, which is made if there is none; the box keeps it. */
MUST_CHECK int keeper_open_inlet(struct box *box, struct err *e);

#endif
