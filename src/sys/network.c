#define _GNU_SOURCE
#include "sys/network.h"

#include <errno.h>
#include <net/if.h>
#include <sched.h>
#include <signal.h>
#include <stdalign.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"

int network_loopback_up(void)
{
    FD fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;

    struct ifreq request = { .ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING };
    return ioctl(fd, SIOCSIFFLAGS, &request) < 0 ? -errno : 0;
}

int network_bound_buffers(int proc_sys)
{
    static const struct {
        const char *file, *value;
    } settings[] = {
        /* The kernel charges a connection to the process that accepts it; what it received before that is charged to no
         * cgroup. */
        { "net/ipv4/tcp_rmem", "4096 65536 131072" },
        /* Remains of closed connections, kept for a minute. */
        { "net/ipv4/tcp_max_tw_buckets", "4096" },
        /* Lists of multicast sources and the like, per socket. Older kernels have one setting for the host, and it is
         * no larger. */
        { "net/core/optmem_max", "20480" },
    };

    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        int r = fd_write_file(proc_sys, settings[i].file, settings[i].value);
        if (r < 0 && r != -ENOENT)
            return r;
    }
    return 0;
}

struct socket_order {
    int namespace, family, type;
    int result;     /* a descriptor, or -errno */
};

static int make_socket(void *argument)
{
    struct socket_order *order = argument;

    if (setns(order->namespace, CLONE_NEWNET) < 0)
        order->result = -errno;
    else if ((order->result = socket(order->family, order->type | SOCK_CLOEXEC, 0)) < 0)
        order->result = -errno;
    _exit(0);
}

int network_socket_in(int namespace, int family, int type)
{
    alignas(16) char stack[16384];
    struct socket_order order = { .namespace = namespace, .family = family, .type = type, .result = -EIO };

    /* The child shares our memory and descriptors, but not our namespaces; we continue when it has exited. */
    pid_t child = clone(make_socket, stack + sizeof stack, CLONE_VM | CLONE_VFORK | CLONE_FILES, &order);
    if (child < 0)
        return -errno;
    while (waitpid(child, NULL, __WALL) < 0 && errno == EINTR)
        ;
    return order.result;
}
