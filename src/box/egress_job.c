/* A network for a running box: it had none, or there is a new egress. A child of the keeper makes it, because a keeper
 * without root cannot return from a namespace. */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/title.h"
#include "box/box.h"
#include "box/egress.h"
#include "box/payload.h"

struct told {
    struct err            err;
    struct egress_sockets sockets;      /* without the descriptors, which come beside it */
};

static _Noreturn void prepare_and_tell(const struct engine_box *box, int link)
{
    struct told told = { .sockets.n = 0 };
    int r = 0;

    title_set("egress");
    if (setns(box->ns.net, CLONE_NEWNET) < 0)
        r = err_at(&told.err, errno, STEP_NETWORK, 0, "entering the box's network");
    if (r == 0)
        r = egress_prepare(&told.sockets, &told.err);
    (void)!link_send(link, &told, sizeof told, told.sockets.fd, r == 0 ? told.sockets.n : 0);
    _exit(0);
}

int egress_job_start(const struct engine_box *box, struct egress_job *ret, struct err *e)
{
    struct process child = { .pidfd = -1 };
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_at(e, errno, STEP_CLONE, 0, "egress");
    FD ours = pair[0], theirs = pair[1];
    int r = process_clone(0, -1, -1, &child);
    if (r < 0)
        return err_at(e, -r, STEP_CLONE, 0, "egress");
    if (r == 0)
        prepare_and_tell(box, theirs);
    *ret = (struct egress_job){ .process = child, .link = TAKE_FD(ours) };
    return 0;
}

int egress_job_take(struct egress_job *job, struct egress_sockets *ret, struct err *e)
{
    struct told told = { .sockets.n = 0 };
    int fds[EGRESS_FDS];
    int r = link_receive(job->link, &told, sizeof told, fds, EGRESS_FDS, false);

    if (r == 0)
        return 0;
    job->link = fd_close(job->link);
    if (r < 0)
        return err_at(e, ECHILD, STEP_NETWORK, 0, "preparing the network of the box");
    if (told.err.code) {
        *e = told.err;
        return -told.err.code;
    }
    *ret = told.sockets;
    memcpy(ret->fd, fds, sizeof fds);
    return 1;
}
