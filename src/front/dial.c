/* An attacker who takes over the front must not be able to connect to other sockets in the file system (a bus, a
 * container engine); neither Landlock nor seccomp can check such an address. But the keeper and the broker may be
 * restarted while the front lives. So before the front confines itself it forks a helper for each, which knows one
 * address: on a byte, it connects there and passes the socket to the front. It shares nothing else with the front, and
 * has a filter of its own. */
#define _GNU_SOURCE
#include "front/dial.h"

#include <errno.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/fdpass.h"
#include "base/title.h"
#include "policy/policy.h"

/* ---- the helper ---- */

static void leave(const char *whom)
{
    char title[64];

    static const int ignored[] = { SIGINT, SIGTERM, SIGHUP, SIGPIPE };      /* it ends with the front */

    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
        signal(ignored[i], SIG_IGN);
    snprintf(title, sizeof title, "carrel: connects to the %s", whom);
    title_set(title);
}

static int lock_in(void)
{
    const struct policy_filter *filter = policy_dialer_filter();
    /* The kernel only reads it. */
    struct sock_fprog program = { .len = filter->length, .filter = (struct sock_filter *)(uintptr_t)filter->code };

    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 ||
                   prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 ||
                   syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) < 0
               ? -errno : 0;
}

static _Noreturn void serve(int front, const char *whom, const struct sockaddr_un *address)
{
    char byte;

    leave(whom);
    if ((front > 3 && syscall(SYS_close_range, 3, (unsigned)front - 1, 0) < 0) ||
        syscall(SYS_close_range, (unsigned)front + 1, ~0U, 0) < 0 || lock_in() < 0)
        _exit(1);
    while (recv(front, &byte, sizeof byte, 0) == sizeof byte) {
        FD fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        int code = fd < 0 || connect(fd, (const struct sockaddr *)address, sizeof *address) < 0 ? errno : 0;
        ssize_t r = fdpass_send(front, &code, sizeof code, &fd, code == 0, 0);
        if (r == -ETOOMANYREFS) {       /* too many descriptors of this user in flight: the front will retry */
            code = ETOOMANYREFS;
            r = fdpass_send(front, &code, sizeof code, NULL, 0, 0);
        }
        if (r < 0)
            break;
    }
    _exit(0);
}

/* ---- the front ---- */

int dial_start(const char *whom, const char *path, int *ret, struct err *e)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    int pair[2];

    if (strlen(path) >= sizeof address.sun_path)
        return err_set(e, ENAMETOOLONG, STEP_USAGE, "the %s's socket %s has too long a path", whom, path);
    memcpy(address.sun_path, path, strlen(path));
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_at(e, errno, STEP_HOST, 0, whom);
    FD ours = pair[0], theirs = pair[1];
    pid_t pid = fork();
    if (pid < 0)
        return err_at(e, errno, STEP_HOST, 0, whom);
    if (pid == 0)
        serve(theirs, whom, &address);
    *ret = TAKE_FD(ours);
    return 0;
}

int dial_ask(int helper)
{
    return send(helper, "", 1, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? -errno : 0;
}

int dial_answer(int helper, int *ret_code, int *ret_socket)
{
    struct fdpass passed = { 0 };

    *ret_socket = -1;
    ssize_t n = fdpass_receive(helper, ret_code, sizeof *ret_code, MSG_DONTWAIT, &passed);
    if (n < 0)
        return (int)n;
    (void)!fdpass_take(&passed, ret_socket, 1);
    return n == (ssize_t)sizeof *ret_code ? 0 : -EPIPE;
}
