/* Network namespaces. */
#ifndef CARREL_SYS_NETWORK_H
#define CARREL_SYS_NETWORK_H

#include "base/err.h"

/* Brings the loopback interface of the calling process's network namespace up. 0 or -errno. */
MUST_CHECK int network_loopback_up(void);

/* A socket that belongs to another network namespace; its descriptor, or -errno. The caller itself never enters it: who
 * is not root outside could not come back, because the host's network namespace is not his. */
MUST_CHECK int network_socket_in(int namespace, int family, int type);

#endif
