/* Sockets in a box's network for the front. */
#ifndef CARREL_KEEPER_NETWORK_H
#define CARREL_KEEPER_NETWORK_H

#include "base/err.h"
#include "box/box.h"
#include "proto/keeper.h"

/* Returns a descriptor that the caller owns, or -errno. */
MUST_CHECK int keeper_make_socket(struct engine_box *box, const struct request_socket *q, struct err *e);

#endif
