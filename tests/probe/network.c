/* The network boundary of a box without network. Before anything is sent the probe checks that loopback is the only
 * interface, so that a leaking box is reported without sending a packet. */
#define _GNU_SOURCE
#include "probe.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_packet.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <net/route.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

static void only_loopback(void)
{
    struct if_nameindex *all = if_nameindex();
    if (!all)
        note("no list of interfaces: %s", errno_name(errno));
    for (struct if_nameindex *one = all; all && one->if_index; one++)
        if (strcmp(one->if_name, "lo") != 0)
            broken("there is an interface %s", one->if_name);
    if (all)
        if_freenameindex(all);
    char text[4096];
    if (read_text("/proc/net/route", text, sizeof(text)) > 0 && strchr(text, '\n') && strchr(text, '\n')[1])
        broken("there is a route: %s", text);
}

static int connect_to(const char *address, int port, int type)
{
    struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
    struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port) };
    int is4 = inet_aton(address, &v4.sin_addr);
    if (!is4 && inet_pton(AF_INET6, address, &v6.sin6_addr) != 1)
        broken("bad address %s", address);
    int fd = socket(is4 ? AF_INET : AF_INET6, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    int r = is4 ? connect(fd, (void *)&v4, sizeof(v4)) : connect(fd, (void *)&v6, sizeof(v6));
    if (r < 0 && errno == EINPROGRESS) {
        struct pollfd wait = { .fd = fd, .events = POLLOUT };
        poll(&wait, 1, 10000);
        int error = ETIMEDOUT;
        socklen_t length = sizeof(error);
        getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
        errno = error;
        r = error ? -1 : 0;
    }
    int error = errno;
    close(fd);
    errno = error;
    return r;
}

#define UNREACHABLE ECONNREFUSED, ENETUNREACH, EHOSTUNREACH, EADDRNOTAVAIL, EACCES, EPERM, EAFNOSUPPORT

static int host_port(void)
{
    const char *port = arg_get("port");
    if (!port)
        skipped("no port");
    return (int)strtol(port, NULL, 10);
}

static void host_listener(void)
{
    static const char *const names[] = { "127.0.0.1",  "127.0.0.2",        "127.1",         "2130706433",
                                         "0x7f000001", "0177.0.0.1",       "::1",           "0.0.0.0",
                                         "::",         "::ffff:127.0.0.1", "::ffff:0.0.0.0" };
    only_loopback();
    for (size_t i = 0; i < COUNT(names); i++)
        MUST_FAIL_AS(names[i], connect_to(names[i], host_port(), SOCK_STREAM), UNREACHABLE);
    if (arg_get("address"))
        MUST_FAIL_AS("the host's own address", connect_to(arg_get("address"), host_port(), SOCK_STREAM), UNREACHABLE);
}

static void outside_addresses(void)
{
    static const char *const names[] = { "192.0.2.1",
                                         "169.254.169.254",
                                         "2852039166",
                                         "0251.0376.0251.0376",
                                         "100.100.100.200",
                                         "fd00:ec2::254",
                                         "::ffff:169.254.169.254",
                                         "10.0.0.1",
                                         "172.17.0.1",
                                         "192.168.0.1",
                                         "2001:db8::1",
                                         "fe80::1",
                                         "ff02::1" };
    only_loopback();
    for (size_t i = 0; i < COUNT(names); i++)
        MUST_FAIL_AS(names[i], connect_to(names[i], 80, SOCK_STREAM), UNREACHABLE, EINVAL, ENODEV);
    for (size_t i = 0; i < COUNT(names); i++)
        MUST_FAIL_AS(names[i], connect_to(names[i], 53, SOCK_DGRAM), UNREACHABLE, EINVAL, ENODEV);
}

static void datagrams(void)
{
    only_loopback();
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), on = 1;
    setsockopt(fd, SOL_SOCKET, SO_BROADCAST, &on, sizeof(on));
    static const char *const names[] = { "192.0.2.1", "255.255.255.255", "224.0.0.1" };
    for (size_t i = 0; i < COUNT(names); i++) {
        struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(53) };
        inet_aton(names[i], &to.sin_addr);
        MUST_FAIL_AS(names[i], sendto(fd, "x", 1, 0, (void *)&to, sizeof(to)), UNREACHABLE, EINVAL, ENODEV);
    }
}

