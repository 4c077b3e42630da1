#define _GNU_SOURCE
#include "sys/network.h"

#include <errno.h>
#include <net/if.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "base/fd.h"

int network_loopback_up(void)
{
    FD fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;

    struct ifreq request = { .ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING };
    return ioctl(fd, SIOCSIFFLAGS, &request) < 0 ? -errno : 0;
}
