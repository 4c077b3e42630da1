/* A front that is taken over must not be able to connect to the sockets that others have in the file system (a bus, a
 * container engine); neither Landlock nor seccomp can look at such an address. But the keeper may be started anew while
 * the front lives. So before the front locks itself in it forks a helper that knows one address: asked with a byte, it
 * connects there and hands the socket over. It shares nothing else with the front, and has a filter of its own. */
#define _GNU_SOURCE
#include "front/dial.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/title.h"

union descriptor {
    struct cmsghdr header;
    char           space[CMSG_SPACE(sizeof(int))];
};

/* ---- the helper ---- */

static void leave(void)
{
    static const int ignored[] = { SIGINT, SIGTERM, SIGHUP, SIGPIPE };      /* it ends with the front */

    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
        signal(ignored[i], SIG_IGN);
    title_set("carrel: connects to the keeper");
}

static int lock_in(void)
{
    static const unsigned allowed[] = { SYS_recvfrom, SYS_sendmsg, SYS_socket, SYS_connect, SYS_close, SYS_exit_group };
    enum { N = sizeof allowed / sizeof *allowed };
    struct sock_filter code[N + 6];
    struct sock_fprog program = { .filter = code };
    unsigned n = 0;

    code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch));
    code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 0, N + 1);
    code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (unsigned i = 0; i < N; i++)
        code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, allowed[i], (unsigned char)(N - i), 0);
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    program.len = (unsigned short)n;
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 ||
                   prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 ||
                   syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) < 0
               ? -errno : 0;
}

static int send_answer(int front, int code, int socket)
{
    union descriptor control = { 0 };
    struct iovec part = { .iov_base = &code, .iov_len = sizeof code };
    struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };

    if (socket >= 0) {
        message.msg_control = &control;
        message.msg_controllen = sizeof control.space;
        control.header.cmsg_level = SOL_SOCKET;
        control.header.cmsg_type = SCM_RIGHTS;
        control.header.cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(&control.header), &socket, sizeof socket);
    }
    return sendmsg(front, &message, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

static _Noreturn void serve(int front, const struct sockaddr_un *address)
{
    char byte;

    leave();
    if ((front > 3 && syscall(SYS_close_range, 3, (unsigned)front - 1, 0) < 0) ||
        syscall(SYS_close_range, (unsigned)front + 1, ~0U, 0) < 0 || lock_in() < 0)
        _exit(1);
    while (recv(front, &byte, sizeof byte, 0) == sizeof byte) {
        FD fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        int code = fd < 0 || connect(fd, (const struct sockaddr *)address, sizeof *address) < 0 ? errno : 0;
        int r = send_answer(front, code, code ? -1 : fd);
        if (r == -ETOOMANYREFS)     /* of this user, on their way: it will be asked again */
            r = send_answer(front, ETOOMANYREFS, -1);
        if (r < 0)
            break;
    }
    _exit(0);
}

/* ---- the front ---- */

int dial_start(const char *path, int *ret, struct err *e)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    int pair[2];

    if (strlen(path) >= sizeof address.sun_path)
        return err_set(e, ENAMETOOLONG, STEP_USAGE, "the keeper's socket %s has too long a path", path);
    memcpy(address.sun_path, path, strlen(path));
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_at(e, errno, STEP_HOST, 0, "keeper link");
    FD ours = pair[0], theirs = pair[1];
    pid_t pid = fork();
    if (pid < 0)
        return err_at(e, errno, STEP_HOST, 0, "keeper link");
    if (pid == 0)
        serve(theirs, &address);
    *ret = TAKE_FD(ours);
    return 0;
}

int dial_ask(int helper)
{
    return send(helper, "", 1, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? -errno : 0;
}

int dial_answer(int helper, int *ret_code, int *ret_socket)
{
    union descriptor control;
    struct iovec part = { .iov_base = ret_code, .iov_len = sizeof *ret_code };
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control
    };

    *ret_socket = -1;
    ssize_t n = recvmsg(helper, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n < 0)
        return errno == EINTR ? -EAGAIN : -errno;
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (header && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS)
        memcpy(ret_socket, CMSG_DATA(header), sizeof *ret_socket);
    return n == (ssize_t)sizeof *ret_code ? 0 : -EPIPE;
}
