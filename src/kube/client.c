/* A call waits in a queue until a connection is free; at most CONNS_MAX are open for calls, and each stream (a watch)
 * has one more of its own. Idle connections are kept for IDLE_MS, the last used first, so that a quiet controller keeps
 * one.
 *
 * The server may close a kept connection just as a request is sent. If not a byte of an answer has come, the call is
 * retried once on a fresh connection. For a POST this may mean that the server acts twice; every object that we create
 * has a fixed name, so the second attempt gets 409.
 *
 * While a name is looked up or a credential plugin runs, calls wait in the queue; the loop goes on. If the lookup
 * fails, the previous addresses are tried once more. */
#include "kube/client.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/jsonscan.h"
#include "base/list.h"
#include "kube/conn.h"
#include "kube/plugin.h"
#include "kube/resolve.h"

enum { CONNS_MAX = 8, IDLE_MS = 45000, ANSWER_MAX = 64 << 20, DEADLINE_MS = 60000, SILENCE_MS = 30000,
       REFRESH_MS = 5000, RENEW_MS = 10000 };

struct client_conn {
    struct kube_conn    conn;       /* first */
    struct kube_client *client;
    struct client_conn *next;
    struct kube_call   *call;       /* NULL: idle or being opened */
    bool                for_stream, retiring;
    unsigned            generation; /* of the credentials it was opened with */
    uint64_t            idle_since_ms;
};

struct kube_client {
    struct loop        *loop;
    struct kube_config *config;
    SSL_CTX            *tls;
    struct addrinfo    *addresses, *next_address;
    struct kube_resolve resolve;
    struct kube_plugin  plugin;
    void              (*on_trouble)(const char *text);
    struct client_conn *conns;
    struct kube_call   *queue, **queue_end;
    struct loop_task    dispatch;
    struct loop_timer   sweep;
    unsigned            generation, n_pending;
    uint64_t            refreshed_ms, renewed_ms, n_sent;
};

static void start_conn(struct kube_client *c, struct kube_call *call);

static void tell(struct kube_client *c, const struct err *e)
{
    char text[240];

    err_text(e, text, sizeof text);
    if (c->on_trouble)
        c->on_trouble(text);
}

static void on_resolved(struct kube_resolve *r, struct addrinfo *found)
{
    struct kube_client *c = container_of(r, struct kube_client, resolve);

    if (found) {
        freeaddrinfo(c->addresses);
        c->addresses = found;
    }
    c->next_address = c->addresses;
    loop_task_add(c->loop, &c->dispatch);
}

/* All addresses have failed; the name may have others by now. */
static void resolve(struct kube_client *c)
{
    c->resolve.on_done = on_resolved;
    if (kube_resolve_start(&c->resolve, c->loop, c->config->host, c->config->port) < 0)
        c->next_address = c->addresses;
}

/* ---- the end of a call ---- */

static void leave_queue(struct kube_call *call)
{
    if (!call->back)
        return;
    *call->back = call->next;
    if (call->next)
        call->next->back = call->back;
    else
        call->client->queue_end = call->back;
    call->back = NULL;
    call->next = NULL;
}

static void settle(struct kube_call *call)
{
    struct kube_client *c = call->client;

    leave_queue(call);
    loop_timer_cancel(c->loop, &call->deadline);
    loop_timer_cancel(c->loop, &call->silence);
    call->conn = NULL;
    call->running = false;
    c->n_pending -= call->on_data ? 0 : 1;
    loop_task_add(c->loop, &c->dispatch);
}

static void fail_call(struct kube_call *call, int code, const char *what)
{
    if (what != call->e.what)
        err_at(&call->e, code, STEP_NETWORK, 0, what);
    call->status = 0;
    settle(call);
    call->on_done(call);
}

static void enqueue(struct kube_call *call)
{
    struct kube_client *c = call->client;

    if (call->is_urgent || call->on_data || call->again) {
        call->next = c->queue;
        call->back = &c->queue;
        if (c->queue)
            c->queue->back = &call->next;
        else
            c->queue_end = &call->next;
        c->queue = call;
    } else {
        call->next = NULL;
        call->back = c->queue_end;
        *c->queue_end = call;
        c->queue_end = &call->next;
    }
    loop_task_add(c->loop, &c->dispatch);
}

/* ---- connections ---- */

static void retire(struct client_conn *k)
{
    kube_conn_close(&k->conn);
    k->retiring = true;
    loop_task_add(k->client->loop, &k->client->dispatch);
}

