/* A server that shows every part of src/http to tests/http/test_*.py. What happens to requests is printed, one line
 * each, so that a test can wait for it. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "http/proxy.h"
#include "http/router.h"
#include "http/websocket.h"
#include "base/list.h"

#define PIECE 65536

struct app {
    struct loop *loop;
    struct http_server *server;
    struct http_router *router;
    uint16_t upstream;
    uint32_t connect_ms, reply_ms, drain_ms;
    struct loop_signal signals;
    bool quiet;
};

struct job {
    struct http_request *request;
    struct app *app;
    struct loop_timer timer;
    uint64_t left, total;
    uint32_t every_ms;
    bool at_end, chunked;
    char pending[PIECE];
    size_t n_pending;
};

static struct job *job_new(struct http_request *r, struct app *app)
{
    struct job *j = arena_alloc(&r->arena, sizeof *j);
    if (!j)
        abort();
    memset(j, 0, sizeof *j);
    j->request = r;
    j->app = app;
    r->owner = j;
    return j;
}

static uint64_t query_number(struct http_request *r, const char *name, uint64_t preset)
{
    struct http_text value;
    return http_query_get(&r->arena, r->head.query, name, &value) == 0 ? strtoull(value.data, NULL, 10) : preset;
}

static void say_end(struct http_request *r, enum http_end how)
{
    static const char *const words[] = { "done", "gone", "timeout", "aborted" };
    printf("end %s %.*s\n", words[how], HTTP_TEXT_FORMAT(r->head.path));
}

/* ---- a tunnel's end: counts what comes, and answers only when all has come ---- */

static void count_on(struct http_request *r)
{
    struct job *j = r->owner;
    char piece[PIECE];
    ssize_t n;

    while (!j->at_end && (n = http_body_read(r, piece, sizeof piece)) >= 0) {
        j->total += (uint64_t)n;
        j->at_end = n == 0;
    }
    if (!j->at_end || j->chunked)
        return;
    j->chunked = true;
    printf("counted %llu\n", (unsigned long long)j->total);
    if (j->every_ms)
        return;     /* never answers */
    char text[32];
    int size = snprintf(text, sizeof text, "%llu", (unsigned long long)j->total);
    if (http_reply_write(r, text, (size_t)size) == 0)
        http_reply_finish(r);
}

static void handle_count(struct http_request *r, const struct http_match *m, void *owner)
{
    (void)m;
    struct job *j = job_new(r, owner);
    j->every_ms = (uint32_t)query_number(r, "silent", 0);
    r->on_end = say_end;
    if (http_reply_upgrade(r, "count") < 0) {
        http_request_abort(r);
        return;
    }
    r->no_body_deadline = r->may_half_close = true;
    r->on_body = count_on;
    count_on(r);
}

/* ---- small answers ---- */

static void handle_hello(struct http_request *r, const struct http_match *m, void *owner)
{
    (void)m;
    (void)owner;
    http_reply(r, 200, "text/plain", "hello\n", 6);
}

static void handle_greet(struct http_request *r, const struct http_match *m, void *owner)
{
    (void)owner;
    http_reply_text(r, 200, "%s", http_match_get(m, "name").data);
}

static void handle_peer(struct http_request *r, const struct http_match *m, void *owner)
{
    (void)m;
    (void)owner;
    http_reply_text(r, 200, "%d %u %d", r->peer->family, r->peer->credentials.uid, (int)r->peer->credentials.pid);
}

static void handle_stats(struct http_request *r, const struct http_match *m, void *owner)
{
    struct app *app = owner;
    struct rusage use;
    (void)m;
    getrusage(RUSAGE_SELF, &use);
    http_reply_text(r, 200, "{\"connections\": %u, \"max_rss_kb\": %ld}", http_server_connections(app->server),
                    use.ru_maxrss);
}

/* ---- never answers ---- */

static void handle_wait(struct http_request *r, const struct http_match *m, void *owner)
{
    (void)m;
    (void)owner;
    r->on_end = say_end;
    printf("waiting\n");
}

/* Waits for a body, and never answers. */
static void read_and_drop(struct http_request *r)
{
    char piece[PIECE];
    while (http_body_read(r, piece, sizeof piece) > 0)
        ;
}

static void handle_hold(struct http_request *r, const struct http_match *m, void *owner)
{
    (void)m;
    (void)owner;
    r->on_end = say_end;
    r->on_body = read_and_drop;
    printf("waiting\n");
    read_and_drop(r);
}