static void families(void)
{
    for (int family = 0; family <= 46; family++) {
        if (family == AF_UNIX || family == AF_INET || family == AF_INET6)
            continue;
        char what[32];
        snprintf(what, sizeof(what), "family %d", family);
        /* Route netlink is the one exception; netlink_families() tries the others. */
        for (int type = 1; type <= 5; type++)
            if (family != AF_NETLINK || (type != SOCK_RAW && type != SOCK_DGRAM))
                MUST_FAIL_AS(what, socket(family, type, 0), EAFNOSUPPORT, EPERM, EINVAL, EACCES);
        int pair[2];
        MUST_FAIL_AS(what, socketpair(family, SOCK_STREAM, 0, pair), EAFNOSUPPORT, EPERM, EINVAL, EACCES, EOPNOTSUPP);
    }
    MUST_FAIL(syscall(SYS_socket, 38 | 1L << 32, 5, 0), EAFNOSUPPORT, EPERM, EINVAL);
}

static void raw_sockets(void)
{
    MUST_FAIL(socket(AF_INET, SOCK_RAW, IPPROTO_ICMP), EPERM, EACCES, EAFNOSUPPORT, EPROTONOSUPPORT);
    MUST_FAIL(socket(AF_INET, SOCK_RAW, IPPROTO_RAW), EPERM, EACCES, EAFNOSUPPORT, EPROTONOSUPPORT);
    MUST_FAIL(socket(AF_INET6, SOCK_RAW, IPPROTO_ICMPV6), EPERM, EACCES, EAFNOSUPPORT, EPROTONOSUPPORT);
    MUST_FAIL(socket(AF_INET, 10 /* SOCK_PACKET */, 0x0300), EPERM, EACCES, EAFNOSUPPORT, EPROTONOSUPPORT, EINVAL,
              ESOCKTNOSUPPORT);
    MUST_FAIL(socket(AF_INET, SOCK_DGRAM, IPPROTO_ICMP), EPERM, EACCES, EAFNOSUPPORT, EPROTONOSUPPORT);
    /* Protocols that would load a module on the host. */
    static const int protocols[] = { 132 /* SCTP */, 33 /* DCCP */, 136 /* UDP-Lite */, 115 /* L2TP */ };
    for (size_t i = 0; i < COUNT(protocols); i++)
        for (int type = 1; type <= 6; type++)
            if (protocols[i] != 136 || type != SOCK_DGRAM)
                MUST_FAIL_AS("protocol", socket(AF_INET, type, protocols[i]), EPERM, EACCES, EAFNOSUPPORT,
                             EPROTONOSUPPORT, EINVAL, ESOCKTNOSUPPORT);
}

/* All but the one for routes, which lists interfaces. */
static void netlink_families(void)
{
    for (int protocol = NETLINK_ROUTE + 1; protocol < 32; protocol++) {
        char what[32];
        snprintf(what, sizeof(what), "netlink %d", protocol);
        MUST_FAIL_AS(what, socket(AF_NETLINK, SOCK_RAW, protocol), EAFNOSUPPORT, EPERM, EPROTONOSUPPORT, EACCES,
                     EINVAL);
    }
}

/* Sends one route-netlink request; returns the errno of the answer. */
static int route_request(int type, const void *body, size_t size)
{
    struct {
        struct nlmsghdr header;
        char body[128];
    } message = { 0 };
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    if (fd < 0)
        return EAFNOSUPPORT;    /* strict has none */
    message.header.nlmsg_len = (uint32_t)(sizeof(message.header) + size);
    message.header.nlmsg_type = (uint16_t)type;
    message.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE;
    memcpy(message.body, body, size);
    struct sockaddr_nl kernel = { .nl_family = AF_NETLINK };
    if (sendto(fd, &message, message.header.nlmsg_len, 0, (void *)&kernel, sizeof(kernel)) < 0) {
        int error = errno;
        close(fd);
        return error;
    }
    struct {
        struct nlmsghdr header;
        struct nlmsgerr error;
        char rest[512];
    } answer = { 0 };
    ssize_t n = recv(fd, &answer, sizeof(answer), 0);
    close(fd);
    if (n < (ssize_t)(sizeof(answer.header) + sizeof(int)))
        return EIO;
    return -answer.error.error;
}

