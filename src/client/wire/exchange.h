/* One HTTP/1.1 request and its answer, over a connection of its own, from the client's side. Blocking, unless stated
 * otherwise. */
#ifndef CARREL_CLIENT_WIRE_EXCHANGE_H
#define CARREL_CLIENT_WIRE_EXCHANGE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "http/parse.h"

/* The address of a server. */
struct server_address {
    bool        is_unix;
    char        address[256];   /* path of the socket, or host */
    char        port[8];
    char        url[300];       /* for messages */
    const char *token;          /* borrowed; NULL: none */
    bool        heeds_signals;  /* a wait ends with -EINTR when a blocked signal is pending */
    uint64_t    until_us;       /* if signals are heeded, a wait ends with -ETIMEDOUT then; 0: never */
};

/* "unix:/path", "/path", "http://host:port". */
MUST_CHECK int server_parse(const char *url, struct server_address *ret, struct err *e);
/* The value of CARREL_URL; NULL: unset or empty. */
const char    *server_named(void);
/* The server of --url, else of CARREL_URL; else the user's own or the machine's, whichever is running. */
MUST_CHECK int server_find(const char *url, struct server_address *ret, struct err *e);
/* The socket, or -errno with a remedy in the message. */
MUST_CHECK int server_connect(const struct server_address *s, struct err *e);

enum { EXCHANGE_BUFFER = 128 << 10 };
enum { EXCHANGE_FDS = 16 };
#define EXCHANGE_NO_BODY  (-2)
#define EXCHANGE_CHUNKED  (-1)

struct exchange {
    int                 fd;         /* owned; -1: closed */
    bool                sends_chunks, heeds_signals;
    uint64_t            until_us;   /* as in struct server_address */
    struct http_head    head;       /* of the answer */
    int                 status;
    enum http_body      body;
    uint64_t            left;       /* of a body with a length */
    struct http_chunked chunks;
    bool                over;       /* the answer's body has ended */
    size_t              begin, end; /* of the unread part of data */
    char                data[EXCHANGE_BUFFER];
};

/* Connects and sends the head. body_size: how many bytes will be sent, or one of the constants above. fields: further
 * header lines, each with its CRLF, or NULL. */
MUST_CHECK int exchange_open(struct exchange *x, const struct server_address *s, const char *method, const char *target,
                             const char *fields, int64_t body_size, struct err *e);
/* The same, and passes descriptors with the head (unix sockets only). */
MUST_CHECK int exchange_open_with(struct exchange *x, const struct server_address *s, const char *method,
                                  const char *target, const char *fields, int64_t body_size, const int *fds,
                                  size_t n_fds, struct err *e);
void           exchange_close(struct exchange *x);

/* Sends a piece of the body. -EPIPE: the server reads no more of it; its answer says why. */
MUST_CHECK int exchange_send(struct exchange *x, const void *data, size_t size);
MUST_CHECK int exchange_send_end(struct exchange *x);

/* Waits for the answer's head; the status is in x. */
MUST_CHECK int exchange_answer(struct exchange *x, struct err *e);

/* The next bytes of the answer's body: > 0, 0 at its end, -EAGAIN if there are none now and wait is false, -ECONNRESET
 * if the connection broke, -EBADMSG. After 101 it is the raw stream. */
MUST_CHECK ssize_t exchange_read(struct exchange *x, void *data, size_t size, bool wait);

#endif
