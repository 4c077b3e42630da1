/* Passes a caller's directory through the front so that the front cannot forge one.
 *
 * The caller makes a socket pair, sends the descriptor that it opened (one message: one byte, one descriptor) into one
 * end, and gives the other end to the front, which gives it to the keeper. The kernel reports who made the pair
 * (SO_PEERCRED): the descriptor was opened with that user's rights, and that user's files may be mapped to the box's
 * user. Of a connected socket the kernel reports the listener, which may be root for any client: so only a pair is
 * accepted. An attacker who takes over the front can pass on callers' descriptors, and forge none. */
#ifndef CARREL_KEEPER_ENVELOPE_H
#define CARREL_KEEPER_ENVELOPE_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"

/* Opens one: *fd becomes the descriptor inside. An O_PATH descriptor is refused, because it can be had without any
 * right. trusting: a descriptor that is no socket is taken directly (a rootless keeper, whose front is the same user).
 * The envelope keeps its contents, because the front asks again for a box without a family if the family gives none. */
MUST_CHECK int envelope_open(int *fd, bool trusting, uid_t *ret_uid, gid_t *ret_gid, struct err *e);

#endif
