/* The HTTP/1.1 server: listeners, connections, requests. One loop, no threads, constant memory per connection.
 *
 * A request lives from on_request() until its on_end(), which is called exactly once, also if the client vanishes.
 * Callbacks come from the loop, never from inside one of the functions below. The handler pulls the body with
 * http_body_read() and pushes the answer with http_reply_*(); both return -EAGAIN when the other side must catch up,
 * and on_body() or on_writable() follows when the handler can continue. A body that the handler does not read is not
 * received. */
#ifndef CARREL_HTTP_SERVER_H
#define CARREL_HTTP_SERVER_H

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "base/arena.h"
#include "base/budget.h"
#include "http/loop.h"
#include "http/parse.h"

struct http_server;
struct http_conn;
struct http_request;

enum http_end {
    HTTP_END_DONE,      /* the kernel has taken the whole answer */
    HTTP_END_GONE,      /* the client closed, half-closed or reset the connection */
    HTTP_END_TIMEOUT,   /* the client did not send or receive fast enough */
    HTTP_END_ABORTED,   /* by http_request_abort(), by an answer that was too short, or because the server ends */
};

struct http_peer {
    int family;                     /* AF_UNIX, AF_INET, AF_INET6 */
    unsigned tag;                   /* of the listener */
    struct ucred credentials;       /* AF_UNIX: of the peer; else pid 0, uid and gid -1 */
    struct sockaddr_in6 address;    /* otherwise; a sockaddr_in if family is AF_INET */
};

/* For the access log; texts live during the call only. Requests that were refused before they were read have an empty
 * method. */
struct http_access {
    const char *id;
    const struct http_peer *peer;
    struct http_text method, target;
    int status;                     /* 0: the client was gone before an answer began */
    enum http_end how;
    uint64_t body_bytes, sent_bytes, duration_us;
};

struct http_server_config {
    void (*on_request)(struct http_request *r, void *owner);
    void (*on_access)(const struct http_access *a, void *owner);    /* may be NULL */
    void (*on_drained)(void *owner);                                /* may be NULL */
    void *owner;
    /* 0 means the default. */
    unsigned max_connections;       /* 10,000; more get 503 */
    unsigned max_from_one;          /* half of them: from one uid or address; more get 429. See http_request_claim() */
    unsigned max_from_inlet;        /* 1,024: over one inlet; all inlets together have half of all places */
    uint32_t idle_ms;               /* 75,000: between requests, and before the first byte */
    uint32_t head_ms;               /* 10,000: for a whole head from its first byte; then 408 */
    uint32_t body_ms;               /* 30,000: body_min_bytes must come in this time while the handler waits */
    uint32_t body_min_bytes;        /* 1,024 */
    uint32_t send_ms;               /* 60,000: for any byte of an answer to be accepted */
    uint32_t high_water_bytes;      /* 262,144: an answer's unsent bytes beyond which writes get -EAGAIN */
    uint32_t low_water_bytes;       /* 65,536: on_writable() comes when there are fewer */
};

enum { HTTP_FDS_MAX = 16 };

/* Public part first; the rest is the server's. */
struct http_request {
    struct http_head head;
    struct arena arena;             /* freed after on_end() */
    const struct http_peer *peer;
    const char *id;                 /* 16 hexadecimal digits, also sent as X-Request-Id */
    struct http_server *server;
    struct loop *loop;
    unsigned n_fds;                 /* descriptors that came with the head over a unix socket (SCM_RIGHTS); */
    int fds[HTTP_FDS_MAX];          /* closed after on_end() unless the handler sets one to -1 */

    /* For the handler to set. */
    void *owner;
    void (*on_body)(struct http_request *r);        /* http_body_read() can continue */
    void (*on_writable)(struct http_request *r);    /* below the low-water mark again */
    void (*on_end)(struct http_request *r, enum http_end how);      /* r is invalid afterwards */
    uint64_t body_max_bytes;        /* http_body_read() gives -EFBIG beyond; UINT64_MAX at first */
    bool no_body_deadline;          /* the body may take its time: a terminal's keystrokes, for example */
    bool may_half_close;            /* after an upgrade: a client that has sent its last byte may still read */
    struct share share;             /* in the caller's memory budget: charged for received and unsent bytes; the handler
                                     * may charge more, and need not give it back at the end */

    struct http_conn *conn;
    struct http_request_state *state;
};

/* SIGPIPE must be ignored, else -EINVAL: splice() between connections and commands has no flag against it. */
int  http_server_new(struct loop *l, const struct http_server_config *config, struct http_server **ret) MUST_CHECK;