static void abandon(struct kube_call *call)
{
    struct client_conn *k = (struct client_conn *)call->conn;

    if (k) {
        k->call = NULL;
        retire(k);
    }
}

static void on_deadline(struct loop_timer *t)
{
    struct kube_call *call = container_of(t, struct kube_call, deadline);

    abandon(call);
    fail_call(call, ETIMEDOUT, "no whole answer in time");
}

static void on_silence(struct loop_timer *t)
{
    struct kube_call *call = container_of(t, struct kube_call, silence);

    abandon(call);
    fail_call(call, ETIMEDOUT, "nothing came for too long");
}

static void on_head(struct kube_conn *conn)
{
    struct kube_call *call = ((struct client_conn *)conn)->call;
    struct http_text after = http_head_get(&conn->head, "Retry-After");
    unsigned long seconds = 0;

    call->status = conn->head.status;
    for (size_t i = 0; after.data && i < after.size && after.data[i] >= '0' && after.data[i] <= '9' && i < 4; i++)
        seconds = seconds * 10 + (unsigned)(after.data[i] - '0');
    call->retry_after_ms = (uint32_t)(seconds > 600 ? 600 : seconds) * 1000;
    loop_timer_set(call->client->loop, &call->silence, call->silence_ms ? call->silence_ms : SILENCE_MS);
}

static void on_data(struct kube_conn *conn, const char *data, size_t size)
{
    struct kube_call *call = ((struct client_conn *)conn)->call;

    loop_timer_set(call->client->loop, &call->silence, call->silence_ms ? call->silence_ms : SILENCE_MS);
    if (call->on_data && call->status == 200) {
        call->on_data(call, data, size);
        return;
    }
    buf_add(&call->answer, data, size);
    if (buf_error(&call->answer) < 0) {
        abandon(call);
        fail_call(call, EFBIG, "the answer is too long");
    }
}

static void on_renewed(struct kube_plugin *p, int error, struct err *e)
{
    struct kube_client *c = container_of(p, struct kube_client, plugin);
    SSL_CTX *tls;

    c->renewed_ms = loop_now_ms();
    if (error == 0 && c->config->tls && (error = kube_tls_new(c->config, &tls, e)) == 0) {
        SSL_CTX_free(c->tls);
        c->tls = tls;
        c->generation++;
    }
    if (error < 0)
        tell(c, e);
    loop_task_add(c->loop, &c->dispatch);
}

/* Uses credentials that were renewed meanwhile (a rotated token, a plugin). */
static void renew(struct kube_client *c)
{
    struct err e;

    if (c->plugin.running || (loop_now_ms() - c->renewed_ms < RENEW_MS && c->renewed_ms))
        return;
    c->renewed_ms = loop_now_ms();
    c->config->token_read = (struct timespec){ 0 };
    int r = kube_config_refresh(c->config, &e);
    c->plugin.on_done = on_renewed;
    if (r == 0 && c->config->exec_argv[0])
        r = kube_plugin_start(&c->plugin, c->loop, c->config, &e);
    if (r < 0)
        tell(c, &e);
}

static void on_end(struct kube_conn *conn, int error)
{
    struct client_conn *k = (struct client_conn *)conn;
    struct kube_client *c = k->client;
    struct kube_call *call = k->call;

    k->call = NULL;
    k->idle_since_ms = loop_now_ms();
    if (conn->state == KUBE_CONN_CLOSED)
        retire(k);
    if (!call)
        return;
    call->conn = NULL;
    if (error && !call->again && conn->reused && !conn->heard) {
        call->again = true;
        enqueue(call);
        return;
    }
    if (error) {
        if (!conn->heard) {
            c->next_address = c->next_address ? c->next_address->ai_next : NULL;
        }
        call->e = conn->e;
        fail_call(call, -error, call->e.what);
        return;
    }
    if (call->status == 401)
        renew(c);
    settle(call);
    call->on_done(call);
}

static void write_request(struct kube_client *c, struct kube_conn *conn, struct kube_call *call)
{
    struct buf *out = &conn->out;
    bool v6 = strchr(c->config->host, ':') != NULL;

    buf_init(out, SIZE_MAX / 2);
    buf_printf(out, "%s %s%s HTTP/1.1\r\nHost: %s%s%s:%s\r\nUser-Agent: carrel-controller/" CARREL_VERSION
               "\r\nAccept: application/json\r\n", call->method, c->config->prefix, call->path, v6 ? "[" : "",
               c->config->host, v6 ? "]" : "", c->config->port);
    if (c->config->token)
        buf_printf(out, "Authorization: Bearer %s\r\n", c->config->token);
    if (call->type)
        buf_printf(out, "Content-Type: %s\r\nContent-Length: %zu\r\n", call->type, call->body.length);
    buf_add_text(out, "\r\n");
    if (call->type)
        buf_add(out, buf_string(&call->body), call->body.length);
}

