/* Listeners, opened before the process drops its rights. */
#ifndef CARREL_SERVER_LISTEN_H
#define CARREL_SERVER_LISTEN_H

#include <sys/types.h>

#include "base/err.h"

/* Replaces a socket that no process serves any more. mode: 0666 if every user may connect, 0600 if only root and the
 * calling user. */
MUST_CHECK int listen_unix(const char *path, mode_t mode, int *ret, struct err *e);
/* For packets between processes of this server, which has locked the state that path is named after. */
MUST_CHECK int listen_packets(const char *path, int *ret, struct err *e);
/* ADDRESS:PORT. */
MUST_CHECK int listen_tcp(const char *address, int *ret, struct err *e);

#endif
