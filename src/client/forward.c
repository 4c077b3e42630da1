/* carrel forward: a TCP listener on this host's loopback. Each connection becomes a tunnel through the server into the
 * box, moved by a process of its own, so that a slow one delays no other. These processes end with this one. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/parse.h"
#include "client/client.h"
#include "client/commands.h"
#include "proto/keeper.h"

static const char usage[] =
    "usage: carrel forward BOX PORT|LOCAL:PORT... [--url URL]\n"
    "\n"
    "Forwards ports of 127.0.0.1 to ports of the box, until it is interrupted. LOCAL 0: any that is free.\n";

enum { PORTS_MAX = 16, BACKLOG = 64, PIECE = 65536 };

struct forwarded_port {
    int      fd;        /* owned: the listener */
    uint16_t local, remote;
};

static int read_port(const char *word, struct forwarded_port *ret, struct err *e)
{
    const char *colon = strchr(word, ':');
    char local[16];
    uint32_t number = 0, remote = 0;

    snprintf(local, sizeof local, "%.*s", colon ? (int)(colon - word) : (int)strlen(word), word);
    int r = parse_count("the local port", local, 0, 65535, &number, e);
    if (r == 0)
        r = parse_count("the box's port", colon ? colon + 1 : local, 1, 65535, &remote, e);
    if (r == 0 && remote == KEEPER_INLET_PORT)      /* the server refuses it, too, but only at a connection */
        r = err_set(e, EPERM, STEP_USAGE,
                    "port %u of a box is for its grants; only what runs in the box may connect there",
                    remote);
    ret->local = (uint16_t)number;
    ret->remote = (uint16_t)remote;
    return r;
}

static int open_listener(struct forwarded_port *p, struct err *e)
{
    struct sockaddr_in address = { .sin_family = AF_INET,
                                   .sin_port = htons(p->local),
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t size = sizeof address;
    int one = 1;

    p->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (p->fd < 0 || setsockopt(p->fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) < 0
        || bind(p->fd, (struct sockaddr *)&address, sizeof address) < 0 || listen(p->fd, BACKLOG) < 0
        || getsockname(p->fd, (struct sockaddr *)&address, &size) < 0)
        return err_set(e, errno, STEP_HOST, "cannot listen on 127.0.0.1:%u: %s%s", p->local, strerror(errno),
                       errno == EADDRINUSE ? "; choose another with LOCAL:PORT" : "");
    p->local = ntohs(address.sin_port);
    return 0;
}

/* One direction. */
struct flow {
    int    from, to;
    bool   ended;               /* end of file on from */
    size_t at, size;
    char   data[PIECE];
};

/* False: the connection is broken. */
static bool flow_move(struct flow *f, const struct pollfd *from, const struct pollfd *to)
{
    if (f->at == f->size && !f->ended && from->revents) {
        ssize_t n = recv(f->from, f->data, sizeof f->data, MSG_DONTWAIT);
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            return false;
        if (n == 0) {
            f->ended = true;
            return shutdown(f->to, SHUT_WR) == 0;
        }
        f->at = 0;
        f->size = n > 0 ? (size_t)n : 0;
    }
    if (f->at < f->size && (to->revents || from->revents)) {
        ssize_t n = send(f->to, f->data + f->at, f->size - f->at, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            return false;
        f->at += n > 0 ? (size_t)n : 0;
    }
    return true;
}

static short wanted(const struct flow *in, const struct flow *out)
{
    return (short)((in->at == in->size && !in->ended ? POLLIN : 0) | (out->at < out->size ? POLLOUT : 0));
}

static void move_both(int local, struct exchange *x)
{
    static struct flow up, down;

    up = (struct flow){ .from = local, .to = x->fd };
    down = (struct flow){ .from = x->fd, .to = local, .size = x->end - x->begin };
    /* Bytes that came with the answer's head. */
    if (down.size > sizeof down.data)
        return;
    memcpy(down.data, x->data + x->begin, down.size);
    for (;;) {
        struct pollfd p[2] = { { .fd = local, .events = wanted(&up, &down) },
                               { .fd = x->fd, .events = wanted(&down, &up) } };
        if (down.ended && down.at == down.size)
            return;
        /* A side that is closed for good would wake poll again and again. */
        for (int i = 0; i < 2; i++)
            if (!p[i].events)
                p[i].fd = -1;
        if (poll(p, 2, -1) < 0 && errno != EINTR)
            return;
        if (!flow_move(&up, &p[0], &p[1]) || !flow_move(&down, &p[1], &p[0]))
            return;
    }
}

/* The child: one tunnel. */
static void serve(const struct client *c, const char *box, uint16_t remote, int local, pid_t parent)
{
    static struct exchange x;
    char rest[32];
    struct err e = { 0 };

    prctl(PR_SET_PDEATHSIG, SIGTERM, 0, 0, 0);
    if (getppid() != parent)        /* the parent had exited before */
        _exit(0);
    snprintf(rest, sizeof rest, "/tunnel/%u", remote);
    if (exchange_open(&x, &c->server, "POST", target_box(box, rest),
                      "Connection: Upgrade\r\nUpgrade: carrel-tunnel\r\n", 0, &e) < 0 ||
        exchange_answer(&x, &e) < 0) {
        (void)client_complain(&e);
    } else if (x.status != 101) {
        json_t *answer = client_read_json(&x);
        (void)client_refused(x.status, answer);
        json_decref(answer);
    } else {
        move_both(local, &x);
    }
    _exit(0);
}

static int accept_all(const struct client *c, const char *box, struct forwarded_port *ports, int n)
{
    struct pollfd list[PORTS_MAX];
    pid_t own = getpid();

    signal(SIGCHLD, SIG_IGN);   /* reap automatically */
    for (int i = 0; i < n; i++)
        list[i] = (struct pollfd){ .fd = ports[i].fd, .events = POLLIN };
    for (;;) {
        if (poll(list, (nfds_t)n, -1) < 0 && errno != EINTR)
            return EXIT_CLIENT;
        for (int i = 0; i < n; i++) {
            FD local = list[i].revents ? accept4(ports[i].fd, NULL, NULL, SOCK_CLOEXEC) : -1;
            if (local < 0)
                continue;
            pid_t pid = fork();
            if (pid == 0)
                serve(c, box, ports[i].remote, local, own);
            if (pid < 0)
                fprintf(stderr, "carrel: a connection was refused: %s\n", strerror(errno));
        }
    }
}

int client_forward(int argc, char **argv)
{
    struct client c = { .name = "forward", .usage = usage };
    struct forwarded_port ports[PORTS_MAX];
    struct words words;
    struct err e = { 0 };
    int status = client_begin(&c, argc, argv, NULL, 0, NULL, false, &words);

    if (status >= 0)
        return status;
    if (words.n < 2 || words.n > PORTS_MAX)
        return client_misused(&c, "it takes a box and one to %d ports", PORTS_MAX - 1);
    if (client_call(&c, "GET", target_box(words.at[0], ""), NULL, NULL) < 0)
        return EXIT_CLIENT;
    for (int i = 1; i < words.n; i++)
        if (read_port(words.at[i], &ports[i - 1], &e) < 0 || open_listener(&ports[i - 1], &e) < 0)
            return client_complain(&e);
    for (int i = 1; i < words.n; i++)
        printf("127.0.0.1:%u -> %s:%u\n", ports[i - 1].local, show_text(words.at[0]), ports[i - 1].remote);
    fflush(stdout);
    return accept_all(&c, words.at[0], ports, words.n - 1);
}
