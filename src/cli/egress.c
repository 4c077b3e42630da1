#define _GNU_SOURCE
#include "cli/egress.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/fdpass.h"
#include "box/desk.h"
#include "box/egress.h"
#include "box/unrouted.h"
#include "cli/commands.h"
#include "proto/defaults.h"
#include "proto/egress.h"

enum { CONNECTIONS_MOST = 1024 };

/* Its environment is empty: the caller's may hold keys. */
static _Noreturn void become_egress(int link, pid_t parent)
{
    char path[4200], fd[16], id[16];
    char *root[] = { "carrel-egress", "--link-fd", fd, "--uid", id, "--gid", id, NULL };
    char *user[] = { "carrel-egress", "--link-fd", fd, NULL };
    char *none[] = { NULL };

    snprintf(fd, sizeof fd, "%d", link);
    snprintf(id, sizeof id, "%d", EGRESS_ID);
    /* Ctrl-C must only reach the command. */
    (void)setpgid(0, 0);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || getppid() != parent || fcntl(link, F_SETFD, 0) < 0)
        _exit(125);
    for (int i = 0; i < 2; i++)
        if (cli_program_path("carrel-egress", i, path, sizeof path))
            execve(path, geteuid() == 0 ? root : user, none);
    _exit(127);
}

static int send_policy(int link, const struct net_policy *policy, const struct net_bounds *bounds)
{
    static struct egress_policy frame;

    frame = (struct egress_policy){ .head = { .type = EGRESS_POLICY, .box = RUN_EGRESS_BOX },
                                    .connections = bounds->connections ? bounds->connections : CONNECTIONS_MOST,
                                    .bytes_per_second = bounds->bytes_per_second, .policy = *policy };
    ssize_t n = fdpass_send(link, &frame, egress_policy_size(&frame), NULL, 0, 0);
    return n < 0 ? (int)n : 0;
}

int run_egress_open(struct run_egress *egress, const struct net_policy *policy, const struct net_bounds *bounds,
                    struct err *e)
{
    int pair[2];

    egress->link = -1;
    if (policy->mode == NET_NONE)
        return 0;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_at(e, errno, STEP_NETWORK, 0, "egress");
    FD ours = pair[0], theirs = pair[1];
    if (!cli_has_program("carrel-egress"))
        return err_set(e, ENOENT, STEP_NETWORK, "carrel-egress is not installed beside this program");
    pid_t self = getpid();
    egress->pid = fork();
    if (egress->pid < 0)
        return err_at(e, errno, STEP_NETWORK, 0, "egress");
    if (egress->pid == 0) {
        ours = fd_close(ours);
        become_egress(theirs, self);
    }
    egress->link = TAKE_FD(ours);
    int r = send_policy(egress->link, policy, bounds);
    return r < 0 ? err_at(e, -r, STEP_NETWORK, 0, "egress") : 0;
}

int run_egress_attach(struct run_egress *egress, struct engine_box *box, struct err *e)
{
    struct egress_sockets *sockets = &box->egress;
    struct egress_box frame = { .head = { .type = EGRESS_BOX, .box = RUN_EGRESS_BOX }, .way = sockets->way,
                                .has = sockets->has };

    if (sockets->n == 0)
        return 0;
    ssize_t n = fdpass_send(egress->link, &frame, sizeof frame, sockets->fd, sockets->n, 0);
    egress->way = sockets->way;
    egress_sockets_close(sockets);
    return n < 0 ? err_at(e, (int)-n, STEP_NETWORK, 0, "egress has ended") : 0;
}

static void hear_init(struct run_egress *egress, const struct engine_box *box)
{
    struct egress_refused word = { .count = 1 };

    while (desk_hear(box, word.what) > 0) {
        word.last_us = clock_monotonic_us();
        (void)refusals_add(&egress->refusals, &word, word.last_us);
    }
}

void run_egress_hear(struct run_egress *egress, const struct engine_box *box)
{
    union {
        struct egress_head    head;
        struct egress_refused refused;
        char                  room[1024];
    } word;
    struct fdpass passed;
    ssize_t n;

    hear_init(egress, box);
    while (egress->link >= 0 && (n = fdpass_receive(egress->link, &word, sizeof word, MSG_DONTWAIT, &passed)) > 0) {
        (void)fdpass_take(&passed, NULL, 0);
        if (n == sizeof word.refused && word.head.type == EGRESS_REFUSED)
            (void)refusals_add(&egress->refusals, &word.refused, clock_monotonic_us());
    }
}

void run_egress_count(struct run_egress *egress, const struct engine_box *box)
{
    if (egress->link < 0 && unrouted_count(box) > 0)
        (void)refusals_add_unrouted(&egress->refusals, clock_monotonic_us());
}

void run_egress_close(struct run_egress *egress)
{
    if (egress->link < 0)
        return;
    egress->link = fd_close(egress->link);
    (void)kill(egress->pid, SIGKILL);
    while (waitpid(egress->pid, NULL, 0) < 0 && errno == EINTR)
        ;
}
