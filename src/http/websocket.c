/* OPEN ─ we close → CLOSING (drops messages, waits for the client's close) ─┐
 *   └─ the client closes, or errs: our close is sent ───────────────────────┴→ ended (flushed, then on_close)
 *
 * A WebSocket is a request in raw mode: the server provides reading, back-pressure and the end. Bytes are read to the
 * stack; only bytes that a paused WebSocket has not parsed yet are kept, so an idle one has no buffer of its own. */
#include "http/websocket.h"

#include <errno.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"

#define READ_BYTES  65536
#define CLOSE_MS    5000
#define SEND_PIECES 8

enum ws_phase { OPEN, CLOSING, ENDED };

struct websocket {
    struct http_request *request;
    struct websocket_config config;
    struct wsreader reader;
    struct loop_timer timer;
    struct loop_task task;
    enum ws_phase phase;
    bool paused, heard, asked;
    bool owes_close;                /* our close is sent once the queue has room */
    size_t pending;                 /* unsent bytes when the timer of CLOSING was set */
    size_t charged;                 /* charged to the request for the unfinished message */
    uint8_t *kept;                  /* read while paused, not yet parsed */
    size_t kept_at, kept_size;
    const char *protocol;           /* one of config.protocols */
    int close_code;
    char close_reason[WSFRAME_CONTROL_MAX + 1];
};

/* ---- sending ---- */

static int send_frame(struct websocket *w, enum wsframe_opcode opcode, const struct iovec *v, int n)
{
    uint8_t header[10];
    struct iovec all[SEND_PIECES + 1];
    size_t size = 0;
    for (int i = 0; i < n; i++) {
        all[1 + i] = v[i];
        size += v[i].iov_len;
    }
    all[0] = (struct iovec){ header, wsframe_header(header, opcode, size) };
    return http_reply_writev(w->request, all, n + 1);
}

static int send_control(struct websocket *w, enum wsframe_opcode opcode, const void *data, size_t size)
{
    struct iovec v = { (void *)(uintptr_t)data, size };
    return send_frame(w, opcode, &v, 1);
}

int websocket_sendv(struct websocket *w, bool is_text, const struct iovec *v, int n)
{
    if (w->phase != OPEN)
        return -EPIPE;
    if (n < 0 || n > SEND_PIECES)
        return -EINVAL;
    return send_frame(w, is_text ? WS_TEXT : WS_BINARY, v, n);
}

int websocket_send(struct websocket *w, bool is_text, const void *data, size_t size)
{
    struct iovec v = { (void *)(uintptr_t)data, size };
    return websocket_sendv(w, is_text, &v, 1);
}

/* Code 0: a close without a code. -EAGAIN: the queue is full. */
static int send_close(struct websocket *w, int code, const char *reason)
{
    char text[WSFRAME_CONTROL_MAX];
    size_t size = reason ? strnlen(reason, sizeof text - 2) : 0;
    text[0] = (char)(code >> 8);
    text[1] = (char)code;
    if (size)
        memcpy(text + 2, reason, size);
    while (size && !wsframe_is_utf8(text + 2, size))
        size--;                     /* cut inside a character */
    return send_control(w, WS_CLOSE, text, code ? size + 2 : 0);
}

static void note_close(struct websocket *w, int code, const char *reason, size_t size)
{
    if (w->close_code)
        return;
    w->close_code = code;
    if (size > WSFRAME_CONTROL_MAX)
        size = WSFRAME_CONTROL_MAX;
    if (size)
        memcpy(w->close_reason, reason, size);
    w->close_reason[size] = 0;
}

static void end(struct websocket *w)
{
    w->phase = ENDED;
    http_reply_finish(w->request);
}

/* A client that reads what is queued gets the close after it, however slowly it reads; one that does not is cut. */
static void await_client(struct websocket *w)
{
    w->pending = http_reply_pending(w->request);
    loop_timer_set(w->request->loop, &w->timer, CLOSE_MS);
}

static void send_noted_close(struct websocket *w)
{
    int r = send_close(w, w->close_code, w->close_reason);
    w->owes_close = r == -EAGAIN;
    if (r < 0 && !w->owes_close)
        http_request_abort(w->request);
}

void websocket_close(struct websocket *w, int code, const char *reason)
{
    if (w->phase != OPEN)
        return;
    w->phase = CLOSING;
    w->paused = false;
    note_close(w, code, reason, reason ? strlen(reason) : 0);
    send_noted_close(w);
    await_client(w);
    loop_task_add(w->request->loop, &w->task);      /* reads on */
}

/* ---- receiving ---- */