/* Serves a listening stream socket, TCP or unix. The server owns fd from now on, also on failure. */
int  http_server_listen(struct http_server *s, int fd, unsigned tag) MUST_CHECK;

/* For a listener in a box: its connections are counted per inlet, not by address. */
int  http_server_listen_inlet(struct http_server *s, int fd, unsigned tag) MUST_CHECK;
/* Closes the listener of this tag, and cuts its connections. */
void http_server_unlisten(struct http_server *s, unsigned tag);

/* Stops accepting, closes idle connections, and lets running requests end; cuts the rest after grace_ms. on_drained()
 * comes when no connection is left. */
void http_server_drain(struct http_server *s, uint64_t grace_ms);

/* Ends all requests (on_end() is called), then frees. Not from inside a callback. */
void http_server_free(struct http_server *s);

unsigned http_server_connections(const struct http_server *s);

/* The caller is identified: charges the request to this owner and counts the connection as the owner's. False: the
 * owner has max_from_one connections already (or memory is short); the connection is closed after the answer. */
bool http_request_claim(struct http_request *r, struct budgets *all, const char *owner) MUST_CHECK;

/* ---- the request's body ---- */

/* Returns bytes put into data, 0 at the end of the body, or -EAGAIN (on_body() will come), -EBADMSG (bad chunk;
 * answer 400), -EFBIG (beyond body_max_bytes; answer 413), -EPIPE (the client is gone; on_end() will come). The first
 * read sends 100 Continue if the client waits for it. After http_reply_upgrade() it reads the raw stream. size must
 * not be 0. */
ssize_t http_body_read(struct http_request *r, void *data, size_t size) MUST_CHECK;

/* The outcome of http_body_collect(). */
struct http_collected {
    int status;             /* 0: complete; else the status to answer with: 400, 413, 429 (the caller's budget) or
                             * 503 */
    const char *why;        /* the reason, for people */
    const char *data;       /* NUL-terminated; owned by the request until http_body_drop() */
    size_t size;
};
typedef void http_collect_handler(struct http_request *r, const struct http_collected *b, void *arg);

/* Reads the whole body into memory that is charged to the request, then calls back, perhaps before this returns.
 * Uses on_body. */
void http_body_collect(struct http_request *r, size_t max_bytes, http_collect_handler *on_collected, void *arg);

/* Frees the collected body early; otherwise it is freed with the request. */
void http_body_drop(struct http_request *r);

/* ---- the answer ---- */

#define HTTP_CHUNKED (-1)       /* a size that is not yet known */

/* Adds a field; before the answer starts. -EINVAL if name or value could break the head, -EALREADY, -ENOMEM.
 * Date, Content-Length, Transfer-Encoding, Connection and X-Request-Id are the server's own. */
int  http_reply_header(struct http_request *r, const char *name, const char *value);

/* Sends the head. size is the number of bytes that will be written, or HTTP_CHUNKED. Bodies of HEAD, 204 and 304 are
 * dropped. */
int  http_reply_start(struct http_request *r, int status, int64_t size);

/* Takes all or nothing. 0, -EAGAIN above the high-water mark, -EPIPE if the client is gone, -EMSGSIZE beyond the
 * announced size. */
int  http_reply_write(struct http_request *r, const void *data, size_t size) MUST_CHECK;
int  http_reply_writev(struct http_request *r, const struct iovec *v, int n) MUST_CHECK;

/* How much may be written before -EAGAIN; 0 also when the client is gone. A call that returns 0 arms on_writable(). */
size_t http_reply_room(struct http_request *r);

/* Written bytes that the kernel has not taken yet; a smaller number means that the client has read. */
size_t http_reply_pending(const struct http_request *r);

/* The answer is complete. Fewer bytes than announced: the connection is cut, so that the client notices. */
void http_reply_finish(struct http_request *r);

/* Start, body and finish at once. type may be NULL. */
int  http_reply(struct http_request *r, int status, const char *type, const void *data, size_t size);
/* A refusal in the common shape: {"error":{"code","message","details"}}. */
int  http_reply_error(struct http_request *r, int status, const char *text) MUST_CHECK;
int  http_reply_text(struct http_request *r, int status, const char *format, ...) PRINTF_LIKE(3, 4);

/* 101; body and answer are then raw bytes in both directions, until http_reply_finish(). */
int  http_reply_upgrade(struct http_request *r, const char *protocol);

/* Cuts the connection. on_end() comes from the loop. */
void http_request_abort(struct http_request *r);

#endif