/* ---- echo: the body comes back as it arrives ---- */

static void echo_on(struct http_request *r)
{
    struct job *j = r->owner;
    for (;;) {
        if (j->n_pending) {
            int w = http_reply_write(r, j->pending, j->n_pending);
            if (w < 0)
                return;
            j->n_pending = 0;
        }
        if (j->at_end) {
            http_reply_finish(r);
            return;
        }
        ssize_t n = http_body_read(r, j->pending, sizeof j->pending);
        if (n == -EBADMSG || n == -EFBIG)
            http_request_abort(r);
        if (n < 0)
            return;
        j->at_end = n == 0;
        j->n_pending = (size_t)n;
    }
}

static void handle_echo(struct http_request *r, const struct http_match *m, void *owner)
{
    (void)m;
    job_new(r, owner);
    r->on_body = r->on_writable = echo_on;
    r->on_end = say_end;
    if (http_reply_start(r, 200, r->head.length >= 0 ? r->head.length : HTTP_CHUNKED) == 0)
        echo_on(r);
}

/* ---- sink: reads a piece per tick ---- */

static void sink_on(struct http_request *r)
{
    struct job *j = r->owner;
    char piece[PIECE];
    do {
        ssize_t n = http_body_read(r, piece, sizeof piece);
        if (n == 0)
            http_reply_text(r, 200, "%llu", (unsigned long long)j->total);
        if (n == -EBADMSG)
            http_reply_text(r, 400, "bad chunk\n");
        if (n <= 0)
            return;
        j->total += (uint64_t)n;
    } while (!j->every_ms);
    loop_timer_set(j->app->loop, &j->timer, j->every_ms);
}

static void on_tick(struct loop_timer *t)
{
    struct job *j = container_of(t, struct job, timer);
    sink_on(j->request);
}

static void sink_end(struct http_request *r, enum http_end how)
{
    struct job *j = r->owner;
    loop_timer_cancel(j->app->loop, &j->timer);
    say_end(r, how);
}

static void handle_sink(struct http_request *r, const struct http_match *m, void *owner)
{
    struct job *j = job_new(r, owner);
    (void)m;
    j->every_ms = (uint32_t)query_number(r, "every_ms", 0);
    j->timer.on_expire = on_tick;
    r->on_body = sink_on;
    r->on_end = sink_end;
    if (query_number(r, "max", 0))
        r->body_max_bytes = query_number(r, "max", 0);
    sink_on(r);
}

static void collected(struct http_request *r, const struct http_collected *b, void *arg)
{
    (void)arg;
    if (!b->status)
        http_reply(r, 200, "application/octet-stream", b->data, b->size);
    else if (http_reply_error(r, b->status, b->why) < 0)
        http_request_abort(r);
}

static void handle_collect(struct http_request *r, const struct http_match *m, void *owner)
{
    (void)m;
    (void)owner;
    http_body_collect(r, query_number(r, "max", 1 << 20), collected, NULL);
}

/* ---- flood: as much as is asked for ---- */

static void flood_on(struct http_request *r)
{
    struct job *j = r->owner;
    while (j->left) {
        size_t n = j->left < PIECE ? (size_t)j->left : PIECE;
        if (http_reply_write(r, j->pending, n) < 0)
            return;
        j->left -= n;
    }
    http_reply_finish(r);
}

static void handle_flood(struct http_request *r, const struct http_match *m, void *owner)
{
    struct job *j = job_new(r, owner);
    (void)m;
    j->left = query_number(r, "size", 0);
    for (size_t i = 0; i < PIECE; i++)
        j->pending[i] = (char)('a' + i % 26);
    r->on_writable = flood_on;
    r->on_end = say_end;
    int64_t promised = (int64_t)query_number(r, "promised", j->left);
    if (http_reply_start(r, 200, query_number(r, "chunked", 0) ? HTTP_CHUNKED : promised) == 0)
        flood_on(r);
}

/* ---- WebSocket echo ---- */

struct peer {
    struct websocket *socket;
    char *waiting;
    size_t n_waiting;
    bool is_text;
};

