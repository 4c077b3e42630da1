/* Listeners, opened before anybody gives up rights. */
#ifndef CARREL_SERVER_LISTEN_H
#define CARREL_SERVER_LISTEN_H

#include <sys/types.h>

#include "base/err.h"

/* Takes the place of a socket that nobody serves any more. mode: 0666 if everybody may connect, 0600 if only root and
 * who calls this. */
MUST_CHECK int listen_unix(const char *path, mode_t mode, int *ret, struct err *e);
/* The same for packets between processes of this server. */
MUST_CHECK int listen_packets(const char *path, int *ret, struct err *e);
/* ADDRESS:PORT. */
MUST_CHECK int listen_tcp(const char *address, int *ret, struct err *e);

#endif
