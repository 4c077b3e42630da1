/* Hands a directory of the caller to a server that may be root (docs/decisions/011). */
#ifndef CARREL_CLIENT_WIRE_ENVELOPE_H
#define CARREL_CLIENT_WIRE_ENVELOPE_H

#include "base/err.h"

/* Puts the open directory into an envelope: a message in a socket pair that this process made, so that the kernel tells
 * the keeper who sent it. The caller keeps fd and owns *ret. */
MUST_CHECK int envelope_make(int fd, int *ret);

#endif
