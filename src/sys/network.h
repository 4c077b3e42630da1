/* Network namespaces. */
#ifndef CARREL_SYS_NETWORK_H
#define CARREL_SYS_NETWORK_H

#include "base/err.h"

/* Brings the loopback interface of the calling process's network namespace up. 0 or -errno. */
MUST_CHECK int network_loopback_up(void);

/* Bounds the socket memory of the calling process's network namespace that the kernel charges to no cgroup. proc_sys is
 * a descriptor of /proc/sys; needs CAP_NET_ADMIN over the namespace. 0 or -errno. */
MUST_CHECK int network_bound_buffers(int proc_sys);

/* A socket in another network namespace; its descriptor, or -errno. The caller itself never enters the namespace:
 * without root outside it could not come back. */
MUST_CHECK int network_socket_in(int namespace, int family, int type);

#endif