static void ws_message(struct websocket *w, bool is_text, const char *data, size_t size, void *owner)
{
    struct peer *p = owner;
    if (is_text && size == 5 && memcmp(data, "close", 5) == 0) {
        websocket_close(w, 4001, "as you wish");
        return;
    }
    if (websocket_send(w, is_text, data, size) != -EAGAIN)
        return;
    p->waiting = malloc(size + 1);      /* the client must read first */
    memcpy(p->waiting, data, size);
    p->n_waiting = size;
    p->is_text = is_text;
    websocket_pause(w);
}

static void ws_writable(struct websocket *w, void *owner)
{
    struct peer *p = owner;
    if (p->waiting && websocket_send(w, p->is_text, p->waiting, p->n_waiting) != -EAGAIN) {
        free(p->waiting);
        p->waiting = NULL;
        websocket_resume(w);
    }
}

static void ws_close(struct websocket *w, int code, const char *reason, void *owner)
{
    struct peer *p = owner;
    (void)w;
    printf("ws closed %d %s\n", code, reason);
    free(p->waiting);
    free(p);
}

static void handle_ws(struct http_request *r, const struct http_match *m, void *owner)
{
    static const char *const protocols[] = { "v1.kernel.websocket.jupyter.org", "echo", NULL };
    struct peer *p = calloc(1, sizeof *p);
    (void)m;
    (void)owner;
    struct websocket_config config = {
        .protocols = protocols, .max_message_bytes = query_number(r, "max", 64 << 20), .owner = p,
        .ping_ms = (uint32_t)query_number(r, "ping_ms", 0),
        .on_message = ws_message, .on_writable = ws_writable, .on_close = ws_close,
    };
    if (websocket_accept(r, &config, &p->socket) < 0)
        free(p);
}

/* ---- the proxy ---- */

static void proxy_connect(struct http_proxy *p, void *owner)
{
    struct app *app = owner;
    struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(app->upstream) };
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0 || (connect(fd, (struct sockaddr *)&to, sizeof to) < 0 && errno != EINPROGRESS)) {
        fd_close(fd);
        http_proxy_failed(p, 502, "cannot connect");
        return;
    }
    http_proxy_connected(p, fd);
}

static void proxy_never(struct http_proxy *p, void *owner)
{
    (void)p;
    (void)owner;
}

static void proxy_cancelled(struct http_proxy *p, void *owner)
{
    (void)p;
    (void)owner;
    printf("proxy cancelled\n");
}

static void handle_proxy(struct http_request *r, const struct http_match *m, void *owner)
{
    static const char *const drop[] = { "Authorization", NULL };
    static const struct http_proxy_field add[] = { { "X-Added", "yes" }, { NULL, NULL } };
    struct app *app = owner;
    struct http_text query = r->head.query;
    bool never = http_text_is(m->raw_rest, "never");
    struct http_proxy_config config = {
        .target = arena_printf(&r->arena, "/%.*s%s%.*s", HTTP_TEXT_FORMAT(m->raw_rest), query.data ? "?" : "",
                               HTTP_TEXT_FORMAT(query)),
        .drop = drop, .add = add, .owner = owner, .connect = never ? proxy_never : proxy_connect,
        .cancel = proxy_cancelled, .connect_ms = app->connect_ms, .reply_ms = app->reply_ms,
    };
    if (http_proxy_start(r, &config) < 0)
        http_reply_text(r, 500, "cannot proxy\n");
}

/* ---- the program ---- */

static const struct http_route routes[] = {
    { "GET", "/hello", handle_hello },
    { "GET", "/greet/{name}", handle_greet },
    { "PUT", "/greet/{name}", handle_greet },
    { "GET", "/files/{name...}", handle_greet },
    { "GET", "/peer", handle_peer },
    { "GET", "/stats", handle_stats },
    { "GET", "/wait", handle_wait },
    { "POST", "/hold", handle_hold },
    { "POST", "/echo", handle_echo },
    { "POST", "/sink", handle_sink },
    { "POST", "/collect", handle_collect },
    { "GET", "/flood", handle_flood },
    { "GET", "/ws", handle_ws },
    { "GET", "/count", handle_count },
    { "GET", "/proxy/{rest...}", handle_proxy },
    { "POST", "/proxy/{rest...}", handle_proxy },
};