static void expect_route_refused(const char *what, int type, const void *body, size_t size)
{
    int error = route_request(type, body, size);
    if (error != EPERM && error != EAFNOSUPPORT && error != EACCES && error != EOPNOTSUPP)
        broken("%s: %s", what, error ? errno_name(error) : "succeeded");
}

static void change_network(void)
{
    struct ifinfomsg link = { .ifi_family = AF_UNSPEC, .ifi_index = 1, .ifi_change = IFF_UP };
    struct ifaddrmsg address = { .ifa_family = AF_INET, .ifa_prefixlen = 24, .ifa_index = 1 };
    struct rtmsg route = { .rtm_family = AF_INET, .rtm_table = RT_TABLE_MAIN, .rtm_type = RTN_UNICAST };
    expect_route_refused("set link", RTM_NEWLINK, &link, sizeof(link));
    expect_route_refused("delete link", RTM_DELLINK, &link, sizeof(link));
    expect_route_refused("add address", RTM_NEWADDR, &address, sizeof(address));
    expect_route_refused("add route", RTM_NEWROUTE, &route, sizeof(route));
    struct {
        unsigned char family;
        char pad[3];
    } id = { 0 };
    expect_route_refused("name a namespace", 88 /* RTM_NEWNSID */, &id, sizeof(id));
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct ifreq request = { .ifr_name = "lo" };
    MUST_FAIL(ioctl(fd, SIOCSIFFLAGS, &request), EPERM, ENOTTY, EACCES);
    MUST_FAIL(ioctl(fd, SIOCSIFMTU, &request), EPERM, ENOTTY, EACCES);
    MUST_FAIL(ioctl(fd, SIOCSIFHWADDR, &request), EPERM, ENOTTY, EACCES);
    MUST_FAIL(ioctl(fd, SIOCSIFADDR, &request), EPERM, ENOTTY, EACCES);
    struct rtentry entry = { .rt_flags = RTF_UP };
    MUST_FAIL(ioctl(fd, SIOCADDRT, &entry), EPERM, ENOTTY, EACCES, EINVAL);
    MUST_FAIL(ioctl(fd, 0x89a0 /* SIOCBRADDBR */, "br0"), EPERM, ENOTTY, EACCES, ENOPKG, EINVAL);
}

static void socket_options(void)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), value = 1;
    MUST_FAIL(setsockopt(fd, SOL_SOCKET, SO_MARK, &value, sizeof(value)), EPERM, ENOPROTOOPT);
    MUST_FAIL(setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &value, sizeof(value)), EPERM, ENOPROTOOPT);
    MUST_FAIL(setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &value, sizeof(value)), EPERM, ENOPROTOOPT);
    MUST_FAIL(setsockopt(fd, SOL_SOCKET, SO_DEBUG, &value, sizeof(value)), EPERM, EACCES, ENOPROTOOPT);
    MUST_FAIL(setsockopt(fd, 0, 19 /* IP_TRANSPARENT */, &value, sizeof(value)), EPERM, ENOPROTOOPT);
    MUST_FAIL(setsockopt(fd, 0, 64 /* IPT_SO_SET_REPLACE */, &value, sizeof(value)), EPERM, ENOPROTOOPT);
    MUST_FAIL(setsockopt(fd, 6, 19 /* TCP_REPAIR */, &value, sizeof(value)), EPERM, ENOPROTOOPT);
    MUST_FAIL(setsockopt(fd, SOL_SOCKET, 50 /* SO_ATTACH_BPF */, &value, sizeof(value)), EPERM, EINVAL, EBADF,
              ENOPROTOOPT);
}

static int connect_abstract(const char *name, int type)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    size_t length = strlen(name);
    memcpy(address.sun_path + 1, name, length);
    int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
    int r = connect(fd, (void *)&address, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length));
    int error = errno;
    close(fd);
    errno = error;
    return r;
}

