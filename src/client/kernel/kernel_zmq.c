/* A client connects to each socket separately. Its requests are remembered by msg_id, and the kernel's answers go back
 * over the connection of the request; a question to the user (stdin) goes to the connection with the same identity,
 * which is how ZeroMQ pairs the two. Published messages go to all subscribers. A message with a wrong signature is
 * dropped silently. */
#define _GNU_SOURCE
#include "client/kernel/kernel_zmq.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"

enum { BACKLOG = 64, PATIENCE_MS = 2000 };

static const struct {
    enum kernel_channel channel;
    const char         *port;
    enum zmtp_type      type;
} channels[ZMQ_CHANNELS] = {
    [ZMQ_SHELL] = { KERNEL_SHELL, "shell_port", ZMTP_ROUTER },
    [ZMQ_CONTROL] = { KERNEL_CONTROL, "control_port", ZMTP_ROUTER },
    [ZMQ_STDIN] = { KERNEL_STDIN, "stdin_port", ZMTP_ROUTER },
    [ZMQ_IOPUB] = { KERNEL_IOPUB, "iopub_port", ZMTP_PUB },
    [ZMQ_HEARTBEAT] = { KERNEL_CHANNELS, "hb_port", ZMTP_REP },
};

/* ---- listening ---- */

static int listen_tcp(const char *ip, int port, int *ret)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
    int on = 1;
    FD fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (strcmp(ip, "localhost") == 0)
        ip = "127.0.0.1";
    if (inet_pton(AF_INET, ip, &address.sin_addr) != 1)
        return -EINVAL;
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) < 0 ||
        bind(fd, (struct sockaddr *)&address, sizeof address) < 0 || listen(fd, BACKLOG) < 0)
        return -errno;
    *ret = TAKE_FD(fd);
    return 0;
}

static int listen_unix(const char *prefix, int port, char path[108], int *ret)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    FD fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if ((size_t)snprintf(address.sun_path, sizeof address.sun_path, "%s-%d", prefix, port) >= sizeof address.sun_path)
        return -ENAMETOOLONG;
    (void)unlink(address.sun_path);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) < 0 || listen(fd, BACKLOG) < 0)
        return -errno;
    memcpy(path, address.sun_path, sizeof address.sun_path);
    *ret = TAKE_FD(fd);
    return 0;
}

/* A kernel that is killed and restarted at once gets the same ports; children of the old one may hold them for a moment
 * longer. */
static int listen_patiently(const char *ip, int port, int *ret)
{
    uint64_t end = clock_monotonic_us() + PATIENCE_MS * 1000ull;
    int r;

    while ((r = listen_tcp(ip, port, ret)) == -EADDRINUSE && clock_monotonic_us() < end)
        (void)poll(NULL, 0, 5);
    return r;
}

static int listen_all(struct zmq_side *z, json_t *file, const char *name, struct err *e)
{
    const char *transport = json_string_value(json_object_get(file, "transport"));
    const char *ip = json_string_value(json_object_get(file, "ip"));
    bool is_ipc = transport && strcmp(transport, "ipc") == 0;

    if (!ip || (transport && !is_ipc && strcmp(transport, "tcp") != 0))
        return err_set(e, EINVAL, STEP_USAGE, "%s: transport must be tcp or ipc, and ip must be there", name);
    for (int i = 0; i < ZMQ_CHANNELS; i++) {
        json_int_t port = json_integer_value(json_object_get(file, channels[i].port));
        if (port < 1 || port > 65535)
            return err_set(e, EINVAL, STEP_USAGE, "%s: %s must be a port", name, channels[i].port);
        int r = is_ipc ? listen_unix(ip, (int)port, z->path[i], &z->listener[i])
                       : listen_patiently(ip, (int)port, &z->listener[i]);
        if (r < 0)
            return err_set(e, -r, STEP_USAGE, "%s: %s %d at %s: %s", name, channels[i].port, (int)port, ip,
                           strerror(-r));
    }
    return 0;
}

static int take_key(struct zmq_side *z, json_t *file, const char *name, struct err *e)
{
    const char *key = json_string_value(json_object_get(file, "key"));
    const char *scheme = json_string_value(json_object_get(file, "signature_scheme"));

    if (json_object_get(file, "curve_publickey"))
        return err_set(e, ENOTSUP, STEP_USAGE, "%s asks for CURVE encryption, which 'carrel kernel' does not have",
                       name);
    if (!key)
        key = "";
    z->key.size = strlen(key);
    if (z->key.size >= sizeof z->key.text)
        return err_set(e, EINVAL, STEP_USAGE, "%s: the key is too long", name);
    if (z->key.size && scheme && strcmp(scheme, "hmac-sha256") != 0)
        return err_set(e, ENOTSUP, STEP_USAGE, "%s: signature_scheme must be hmac-sha256", name);
    memcpy(z->key.text, key, z->key.size + 1);
    return 0;
}

