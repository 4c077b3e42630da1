/* One end of a connection that the broker carries: TLS on a socket, with bytes that came and bytes that wait. */
#ifndef CARREL_BROKER_SIDE_H
#define CARREL_BROKER_SIDE_H

#include <openssl/ssl.h>

#include "base/buf.h"
#include "http/loop.h"
#include "http/parse.h"

enum {
    SIDE_IN_BYTES = HTTP_HEAD_MAX_BYTES,
    SIDE_OUT_FULL = 64 << 10,           /* nothing more is put in, except what one step makes */
    SIDE_OUT_BYTES = 512 << 10,
};

struct side {
    struct loop_fd watch;       /* fd is owned */
    SSL           *tls;         /* owned; NULL: closed */
    char          *in;          /* SIDE_IN_BYTES while there is something in it */
    size_t         in_at, in_end;
    struct buf     out;
    size_t         out_at;
    bool           is_open;     /* the handshake is done */
    bool           has_ended;   /* no more bytes will come */
    bool           is_deaf;     /* takes no more bytes */
    bool           is_cut;      /* it ended without saying so in TLS */
    bool           has_hung_up;
    uint32_t       wants;       /* EPOLLIN, EPOLLOUT: what TLS waits for beside the obvious */
};

/* Takes over fd and tls, also on failure. */
MUST_CHECK int side_open(struct side *s, struct loop *l, int fd, SSL *tls);
void           side_close(struct side *s, struct loop *l);

/* Each moves what it can and returns whether anything moved. A failed handshake leaves is_open false and sets
 * has_ended. */
bool side_shake_hands(struct side *s);
bool side_flush(struct side *s);
bool side_fill(struct side *s);
/* Ends the TLS stream and the socket's sending half, after everything was flushed. */
void side_finish(struct side *s);

static inline size_t side_has(const struct side *s)
{
    return s->in_end - s->in_at;
}

static inline const char *side_bytes(const struct side *s)
{
    return s->in + s->in_at;
}

void side_take(struct side *s, size_t n);

static inline size_t side_waiting(const struct side *s)
{
    return s->out.length - s->out_at;
}

/* Returns empty buffers. */
void side_rest(struct side *s);
/* Watches for what can be done next. */
void side_rearm(struct side *s, struct loop *l);

#endif
