/* WebSockets of kernels: /api/kernels/{id}/channels, both protocols.
 *
 * Messages that a kernel publishes go to every connection; replies and questions go to the connections that have used
 * the session of the request. A connection that cannot send queues messages (references, no copies) up to a bound, then
 * holds the kernel back, and is closed with 1013 if its client reads nothing for a while: one client cannot stop the
 * others for long, and every queue is bounded. A returning session gets the messages that it missed, as far as the
 * kernel's ring still has them. After a restart of the front its read position is unknown; it then gets the answers to
 * its own requests that the ring has. A second connection of a session replaces the first one.
 *
 * Old clients wait, on every new connection, for a busy and an idle status that answer a kernel_info_request which they
 * did not send: another server probes its kernels that way, and clients came to rely on it. We send them that pair. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "base/jsonscan.h"
#include "base/list.h"
#include "doors/jupyter/message.h"
#include "http/websocket.h"

enum {
    MESSAGE_MOST = 32 << 20,
    QUEUE_BYTES = 4 << 20,          /* above this the kernel is held back */
    QUEUE_HARD = 128 << 20,
    STALL_MS = 10000,
    CONNECTION_SESSIONS = 8,
    WS_UNSUPPORTED = 1003,
};

struct queued {
    struct queued         *next;
    struct kernel_message *message;
};

struct connection {
    struct connection   *next, **back;      /* of its kernel's record; back NULL: no longer in the list */
    struct kernel_record *record;
    struct kernel_client client;
    struct websocket    *socket;
    struct loop         *loop;
    bool                 is_v1, is_held, has_session;
    bool                 is_catching_up;    /* gets past messages, and only answers to its own requests */
    unsigned             scopes;            /* of the identity that opened it */
    char                 user[80], session[SESSION_SIZE];
    char                 seen[CONNECTION_SESSIONS][SESSION_SIZE];   /* sessions that it has used */
    unsigned             n_seen;
    struct queued       *queue, *queue_last;
    size_t               queue_bytes;
    struct share         share;             /* for the queue */
    uint64_t             last;              /* number of the last message that went out */
    struct loop_timer    stall;
};

/* ---- to the client ---- */

static int send_now(struct connection *conn, struct kernel_message *m)
{
    if (conn->is_v1)
        return websocket_send(conn->socket, false, m->raw.data, m->raw.size);
    size_t size;
    bool is_text;
    AUTO_FREE char *data = message_default(m, &size, &is_text);
    return data ? websocket_send(conn->socket, is_text, data, size) : -ENOMEM;
}

static void connection_leave(struct connection *conn)
{
    struct kernel_record *record = conn->record;

    if (!record || !conn->back)
        return;
    if (conn->client.kernel) {
        conn->client.kernel->connections--;
        kernel_detach(&conn->client);
    }
    if (conn->has_session)
        record_note(record, conn->session, conn->last);
    LIST_REMOVE(conn);
    loop_timer_cancel(conn->loop, &conn->stall);
    for (struct queued *q = conn->queue, *next; q; q = next) {
        next = q->next;
        kernel_message_unref(q->message);
        free(q);
    }
    conn->queue = NULL;
    share_leave(&conn->share);
    if (!record->client.kernel && !record->connections)
        loop_task_add(conn->loop, &record->task);
    conn->record = NULL;
}

static void connection_close(struct connection *conn, int code, const char *why)
{
    connection_leave(conn);
    websocket_close(conn->socket, code, why);
}

static void enqueue(struct connection *conn, struct kernel_message *m)
{
    struct queued *q = malloc(sizeof *q);

    if (!q || conn->queue_bytes + m->raw.size > QUEUE_HARD ||
        !share_move_bytes(&conn->share, conn->queue_bytes, conn->queue_bytes + m->raw.size)) {
        free(q);
        connection_close(conn, WS_TRY_LATER, "the client does not read");
        return;
    }
    kernel_message_ref(m);
    *q = (struct queued){ .message = m };
    if (conn->queue)
        conn->queue_last->next = q;
    else
        conn->queue = q;
    conn->queue_last = q;
    conn->queue_bytes += m->raw.size;
    if (!conn->stall.armed)
        loop_timer_set(conn->loop, &conn->stall, STALL_MS);
}

void connection_send(struct connection *conn, struct kernel_message *m)
{
    if (!conn->back)
        return;
    int r = conn->queue ? -EAGAIN : send_now(conn, m);
    if (r == 0 && m->number)
        conn->last = m->number;
    else if (r == -EAGAIN)
        enqueue(conn, m);
    else if (r == -ENOMEM)
        connection_close(conn, WS_INTERNAL, "out of memory");
}

