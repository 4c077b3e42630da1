/* Kernel memory of sockets: how much of it can a box get that is charged to no cgroup? SO_MEMINFO of each socket shows
 * its queues, so that the result does not depend on other activity on the machine. */
#define _GNU_SOURCE
#include "probe.h"

#include <arpa/inet.h>
#include <linux/errqueue.h>
#include <linux/net_tstamp.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SOCKETS_MOST = 4000, MEMINFO = 55 };

static int sockets[SOCKETS_MOST];
static int wanted(int argc, char **argv)
{
    int n = argc > 0 ? (int)strtol(argv[0], NULL, 10) : 300;
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    return n < SOCKETS_MOST ? n : SOCKETS_MOST;
}

/* What the receive queue and the error queue of a socket hold, in bytes of the kernel's. */
static unsigned long long held_by(int fd)
{
    uint32_t info[SK_MEMINFO_VARS] = { 0 };
    socklen_t size = sizeof(info);
    getsockopt(fd, SOL_SOCKET, MEMINFO, info, &size);
    return info[SK_MEMINFO_RMEM_ALLOC];
}

static void ask_for_room(int fd)
{
    int most = 1 << 30;
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &most, sizeof(most));
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &most, sizeof(most));
}

static int report_held(int n)
{
    unsigned long long total = 0;
    int error = errno;
    for (int i = 0; i < n; i++)
        total += held_by(sockets[i]);
    say("{\"sockets\":%d,\"held\":%llu,\"errno\":\"%s\"}", n, total, errno_name(error));
    return 0;
}

/* Unread answers. */
static int netlink_fill(int argc, char **argv)
{
    int want = wanted(argc, argv), n = 0;
    for (; n < want; n++) {
        int fd = sockets[n] = socket(AF_NETLINK, SOCK_RAW | SOCK_NONBLOCK, NETLINK_ROUTE);
        if (fd < 0)
            break;
        ask_for_room(fd);
        struct {
            struct nlmsghdr header;
            struct rtgenmsg body;
        } ask = { { sizeof(ask), RTM_GETLINK, NLM_F_REQUEST | NLM_F_DUMP, 1, 0 }, { AF_UNSPEC } };
        unsigned long long before = 0, now = 0;
        do {
            before = now;
            for (int i = 0; i < 16; i++)
                send(fd, &ask, sizeof(ask), 0);
            /* An error is an answer, too. */
            ask.header.nlmsg_type = ask.header.nlmsg_type == RTM_GETLINK ? 99 : RTM_GETLINK;
            ask.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK;
        } while ((now = held_by(fd)) > before);
    }
    return report_held(n);
}

static int open_netlink(int want, int *fds)
{
    int n = 0;
    while (n < want && (fds[n] = socket(AF_NETLINK, SOCK_RAW | SOCK_NONBLOCK, NETLINK_ROUTE)) >= 0)
        n++;
    return n;
}

static void close_all(int n, const int *fds)
{
    for (int i = 0; i < n; i++)
        close(fds[i]);
}

/* The possible number of sockets: with a child that also tries, and while one is in an unreceived message. */
static int netlink_count(int argc, char **argv)
{
    static int more[4];
    static char large[100000];
    int want = wanted(argc, argv), status = 0, pair[2];
    int opened = open_netlink(want, sockets);
    const char *why = errno_name(errno);
    if (opened == 0) {
        say("{\"opened\":0,\"errno\":\"%s\"}", why);
        return 0;
    }

    pid_t child = fork();
    if (child == 0)
        _exit(open_netlink(4, more));
    waitpid(child, &status, 0);

    const char *too_large = send(sockets[0], large, sizeof(large), 0) < 0 ? errno_name(errno) : "sent";
    /* A closed one whose last descriptor is in a message is still there. */
    socketpair(AF_UNIX, SOCK_DGRAM, 0, pair);
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(sizeof(int))];
    } control = { .header = { .cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS } };
    memcpy(CMSG_DATA(&control.header), &sockets[opened - 1], sizeof(int));
    struct iovec part = { "x", 1 };
    struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control,
                              .msg_controllen = sizeof(control.space) };
    sendmsg(pair[0], &message, 0);
    close(sockets[opened - 1]);
    int in_flight = open_netlink(4, more);

    close(pair[0]);
    close(pair[1]);
    close_all(opened - 1, sockets);
    int again = open_netlink(want, sockets);
    say("{\"opened\":%d,\"errno\":\"%s\",\"child\":%d,\"in_flight\":%d,\"again\":%d,\"large\":\"%s\"}", opened, why,
        WEXITSTATUS(status), in_flight, again, too_large);
    return 0;
}

