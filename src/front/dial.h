/* A helper that connects to the keeper, or to the broker, when the front can no longer connect. */
#ifndef CARREL_FRONT_DIAL_H
#define CARREL_FRONT_DIAL_H

#include "base/err.h"

/* Starts the helper; path is the only address that it will ever connect to, where whom listens. ret: our end of a
 * socket pair. It ends when that is closed. */
MUST_CHECK int dial_start(const char *whom, const char *path, int *ret, struct err *e);

/* Requests a connection. 0, or -errno: the helper is gone. */
MUST_CHECK int dial_ask(int helper);
/* The answer, when helper is readable. 0: a socket (non-blocking, close-on-exec), or -1 and the errno of connect() in
 * *ret_code; -EAGAIN; another -errno: the helper is gone. */
MUST_CHECK int dial_answer(int helper, int *ret_code, int *ret_socket);

#endif
