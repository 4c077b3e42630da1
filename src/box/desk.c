/* Programs list interfaces and addresses over netlink: getifaddrs, `ip`, Go's net.Interfaces, node, psutil. The kernel
 * charges the queue of a netlink socket to no cgroup, so a box that opens many of them and reads none would hold far
 * more memory than its limit. Therefore init makes these sockets, few and with small buffers:
 *
 *   payload                                 init
 *   loads its filter with a listener,
 *   sends the listener to the door -------> watches it
 *   exec
 *   socket(AF_NETLINK, …, NETLINK_ROUTE)
 *     the filter notifies the listener ---> counts the netlink sockets of the box's network,
 *                                           makes one more in it,
 *     returns the descriptor <------------- puts it into the caller's table
 *
 * All descendants of a payload inherit its filter, so one listener serves all of them; it hangs up when the last has
 * ended.
 *
 * The arguments of socket() are numbers, so nothing can change between the notification and the answer. The kernel
 * grants a privileged request only if the socket's maker had the capability, too; init has none when it makes one. So
 * even a process of the box that has CAP_NET_ADMIN (a zygote's child before it is sealed) can only read through it.
 *
 * Init trusts nothing that comes through the door: a zygote may send any descriptor, or the listener of a filter of its
 * own. It answers no call but the one above, and never lets the kernel continue a call.
 *
 * In a box without network init is also its name server: it answers at once that no name exists, and reports the name
 * to the keeper, so that users learn why their program failed. It reports before it answers; a reader that has seen the
 * program end finds the report in the socket. */
#define _GNU_SOURCE
#include "box/desk.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/fdpass.h"
#include "box/box.h"
#include "proto/dns.h"

enum {
    SOCKETS_MOST = 64,          /* of one box, alive at a time */
    RECEIVE_BYTES = 32 << 10,   /* the kernel doubles them */
    SEND_BYTES = 16 << 10,      /* `ip -batch` sends 8 KiB at once */
    RESOLVER_GOES = 'c',        /* the keeper's messages at the door */
    COMMAND_BEGINS = 'b',
    COUNT_PAUSE_NS = 5000000,   /* bounds the processor time that a box without pauses takes from others */
};

/* Counts the netlink sockets of the box's network: the line "NETLINK size sockets …" of /proc/net/protocols. */
static int count_sockets(int census, unsigned *ret)
{
    char text[8192];
    ssize_t size = 0, n;

    while ((n = pread(census, text + size, sizeof text - 1 - (size_t)size, size)) > 0)
        size += n;
    if (n < 0)
        return -errno;
    text[size] = '\0';
    const char *line = strstr(text, "\nNETLINK ");
    return line && sscanf(line, " NETLINK %*u %u", ret) == 1 ? 0 : -EPROTO;
}

static int watch(const struct init_desk *desk, int fd)
{
    struct epoll_event event = { .events = EPOLLIN, .data.fd = fd };
    return epoll_ctl(desk->events, EPOLL_CTL_ADD, fd, &event) < 0 ? -errno : 0;
}

/* Its address is in every box's resolv.conf. SO_REUSEADDR, so that egress can bind before init has closed it. */
static int open_resolver(int *ret)
{
    struct sockaddr_in here = { .sin_family = AF_INET, .sin_port = htons(53), .sin_addr.s_addr = htonl(0x7f000035) };
    const int on = 1;
    FD fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) < 0 ||
        bind(fd, (struct sockaddr *)&here, sizeof here) < 0)
        return -errno;
    *ret = TAKE_FD(fd);
    return 0;
}