static int make_datagrams(int fd, struct sockaddr_in *ret)
{
    socklen_t length = sizeof(*ret);
    *ret = (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    return bind(fd, (void *)ret, sizeof(*ret)) < 0 || getsockname(fd, (void *)ret, &length) < 0 ? -1 : 0;
}

/* Unread datagrams. */
static int datagram_fill(int argc, char **argv)
{
    static char block[60000];
    int want = wanted(argc, argv), n = 0, sender = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    ask_for_room(sender);
    for (; n < want; n++) {
        struct sockaddr_in to;
        int fd = sockets[n] = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
        if (fd < 0)
            break;
        ask_for_room(fd);
        if (make_datagrams(fd, &to) < 0)
            return 9;
        unsigned long long before, now = 0;
        do {
            before = now;
            sendto(sender, block, sizeof(block), 0, (void *)&to, sizeof(to));
        } while ((now = held_by(fd)) > before);
    }
    return report_held(n);
}

/* Errors of datagrams to a closed port. Each holds the sent data. */
static int error_fill(int argc, char **argv)
{
    static char block[60000];
    int want = wanted(argc, argv), n = 0, on = 1;
    for (; n < want; n++) {
        struct sockaddr_in nobody = { .sin_family = AF_INET,
                                      .sin_port = htons(9),
                                      .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
        int fd = sockets[n] = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
        if (fd < 0)
            break;
        ask_for_room(fd);
        setsockopt(fd, SOL_IP, IP_RECVERR, &on, sizeof(on));
        unsigned long long before, now = 0;
        do {
            before = now;
            for (int i = 0; i < 8; i++)
                sendto(fd, block, sizeof(block), 0, (void *)&nobody, sizeof(nobody));
        } while ((now = held_by(fd)) > before);
    }
    return report_held(n);
}

/* Times at which datagrams were sent. Each holds what was sent. Asked for by an option, or with each message. */
static int stamp_fill(int argc, char **argv)
{
    static char block[60000];
    int want = wanted(argc, argv), n = 0;
    int by_message = argc > 1 && strcmp(argv[1], "message") == 0;
    for (; n < want; n++) {
        struct sockaddr_in nobody = { .sin_family = AF_INET,
                                      .sin_port = htons(9),
                                      .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
        union {
            struct cmsghdr header;
            char space[CMSG_SPACE(sizeof(uint32_t))];
        } control = { .header = { .cmsg_len = CMSG_LEN(sizeof(uint32_t)),
                                  .cmsg_level = SOL_SOCKET,
                                  .cmsg_type = SO_TIMESTAMPING } };
        uint32_t flags = SOF_TIMESTAMPING_TX_SOFTWARE | SOF_TIMESTAMPING_TX_SCHED;
        memcpy(CMSG_DATA(&control.header), &flags, sizeof(flags));
        struct iovec part = { block, sizeof(block) };
        struct msghdr message = { .msg_name = &nobody, .msg_namelen = sizeof(nobody), .msg_iov = &part, .msg_iovlen = 1,
                                  .msg_control = by_message ? &control : NULL,
                                  .msg_controllen = by_message ? sizeof(control) : 0 };
        int fd = sockets[n] = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
        if (fd < 0)
            break;
        ask_for_room(fd);
        flags |= SOF_TIMESTAMPING_SOFTWARE;
        if (!by_message)
            setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPING, &flags, sizeof(flags));
        unsigned long long before, now = 0;
        do {
            before = now;
            for (int i = 0; i < 8; i++)
                sendmsg(fd, &message, 0);
        } while ((now = held_by(fd)) > before);
    }
    return report_held(n);
}

/* Unaccepted connections, with data. Bytes that the other side has taken are no longer the sender's. */
static int backlog_fill(int argc, char **argv)
{
    static char block[65536];
    int want = wanted(argc, argv), n = 0;
    unsigned long long total = 0;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in to;
    ask_for_room(listener);
    if (make_datagrams(listener, &to) < 0 || listen(listener, 4096) < 0)
        return 9;
    for (; n < want; n++) {
        int fd = sockets[n] = socket(AF_INET, SOCK_STREAM, 0);
        if (fd < 0 || connect(fd, (void *)&to, sizeof(to)) < 0)
            break;
        ask_for_room(fd);
    }
    int error = errno;
    /* In rounds, because windows open with what arrives. */
    for (uint64_t end = now_ms() + 5000, idle = 0; idle < 8 && now_ms() < end;) {
        unsigned long long before = total;
        for (int i = 0; i < n; i++)
            for (ssize_t got; (got = send(sockets[i], block, sizeof(block), MSG_DONTWAIT | MSG_NOSIGNAL)) > 0;)
                total += (unsigned long long)got;
        idle = total > before ? 0 : idle + 1;
        usleep(25000);
    }
    for (int i = 0; i < n; i++) {
        uint32_t info[SK_MEMINFO_VARS] = { 0 };
        socklen_t size = sizeof(info);
        getsockopt(sockets[i], SOL_SOCKET, MEMINFO, info, &size);
        total -= info[SK_MEMINFO_WMEM_QUEUED] < total ? info[SK_MEMINFO_WMEM_QUEUED] : total;
    }
    say("{\"sockets\":%d,\"held\":%llu,\"errno\":\"%s\"}", n, total, errno_name(error));
    return 0;
}

const struct bomb socket_bombs[] = {
    { "netlink-fill", netlink_fill }, { "netlink-count", netlink_count }, { "datagram-fill", datagram_fill },
    { "error-fill", error_fill },     { "stamp-fill", stamp_fill },       { "backlog-fill", backlog_fill },
};
const size_t socket_bombs_count = COUNT(socket_bombs);
