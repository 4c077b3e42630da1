/* Network namespaces. */
#ifndef CARREL_SYS_NETWORK_H
#define CARREL_SYS_NETWORK_H

#include "base/err.h"

/* Brings the loopback interface of the calling process's network namespace up. 0 or -errno. */
MUST_CHECK int network_loopback_up(void);

#endif