int desk_open(int door, bool has_network, struct init_desk *ret, struct err *e)
{
    struct init_desk desk = { .door = door, .resolver = -1 };
    sigset_t child;
    int r = 0;

    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    desk.events = epoll_create1(EPOLL_CLOEXEC);
    desk.signals = signalfd(-1, &child, SFD_NONBLOCK | SFD_CLOEXEC);
    if (desk.events < 0 || desk.signals < 0)
        return err_at(e, errno, STEP_NETWORK, 0, "init's events");
    if ((r = watch(&desk, desk.door)) < 0 || (r = watch(&desk, desk.signals)) < 0)
        return err_at(e, -r, STEP_NETWORK, 0, "init's events");
    /* A box without /proc lacks this file and gets no such sockets. */
    desk.census = open("/proc/self/net/protocols", O_RDONLY | O_CLOEXEC);
    if (!has_network && ((r = open_resolver(&desk.resolver)) < 0 || (r = watch(&desk, desk.resolver)) < 0))
        return err_at(e, -r, STEP_NETWORK, 0, "127.0.0.53:53 of the box");
    *ret = desk;
    return 0;
}

/* A socket counts until its last descriptor is closed, also while that is in flight in a message. */
static bool may_have_one_more(struct init_desk *desk)
{
    unsigned alive = SOCKETS_MOST;

    if (desk->left == 0) {
        (void)clock_nanosleep(CLOCK_MONOTONIC, 0, &(struct timespec){ .tv_nsec = COUNT_PAUSE_NS }, NULL);
        if (count_sockets(desk->census, &alive) < 0)
            return false;
        desk->left = alive < SOCKETS_MOST ? SOCKETS_MOST - alive : 0;
    }
    if (desk->left == 0)
        return false;
    desk->left--;
    return true;
}

/* A descriptor or -errno. */
static int make_socket(struct init_desk *desk, int type)
{
    const int receive = RECEIVE_BYTES, send = SEND_BYTES;

    if (desk->census < 0)
        return -EINVAL;     /* libzmq aborts after any other error */
    if (!may_have_one_more(desk))
        return -ENOBUFS;
    FD fd = socket(AF_NETLINK, (type & (0xf | SOCK_NONBLOCK)) | SOCK_CLOEXEC, NETLINK_ROUTE);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &receive, sizeof receive) < 0 ||
        setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &send, sizeof send) < 0)
        return -errno;
    return TAKE_FD(fd);
}

/* Accepts only calls that our filters send to a listener; others come from a foreign filter. */
static bool is_expected(const struct seccomp_data *call)
{
    uint32_t kind = (uint32_t)call->args[1] & 0xf;

    return call->nr == SYS_socket && (uint32_t)call->args[0] == AF_NETLINK &&
           (kind == SOCK_RAW || kind == SOCK_DGRAM) && (uint32_t)call->args[2] == NETLINK_ROUTE;
}

/* Puts fd into the caller's table and ends its call with the number. Before Linux 5.14 these are two steps. */
static int hand_over(int listener, uint64_t id, int fd, bool cloexec)
{
    struct seccomp_notif_addfd add = { .id = id, .srcfd = (uint32_t)fd, .flags = SECCOMP_ADDFD_FLAG_SEND,
                                       .newfd_flags = cloexec ? O_CLOEXEC : 0 };
    int number = ioctl(listener, SECCOMP_IOCTL_NOTIF_ADDFD, &add);

    if (number >= 0)
        return 0;
    if (errno != EINVAL)
        return -errno;
    add.flags = 0;
    if ((number = ioctl(listener, SECCOMP_IOCTL_NOTIF_ADDFD, &add)) < 0)
        return -errno;
    struct seccomp_notif_resp done = { .id = id, .val = number };
    return ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &done) < 0 ? -errno : 0;
}

/* False: not a listener that can be served. */
static bool answer(struct init_desk *desk, int listener)
{
    union {
        struct seccomp_notif call;
        char                 room[256];     /* later kernels may send more */
    } asked = { .room = { 0 } };

    if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &asked) < 0)
        return errno == ENOENT || errno == EINTR;       /* the caller was killed meanwhile */
    int type = (int)asked.call.data.args[1];
    FD fd = is_expected(&asked.call.data) ? make_socket(desk, type) : -ENOSYS;
    int r = fd < 0 ? fd : hand_over(listener, asked.call.id, fd, type & SOCK_CLOEXEC);
    struct seccomp_notif_resp refused = { .id = asked.call.id, .error = r };
    if (r < 0)
        (void)ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &refused);
    return true;
}

