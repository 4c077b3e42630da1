/* A WebSocket from the client's side: binary messages, pings, closing. Bytes in, bytes out; the caller polls. */
#ifndef CARREL_CLIENT_KERNEL_WSCLIENT_H
#define CARREL_CLIENT_KERNEL_WSCLIENT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "client/wire/exchange.h"
#include "http/wsframe.h"

enum { WSCLIENT_MOST = 80 << 20 };

struct wsclient {
    struct exchange *x;         /* owned; its fd is to be polled */
    struct wsreader  reader;    /* the received part of an unfinished message */
    struct buf       out;       /* to be written */
    bool             closed;    /* the server has closed it, or is gone */
};

typedef void wsclient_message(const char *data, size_t size, void *arg);

/* protocol: the subprotocol that must be agreed upon. */
MUST_CHECK int wsclient_open(struct wsclient *w, const struct server_address *s, const char *target,
                             const char *protocol, struct err *e);
void           wsclient_done(struct wsclient *w);

/* Reads available bytes and calls for each whole message. -EPROTO, -ECONNRESET: it is over. */
MUST_CHECK int wsclient_read(struct wsclient *w, wsclient_message *call, void *arg);
MUST_CHECK int wsclient_send(struct wsclient *w, const void *data, size_t size);
/* Writes as much as the socket takes. */
MUST_CHECK int wsclient_write(struct wsclient *w);

#endif
