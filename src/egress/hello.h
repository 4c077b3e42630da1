/* The server name in the first message of TLS. A program that looked up one name could request another from the same
 * server (many share an address); so the name in its ClientHello must be the one that it looked up. Pure; fuzzed.
 *
 * Bytes that do not begin TLS pass at once: they may be any protocol. A ClientHello without a server name is
 * refused. */
#ifndef CARREL_EGRESS_HELLO_H
#define CARREL_EGRESS_HELLO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "proto/net.h"

enum hello_verdict {
    HELLO_MORE,         /* hold the bytes so far; more are needed */
    HELLO_SO_FAR,       /* pass the bytes so far; continue the inspection */
    HELLO_PASS,         /* pass everything; the inspection is over */
    HELLO_OTHER,        /* another server name, or none: see hello.other */
    HELLO_WRONG,        /* invalid TLS that no honest program sends */
};

/* Zeroed: at the start. */
struct hello {
    uint8_t    stage;
    uint8_t    head[5];         /* of a record */
    uint8_t    n_head;
    bool       checked;         /* the first ClientHello was checked */
    bool       sends_early;     /* it announced early data */
    uint16_t   left;            /* of the record */
    uint32_t   early;           /* bytes of early data that passed */
    struct buf message;         /* a handshake message, without record headers */
    char       other[NET_NAME_SIZE];
};

enum hello_verdict hello_feed(struct hello *h, const char *name, const uint8_t *data, size_t size);
void               hello_done(struct hello *h);

#endif
