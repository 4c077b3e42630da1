/* One connection to the API server: plain or TLS, HTTP/1.1, one exchange at a time. Belongs to a client (client.h). */
#ifndef CARREL_KUBE_CONN_H
#define CARREL_KUBE_CONN_H

#include <openssl/ssl.h>
#include <sys/socket.h>

#include "base/buf.h"
#include "http/loop.h"
#include "http/parse.h"
#include "kube/config.h"

enum kube_conn_state { KUBE_CONN_CLOSED, KUBE_CONN_CONNECTING, KUBE_CONN_HANDSHAKE, KUBE_CONN_IDLE, KUBE_CONN_BUSY };

struct kube_conn {
    struct loop         *loop;
    enum kube_conn_state state;
    int                  fd;
    SSL                 *ssl;           /* NULL: plain */
    struct loop_fd       watch;
    struct buf           out;           /* the request */
    size_t               sent;
    bool                 heard;         /* a byte of the present answer has come */
    bool                 reused;        /* the exchange is not the connection's first */
    char                *in;            /* while busy */
    size_t               begin, end;
    bool                 has_head;
    struct http_head     head;
    struct http_chunked  chunks;
    enum http_body       body;
    uint64_t             left;
    struct err           e;             /* why it was closed */

    /* Callbacks for the owner. None is called from inside kube_conn_open(), _send() or _close(). on_end: error 0 or
     * -errno, with e set; the connection is then IDLE or CLOSED. on_ready: it was opened. */
    void *owner;
    void (*on_ready)(struct kube_conn *c);
    void (*on_head)(struct kube_conn *c);
    void (*on_data)(struct kube_conn *c, const char *data, size_t size);
    void (*on_end)(struct kube_conn *c, int error);
};

/* A TLS context for the configuration. *ret NULL: no TLS. */
MUST_CHECK int kube_tls_new(const struct kube_config *config, SSL_CTX **ret, struct err *e);

MUST_CHECK int kube_conn_open(struct kube_conn *c, struct loop *l, SSL_CTX *tls, const struct kube_config *config,
                              const struct sockaddr *address, socklen_t size, struct err *e);
/* Sends c->out, which the caller has filled; only when IDLE. */
void kube_conn_send(struct kube_conn *c);
/* No callback follows. */
void kube_conn_close(struct kube_conn *c);

#endif
