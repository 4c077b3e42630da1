/* carrel-broker: ends TLS connections of boxes to hosts for which they have a key, and puts the key into one header
 * field of each request. It has no network: egress passes it both ends of a connection. It has no files either: it
 * reads the host's certificates, and then gives up every right.
 *
 *   carrel-broker --link-fd N --certificates FILE      one owner; it ends with it
 *   carrel-broker --listen-fd N --peer-uid UID --certificates FILE
 *                                                      fronts of a server, one after the other; the listener is the
 *                                                      supervisor's
 *   --uid UID --gid GID                                the user to become, when root starts it
 *
 * Without certificates nothing can be sent. A broker with one owner ends and says why; that of a server tells the
 * front, and ends after a while, so that the next one reads the repaired file. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/list.h"
#include "base/parse.h"
#include "broker/broker.h"
#include "egress/lockdown.h"
#include "policy/policy.h"

#define NOT_SAID UINT32_MAX

enum { LOOK_AGAIN_MS = 5000 };

struct broker_program {
    struct broker      broker;
    struct loop_fd     listener;
    struct loop_signal signals;
    struct loop_timer  look_again;
    uint32_t           link_fd, listen_fd, peer_uid, uid, gid;  /* NOT_SAID */
    const char        *certificates;
};

static int read_options(struct broker_program *p, int argc, char **argv, struct err *e)
{
    const struct {
        const char *name;
        uint32_t   *to;
    } options[] = { { "--link-fd", &p->link_fd }, { "--listen-fd", &p->listen_fd }, { "--peer-uid", &p->peer_uid },
                    { "--uid", &p->uid },         { "--gid", &p->gid } };

    for (int i = 1; i < argc; i += 2) {
        uint32_t *to = NULL;
        for (size_t k = 0; k < sizeof options / sizeof *options; k++)
            if (strcmp(argv[i], options[k].name) == 0)
                to = options[k].to;
        bool is_path = strcmp(argv[i], "--certificates") == 0;
        if (!to && !is_path)
            return err_set(e, EINVAL, STEP_USAGE, "%s: no such option", parse_quote(argv[i]).text);
        if (i + 1 == argc)
            return err_set(e, EINVAL, STEP_USAGE, "%s: a value must follow", argv[i]);
        int r = to ? parse_count(argv[i], argv[i + 1], 0, INT32_MAX, to, e) : 0;
        if (r < 0)
            return r;
        if (is_path)
            p->certificates = argv[i + 1];
    }
    if ((p->link_fd == NOT_SAID) == (p->listen_fd == NOT_SAID) || !p->certificates)
        return err_set(e, EINVAL, STEP_USAGE, "--certificates, and one of --link-fd and --listen-fd, must be there; "
                       "carrel starts this program itself");
    if (p->listen_fd != NOT_SAID && p->peer_uid == NOT_SAID)
        return err_set(e, EINVAL, STEP_USAGE, "--peer-uid is missing: the user whose front may connect");
    if ((p->uid == NOT_SAID) != (p->gid == NOT_SAID))
        return err_set(e, EINVAL, STEP_USAGE, "--uid and --gid belong together");
    return 0;
}

static void on_listener(struct loop_fd *w, uint32_t events)
{
    struct broker_program *p = container_of(w, struct broker_program, listener);
    struct ucred peer;
    socklen_t size = sizeof peer;

    (void)events;
    FD fd = accept4(w->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0 || peer.uid != p->peer_uid) {
        fprintf(stderr, "carrel-broker: user %u may not connect\n", (unsigned)peer.uid);
        return;
    }
    int r = broker_link_owner(&p->broker, TAKE_FD(fd));
    if (r < 0)
        fprintf(stderr, "carrel-broker: a link is refused: %s\n", strerror(-r));
}

static void on_signal(struct loop_signal *s, const struct signalfd_siginfo *info)
{
    (void)info;
    loop_stop(container_of(s, struct broker_program, signals)->broker.loop);
}

static void on_look_again(struct loop_timer *t)
{
    loop_stop(container_of(t, struct broker_program, look_again)->broker.loop);
}

/* Of a server: 0 also if there are none, with the reason in b->why_unable. */
static int read_certificates(struct broker_program *p, struct err *e)
{
    struct broker *b = &p->broker;
    char text[sizeof b->why_unable - 50];
    int r = broker_read_authorities(b, p->certificates, e);

    if (r == 0 || !b->outlives_owner)
        return r;
    err_text(e, text, sizeof text);
    snprintf(b->why_unable, sizeof b->why_unable, "%s; repair it: it is read again every %d seconds", text,
             LOOK_AGAIN_MS / 1000);
    fprintf(stderr, "carrel-broker: %s\n", b->why_unable);
    *e = (struct err){ 0 };
    return 0;
}

/* As many descriptors as allowed, and no core: it would have keys in it. */
static int set_limits(struct err *e)
{
    const struct rlimit none = { 0 };
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files) < 0)
        return err_at(e, errno, STEP_RIGHTS, 0, "descriptors");
    files.rlim_cur = files.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &files) < 0 || setrlimit(RLIMIT_CORE, &none) < 0)
        return err_at(e, errno, STEP_RIGHTS, 0, "limits");
    return 0;
}

static int open_all(struct broker_program *p, struct err *e)
{
    struct broker *b = &p->broker;
    sigset_t signals;

    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    p->signals.on_signal = on_signal;
    int r = set_limits(e);
    b->outlives_owner = p->listen_fd != NOT_SAID;
    if (r == 0)
        r = read_certificates(p, e);
    if (r < 0)
        return r;
    r = loop_new(&b->loop);
    if (r == 0)
        r = loop_signal_open(b->loop, &p->signals, &signals);
    p->listener.on_event = on_listener;
    p->look_again.on_expire = on_look_again;
    if (r == 0 && b->why_unable[0])
        loop_timer_set(b->loop, &p->look_again, LOOK_AGAIN_MS);
    if (r == 0)
        r = b->outlives_owner ? loop_fd_add(b->loop, &p->listener, (int)p->listen_fd, EPOLLIN)
                              : broker_link_owner(b, (int)p->link_fd);
    return r < 0 ? err_at(e, -r, STEP_NETWORK, 0, "broker") : 0;
}

static int run(struct broker_program *p, int argc, char **argv, struct err *e)
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
        r = lockdown_process(policy_broker_filter(), LOCKDOWN_NO_FILES, e);
    if (r < 0)
        return r;
    r = loop_run(p->broker.loop);
    return r < 0 ? err_at(e, -r, STEP_WAIT, 0, "broker") : 0;
}

int main(int argc, char **argv)
{
    static struct broker_program p = { .link_fd = NOT_SAID, .listen_fd = NOT_SAID,
                                .peer_uid = NOT_SAID, .uid = NOT_SAID, .gid = NOT_SAID,
                                .broker.owner.fd = -1, .broker.egress.fd = -1 };
    struct err e = { 0 };
    char text[300];

    /* OPENSSL_CONF, SSL_CERT_FILE and the like are the caller's, not ours. */
    (void)clearenv();
    (void)signal(SIGPIPE, SIG_IGN);
    int r = run(&p, argc, argv, &e);
    if (r < 0) {
        err_text(&e, text, sizeof text);
        fprintf(stderr, "carrel-broker: %s\n", text);
        return 1;
    }
    keybox_remove_all(&p.broker);
    broker_links_close(&p.broker);
    SSL_CTX_free(p.broker.outward);
    sk_X509_pop_free(p.broker.authorities, X509_free);
    loop_signal_close(p.broker.loop, &p.signals);
    loop_free(p.broker.loop);
    return 0;
}
