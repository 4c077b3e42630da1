/* Jupyter messages in ZeroMQ's layout (identities, "<IDS|MSG>", signature, four JSON parts, buffers) and in the
 * WebSocket's (proto/kernel.h). The JSON itself is not parsed. */
#ifndef CARREL_ZMTP_WIRE_H
#define CARREL_ZMTP_WIRE_H

#include <stddef.h>
#include <sys/uio.h>

#include "base/buf.h"
#include "base/err.h"
#include "proto/kernel.h"
#include "zmtp/hmac.h"
#include "zmtp/zmtp.h"

/* Borrows everything. */
struct wire {
    enum kernel_channel channel;            /* KERNEL_CHANNELS: it came over ZeroMQ, where the socket determines the
                                             * channel */
    struct iovec        ident[ZMTP_PARTS];  /* the parts before the delimiter */
    size_t              n_idents;
    struct iovec        part[KERNEL_PARTS];
    struct iovec        buffer[ZMTP_PARTS];
    size_t              n_buffers;
};

struct wire_key {
    char   text[256];
    size_t size;            /* 0: messages are not signed */
};

/* -EPROTO: not a Jupyter message; -EPERM: its signature is wrong. */
MUST_CHECK int wire_from_zmq(const struct wire_key *key, const struct iovec *part, size_t n, struct wire *ret);
/* Fills ret with up to ZMTP_PARTS pieces, one of which is signature. Returns how many, or -EMSGSIZE. */
MUST_CHECK int wire_to_zmq(const struct wire_key *key, const struct wire *w, char signature[HMAC_HEX + 1],
                           struct iovec ret[ZMTP_PARTS]);

MUST_CHECK int wire_from_v1(const void *data, size_t size, struct wire *ret);
/* Appends to out; uses the argument channel, not w's. */
void           wire_to_v1(const struct wire *w, enum kernel_channel channel, struct buf *out);

#endif
