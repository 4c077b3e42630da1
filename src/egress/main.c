/* carrel-egress: the only process of Carrel with network. It has none of the boxes' files and no privileges; it gets
 * its sockets in boxes from the keeper, or from `carrel run`, over a link.
 *
 *   carrel-egress --listen-fd N --peer-uid UID     accepts links of a keeper; the listener is the supervisor's
 *   carrel-egress --link-fd N                      one link, that of a run; it ends with it
 *   --uid UID --gid GID                            the user to become, when root starts it */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/list.h"
#include "base/parse.h"
#include "egress/lockdown.h"
#include "egress/netbox.h"
#include "policy/policy.h"

struct program {
    struct egress      egress;
    struct loop_fd     listener;
    struct loop_signal signals;
    uint32_t           listen_fd, link_fd, peer_uid, uid, gid;  /* NOT_SAID */
};

#define NOT_SAID UINT32_MAX

enum { PIPES_MOST = 1000 };

static int read_options(struct program *p, int argc, char **argv, struct err *e)
{
    const struct {
        const char *name;
        uint32_t   *to;
    } options[] = { { "--listen-fd", &p->listen_fd }, { "--link-fd", &p->link_fd }, { "--peer-uid", &p->peer_uid },
                    { "--uid", &p->uid },             { "--gid", &p->gid } };

    for (int i = 1; i < argc; i += 2) {
        uint32_t *to = NULL;
        for (size_t k = 0; k < sizeof options / sizeof *options; k++)
            if (strcmp(argv[i], options[k].name) == 0)
                to = options[k].to;
        if (!to)
            return err_set(e, EINVAL, STEP_USAGE, "%s: no such option", parse_quote(argv[i]).text);
        if (i + 1 == argc)
            return err_set(e, EINVAL, STEP_USAGE, "%s: a number must follow", argv[i]);
        int r = parse_count(argv[i], argv[i + 1], 0, INT32_MAX, to, e);
        if (r < 0)
            return r;
    }
    if (p->listen_fd == NOT_SAID && p->link_fd == NOT_SAID)
        return err_set(e, EINVAL, STEP_USAGE, "--listen-fd or --link-fd is missing; carrel starts this program itself");
    if (p->listen_fd != NOT_SAID && p->peer_uid == NOT_SAID)
        return err_set(e, EINVAL, STEP_USAGE, "--peer-uid is missing: the user whose keeper may connect");
    if ((p->uid == NOT_SAID) != (p->gid == NOT_SAID))
        return err_set(e, EINVAL, STEP_USAGE, "--uid and --gid belong together");
    return 0;
}

static void on_listener(struct loop_fd *w, uint32_t events)
{
    struct program *p = container_of(w, struct program, listener);
    struct ucred peer;
    socklen_t size = sizeof peer;

    (void)events;
    FD fd = netbox_accept(&p->egress, w->fd);
    if (fd < 0)
        return;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0 || peer.uid != p->peer_uid) {
        fprintf(stderr, "carrel-egress: user %u may not connect\n", (unsigned)peer.uid);
        return;
    }
    int r = link_open(&p->egress, TAKE_FD(fd), true, false);
    if (r < 0)
        fprintf(stderr, "carrel-egress: a link is refused: %s\n", strerror(-r));
}

static void on_signal(struct loop_signal *s, const struct signalfd_siginfo *info)
{
    (void)info;
    loop_stop(container_of(s, struct program, signals)->egress.loop);
}

/* As many descriptors as allowed. A quarter of them at most may be pipes with bytes in them, and no more than the
 * kernel makes at full size for a user without rights (fs.pipe-user-pages-soft). Some are for ourselves: links, the
 * resolver, spare pipes. The rest is for boxes, to each its share. */
static int raise_descriptors(struct egress *eg, struct err *e)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return err_at(e, errno, STEP_RIGHTS, 0, "descriptors");
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
        return err_at(e, errno, STEP_RIGHTS, 0, "descriptors");
    unsigned all = limit.rlim_cur > 1 << 20 ? 1 << 20 : (unsigned)limit.rlim_cur, own = all / 4 < 128 ? all / 4 : 128;
    eg->pipes.most_out = all / 8 < PIPES_MOST ? all / 8 : PIPES_MOST;
    eg->descriptors.most = all - own - 2 * eg->pipes.most_out;
    eg->lookups.most = RESOLVE_UNDER_WAY;
    return 0;
}

static int open_all(struct program *p, struct err *e)
{
    struct egress *eg = &p->egress;
    sigset_t signals;

    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    p->signals.on_signal = on_signal;
    p->listener.on_event = on_listener;
    eg->tick.on_expire = netbox_on_tick;
    eg->descriptors.is_one_boxs = eg->lookups.is_one_boxs = p->listen_fd == NOT_SAID;
    int r = raise_descriptors(eg, e);
    if (r < 0)
        return r;
    r = loop_new(&eg->loop);
    if (r == 0)
        r = loop_signal_open(eg->loop, &p->signals, &signals);
    if (r == 0)
        r = resolver_new(eg->loop, &eg->resolver);
    if (r == 0 && p->listen_fd != NOT_SAID)
        r = loop_fd_add(eg->loop, &p->listener, (int)p->listen_fd, EPOLLIN);
    if (r == 0 && p->link_fd != NOT_SAID)
        r = link_open(eg, (int)p->link_fd, true, true);
    eg->spare_fd = dup(STDERR_FILENO);
    return r < 0 ? err_at(e, -r, STEP_NETWORK, 0, "egress") : 0;
}

static int run(struct program *p, int argc, char **argv, struct err *e)
{
    int r = read_options(p, argc, argv, e);

    if (r == 0)
        r = fd_fill_standard();
    if (r < 0)
        return r;
    if (p->uid != NOT_SAID && (r = lockdown_user(p->uid, p->gid, e)) < 0)
        return r;
    r = open_all(p, e);
    if (r == 0)
        r = lockdown_process(policy_egress_filter(), LOCKDOWN_SETTINGS, e);
    if (r < 0)
        return r;
    r = loop_run(p->egress.loop);
    return r < 0 ? err_at(e, -r, STEP_WAIT, 0, "egress") : 0;
}

int main(int argc, char **argv)
{
    static struct program p = { .listen_fd = NOT_SAID, .link_fd = NOT_SAID, .peer_uid = NOT_SAID, .uid = NOT_SAID,
                                .gid = NOT_SAID, .egress.spare_fd = -1, .egress.broker_fd = -1 };
    struct err e = { 0 };
    char text[300];

    /* RES_OPTIONS, LOCALDOMAIN and the like would change the meaning of names. */
    (void)clearenv();
    (void)signal(SIGPIPE, SIG_IGN);
    int r = run(&p, argc, argv, &e);
    if (r < 0) {
        err_text(&e, text, sizeof text);
        fprintf(stderr, "carrel-egress: %s\n", text);
        return 1;
    }
    link_close_all(&p.egress);
    resolver_free(p.egress.resolver);
    pump_pipes_done(&p.egress.pipes);
    loop_signal_close(p.egress.loop, &p.signals);
    fd_close(p.egress.spare_fd);
    fd_close(p.egress.broker_fd);
    loop_free(p.egress.loop);
    return 0;
}
