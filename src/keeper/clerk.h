/* The clerk: a child of the keeper that starts builders of layers (`carrel layer build`), and lists and removes an
 * owner's layers in the same way.
 *
 * It is forked before the keeper enters a user namespace, because a builder is a program that any user of this machine
 * could start: it makes a box of its own. The clerk only reads orders of the keeper. A builder's output goes straight
 * to the front, through a pipe that came with the request. When the keeper ends, the clerk and all builders end. */
#ifndef CARREL_KEEPER_CLERK_H
#define CARREL_KEEPER_CLERK_H

#include <stddef.h>

#include "base/err.h"
#include "proto/keeper.h"

struct clerk {
    int link;                   /* owned; -1: there is no clerk, and no layer can be made */
};

/* python: of each template, in their order; "" is the default one of this machine. */
MUST_CHECK int clerk_start(struct clerk *ret, const char *const *python, size_t n, struct err *e);
/* fds: the list of packages, and the builder's output pipe. */
MUST_CHECK int clerk_order(const struct clerk *clerk, const struct request_layer *order, const int fds[2],
                           struct err *e);

#endif
