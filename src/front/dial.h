/* Who connects to the keeper when the front no longer can. */
#ifndef CARREL_FRONT_DIAL_H
#define CARREL_FRONT_DIAL_H

#include "base/err.h"

/* Starts the helper; path is the only address that it will ever connect to. ret: our end of a pair with it. It ends
 * when that is closed. */
MUST_CHECK int dial_start(const char *path, int *ret, struct err *e);

/* Asks for a connection. 0, or -errno: the helper is gone. */
MUST_CHECK int dial_ask(int helper);
/* The answer, when helper is readable. 0: a socket (non-blocking, close-on-exec), or -1 and the errno of connect() in
 * *ret_code; -EAGAIN; another -errno: the helper is gone. */
MUST_CHECK int dial_answer(int helper, int *ret_code, int *ret_socket);

#endif
