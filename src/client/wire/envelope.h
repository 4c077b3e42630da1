/* How a directory of the caller's is handed to a server that may be root (docs/decisions/011). */
#ifndef CARREL_CLIENT_WIRE_ENVELOPE_H
#define CARREL_CLIENT_WIRE_ENVELOPE_H

#include "base/err.h"

/* The opened directory in an envelope: a message in a socket pair that this process made, so that the keeper hears from
 * the kernel whose it is. The caller keeps fd and owns *ret. */
MUST_CHECK int envelope_make(int fd, int *ret);

#endif