static void abstract_sockets(void)
{
    const char *name = arg_get("abstract");
    if (!name)
        skipped("no abstract name");
    MUST_FAIL(connect_abstract(name, SOCK_STREAM), ECONNREFUSED, EPERM, EACCES);
    MUST_FAIL(connect_abstract("/containerd-shim/x.sock", SOCK_STREAM), ECONNREFUSED, EPERM, EACCES);
    MUST_FAIL(connect_abstract("/org/kernel/linux/storage/multipathd", SOCK_STREAM), ECONNREFUSED, EPERM, EACCES);
    MUST_FAIL(connect_abstract("/tmp/.X11-unix/X0", SOCK_STREAM), ECONNREFUSED, EPERM, EACCES);
}

static void loopback_works(void)
{
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t length = sizeof(address);
    if (bind(listener, (void *)&address, sizeof(address)) < 0 || listen(listener, 1) < 0)
        broken("bind: %s", errno_name(errno));
    getsockname(listener, (void *)&address, &length);
    if (connect_to("127.0.0.1", ntohs(address.sin_port), SOCK_STREAM) < 0)
        broken("connect: %s", errno_name(errno));
}

static void low_ports(void)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(22) };
    /* The namespace is the box's own, so success would do no harm. The harness looks from outside. */
    if (bind(fd, (void *)&address, sizeof(address)) < 0)
        held("%s", errno_name(errno));
    note("port 22 of the box's own namespace");
}

static void ring_sockets(void)
{
    char params[120] = { 0 };
    MUST_BE_REFUSED(syscall(425 /* io_uring_setup */, 8, params));
    MUST_BE_REFUSED(syscall(426 /* io_uring_enter */, 0, 0, 0, 0, NULL, 0));
    MUST_BE_REFUSED(syscall(427 /* io_uring_register */, 0, 0, NULL, 0));
}

static void pass_descriptors(void)
{
    /* Passing descriptors inside the box works and is bounded by the files limit; a cycle in flight is collected. */
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        broken("socketpair: %s", errno_name(errno));
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(sizeof(int))];
    } control = { 0 };
    struct iovec data = { (char *)"x", 1 };
    struct msghdr message = {
        .msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)
    };
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &pair[0], sizeof(int));
    if (sendmsg(pair[0], &message, MSG_DONTWAIT) < 0)
        broken("sendmsg: %s", errno_name(errno));
    /* False credentials are not passed on. */
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(12)];
    } forged = { 0 };
    struct {
        pid_t pid;
        uid_t uid;
        gid_t gid;
    } credentials = { 1, 0, 0 };
    message.msg_control = &forged;
    message.msg_controllen = sizeof(forged);
    header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = 2 /* SCM_CREDENTIALS */;
    header->cmsg_len = CMSG_LEN(12);
    memcpy(CMSG_DATA(header), &credentials, 12);
    MUST_FAIL(sendmsg(pair[0], &message, MSG_DONTWAIT), EPERM, EINVAL, ESRCH);
}

static const struct attack attacks[] = {
    { "loopback_is_the_only_interface", only_loopback },
    { "a_listener_of_the_host_is_unreachable_by_any_name", host_listener },
    { "outside_addresses_are_unreachable", outside_addresses },
    { "datagrams_cannot_leave", datagrams },
    { "only_unix_and_inet_families_exist", families },
    { "raw_and_packet_sockets_are_refused", raw_sockets },
    { "no_netlink_but_the_one_for_routes_can_be_opened", netlink_families },
    { "links_addresses_and_routes_cannot_be_changed", change_network },
    { "privileged_socket_options_are_refused", socket_options },
    { "abstract_sockets_of_the_host_are_unreachable", abstract_sockets },
    { "the_boxs_own_loopback_works", loopback_works },
    { "low_ports_are_the_boxs_own", low_ports },
    { "io_uring_is_refused", ring_sockets },
    { "credentials_cannot_be_forged_over_a_socket", pass_descriptors },
};
const struct topic topic_network = { "network", attacks, COUNT(attacks) };
