/* WebSockets of kernels: /api/kernels/{id}/channels, both protocols.
 *
 * What a kernel publishes goes to every wire; replies and questions go to the wires that have used the session that
 * asked. A wire that cannot send keeps messages (references, no copies) up to a bound, then holds the kernel back, and
 * is closed with 1013 if its client takes nothing for a while: one client cannot stop the others for long, and nothing
 * grows without a bound. A session that comes back gets what it missed, as far as the kernel's ring still has it; if
 * the front is a new one, which does not know how far it had read, the answers to its own requests that came since. A
 * second connection of a session takes the first one's place.
 *
 * Old clients wait, on every new connection, for a busy and an idle status that answer a kernel_info_request which they
 * did not send: another server's way to find out whether the kernel is there shows through. They get that pair. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "base/jsonscan.h"
#include "base/list.h"
#include "doors/jupyter/door.h"
#include "http/websocket.h"

enum {
    MESSAGE_MOST = 32 << 20,
    QUEUE_BYTES = 4 << 20,          /* from here on the kernel is held back */
    QUEUE_HARD = 128 << 20,
    STALL_MS = 10000,
    WIRE_SESSIONS = 8,
    WS_UNSUPPORTED = 1003,
};

struct queued {
    struct queued         *next;
    struct kernel_message *message;
};

struct wire {
    struct wire         *next, **back;      /* of its desk; back NULL: it has left */
    struct desk         *desk;
    struct kernel_client client;
    struct websocket    *socket;
    struct loop         *loop;
    bool                 is_v1, is_held, has_session;
    bool                 is_catching_up;    /* is told of the past, and only of what answers itself */
    unsigned             scopes;            /* of the one who opened it */
    char                 user[80], session[SESSION_SIZE];
    char                 seen[WIRE_SESSIONS][SESSION_SIZE];     /* that it has used */
    unsigned             n_seen;
    struct queued       *queue, *queue_last;
    size_t               queue_bytes;
    struct share         share;             /* for the queue */
    uint64_t             last;              /* number of the last message that went out */
    struct loop_timer    stall;
};

/* ---- to the client ---- */

static int send_now(struct wire *w, struct kernel_message *m)
{
    if (w->is_v1)
        return websocket_send(w->socket, false, m->data, m->size);
    size_t size;
    bool is_text;
    AUTO_FREE char *data = message_legacy(m, &size, &is_text);
    return data ? websocket_send(w->socket, is_text, data, size) : -ENOMEM;
}

static void wire_leave(struct wire *w)
{
    struct desk *d = w->desk;

    if (!d || !w->back)
        return;
    if (w->client.kernel) {
        w->client.kernel->connections--;
        kernel_detach(&w->client);
    }
    if (w->has_session)
        desk_note(d, w->session, w->last);
    LIST_REMOVE(w);
    loop_timer_cancel(w->loop, &w->stall);
    for (struct queued *q = w->queue, *next; q; q = next) {
        next = q->next;
        kernel_message_unref(q->message);
        free(q);
    }
    w->queue = NULL;
    share_leave(&w->share);
    if (!d->client.kernel && !d->wires)
        loop_task_add(w->loop, &d->task);
    w->desk = NULL;
}

static void wire_close(struct wire *w, int code, const char *why)
{
    wire_leave(w);
    websocket_close(w->socket, code, why);
}

static void enqueue(struct wire *w, struct kernel_message *m)
{
    struct queued *q = malloc(sizeof *q);

    if (!q || w->queue_bytes + m->size > QUEUE_HARD ||
        !share_move_bytes(&w->share, w->queue_bytes, w->queue_bytes + m->size)) {
        free(q);
        wire_close(w, WS_TRY_LATER, "the client does not read");
        return;
    }
    kernel_message_ref(m);
    *q = (struct queued){ .message = m };
    if (w->queue)
        w->queue_last->next = q;
    else
        w->queue = q;
    w->queue_last = q;
    w->queue_bytes += m->size;
    if (!w->stall.armed)
        loop_timer_set(w->loop, &w->stall, STALL_MS);
}