static bool has_used(const struct connection *conn, const char *session)
{
    for (unsigned i = 0; i < conn->n_seen; i++)
        if (strcmp(conn->seen[i], session) == 0)
            return true;
    return false;
}

static bool is_for(const struct connection *conn, const struct kernel_message *m)
{
    if (m->channel == KERNEL_IOPUB)
        return strcmp(m->type, "iopub_welcome") != 0;
    return has_used(conn, m->parent_session);
}

void connections_send(struct kernel_record *record, struct kernel_message *m)
{
    for (struct connection *conn = record->connections, *next; conn; conn = next) {
        next = conn->next;
        if (is_for(conn, m))
            connection_send(conn, m);
    }
}

void connections_close(struct kernel_record *record, const char *why)
{
    while (record->connections)
        connection_close(record->connections, WS_NORMAL, why);
}

static bool on_kernel_message(struct kernel_client *c, struct kernel_message *m)
{
    struct connection *conn = container_of(c, struct connection, client);

    bool is_old = conn->is_catching_up && strcmp(m->parent_session, conn->session) != 0;
    if (is_for(conn, m) && !is_old)
        connection_send(conn, m);
    else if (!conn->queue)
        conn->last = m->number;
    if (!conn->back || conn->queue_bytes < QUEUE_BYTES)
        return false;
    conn->is_held = true;
    return true;
}

/* The record reports states, in the right order. */
static void on_kernel_state(struct kernel_client *c)
{
    (void)c;
}

static void on_writable(struct websocket *s, void *owner)
{
    struct connection *conn = owner;

    (void)s;
    while (conn->queue) {
        struct queued *q = conn->queue;
        int r = send_now(conn, q->message);
        if (r == -EAGAIN)
            break;
        if (r < 0) {
            connection_close(conn, WS_INTERNAL, "out of memory");
            return;
        }
        if (q->message->number)
            conn->last = q->message->number;
        conn->queue = q->next;
        (void)share_move_bytes(&conn->share, conn->queue_bytes, conn->queue_bytes - q->message->raw.size);
        conn->queue_bytes -= q->message->raw.size;
        kernel_message_unref(q->message);
        free(q);
    }
    if (conn->queue)
        loop_timer_set(conn->loop, &conn->stall, STALL_MS);
    else
        loop_timer_cancel(conn->loop, &conn->stall);
    if (conn->is_held && conn->queue_bytes < QUEUE_BYTES / 2 && conn->client.kernel) {
        conn->is_held = false;
        kernel_resume(conn->client.kernel, &conn->client);
    }
}

static void on_stall(struct loop_timer *t)
{
    connection_close(container_of(t, struct connection, stall), WS_TRY_LATER, "the client does not read");
}

/* ---- from the client ---- */

/* The parent header of an answer, as the kernel gets it, too. */
static char *header_of(const struct client_message *p)
{
    return strndup(p->part[PART_HEADER].iov_base, p->part[PART_HEADER].iov_len);
}

/* Answers the client that sent p. */
static void reply_own(struct connection *conn, const struct client_message *p, const char *type, json_t *content)
{
    char *header = header_of(p);
    struct kernel_message *m = message_make(p->channel, type, header, content);

    if (m && conn->back)
        connection_send(conn, m);
    kernel_message_unref(m);
    free(header);
}

static void take_interrupt(struct connection *conn, const struct client_message *p)
{
    struct err e = { 0 };
    bool good = kernel_interrupt(conn->client.kernel, &e) == 0;

    reply_own(conn, p, "interrupt_reply", json_pack("{s:s}", "status", good ? "ok" : "error"));
}

/* Ending a kernel of ours also deletes its box, which needs the scope for that. */
static bool may_end(const struct connection *conn)
{
    return (conn->scopes & SCOPE_WRITE) || !kernel_is_ours(conn->client.kernel);
}

