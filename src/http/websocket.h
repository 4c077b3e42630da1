/* WebSockets on top of the server: upgrade, messages, ping and pong, closing. No extensions. */
#ifndef CARREL_HTTP_WEBSOCKET_H
#define CARREL_HTTP_WEBSOCKET_H

#include "http/server.h"
#include "http/wsframe.h"

struct websocket;

struct websocket_config {
    const char *const *protocols;   /* ours, best first, NULL-terminated; or NULL for none */
    bool must_agree;                /* refuse a client that offers none of them */
    bool any_text;                  /* text need not be UTF-8; on_message() checks it itself */
    size_t max_message_bytes;       /* 0: 16 MiB */
    uint32_t ping_ms;               /* 0: 30,000; a client that has sent nothing for two of these is cut */
    void *owner;
    /* data is NUL-terminated and valid during the call. is_text: it is valid UTF-8. */
    void (*on_message)(struct websocket *w, bool is_text, const char *data, size_t size, void *owner);
    void (*on_writable)(struct websocket *w, void *owner);      /* may be NULL */
    /* Exactly once, at the very end, also if the client vanished (WS_ABNORMAL). w is invalid afterwards. */
    void (*on_close)(struct websocket *w, int code, const char *reason, void *owner);
};

/* Answers the request with 101 and makes it a WebSocket, or answers 400 or 426 and returns -EINVAL; -ENOMEM. The
 * WebSocket then owns the request. */
int websocket_accept(struct http_request *r, const struct websocket_config *config, struct websocket **ret) MUST_CHECK;

/* The agreed protocol; NULL if none. */
const char *websocket_protocol(const struct websocket *w);

/* Takes the whole message or nothing. -EAGAIN above the high-water mark (on_writable() will come), -EPIPE when
 * closing. */
int websocket_send(struct websocket *w, bool is_text, const void *data, size_t size) MUST_CHECK;
int websocket_sendv(struct websocket *w, bool is_text, const struct iovec *v, int n) MUST_CHECK;    /* n up to 8 */

/* No on_message() until resumed; TCP slows the client down. Pings are not answered meanwhile. */
void websocket_pause(struct websocket *w);
void websocket_resume(struct websocket *w);

/* Sends a close and waits for the client's, 5 s at most. Drops messages that arrive meanwhile. reason may be NULL. */
void websocket_close(struct websocket *w, int code, const char *reason);

#endif