void wire_send(struct wire *w, struct kernel_message *m)
{
    if (!w->back)
        return;
    int r = w->queue ? -EAGAIN : send_now(w, m);
    if (r == 0 && m->number)
        w->last = m->number;
    else if (r == -EAGAIN)
        enqueue(w, m);
    else if (r == -ENOMEM)
        wire_close(w, WS_INTERNAL, "out of memory");
}

static bool has_used(const struct wire *w, const char *session)
{
    for (unsigned i = 0; i < w->n_seen; i++)
        if (strcmp(w->seen[i], session) == 0)
            return true;
    return false;
}

static bool is_for(const struct wire *w, const struct kernel_message *m)
{
    if (m->channel == KERNEL_IOPUB)
        return strcmp(m->type, "iopub_welcome") != 0;
    return has_used(w, m->parent_session);
}

void wires_send(struct desk *d, struct kernel_message *m)
{
    for (struct wire *w = d->wires, *next; w; w = next) {
        next = w->next;
        if (is_for(w, m))
            wire_send(w, m);
    }
}

void wires_close(struct desk *d, const char *why)
{
    while (d->wires)
        wire_close(d->wires, WS_NORMAL, why);
}

static bool on_kernel_message(struct kernel_client *c, struct kernel_message *m)
{
    struct wire *w = container_of(c, struct wire, client);

    bool is_old = w->is_catching_up && strcmp(m->parent_session, w->session) != 0;
    if (is_for(w, m) && !is_old)
        wire_send(w, m);
    else if (!w->queue)
        w->last = m->number;
    if (!w->back || w->queue_bytes < QUEUE_BYTES)
        return false;
    w->is_held = true;
    return true;
}

/* The desk tells of states, in the right order. */
static void on_kernel_state(struct kernel_client *c)
{
    (void)c;
}

static void on_writable(struct websocket *s, void *owner)
{
    struct wire *w = owner;

    (void)s;
    while (w->queue) {
        struct queued *q = w->queue;
        int r = send_now(w, q->message);
        if (r == -EAGAIN)
            break;
        if (r < 0) {
            wire_close(w, WS_INTERNAL, "out of memory");
            return;
        }
        if (q->message->number)
            w->last = q->message->number;
        w->queue = q->next;
        (void)share_move_bytes(&w->share, w->queue_bytes, w->queue_bytes - q->message->size);
        w->queue_bytes -= q->message->size;
        kernel_message_unref(q->message);
        free(q);
    }
    if (w->queue)
        loop_timer_set(w->loop, &w->stall, STALL_MS);
    else
        loop_timer_cancel(w->loop, &w->stall);
    if (w->is_held && w->queue_bytes < QUEUE_BYTES / 2 && w->client.kernel) {
        w->is_held = false;
        kernel_resume(w->client.kernel, &w->client);
    }
}

static void on_stall(struct loop_timer *t)
{
    wire_close(container_of(t, struct wire, stall), WS_TRY_LATER, "the client does not read");
}

/* ---- from the client ---- */

/* An answer to the one who asked. */
static void reply_own(struct wire *w, const struct parcel *p, const char *type, json_t *content)
{
    AUTO_FREE char *header = json_dumps(p->header, JSON_COMPACT);
    struct kernel_message *m = message_make(p->channel, type, header, content);

    if (m && w->back)
        wire_send(w, m);
    kernel_message_unref(m);
}

static void take_interrupt(struct wire *w, const struct parcel *p)
{
    struct err e = { 0 };
    bool good = kernel_interrupt(w->client.kernel, &e) == 0;

    reply_own(w, p, "interrupt_reply", json_pack("{s:s}", "status", good ? "ok" : "error"));
}

/* The end of a kernel of ours is its box's, too: that is for those who may delete boxes. */
static bool may_end(const struct wire *w)
{
    return (w->scopes & SCOPE_WRITE) || !kernel_is_ours(w->client.kernel);
}