static void open_door(struct init_desk *desk)
{
    struct fdpass passed;
    char byte = '\0';
    int listener;
    ssize_t n = fdpass_receive(desk->door, &byte, 1, MSG_DONTWAIT, &passed);

    if (n < 0)
        return;
    if (fdpass_take(&passed, &listener, 1) == 1) {
        if (watch(desk, listener) < 0)
            fd_close(listener);
    } else if (n == 0) {
        desk->door = fd_close(desk->door);
    } else if (byte == RESOLVER_GOES) {
        desk->resolver = fd_close(desk->resolver);
    } else if (byte == COMMAND_BEGINS) {
        desk->told = 0;
    }
}

/* --- names --- */

/* A program that looks up names in a loop must not keep the keeper busy. If the keeper is slow, reports are lost. */
static void tell_name(struct init_desk *desk, const char name[NET_NAME_SIZE])
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    if (now.tv_sec != desk->second) {
        desk->second = now.tv_sec;
        desk->told = 0;
    }
    if (desk->told++ < DESK_NAMES && desk->door >= 0)
        (void)sendto(desk->door, name, strlen(name) + 1, MSG_DONTWAIT | MSG_NOSIGNAL, NULL, 0);
}

static void answer_question(struct init_desk *desk)
{
    uint8_t question[DNS_QUERY], reply[DNS_REPLY];
    struct sockaddr_in from;
    socklen_t length = sizeof from;
    struct dns_query query;
    enum dns_code code = DNS_BLOCKED;

    ssize_t n = recvfrom(desk->resolver, question, sizeof question, MSG_DONTWAIT, (struct sockaddr *)&from, &length);
    enum dns_reading reading = n > 0 ? dns_read(question, (size_t)n, &query, &code) : DNS_IS_NOTHING;
    if (reading == DNS_IS_NOTHING)
        return;
    if (reading == DNS_IS_QUERY) {
        code = DNS_BLOCKED;
        if (query.type == DNS_A)
            tell_name(desk, query.name);
    }
    size_t size = dns_write(&query, code, NULL, 0, reply);
    (void)sendto(desk->resolver, reply, size, MSG_DONTWAIT, (struct sockaddr *)&from, length);
}

static void reap(const struct init_desk *desk)
{
    struct signalfd_siginfo info;

    (void)!read(desk->signals, &info, sizeof info);
    while (waitpid(-1, NULL, WNOHANG) > 0)
        ;
}

void desk_serve(struct init_desk *desk)
{
    for (;;) {
        struct epoll_event event;
        if (epoll_wait(desk->events, &event, 1, -1) < 1)
            continue;
        int fd = event.data.fd;
        if (fd == desk->signals)
            reap(desk);
        else if (fd == desk->door)
            open_door(desk);
        else if (fd == desk->resolver)
            answer_question(desk);
        else if (!(event.events & EPOLLIN) || !answer(desk, fd))
            fd_close(fd);
    }
}

/* --- the keeper's side --- */

int desk_hear(const struct engine_box *box, char ret[NET_NAME_SIZE])
{
    char name[NET_NAME_SIZE];
    struct fdpass passed;
    ssize_t n;

    while (box->door >= 0 && (n = fdpass_receive(box->door, name, sizeof name, MSG_DONTWAIT, &passed)) > 0) {
        (void)fdpass_take(&passed, NULL, 0);
        /* Init is not trusted, either. */
        if (net_name_clean(name, strnlen(name, (size_t)n), ret))
            return 1;
    }
    return 0;
}

static void tell_init(const struct engine_box *box, char word)
{
    if (box->door >= 0)
        (void)send(box->door, &word, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

void desk_begin_command(const struct engine_box *box)
{
    tell_init(box, COMMAND_BEGINS);
}

void desk_close_resolver(const struct engine_box *box)
{
    tell_init(box, RESOLVER_GOES);
}
