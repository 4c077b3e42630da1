/* Network namespaces. */
#ifndef CARREL_SYS_NETWORK_H
#define CARREL_SYS_NETWORK_H

#include "base/err.h"

/* Brings the loopback interface of the calling process's network namespace up. 0 or -errno. */
MUST_CHECK int network_loopback_up(void);

/* Bounds what sockets of the calling process's network namespace keep in the kernel's memory that is charged to nobody.
 * proc_sys is a descriptor of /proc/sys; CAP_NET_ADMIN over the namespace is needed. 0 or -errno. */
MUST_CHECK int network_bound_buffers(int proc_sys);

/* A socket that belongs to another network namespace; its descriptor, or -errno. The caller itself never enters it: who
 * is not root outside could not come back, because the host's network namespace is not his. */
MUST_CHECK int network_socket_in(int namespace, int family, int type);

#endif