static void take_shutdown(struct wire *w, const struct parcel *p)
{
    struct kernel *k = w->client.kernel;
    const struct jsonslice content = { p->part[PART_CONTENT].iov_base, p->part[PART_CONTENT].iov_len };
    struct jsonslice again = { 0 };
    struct err e = { 0 };

    if (jsonscan_is_object(content.data, content.size))
        again = jsonscan_find(content, "restart");
    bool is_restart = again.data && again.size == 4 && memcmp(again.data, "true", 4) == 0;
    if (!is_restart && !may_end(w)) {
        reply_own(w, p, "shutdown_reply",
                  json_pack("{s:s,s:b,s:s,s:s,s:[]}", "status", "error", "restart", false, "ename", "PermissionError",
                            "evalue", "the token lacks the scope boxes:write", "traceback"));
        return;
    }
    reply_own(w, p, "shutdown_reply", json_pack("{s:s,s:b}", "status", "ok", "restart", is_restart));
    if (!w->back)
        return;
    if (!is_restart) {
        kernel_remove(k, "the kernel was shut down", NULL);
        return;
    }
    desk_fail_pending(w->desk, "KernelRestarted", "the kernel was restarted");
    if (w->back && kernel_restart(k, &e) < 0)
        wire_close(w, WS_INTERNAL, "the kernel cannot be restarted");
}

static void forward(struct wire *w, const struct parcel *p)
{
    struct desk *d = w->desk;
    struct kernel *k = w->client.kernel;
    struct err e = { 0 };
    bool is_execution = p->channel == KERNEL_SHELL && strcmp(p->type, "execute_request") == 0;
    AUTO_FREE char *header = is_execution ? json_dumps(p->header, JSON_COMPACT) : NULL;
    int r = kernel_send(k, p->channel, p->part, p->buffer, p->n_buffers, &e);

    if (r == 0 && header)
        desk_expect(d, p->id, p->session, header);
    else if (r == -EPIPE && header)
        desk_fail(d, p->id, p->session, header, "DeadKernelError",
                  k->reason[0] ? k->reason : "the kernel is dead");
    else if (r == -ENOBUFS || r == -EDQUOT)
        wire_close(w, WS_TRY_LATER, "too much waits for the kernel");
    else if (r == -EMSGSIZE)
        wire_close(w, WS_TOO_BIG, "message too big");
    else if (r == -EINVAL)
        wire_close(w, WS_BAD_DATA, "a part of the message is not a JSON object");
    else if (r < 0 && r != -EPIPE)
        wire_close(w, WS_INTERNAL, "the message cannot be passed on");
}

static void take(struct wire *w, struct parcel *p)
{
    bool is_control = p->channel == KERNEL_CONTROL;

    if (!has_used(w, p->session)) {
        unsigned i = w->n_seen < WIRE_SESSIONS ? w->n_seen++ : WIRE_SESSIONS - 1;
        snprintf(w->seen[i], sizeof w->seen[i], "%s", p->session);
    }
    if (p->channel == KERNEL_IOPUB)
        return;                     /* nobody listens to clients there */
    if (is_control && strcmp(p->type, "interrupt_request") == 0)
        take_interrupt(w, p);
    else if ((is_control || p->channel == KERNEL_SHELL) && strcmp(p->type, "shutdown_request") == 0)
        take_shutdown(w, p);
    else
        forward(w, p);
}

static int read_message(const struct wire *w, struct parcel *p, bool is_text, const char *data, size_t size,
                        struct err *e)
{
    /* Some relays send the new protocol's bytes as text, over a connection on which it was not agreed. */
    if (is_text)
        return data[strspn(data, " \t\r\n")] == '{' ? parcel_read_text(p, data, size, e)
                                                    : parcel_read_v1(p, data, size, e);
    return w->is_v1 ? parcel_read_v1(p, data, size, e) : parcel_read_binary(p, data, size, e);
}

static void on_client_message(struct websocket *s, bool is_text, const char *data, size_t size, void *owner)
{
    struct wire *w = owner;
    struct parcel p;
    struct err e = { 0 };

    (void)s;
    if (!w->back)
        return;
    if (!w->client.kernel) {
        wire_close(w, WS_NORMAL, "the kernel is gone");
        return;
    }
    int r = read_message(w, &p, is_text, data, size, &e);
    if (r == 0)
        r = parcel_complete(&p, w->session, w->user, &e);
    if (r == 0)
        take(w, &p);
    else
        wire_close(w, r == -ENOMEM ? WS_INTERNAL : is_text ? WS_BAD_DATA : WS_UNSUPPORTED, e.what);
    parcel_done(&p);
}

static void on_close(struct websocket *s, int code, const char *reason, void *owner)
{
    struct wire *w = owner;

    (void)s;
    (void)code;
    (void)reason;
    wire_leave(w);
    free(w);
}