int zmq_open(struct zmq_side *z, const char *connection_file, struct err *e)
{
    json_error_t where;
    json_t *file = json_load_file(connection_file, 0, &where);

    for (int i = 0; i < ZMQ_CHANNELS; i++)
        z->listener[i] = -1;
    for (int i = 0; i < ZMQ_PEERS; i++)
        z->peer[i].fd = -1;
    if (!json_is_object(file)) {
        json_decref(file);
        return err_set(e, EINVAL, STEP_USAGE, "the connection file %s: %s", connection_file, where.text);
    }
    int r = take_key(z, file, connection_file, e);
    if (r == 0)
        r = listen_all(z, file, connection_file, e);
    json_decref(file);
    if (r < 0)
        zmq_close(z);
    return r;
}

/* ---- peers ---- */

static void drop(struct zmq_peer *p)
{
    zmtp_close(&p->zmtp);
    p->fd = fd_close(p->fd);
}

void zmq_close(struct zmq_side *z)
{
    for (int i = 0; i < ZMQ_CHANNELS; i++) {
        z->listener[i] = fd_close(z->listener[i]);
        if (z->path[i][0])
            (void)unlink(z->path[i]);
    }
    for (int i = 0; i < ZMQ_PEERS; i++)
        if (z->peer[i].fd >= 0)
            drop(&z->peer[i]);
}