static void give(struct client_conn *k, struct kube_call *call)
{
    struct kube_client *c = k->client;
    struct err ignored;

    if (loop_now_ms() - c->refreshed_ms > REFRESH_MS) {
        c->refreshed_ms = loop_now_ms();
        if (kube_config_refresh(c->config, &ignored) < 0)
            c->refreshed_ms = loop_now_ms(); /* the old one may still be good; else we get 401 */
    }
    leave_queue(call);
    k->call = call;
    call->conn = &k->conn;
    buf_clear(&call->answer);
    call->status = 0;
    write_request(c, &k->conn, call);
    loop_timer_set(c->loop, &call->silence, call->silence_ms ? call->silence_ms : SILENCE_MS);
    c->n_sent++;
    if (buf_error(&k->conn.out) < 0) {
        abandon(call);
        fail_call(call, ENOMEM, "memory");
        return;
    }
    kube_conn_send(&k->conn);
}

static void on_ready(struct kube_conn *conn)
{
    struct client_conn *k = (struct client_conn *)conn;

    k->idle_since_ms = loop_now_ms();
    if (k->call)
        give(k, k->call);
    else
        loop_task_add(k->client->loop, &k->client->dispatch);
}

/* Opens a connection for this call. */
static void start_conn(struct kube_client *c, struct kube_call *call)
{
    struct client_conn *k;
    struct err e;

    leave_queue(call);
    k = calloc(1, sizeof *k);
    if (!k) {
        fail_call(call, ENOMEM, "memory");
        return;
    }
    *k = (struct client_conn){ .client = c, .next = c->conns, .call = call, .for_stream = call->on_data != NULL,
                               .generation = c->generation };
    k->conn = (struct kube_conn){ .fd = -1, .on_ready = on_ready, .on_head = on_head, .on_data = on_data,
                                  .on_end = on_end };
    c->conns = k;
    call->conn = &k->conn;
    loop_timer_set(c->loop, &call->silence, call->silence_ms ? call->silence_ms : SILENCE_MS);
    if (kube_conn_open(&k->conn, c->loop, c->tls, c->config, c->next_address->ai_addr, c->next_address->ai_addrlen,
                       &e) < 0) {
        k->call = NULL;
        c->next_address = c->next_address->ai_next;
        retire(k);
        fail_call(call, e.code, e.what);
    }
}

static void sweep(struct kube_client *c)
{
    for (struct client_conn **at = &c->conns, *k; (k = *at);) {
        if (!k->retiring) {
            at = &k->next;
            continue;
        }
        *at = k->next;
        free(k);
    }
}

static void on_sweep(struct loop_timer *t)
{
    struct kube_client *c = container_of(t, struct kube_client, sweep);
    uint64_t now = loop_now_ms();

    for (struct client_conn *k = c->conns; k; k = k->next)
        if (!k->call && !k->retiring && k->conn.state == KUBE_CONN_IDLE && now - k->idle_since_ms >= IDLE_MS)
            retire(k);
    loop_timer_set(c->loop, t, IDLE_MS / 4);
}

static struct client_conn *idle_conn(struct kube_client *c, unsigned *ret_open)
{
    struct client_conn *best = NULL;

    *ret_open = 0;
    for (struct client_conn *k = c->conns; k; k = k->next) {
        if (k->retiring || k->for_stream)
            continue;
        if (k->generation != c->generation && !k->call) {
            retire(k);
            continue;
        }
        ++*ret_open;
        if (!k->call && k->conn.state == KUBE_CONN_IDLE && (!best || k->idle_since_ms > best->idle_since_ms))
            best = k;
    }
    return best;
}

static void on_dispatch(struct loop_task *t)
{
    struct kube_client *c = container_of(t, struct kube_client, dispatch);
    unsigned open;

    sweep(c);
    while (c->queue && !c->resolve.job && !c->plugin.running) {
        struct kube_call *call = c->queue;
        if (!c->next_address) {
            resolve(c);
            continue;
        }
        struct client_conn *k = idle_conn(c, &open);
        if (call->on_data || call->again || (call->is_urgent && !k) || (!k && open < CONNS_MAX))
            start_conn(c, call);
        else if (k)
            give(k, call);
        else
            break;
    }
}

/* ---- the API ---- */