static void take_shutdown(struct connection *conn, const struct client_message *p)
{
    struct kernel *k = conn->client.kernel;
    const struct jsonslice content = { p->part[PART_CONTENT].iov_base, p->part[PART_CONTENT].iov_len };
    struct jsonslice again = { 0 };
    struct err e = { 0 };

    if (jsonscan_is_object(content.data, content.size))
        again = jsonscan_find(content, "restart");
    bool is_restart = again.data && again.size == 4 && memcmp(again.data, "true", 4) == 0;
    if (!is_restart && !may_end(conn)) {
        reply_own(conn, p, "shutdown_reply",
                  json_pack("{s:s,s:b,s:s,s:s,s:[]}", "status", "error", "restart", false, "ename", "PermissionError",
                            "evalue", "the token lacks the scope boxes:write", "traceback"));
        return;
    }
    reply_own(conn, p, "shutdown_reply", json_pack("{s:s,s:b}", "status", "ok", "restart", is_restart));
    if (!conn->back)
        return;
    if (!is_restart) {
        kernel_remove(conn->record->jupyter, k, "the kernel was shut down", NULL);
        return;
    }
    record_fail_pending(conn->record, "KernelRestarted", "the kernel was restarted");
    if (conn->back && kernel_restart(k, &e) < 0)
        connection_close(conn, WS_INTERNAL, "the kernel cannot be restarted");
}

static void forward(struct connection *conn, const struct client_message *p)
{
    struct kernel_record *record = conn->record;
    struct kernel *k = conn->client.kernel;
    struct err e = { 0 };
    bool is_execution = p->channel == KERNEL_SHELL && strcmp(p->type, "execute_request") == 0;
    char *header = is_execution ? header_of(p) : NULL;
    int r = kernel_send(k, p->channel, p->part, p->buffer, p->n_buffers, &e);

    if (r == 0 && header)
        record_expect(record, p->id, p->session, &header);
    else if (r == -EPIPE && header)
        record_fail(record, p->id, p->session, header, "DeadKernelError",
                  k->reason[0] ? k->reason : "the kernel is dead");
    else if (r == -ENOBUFS || r == -EDQUOT)
        connection_close(conn, WS_TRY_LATER, "too much waits for the kernel");
    else if (r == -EMSGSIZE)
        connection_close(conn, WS_TOO_BIG, "message too big");
    else if (r == -EINVAL)
        connection_close(conn, WS_BAD_DATA, "a part of the message is not a JSON object");
    else if (r < 0 && r != -EPIPE)
        connection_close(conn, WS_INTERNAL, "the message cannot be passed on");
    free(header);
}

static void take(struct connection *conn, struct client_message *p)
{
    bool is_control = p->channel == KERNEL_CONTROL;

    if (!has_used(conn, p->session)) {
        unsigned i = conn->n_seen < CONNECTION_SESSIONS ? conn->n_seen++ : CONNECTION_SESSIONS - 1;
        snprintf(conn->seen[i], sizeof conn->seen[i], "%s", p->session);
    }
    if (p->channel == KERNEL_IOPUB)
        return;                     /* the kernel does not read client messages there */
    if (is_control && strcmp(p->type, "interrupt_request") == 0)
        take_interrupt(conn, p);
    else if ((is_control || p->channel == KERNEL_SHELL) && strcmp(p->type, "shutdown_request") == 0)
        take_shutdown(conn, p);
    else
        forward(conn, p);
}

static int read_message(const struct connection *conn, struct client_message *p, bool is_text, const char *data,
                        size_t size, struct err *e)
{
    /* Some relays send the new protocol's bytes as text, over a connection that did not agree on it. */
    if (is_text)
        return data[strspn(data, " \t\r\n")] == '{' ? client_message_read_text(p, data, size, e)
                                                    : client_message_read_v1(p, data, size, e);
    return conn->is_v1 ? client_message_read_v1(p, data, size, e) : client_message_read_binary(p, data, size, e);
}

static void on_client_message(struct websocket *s, bool is_text, const char *data, size_t size, void *owner)
{
    struct connection *conn = owner;
    struct client_message p;
    struct err e = { 0 };

    (void)s;
    if (!conn->back)
        return;
    if (!conn->client.kernel) {
        connection_close(conn, WS_NORMAL, "the kernel is gone");
        return;
    }
    int r = read_message(conn, &p, is_text, data, size, &e);
    if (r == 0)
        r = client_message_complete(&p, conn->session, conn->user, &e);
    if (r == 0)
        take(conn, &p);
    else
        connection_close(conn, r == -ENOMEM ? WS_INTERNAL : is_text ? WS_BAD_DATA : WS_UNSUPPORTED, e.what);
    client_message_done(&p);
}

static void on_close(struct websocket *s, int code, const char *reason, void *owner)
{
    struct connection *conn = owner;

    (void)s;
    (void)code;
    (void)reason;
    connection_leave(conn);
    free(conn);
}