static void on_frame(struct websocket *w, int opcode, const char *data, size_t size)
{
    int code;
    switch (opcode) {
    case WS_PING:
        if (send_control(w, WS_PONG, data, size) < 0)
            break;                  /* it does not read, so it cannot miss the pong */
        break;
    case WS_PONG:
        break;
    case WS_CLOSE:
        code = wsframe_close_code(data, size);
        note_close(w, code < 0 ? -code : code, data + 2, size > 2 && code > 0 ? size - 2 : 0);
        if (w->phase == OPEN && send_close(w, code < 0 ? -code : code == WS_NO_STATUS ? 0 : code, NULL) < 0)
            http_request_abort(w->request);
        end(w);
        break;
    default:
        if (w->phase == OPEN)
            w->config.on_message(w, opcode == WS_TEXT, data, size, w->config.owner);
    }
}

static const char *error_text(int code)
{
    return code == WS_TRY_LATER ? "the server keeps as much for you as it may (quota.buffers)"
         : code == WS_TOO_BIG ? "message too big" : code == WS_BAD_DATA ? "not UTF-8"
         : code == WS_INTERNAL ? "out of memory" : "protocol error";
}

/* A message in fragments may become large. This step was already taken; the next one is refused. */
static int charge(struct websocket *w)
{
    if (!share_move_bytes(&w->request->share, w->charged, w->reader.room))
        return -WS_TRY_LATER;
    w->charged = w->reader.room;
    return 0;
}

/* Returns how many bytes were parsed: all, unless it was paused or ended meanwhile. */
static size_t take_bytes(struct websocket *w, const uint8_t *in, size_t size)
{
    size_t at = 0;
    while (w->phase != ENDED && !w->paused) {
        size_t taken, n = 0;
        const char *data = NULL;
        int r = wsreader_take(&w->reader, in + at, size - at, &taken, &data, &n);
        at += taken;
        int charged = charge(w);
        if (charged < 0)
            r = charged;
        if (r == 0)
            break;
        if (r > 0) {
            on_frame(w, r, data, n);
            continue;
        }
        note_close(w, -r, error_text(-r), strlen(error_text(-r)));
        if (w->phase == OPEN && send_close(w, -r, error_text(-r)) < 0)
            http_request_abort(w->request);
        end(w);
    }
    return at;
}

/* Keeps the bytes that a paused WebSocket did not parse. */
static int keep(struct websocket *w, const uint8_t *rest, size_t size)
{
    w->kept = malloc(size);
    if (!w->kept)
        return -ENOMEM;
    memcpy(w->kept, rest, size);
    w->kept_at = 0;
    w->kept_size = size;
    return 0;
}

static void read_on(struct websocket *w)
{
    if (w->kept) {
        w->kept_at += take_bytes(w, w->kept + w->kept_at, w->kept_size - w->kept_at);
        if (w->kept_at < w->kept_size)
            return;
        free(w->kept);
        w->kept = NULL;
    }
    while (w->phase != ENDED && !w->paused) {
        uint8_t bytes[READ_BYTES];
        ssize_t n = http_body_read(w->request, bytes, sizeof bytes);
        if (n <= 0)
            return;                 /* -EAGAIN, or gone: on_end() will come */
        w->heard = true;
        size_t taken = take_bytes(w, bytes, (size_t)n);
        if (taken < (size_t)n && w->phase != ENDED && keep(w, bytes + taken, (size_t)n - taken) < 0)
            http_request_abort(w->request);
    }
}

static void on_task(struct loop_task *t)
{
    read_on(container_of(t, struct websocket, task));
}

void websocket_pause(struct websocket *w)
{
    w->paused = w->phase == OPEN;
}

void websocket_resume(struct websocket *w)
{
    if (!w->paused)
        return;
    w->paused = false;
    w->heard = true;                /* it was silent because we did not read */
    loop_task_add(w->request->loop, &w->task);
}

/* ---- the server's callbacks ---- */

static void on_body(struct http_request *r)
{
    read_on(r->owner);
}

static void on_writable(struct http_request *r)
{
    struct websocket *w = r->owner;
    if (w->phase == CLOSING && w->owes_close)
        send_noted_close(w);
    else if (w->phase == OPEN && w->config.on_writable)
        w->config.on_writable(w, w->config.owner);
}

static void on_end(struct http_request *r, enum http_end how)
{
    struct websocket *w = r->owner;
    loop_timer_cancel(r->loop, &w->timer);
    loop_task_cancel(r->loop, &w->task);
    w->phase = ENDED;
    int code = how == HTTP_END_DONE && w->close_code ? w->close_code : WS_ABNORMAL;
    w->config.on_close(w, code, code == WS_ABNORMAL ? "" : w->close_reason, w->config.owner);
    wsreader_done(&w->reader);
    free(w->kept);
    free(w);
}

