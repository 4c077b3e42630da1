/* /readyz is 200 while all required kinds can be watched. A replica that waits for the Lease is as ready as the one
 * that acts: its cache is warm, and a rollout waits for it. /healthz ignores the watches, because a restart would not
 * mend them. Neither is 200 once the program ends (SIGTERM, the Lease is lost). */
#include "cluster/serve.h"

#include <errno.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/fd.h"

enum { TAG_METRICS = 1, TAG_PROBES = 2 };

static void answer_ready(struct serve *s, struct http_request *r)
{
    struct buf trouble;

    buf_init(&trouble, 16384);
    controller_write_trouble(s->controller, &trouble);
    if (buf_error(&trouble) < 0)
        (void)http_reply_text(r, 503, "memory\n");
    else if (trouble.length > 0)
        (void)http_reply(r, 503, "text/plain", buf_string(&trouble), trouble.length);
    else
        (void)http_reply(r, 200, "text/plain", "ok", 2);
    buf_done(&trouble);
}

static void on_request(struct http_request *r, void *owner)
{
    struct serve *s = owner;
    bool get = http_text_is(r->head.method, "GET") || http_text_is(r->head.method, "HEAD");
    bool asks_ready = http_text_is(r->head.path, "/readyz");
    unsigned tag = r->peer->tag;

    if (!get) {
        (void)http_reply_text(r, 405, "only GET\n");
    } else if ((tag & TAG_METRICS) && http_text_is(r->head.path, "/metrics")) {
        struct buf out;
        buf_init(&out, 64 << 20);
        metrics_write(s->controller, &out);
        if (buf_error(&out) < 0)
            (void)http_reply_text(r, 500, "too much to tell\n");
        else
            (void)http_reply(r, 200, "text/plain; version=0.0.4; charset=utf-8", buf_string(&out), out.length);
        buf_done(&out);
    } else if ((tag & TAG_PROBES) && (asks_ready || http_text_is(r->head.path, "/healthz"))) {
        if (s->controller->is_stopping)
            (void)http_reply_text(r, 503, "ending\n");
        else if (asks_ready)
            answer_ready(s, r);
        else
            (void)http_reply(r, 200, "text/plain", "ok", 2);
    } else {
        (void)http_reply_text(r, 404, "there are /metrics, /healthz and /readyz\n");
    }
}

static int listen_at(const char *address, struct err *e)
{
    const char *colon = strrchr(address, ':');
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE }, *found = NULL;
    char host[256] = "";
    int one = 1;

    if (!colon || !colon[1] || (size_t)(colon - address) >= sizeof host)
        return err_set(e, EINVAL, STEP_USAGE, "\"%.80s\" is not HOST:PORT", address);
    memcpy(host, address, (size_t)(colon - address));
    char *name = host;
    size_t n = strlen(host);
    if (n > 1 && host[0] == '[' && host[n - 1] == ']') {
        host[n - 1] = '\0';
        name++;
    }
    int r = getaddrinfo(*name ? name : NULL, colon + 1, &hints, &found);
    if (r != 0 || !found)
        return err_set(e, EINVAL, STEP_USAGE, "%.80s: %s", address, gai_strerror(r));
    /* Without a host, one socket for IPv6 serves both. */
    struct addrinfo *best = found;
    for (struct addrinfo *a = found; a && !*name; a = a->ai_next)
        if (a->ai_family == AF_INET6)
            best = a;
    FD fd = socket(best->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 && best != found) {
        best = found;
        fd = socket(best->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    }
    r = fd < 0 ? -errno : 0;
    if (r == 0) {
        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
        if (bind(fd, best->ai_addr, best->ai_addrlen) < 0 || listen(fd, 64) < 0)
            r = -errno;
    }
    freeaddrinfo(found);
    if (r < 0)
        return err_set(e, -r, STEP_USAGE, "%.80s", address);
    return TAKE_FD(fd);
}

static bool is_none(const char *address)
{
    return !address || !*address || strcmp(address, "0") == 0;
}

int serve_start(struct serve *s, struct controller *c, const char *metrics, const char *probes, struct err *e)
{
    struct http_server_config config = { .on_request = on_request, .owner = s, .max_connections = 64 };
    const char *addresses[] = { metrics, probes };
    bool both = !is_none(metrics) && !is_none(probes) && strcmp(metrics, probes) == 0;

    s->controller = c;
    int r = http_server_new(c->loop, &config, &s->server);
    if (r < 0)
        return err_at(e, -r, STEP_USAGE, 0, "HTTP server");
    for (unsigned i = 0; i < (both ? 1 : 2); i++) {
        if (is_none(addresses[i]))
            continue;
        int fd = listen_at(addresses[i], e);
        if (fd < 0)
            return fd;
        r = http_server_listen(s->server, fd, both ? TAG_METRICS | TAG_PROBES : i == 0 ? TAG_METRICS : TAG_PROBES);
        if (r < 0)
            return err_at(e, -r, STEP_USAGE, 0, addresses[i]);
    }
    return 0;
}

void serve_stop(struct serve *s)
{
    if (s->server)
        http_server_free(s->server);
    s->server = NULL;
}
