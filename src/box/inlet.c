/* An inlet is a listener in the box's network namespace that the front serves. A child makes it, because a process that
 * has entered a namespace may not be able to return (a keeper without root cannot). The box's user may not bind its
 * port, so no process in the box can take it first, or answer in its place. */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/title.h"
#include "box/box.h"
#include "box/payload.h"

enum { BACKLOG = 128 };

static int make_listener(const struct engine_box *box, uint16_t port, int *ret, struct err *e)
{
    struct sockaddr_in here = { .sin_family = AF_INET,
                                .sin_port = htons(port),
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };

    if (setns(box->ns.net, CLONE_NEWNET) < 0)
        return err_at(e, errno, STEP_NETWORK, 0, "entering the box's network");
    FD fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_at(e, errno, STEP_NETWORK, 0, "socket");
    if (bind(fd, (struct sockaddr *)&here, sizeof here) < 0 || listen(fd, BACKLOG) < 0)
        return err_set(e, errno, STEP_NETWORK, "port %u of the box", port);
    *ret = TAKE_FD(fd);
    return 0;
}

static _Noreturn void be_midwife(const struct engine_box *box, uint16_t port, int link)
{
    struct err e = { 0 };
    int fd = -1;

    title_set("inlet");
    int r = make_listener(box, port, &fd, &e);
    (void)!link_send(link, &e, sizeof e, &fd, r == 0);
    _exit(0);
}

int box_open_inlet(struct engine_box *box, uint16_t port, struct err *e)
{
    struct process child = { .pidfd = -1 };
    struct process_end end;
    struct err told = { 0 };
    int pair[2], fd = -1;

    if (box->inlet >= 0)
        return 0;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_at(e, errno, STEP_CLONE, 0, "inlet");
    FD ours = pair[0], theirs = pair[1];
    int r = process_clone(0, -1, -1, &child);
    if (r < 0)
        return err_at(e, -r, STEP_CLONE, 0, "inlet");
    if (r == 0)
        be_midwife(box, port, theirs);
    theirs = fd_close(theirs);
    r = link_receive(ours, &told, sizeof told, &fd, 1, true);
    (void)!process_reap(&child, 1, &end);
    box->inlet = fd;
    if (r < 0)
        return err_at(e, -r, STEP_NETWORK, 0, "inlet");
    if (told.code)
        *e = told;
    return -told.code;
}