/* ---- opening ---- */

static void greet_with(struct connection *conn, const char *parent, const char *state)
{
    struct kernel_message *m =
        message_make(KERNEL_IOPUB, "status", parent, json_pack("{s:s}", "execution_state", state));

    if (m && conn->back)
        connection_send(conn, m);
    kernel_message_unref(m);
}

static void greet(struct connection *conn)
{
    char uuid[37], time[40], parent[256];

    jupyter_uuid(uuid);
    jupyter_time(front_now_ms(), time);
    snprintf(parent, sizeof parent,
             "{\"msg_id\":\"%s\",\"msg_type\":\"kernel_info_request\",\"session\":\"carrel\",\"username\":\"carrel\","
             "\"date\":\"%s\",\"version\":\"5.3\"}", uuid, time);
    greet_with(conn, parent, "busy");
    greet_with(conn, parent, "idle");
}

static void attach(struct connection *conn, struct kernel_record *record)
{
    struct kernel *k = record->client.kernel;
    uint64_t after = UINT64_MAX;

    for (struct connection *old = record->connections, *next; old && conn->has_session; old = next) {
        next = old->next;
        if (old->has_session && strcmp(old->session, conn->session) == 0)
            connection_close(old, WS_NORMAL, "the session has a newer connection");
    }
    if (conn->has_session)
        after = record_recall(record, conn->session);
    conn->record = record;
    LIST_ADD(record->connections, conn);
    conn->last = after == UINT64_MAX ? record->last : after;
    k->connections++;
    greet(conn);
    /* The read position was lost with the old front. The ring has the kernel's messages since then. */
    conn->is_catching_up = after == UINT64_MAX && conn->has_session && k->is_adopted;
    kernel_attach(k, &conn->client, conn->is_catching_up ? 0 : after);
    conn->is_catching_up = false;
    if (conn->back && k->state == KERNEL_BUSY)
        greet_with(conn, NULL, "busy");
    else if (conn->back && (k->state == KERNEL_DEAD || k->state == KERNEL_RESTARTING))
        greet_with(conn, NULL, kernel_state_names[k->state]);
}

static struct connection *connection_new(struct gateway_request *c, const char *session)
{
    struct connection *conn = calloc(1, sizeof *conn);

    if (!conn)
        return NULL;
    conn->loop = c->front->loop;
    conn->client.on_message = on_kernel_message;
    conn->client.on_state = on_kernel_state;
    conn->stall.on_expire = on_stall;
    conn->has_session = session[0];
    conn->scopes = c->who.scopes;
    snprintf(conn->user, sizeof conn->user, "%s", c->who.name);
    if (session[0])
        snprintf(conn->session, sizeof conn->session, "%s", session);
    else
        jupyter_uuid(conn->session);
    snprintf(conn->seen[0], sizeof conn->seen[0], "%s", conn->session);
    conn->n_seen = 1;
    return conn;
}

void handle_channels(struct gateway_request *c)
{
    static const char *const protocols[] = { "v1.kernel.websocket.jupyter.org", NULL };
    struct http_text session = { "", 0 };
    struct kernel *k = gateway_any_kernel(c);

    if (!k)
        return;
    int r = http_query_get(&c->r->arena, c->r->head.query, "session_id", &session);
    if ((r < 0 && r != -ENOENT) || session.size >= SESSION_SIZE) {
        answer_fail(c, 400, "session_id is too long or malformed");
        return;
    }
    struct kernel_record *record = record_of(c->jupyter, k);
    struct connection *conn = record ? connection_new(c, r == 0 ? session.data : "") : NULL;
    if (!conn) {
        answer_fail(c, 503, "out of memory");
        return;
    }
    const struct websocket_config config = {
        .protocols = protocols,
        .any_text = true,
        .max_message_bytes = MESSAGE_MOST,
        .owner = conn,
        .on_message = on_client_message,
        .on_writable = on_writable,
        .on_close = on_close,
    };
    r = websocket_accept(c->r, &config, &conn->socket);
    if (r < 0) {
        free(conn);
        if (r == -ENOMEM)
            http_request_abort(c->r);
        return;
    }
    conn->is_v1 = websocket_protocol(conn->socket) != NULL;
    if (share_join(&conn->share, &c->front->memory, c->who.name) < 0)
        abort();        /* as everywhere when a few bytes cannot be allocated */
    attach(conn, record);
}
