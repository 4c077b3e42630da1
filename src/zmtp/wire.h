/* Jupyter messages, on ZeroMQ's side (identities, "<IDS|MSG>", signature, four JSON parts, buffers) and on the
 * WebSocket's (the layout v1.kernel.websocket.jupyter.org). The JSON itself is not looked at. */
#ifndef CARREL_ZMTP_WIRE_H
#define CARREL_ZMTP_WIRE_H

#include <stddef.h>
#include <sys/uio.h>

#include "base/buf.h"
#include "base/err.h"
#include "zmtp/hmac.h"
#include "zmtp/zmtp.h"

enum { WIRE_HEADER, WIRE_PARENT, WIRE_METADATA, WIRE_CONTENT, WIRE_PARTS };
enum { WIRE_CHANNEL = 16 };

/* Borrows everything. */
struct wire {
    char         channel[WIRE_CHANNEL];     /* of v1 only */
    struct iovec ident[ZMTP_PARTS];         /* what stands before the delimiter */
    size_t       n_idents;
    struct iovec part[WIRE_PARTS];
    struct iovec buffer[ZMTP_PARTS];
    size_t       n_buffers;
};

struct wire_key {
    char   text[256];
    size_t size;            /* 0: messages are not signed */
};

/* -EPROTO: not a message of Jupyter's; -EPERM: its signature is wrong. */
MUST_CHECK int wire_from_zmq(const struct wire_key *key, const struct iovec *part, size_t n, struct wire *ret);
/* Fills ret with up to ZMTP_PARTS pieces, of which one is signature. Returns how many, or -EMSGSIZE. */
MUST_CHECK int wire_to_zmq(const struct wire_key *key, const struct wire *w, char signature[HMAC_HEX + 1],
                           struct iovec ret[ZMTP_PARTS]);

MUST_CHECK int wire_from_v1(const void *data, size_t size, struct wire *ret);
/* Appends to out; the channel is told, not taken from w. */
void           wire_to_v1(const struct wire *w, const char *channel, struct buf *out);

#endif