/* ---- opening ---- */

static void greet_with(struct wire *w, const char *parent, const char *state)
{
    struct kernel_message *m =
        message_make(KERNEL_IOPUB, "status", parent, json_pack("{s:s}", "execution_state", state));

    if (m && w->back)
        wire_send(w, m);
    kernel_message_unref(m);
}

static void greet(struct wire *w)
{
    char uuid[37], time[40], parent[256];

    jupyter_uuid(uuid);
    jupyter_time(front_now_ms(), time);
    snprintf(parent, sizeof parent,
             "{\"msg_id\":\"%s\",\"msg_type\":\"kernel_info_request\",\"session\":\"carrel\",\"username\":\"carrel\","
             "\"date\":\"%s\",\"version\":\"5.3\"}", uuid, time);
    greet_with(w, parent, "busy");
    greet_with(w, parent, "idle");
}

static void attach(struct wire *w, struct desk *d)
{
    struct kernel *k = d->client.kernel;
    uint64_t after = UINT64_MAX;

    for (struct wire *old = d->wires, *next; old && w->has_session; old = next) {
        next = old->next;
        if (old->has_session && strcmp(old->session, w->session) == 0)
            wire_close(old, WS_NORMAL, "the session has a newer connection");
    }
    if (w->has_session)
        after = desk_recall(d, w->session);
    w->desk = d;
    LIST_ADD(d->wires, w);
    w->last = after == UINT64_MAX ? d->last : after;
    k->connections++;
    greet(w);
    /* How far it had read knew the front that is gone. What the kernel has said since is in the ring. */
    w->is_catching_up = after == UINT64_MAX && w->has_session && k->is_adopted;
    kernel_attach(k, &w->client, w->is_catching_up ? 0 : after);
    w->is_catching_up = false;
    if (w->back && k->state == KERNEL_BUSY)
        greet_with(w, NULL, "busy");
    else if (w->back && (k->state == KERNEL_DEAD || k->state == KERNEL_RESTARTING))
        greet_with(w, NULL, kernel_state_names[k->state]);
}

static struct wire *wire_new(struct call *c, const char *session)
{
    struct wire *w = calloc(1, sizeof *w);

    if (!w)
        return NULL;
    w->loop = c->front->loop;
    w->client.on_message = on_kernel_message;
    w->client.on_state = on_kernel_state;
    w->stall.on_expire = on_stall;
    w->has_session = session[0];
    w->scopes = c->who.scopes;
    snprintf(w->user, sizeof w->user, "%s", c->who.name);
    if (session[0])
        snprintf(w->session, sizeof w->session, "%s", session);
    else
        jupyter_uuid(w->session);
    snprintf(w->seen[0], sizeof w->seen[0], "%s", w->session);
    w->n_seen = 1;
    return w;
}

void wire_open(struct call *c)
{
    static const char *const protocols[] = { "v1.kernel.websocket.jupyter.org", NULL };
    struct http_text session = { "", 0 };
    struct kernel *k = call_any_kernel(c);

    if (!k)
        return;
    int r = http_query_get(&c->r->arena, c->r->head.query, "session_id", &session);
    if ((r < 0 && r != -ENOENT) || session.size >= SESSION_SIZE) {
        answer_fail(c, 400, "session_id is too long or malformed");
        return;
    }
    struct desk *d = desk_of(k);
    struct wire *w = d ? wire_new(c, r == 0 ? session.data : "") : NULL;
    if (!w) {
        answer_fail(c, 503, "out of memory");
        return;
    }
    const struct websocket_config config = {
        .protocols = protocols,
        .any_text = true,
        .max_message_bytes = MESSAGE_MOST,
        .owner = w,
        .on_message = on_client_message,
        .on_writable = on_writable,
        .on_close = on_close,
    };
    r = websocket_accept(c->r, &config, &w->socket);
    if (r < 0) {
        free(w);
        if (r == -ENOMEM)
            http_request_abort(c->r);
        return;
    }
    w->is_v1 = websocket_protocol(w->socket) != NULL;
    if (share_join(&w->share, &c->front->memory, c->who.name) < 0)
        abort();        /* as everywhere where a few bytes are missing */
    attach(w, d);
}
