#define _GNU_SOURCE
#include "keeper/clerk.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/fdpass.h"
#include "base/title.h"

struct clerk_books {
    const char *const *python;
    size_t             n;
    int                link;
};

static _Noreturn void become_builder(const struct clerk_books *books, const struct request_layer *order, int list,
                                     int output, pid_t parent)
{
    static const char *const verbs[LAYER_OPERATIONS] = { "build", "list", "rm" };
    const char *python = order->template ? books->python[order->template - 1] : "";
    const char *words[] = { "carrel", "layer", verbs[order->operation], "--wire", "--owner", order->owner,
                            python[0] ? "--python" : NULL, python, NULL };
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);

    (void)signal(SIGCHLD, SIG_DFL);
    (void)signal(SIGPIPE, SIG_DFL);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || getppid() != parent || null < 0 || dup2(list, 0) < 0
        || dup2(output, 1) < 0 || dup2(null, 2) < 0)
        _exit(125);
    execv("/proc/self/exe", (char **)(uintptr_t)words);
    _exit(127);
}

static bool is_possible(const struct clerk_books *books, const struct request_layer *order)
{
    return order->operation < LAYER_OPERATIONS && order->template <= books->n
           && (order->template > 0) == (order->operation == LAYER_BUILD);
}

static void serve(const struct clerk_books *books)
{
    struct request_layer order;
    struct fdpass passed;
    int fds[2];

    for (;;) {
        ssize_t n = fdpass_receive(books->link, &order, sizeof order, 0, &passed);
        if (n == -EINTR)
            continue;
        if (n <= 0)
            return;
        size_t n_fds = fdpass_take(&passed, fds, 2);
        pid_t self = getpid();
        if (n_fds == 2 && n == sizeof order && is_possible(books, &order) && fork() == 0)
            become_builder(books, &order, fds[0], fds[1], self);
        for (size_t i = 0; i < n_fds; i++)
            fd_close(fds[i]);
    }
}

int clerk_start(struct clerk *ret, const char *const *python, size_t n, struct err *e)
{
    int pair[2];

    ret->link = -1;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_at(e, errno, STEP_CLONE, 0, "clerk");
    FD ours = pair[0], theirs = pair[1];
    pid_t self = getpid(), pid = fork();
    if (pid < 0)
        return err_at(e, errno, STEP_CLONE, 0, "clerk");
    if (pid == 0) {
        ours = fd_close(ours);
        title_set("clerk");
        /* Reaps builders automatically: the front sees their end on its pipe. */
        (void)signal(SIGCHLD, SIG_IGN);
        (void)signal(SIGINT, SIG_IGN);
        if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) == 0 && getppid() == self)
            serve(&(struct clerk_books){ python, n, theirs });
        _exit(0);
    }
    ret->link = TAKE_FD(ours);
    return 0;
}

int clerk_order(const struct clerk *clerk, const struct request_layer *order, const int fds[2], struct err *e)
{
    ssize_t n = clerk->link < 0 ? -ENOTSUP : fdpass_send(clerk->link, order, sizeof *order, fds, 2, MSG_DONTWAIT);

    return n < 0 ? err_at(e, (int)-n, STEP_HOST, 0, "the clerk that has packages installed") : 0;
}