int kube_client_new(struct loop *l, struct kube_config *config, struct kube_client **ret, struct err *e)
{
    struct kube_client *c = calloc(1, sizeof *c);

    if (!c)
        return err_at(e, ENOMEM, STEP_MEMORY, 0, NULL);
    c->loop = l;
    c->config = config;
    c->queue_end = &c->queue;
    c->dispatch.on_run = on_dispatch;
    c->sweep.on_expire = on_sweep;
    int r = kube_config_run_plugin(config, e);
    if (r == 0)
        r = kube_tls_new(config, &c->tls, e);
    if (r == 0)
        r = kube_resolve_now(config->host, config->port, &c->addresses, e);
    if (r < 0) {
        SSL_CTX_free(c->tls);
        free(c);
        return r;
    }
    c->next_address = c->addresses;
    loop_timer_set(l, &c->sweep, IDLE_MS / 4);
    *ret = c;
    return 0;
}

void kube_client_free(struct kube_client *c)
{
    if (!c)
        return;
    loop_task_cancel(c->loop, &c->dispatch);
    loop_timer_cancel(c->loop, &c->sweep);
    for (struct client_conn *k = c->conns; k; k = k->next) {
        kube_conn_close(&k->conn);
        k->retiring = true;
    }
    sweep(c);
    kube_resolve_stop(&c->resolve);
    kube_plugin_stop(&c->plugin);
    freeaddrinfo(c->addresses);
    SSL_CTX_free(c->tls);
    free(c);
}

void kube_client_on_trouble(struct kube_client *c, void (*on_trouble)(const char *text))
{
    c->on_trouble = on_trouble;
}

void kube_call_start(struct kube_client *client, struct kube_call *c)
{
    c->client = client;
    c->e = (struct err){ 0 };
    c->status = 0;
    c->retry_after_ms = 0;
    c->again = false;
    c->running = true;
    buf_done(&c->answer);
    buf_init(&c->answer, c->answer_max ? c->answer_max : ANSWER_MAX);
    c->deadline.on_expire = on_deadline;
    c->silence.on_expire = on_silence;
    client->n_pending += c->on_data ? 0 : 1;
    if (!c->on_data || c->deadline_ms)
        loop_timer_set(client->loop, &c->deadline, c->deadline_ms ? c->deadline_ms : DEADLINE_MS);
    enqueue(c);
}

void kube_call_cancel(struct kube_call *c)
{
    if (!c->running)
        return;
    abandon(c);
    settle(c);
}

void kube_call_done(struct kube_call *c)
{
    kube_call_cancel(c);
    free(c->path);
    c->path = NULL;
    buf_done(&c->body);
    buf_done(&c->answer);
}

unsigned kube_client_pending(const struct kube_client *c)
{
    return c->n_pending;
}

uint64_t kube_client_sent(const struct kube_client *c)
{
    return c->n_sent;
}

char *kube_path(const char *format, ...)
{
    struct buf b;
    va_list args;

    buf_init(&b, 16384);
    va_start(args, format);
    for (const char *f = format; *f; f++) {
        if (*f != '%') {
            buf_add_char(&b, *f);
            continue;
        }
        const char *text = va_arg(args, const char *);
        if (*++f == 'r') {
            buf_add_text(&b, text);
            continue;
        }
        for (const unsigned char *p = (const unsigned char *)text; *p; p++)
            if ((*p | 0x20) >= 'a' && (*p | 0x20) <= 'z')
                buf_add_char(&b, (char)*p);
            else if ((*p >= '0' && *p <= '9') || *p == '-' || *p == '.' || *p == '_')
                buf_add_char(&b, (char)*p);
            else
                buf_printf(&b, "%%%02X", *p);
    }
    va_end(args);
    if (buf_error(&b) < 0) {
        buf_done(&b);
        return NULL;
    }
    return b.data;
}

void kube_call_text(const struct kube_call *c, char *text, size_t size)
{
    if (c->status == 0) {
        err_text(&c->e, text, size);
        return;
    }
    const char *answer = buf_string(&c->answer);
    if (jsonscan_is_object(answer, c->answer.length)) {
        struct jsonslice message = jsonscan_find((struct jsonslice){ answer, c->answer.length }, "message");
        struct jsonslice inside = jsonscan_inside(message);
        if (inside.size > 0 && jsonscan_text(message, text, size))
            return;
        if (inside.size > 0) {
            snprintf(text, size, "%.*s…", (int)(inside.size < size - 8 ? inside.size : size - 8), inside.data);
            return;
        }
    }
    snprintf(text, size, "HTTP %d %s", c->status, http_status_text(c->status));
}
