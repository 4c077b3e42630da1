/* Listeners, opened before anybody gives up rights. */
#ifndef CARREL_SERVER_LISTEN_H
#define CARREL_SERVER_LISTEN_H

#include "base/err.h"

/* Takes the place of a socket that nobody serves any more. */
MUST_CHECK int listen_unix(const char *path, int *ret, struct err *e);
/* ADDRESS:PORT. */
MUST_CHECK int listen_tcp(const char *address, int *ret, struct err *e);

#endif