static void on_request(struct http_request *r, void *owner)
{
    struct app *app = owner;
    struct http_match *m = arena_alloc(&r->arena, sizeof *m);
    int status = m ? http_router_find(app->router, &r->arena, r->head.method, r->head.path, m) : 500;
    if (status == 405 && http_reply_header(r, "Allow", m->allow) < 0)
        status = 500;
    if (status == 200)
        m->route->handle(r, m, app);
    else if (http_reply_error(r, status, http_status_text(status)) < 0)
        http_request_abort(r);
}

static void on_access(const struct http_access *a, void *owner)
{
    struct app *app = owner;
    if (!app->quiet)
        printf("access %s %.*s %.*s %d %llu\n", a->id, HTTP_TEXT_FORMAT(a->method), HTTP_TEXT_FORMAT(a->target),
               a->status, (unsigned long long)a->sent_bytes);
}

static void on_drained(void *owner)
{
    struct app *app = owner;
    printf("drained\n");
    loop_stop(app->loop);
}

static void on_signal(struct loop_signal *s, const struct signalfd_siginfo *info)
{
    struct app *app = container_of(s, struct app, signals);
    if (info->ssi_signo == SIGCHLD)
        while (waitpid(-1, NULL, WNOHANG) > 0)
            ;
    else if (info->ssi_signo == SIGTERM)
        http_server_drain(app->server, app->drain_ms);
    else
        loop_stop(app->loop);
}

static int listen_tcp(void)
{
    struct sockaddr_in name = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
    socklen_t size = sizeof name;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&name, sizeof name) < 0 || listen(fd, 4096) < 0 ||
        getsockname(fd, (struct sockaddr *)&name, &size) < 0) {
        perror("listen");
        exit(1);
    }
    printf("port %d\n", ntohs(name.sin_port));
    return fd;
}

static int listen_unix(const char *path)
{
    struct sockaddr_un name = { .sun_family = AF_UNIX };
    snprintf(name.sun_path, sizeof name.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    unlink(path);
    if (fd < 0 || bind(fd, (struct sockaddr *)&name, sizeof name) < 0 || listen(fd, 4096) < 0) {
        perror("listen");
        exit(1);
    }
    return fd;
}

int main(int argc, char **argv)
{
    static struct app app = { .connect_ms = 60000, .reply_ms = 60000, .drain_ms = 3000 };
    const char *path = NULL;
    struct http_server_config config = {
        .on_request = on_request, .on_access = on_access, .on_drained = on_drained, .owner = &app,
    };
    struct { const char *name; uint32_t *value; } numbers[] = {
        { "--max-connections", &config.max_connections }, { "--idle-ms", &config.idle_ms },
        { "--head-ms", &config.head_ms }, { "--body-ms", &config.body_ms }, { "--send-ms", &config.send_ms },
        { "--max-from-one", &config.max_from_one },
        { "--connect-ms", &app.connect_ms }, { "--reply-ms", &app.reply_ms }, { "--drain-ms", &app.drain_ms },
    };
    setvbuf(stdout, NULL, _IOLBF, 0);
    signal(SIGPIPE, SIG_IGN);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--quiet") == 0)
            app.quiet = true;
        if (i + 1 == argc)
            break;
        for (size_t j = 0; j < sizeof numbers / sizeof *numbers; j++)
            if (strcmp(argv[i], numbers[j].name) == 0)
                *numbers[j].value = (uint32_t)strtoul(argv[i + 1], NULL, 10);
        if (strcmp(argv[i], "--upstream") == 0)
            app.upstream = (uint16_t)strtoul(argv[i + 1], NULL, 10);
        if (strcmp(argv[i], "--unix") == 0)
            path = argv[i + 1];
    }
    if (app.quiet)
        config.on_access = NULL;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGCHLD);
    app.signals.on_signal = on_signal;
    if (loop_new(&app.loop) < 0 || loop_signal_open(app.loop, &app.signals, &set) < 0 ||
        http_router_new(routes, sizeof routes / sizeof *routes, &app.router) < 0 ||
        http_server_new(app.loop, &config, &app.server) < 0 || http_server_listen(app.server, listen_tcp(), 1) < 0 ||
        (path && http_server_listen(app.server, listen_unix(path), 2) < 0)) {
        fprintf(stderr, "echo: cannot start\n");
        return 1;
    }
    printf("ready\n");
    int r = loop_run(app.loop);
    http_server_free(app.server);
    http_router_free(app.router);
    loop_signal_close(app.loop, &app.signals);
    loop_free(app.loop);
    printf("bye %d\n", r);
    return r < 0;
}