static void accept_one(struct zmq_side *z, enum zmq_channel channel)
{
    int on = 1, fd = accept4(z->listener[channel], NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    if (fd < 0)
        return;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    for (int i = 0; i < ZMQ_PEERS; i++) {
        struct zmq_peer *p = &z->peer[i];
        if (p->fd >= 0)
            continue;
        p->fd = fd;
        p->channel = channel;
        p->number = ++z->next_number;
        zmtp_open(&p->zmtp, channels[channel].type, NULL, 0);
        return;
    }
    fd_close(fd);
}

/* ---- from clients ---- */

struct coming {
    struct zmq_side *side;
    struct zmq_peer *peer;
};

static void on_zmq_message(struct zmtp *zmtp, const struct iovec *part, size_t n, void *arg)
{
    struct coming *c = arg;
    struct zmq_side *z = c->side;
    struct wire w;

    if (c->peer->channel == ZMQ_HEARTBEAT) {
        (void)!zmtp_send(zmtp, part, n);
        return;
    }
    if (wire_from_zmq(&z->key, part, n, &w) < 0)
        return;
    json_t *header = json_loadb(w.part[PART_HEADER].iov_base, w.part[PART_HEADER].iov_len, 0, NULL);
    const char *id = json_string_value(json_object_get(header, "msg_id"));
    if (id && strlen(id) < ZMQ_ID) {
        memcpy(z->asked[z->next_asked].id, id, strlen(id) + 1);
        z->asked[z->next_asked].peer = c->peer->number;
        z->next_asked = (z->next_asked + 1) % ZMQ_ASKED;
        z->on_message(&w, channels[c->peer->channel].channel, header, z->arg);
    }
    json_decref(header);
}

static bool read_peer(struct zmq_side *z, struct zmq_peer *p)
{
    static char data[256 << 10];
    struct coming coming = { z, p };
    ssize_t n = read(p->fd, data, sizeof data);

    if (n < 0)
        return errno == EAGAIN || errno == EINTR;
    return n > 0 && zmtp_feed(&p->zmtp, data, (size_t)n, on_zmq_message, &coming) == 0;
}

static bool write_peer(struct zmq_peer *p)
{
    ssize_t n = send(p->fd, p->zmtp.out.data, p->zmtp.out.length, MSG_NOSIGNAL | MSG_DONTWAIT);

    if (n < 0)
        return errno == EAGAIN || errno == EINTR;
    zmtp_sent(&p->zmtp, (size_t)n);
    return true;
}

void zmq_poll(struct zmq_side *z, struct pollfd *fds)
{
    for (int i = 0; i < ZMQ_CHANNELS; i++)
        fds[i] = (struct pollfd){ .fd = z->listener[i], .events = POLLIN };
    for (int i = 0; i < ZMQ_PEERS; i++) {
        struct zmq_peer *p = &z->peer[i];
        fds[ZMQ_CHANNELS + i] =
            (struct pollfd){ .fd = p->fd, .events = p->fd >= 0 && p->zmtp.out.length ? POLLIN | POLLOUT : POLLIN };
    }
}

void zmq_work(struct zmq_side *z, const struct pollfd *fds)
{
    for (int i = 0; i < ZMQ_PEERS; i++) {
        struct zmq_peer *p = &z->peer[i];
        short events = fds[ZMQ_CHANNELS + i].revents;
        if (p->fd < 0 || p->fd != fds[ZMQ_CHANNELS + i].fd || !events)
            continue;
        bool lives = true;
        if (events & POLLOUT)
            lives = write_peer(p);
        if (lives && events & (POLLIN | POLLHUP | POLLERR))
            lives = read_peer(z, p);
        if (!lives)
            drop(p);
    }
    for (int i = 0; i < ZMQ_CHANNELS; i++)
        if (fds[i].revents & POLLIN)
            accept_one(z, (enum zmq_channel)i);
}

/* ---- to clients ---- */

static struct zmq_peer *peer_by_number(struct zmq_side *z, uint64_t number)
{
    for (int i = 0; i < ZMQ_PEERS; i++)
        if (z->peer[i].fd >= 0 && z->peer[i].number == number)
            return &z->peer[i];
    return NULL;
}

static struct zmq_peer *who_asked(struct zmq_side *z, const struct wire *w)
{
    json_t *parent = json_loadb(w->part[PART_PARENT].iov_base, w->part[PART_PARENT].iov_len, 0, NULL);
    const char *id = json_string_value(json_object_get(parent, "msg_id"));
    struct zmq_peer *p = NULL;

    for (unsigned i = 1; id && !p && i <= ZMQ_ASKED; i++) {
        unsigned at = (z->next_asked + ZMQ_ASKED - i) % ZMQ_ASKED;
        if (strcmp(z->asked[at].id, id) == 0)
            p = peer_by_number(z, z->asked[at].peer);
    }
    json_decref(parent);
    return p;
}

static struct zmq_peer *same_client(struct zmq_side *z, const struct zmq_peer *shell)
{
    for (int i = 0; shell && i < ZMQ_PEERS; i++) {
        struct zmq_peer *p = &z->peer[i];
        if (p->fd >= 0 && p->channel == ZMQ_STDIN && p->zmtp.identity_size == shell->zmtp.identity_size &&
            memcmp(p->zmtp.identity, shell->zmtp.identity, p->zmtp.identity_size) == 0)
            return p;
    }
    return NULL;
}

static void send_to(struct zmq_side *z, struct zmq_peer *p, struct wire *w)
{
    struct iovec part[ZMTP_PARTS];
    char signature[HMAC_HEX + 1];
    int n = wire_to_zmq(&z->key, w, signature, part);

    /* A client that does not read its answers is dropped. */
    if (n < 0 || zmtp_send(&p->zmtp, part, (size_t)n) < 0)
        drop(p);
}

void zmq_tell(struct zmq_side *z, const struct wire *message, const char *kernel_id)
{
    struct wire w = *message;
    char topic[256];

    w.n_idents = 0;
    if (w.channel == KERNEL_IOPUB) {
        json_t *header = json_loadb(w.part[PART_HEADER].iov_base, w.part[PART_HEADER].iov_len, 0, NULL);
        const char *type = json_string_value(json_object_get(header, "msg_type"));
        snprintf(topic, sizeof topic, "kernel.%s.%s", kernel_id, type ? type : "");
        w.ident[0] = (struct iovec){ topic, strlen(topic) };
        w.n_idents = 1;
        for (int i = 0; i < ZMQ_PEERS; i++)
            if (z->peer[i].fd >= 0 && z->peer[i].channel == ZMQ_IOPUB)
                send_to(z, &z->peer[i], &w);
        json_decref(header);
        return;
    }
    struct zmq_peer *p = who_asked(z, &w);
    if (w.channel == KERNEL_STDIN)
        p = same_client(z, p);
    if (p)
        send_to(z, p, &w);
}

bool zmq_is_flushed(const struct zmq_side *z)
{
    for (int i = 0; i < ZMQ_PEERS; i++)
        if (z->peer[i].fd >= 0 && z->peer[i].zmtp.state == ZMTP_OPEN && z->peer[i].zmtp.out.length)
            return false;
    return true;
}
