/* How a caller's directory comes through the front without the front being able to forge one.
 *
 * The caller makes a socket pair, sends the descriptor that it opened (one message: one byte, one descriptor) into one
 * end, and gives the other end to the front, which gives it to the keeper. The kernel says who made the pair
 * (SO_PEERCRED): that is whose rights the descriptor was opened with, and whose files may be mapped to the box's user.
 * Of a socket that was connected the kernel says who listened, which may be root for anybody: so only a pair will do.
 * A front that was taken over can pass on what callers gave to it, and make up nothing. */
#ifndef CARREL_KEEPER_ENVELOPE_H
#define CARREL_KEEPER_ENVELOPE_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"

/* Opens one: *fd becomes the descriptor inside. An O_PATH descriptor is refused, because it can be had without any
 * right. trusting: a descriptor that is no socket is taken as it is (a rootless keeper, whose front is the same user).
 * What is inside stays there, too: if a family gives no box, the front asks once more for one without. */
MUST_CHECK int envelope_open(int *fd, bool trusting, uid_t *ret_uid, gid_t *ret_gid, struct err *e);

#endif
