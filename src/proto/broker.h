/* The protocol of carrel-broker: fixed frames and descriptors over SOCK_SEQPACKET sockets.
 *
 *   owner   ---- KEY (one for each key), then BOX; GONE; EGRESS, with the broker's end of a link to egress; ALL
 *   broker  ---- READY, with two files of certificates, if BOX asks for them; FAILED
 *   egress  ---- CONNECTION, with the box's end of a connection and the connected upstream
 *
 * The owner is `carrel run`, or the front of a server. A box is identified by a number that the owner chose. Values of
 * keys are in KEY frames alone: in no command line, no environment and no file.
 *
 * A server's broker outlives its front, and the front its broker. So a new front, or one with a new broker, sends all
 * boxes again, and then ALL. KEY and BOX of a box that is there replace its keys: new connections have the new ones;
 * those that are open keep theirs to their end. */
#ifndef CARREL_PROTO_BROKER_H
#define CARREL_PROTO_BROKER_H

#include <stdint.h>

#include "proto/net.h"

enum {
    BROKER_KEYS = 16,               /* of a box */
    BROKER_PORT = 443,
    BROKER_ID = 64996,              /* its user and group, if root starts it */
    BROKER_VALUE_LEAST = 8,         /* a shorter value occurs in answers by chance, where it is masked */
    BROKER_VALUE_MOST = 4096,
    BROKER_HEADER_SIZE = 64,        /* the following ones with their NUL */
    BROKER_AFFIX_SIZE = 128,
    BROKER_PLACEHOLDER_SIZE = 64,
    BROKER_SEED_BYTES = 32,
};

enum broker_type {
    BROKER_KEY = 1,     /* struct broker_key: one more key of the box that the next BOX makes or replaces */
    BROKER_BOX,         /* struct broker_box: all keys were sent. Answered by READY, if it wants files, or FAILED */
    BROKER_GONE,        /* struct broker_head: forgets the box and its keys */
    BROKER_EGRESS,      /* struct broker_head; fd: a link from egress, which replaces an earlier one */
    BROKER_READY,       /* struct broker_head; fds: sealed files with the host's certificates and that of the box, as
                         * PEM and as a truststore of Java */
    BROKER_FAILED,      /* struct broker_failed */
    BROKER_CONNECTION,  /* struct broker_connection; fds: from the box, to the upstream */
    BROKER_ALL,         /* struct broker_head, box 0: forgets boxes that this owner has not sent */
    BROKER_UNABLE,      /* struct broker_failed, box 0, first of all: this broker takes no boxes and reads no frames */
};

struct broker_head {
    uint32_t type;
    uint32_t reserved;
    uint64_t box;
};
_Static_assert(sizeof(struct broker_head) == 16, "a frame has no hidden bytes");

/* Texts end with NUL. A field `header` whose value is before, placeholder, after gets the value in the place of the
 * placeholder. */
struct broker_key {
    struct broker_head head;
    char               host[NET_NAME_SIZE];
    char               header[BROKER_HEADER_SIZE];
    char               before[BROKER_AFFIX_SIZE], after[BROKER_AFFIX_SIZE];
    char               placeholder[BROKER_PLACEHOLDER_SIZE];
    uint32_t           value_size, reserved;
    uint8_t            value[BROKER_VALUE_MOST];
};
_Static_assert(sizeof(struct broker_key) == 664 + BROKER_VALUE_MOST, "a frame has no hidden bytes");

/* The seed makes the box's certificate authority: the same one again in a broker that was restarted. */
struct broker_box {
    struct broker_head head;
    uint8_t            seed[BROKER_SEED_BYTES];
    uint32_t           wants_files, reserved;
};
_Static_assert(sizeof(struct broker_box) == 56, "a frame has no hidden bytes");

struct broker_failed {
    struct broker_head head;
    char               why[240];
};
_Static_assert(sizeof(struct broker_failed) == 256, "a frame has no hidden bytes");

struct broker_connection {
    struct broker_head head;
    char               host[NET_NAME_SIZE];
};
_Static_assert(sizeof(struct broker_connection) == 16 + NET_NAME_SIZE, "a frame has no hidden bytes");

#endif
