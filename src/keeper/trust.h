/* Certificates of a box's own, which the front passes on from the broker. */
#ifndef CARREL_KEEPER_TRUST_H
#define CARREL_KEEPER_TRUST_H

#include "box/spec.h"

/* Maps both files. They must be sealed: a file that the front could still cut would kill this process. */
MUST_CHECK int keeper_take_trust(const int fds[2], struct box_trust *ret, struct err *e);
/* A no-op for a zeroed one. */
void           keeper_drop_trust(struct box_trust *trust);

#endif