static void on_timer(struct loop_timer *t)
{
    struct websocket *w = container_of(t, struct websocket, timer);
    if (w->phase == OPEN && (w->heard || w->paused || !w->asked)) {
        w->asked = !w->heard;
        w->heard = false;
        if (send_control(w, WS_PING, "", 0) < 0)
            w->asked = false;       /* it must first read what is queued */
        loop_timer_set(w->request->loop, &w->timer, w->config.ping_ms);
        return;
    }
    if (w->phase == CLOSING && http_reply_pending(w->request) < w->pending)
        await_client(w);
    else
        http_request_abort(w->request);
}

/* ---- upgrading ---- */

static int accept_key(struct http_text key, char accept[static 32])
{
    static const char magic[] = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    unsigned char text[24 + sizeof magic - 1], digest[EVP_MAX_MD_SIZE], nonce[24];
    unsigned digest_size;
    if (key.size != 24 || memcmp(key.data + 22, "==", 2) != 0 ||
        EVP_DecodeBlock(nonce, (const unsigned char *)key.data, 24) != 18)
        return -EINVAL;             /* 16 bytes as base64 */
    memcpy(text, key.data, 24);
    memcpy(text + 24, magic, sizeof magic - 1);
    if (EVP_Digest(text, sizeof text, digest, &digest_size, EVP_sha1(), NULL) != 1)
        return -ENOMEM;
    EVP_EncodeBlock((unsigned char *)accept, digest, (int)digest_size);
    return 0;
}

/* The first of our protocols that the client offers. */
static const char *choose_protocol(const struct http_head *h, const char *const *ours)
{
    for (; ours && *ours; ours++)
        for (unsigned i = 0; i < h->n_fields; i++) {
            struct http_text name, value, offered;
            http_head_field(h, i, &name, &value);
            if (!http_text_is_nocase(name, "Sec-WebSocket-Protocol"))
                continue;
            while (http_list_next(&value, &offered))
                if (http_text_is(offered, *ours))
                    return *ours;
        }
    return NULL;
}

static int refuse(struct http_request *r, int status, const char *text)
{
    if (status == 426)
        (void)http_reply_header(r, "Sec-WebSocket-Version", "13");
    if (http_reply_error(r, status, text) < 0)
        http_request_abort(r);
    return -EINVAL;
}

static int check_upgrade(struct http_request *r, const struct websocket_config *config, char accept[static 32])
{
    const struct http_head *h = &r->head;
    if (!http_text_is(h->method, "GET") || h->minor != 1 || !h->wants_upgrade ||
        !http_list_has(http_head_get(h, "Upgrade"), "websocket"))
        return refuse(r, 426, "this is a WebSocket");
    if (!http_text_is(http_head_get(h, "Sec-WebSocket-Version"), "13"))
        return refuse(r, 426, "WebSocket version 13 is spoken here");
    if (h->length > 0 || h->chunked || accept_key(http_head_get(h, "Sec-WebSocket-Key"), accept) < 0)
        return refuse(r, 400, "malformed WebSocket upgrade");
    if (config->must_agree && !choose_protocol(h, config->protocols))
        return refuse(r, 400, "no common subprotocol");
    return 0;
}

int websocket_accept(struct http_request *r, const struct websocket_config *config, struct websocket **ret)
{
    char accept[32];
    int result = check_upgrade(r, config, accept);
    if (result < 0)
        return result;
    struct websocket *w = calloc(1, sizeof *w);
    if (!w)
        return -ENOMEM;
    w->request = r;
    w->config = *config;
    if (!w->config.ping_ms)
        w->config.ping_ms = 30000;
    w->reader.any_text = config->any_text;
    w->reader.max_bytes = config->max_message_bytes ? config->max_message_bytes : (size_t)16 << 20;
    w->protocol = choose_protocol(&r->head, config->protocols);
    w->timer.on_expire = on_timer;
    w->task.on_run = on_task;
    result = http_reply_header(r, "Sec-WebSocket-Accept", accept);
    if (result == 0 && w->protocol)
        result = http_reply_header(r, "Sec-WebSocket-Protocol", w->protocol);
    if (result == 0)
        result = http_reply_upgrade(r, "websocket");
    if (result < 0) {
        free(w);
        return result;
    }
    r->owner = w;
    r->on_body = on_body;
    r->on_writable = on_writable;
    r->on_end = on_end;
    loop_timer_set(r->loop, &w->timer, w->config.ping_ms);
    loop_task_add(r->loop, &w->task);       /* the first read, once the caller has its pointer */
    *ret = w;
    return 0;
}

const char *websocket_protocol(const struct websocket *w)
{
    return w->protocol;
}
