/* One connection of ZeroMQ's wire protocol, ZMTP 3.0 without security: bytes in, messages out. No sockets, no threads,
 * no libzmq: Jupyter needs only this much.
 *
 * Peers of version 3.1 fall back to 3.0. Subscriptions and pings of a peer are handled here. */
#ifndef CARREL_ZMTP_ZMTP_H
#define CARREL_ZMTP_ZMTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "base/buf.h"
#include "base/err.h"

enum zmtp_type { ZMTP_DEALER, ZMTP_ROUTER, ZMTP_PUB, ZMTP_SUB, ZMTP_REP };

enum { ZMTP_PARTS = 64, ZMTP_MESSAGE_MOST = 80 << 20, ZMTP_SUBSCRIPTIONS = 16, ZMTP_TOPIC = 128, ZMTP_IDENTITY = 255 };

struct zmtp {
    enum zmtp_type type;
    enum { ZMTP_GREETING, ZMTP_READY, ZMTP_OPEN } state;
    struct buf     in;              /* bytes of an unfinished frame */
    struct buf     message;         /* parts received of an unfinished message */
    size_t         n_parts, ends[ZMTP_PARTS];
    struct buf     out;             /* to be written; the caller removes from its beginning */
    uint8_t        identity[ZMTP_IDENTITY];     /* as the peer names itself; empty if it does not */
    size_t         identity_size;
    unsigned       n_subscriptions; /* of a SUB peer */
    struct {
        uint8_t bytes[ZMTP_TOPIC];
        size_t  size;
    } subscription[ZMTP_SUBSCRIPTIONS];
};

/* The parts of a message; valid during the call. */
typedef void zmtp_message(struct zmtp *z, const struct iovec *part, size_t n, void *arg);

/* Starts with our greeting in z->out. identity: our own, NULL: none. */
void           zmtp_open(struct zmtp *z, enum zmtp_type type, const void *identity, size_t identity_size);
void           zmtp_close(struct zmtp *z);

/* Takes received bytes; calls for each whole message. -EPROTO: the peer breaks the protocol; -EMSGSIZE, -ENOMEM:
 * close. */
MUST_CHECK int zmtp_feed(struct zmtp *z, const void *data, size_t size, zmtp_message *call, void *arg);

/* Adds a message to z->out; allowed before the peer is ready. A PUB sends it only to subscribers of its topic, the
 * first part. -EMSGSIZE: too many bytes are queued already. */
MUST_CHECK int zmtp_send(struct zmtp *z, const struct iovec *part, size_t n);

/* The caller has written this much of z->out. */
void           zmtp_sent(struct zmtp *z, size_t size);

#endif
