/* What carrel-egress is told and what it tells: fixed frames and descriptors over SOCK_SEQPACKET sockets.
 *
 *   keeper ---- BOX, with sockets in the box's network; GONE; FRONT, with the front's end of a link
 *   front  ---- POLICY, SHOW
 *   egress ---- REFUSED, USAGE, FLOW to the front
 *
 * `carrel run` is both: it starts an egress of its own and sends everything over one link. A box is known by a number
 * that the front chose; it may be told of in any order. A box without a policy reaches nothing.
 *
 * Egress sends REFUSED before it answers the program in the box. So whoever has seen the program end finds the word
 * about it in the link already. */
#ifndef CARREL_PROTO_EGRESS_H
#define CARREL_PROTO_EGRESS_H

#include <stddef.h>
#include <stdint.h>

#include "proto/net.h"

enum { EGRESS_VERSION = 1, EGRESS_FDS = 8 };

enum egress_type {
    EGRESS_BOX = 1,     /* struct egress_box; fds: its sockets, in the order of enum egress_socket */
    EGRESS_GONE,        /* struct egress_head: the box has ended, or has no network any more */
    EGRESS_FRONT,       /* struct egress_head, box 0; fd: a link on which POLICY and SHOW come and events go */
    EGRESS_POLICY,      /* struct egress_policy, cut behind its last rule: from now on; what it does not allow is cut */
    EGRESS_SHOW,        /* struct egress_head: answered by a FLOW for each connection, then a USAGE */
    EGRESS_REFUSED,     /* struct egress_refused */
    EGRESS_FLOW,        /* struct egress_flow */
    EGRESS_USAGE,       /* struct egress_usage */
};

struct egress_head {
    uint32_t type;
    uint32_t serial;    /* of SHOW; the answers repeat it */
    uint64_t box;
};
_Static_assert(sizeof(struct egress_head) == 16, "a frame has no hidden bytes");

/* How connections of a box are caught. */
enum egress_way {
    EGRESS_HOLD,        /* TPROXY, and connect() in the box waits until the upstream has answered */
    EGRESS_TPROXY,      /* connect() succeeds at once and is reset if the upstream refuses */
    EGRESS_LISTEN,      /* without netfilter: listeners for some ports only */
};

/* Bits of egress_box.has; a socket that is there comes in this order. */
enum egress_socket {
    EGRESS_DNS_UDP = 1,     /* 127.0.0.53:53 in the box */
    EGRESS_DNS_TCP = 2,
    EGRESS_TCP4 = 4,        /* listeners to which all connections of the box are directed; getsockname() of */
    EGRESS_TCP6 = 8,        /* an accepted one is the address that the program asked for */
    EGRESS_SYN = 16,        /* netlink: the first packet of each connection, which was dropped (EGRESS_HOLD) */
    EGRESS_RAW4 = 32,       /* packets for the box, with the mark by which they pass */
    EGRESS_RAW6 = 64,
};

struct egress_box {
    struct egress_head head;
    uint32_t           way;         /* enum egress_way */
    uint32_t           has;         /* enum egress_socket */
};
_Static_assert(sizeof(struct egress_box) == 24, "a frame has no hidden bytes");

struct egress_policy {
    struct egress_head head;
    uint32_t           connections;         /* most at a time; 0: 1,024 */
    uint32_t           reserved;
    uint64_t           bytes_per_second;    /* both ways together; 0: as fast as it goes */
    struct net_policy  policy;
};

/* What is sent of it. A whole one has 36 KB; only five of those fit into a link at a time. */
static inline size_t egress_policy_size(const struct egress_policy *frame)
{
    return offsetof(struct egress_policy, policy.rule) + frame->policy.n_rules * sizeof(struct net_rule);
}

enum egress_why {
    EGRESS_NOT_ALLOWED,     /* no rule allows it, or one denies it */
    EGRESS_BAD_ADDRESS,     /* the name is allowed, but resolves only to addresses that are not */
    EGRESS_OTHER_NAME,      /* the TLS server name is not the name that was looked up */
    EGRESS_TOO_MANY,        /* connections */
};

/* The first refusal of a name or address and port, and later ones once a second. */
struct egress_refused {
    struct egress_head head;
    uint32_t           why;             /* enum egress_why */
    uint16_t           port;            /* 0: only its name was asked for */
    uint16_t           reserved;
    uint64_t           count;           /* so far */
    char               what[NET_NAME_SIZE];     /* a name, or an address as text */
    char               other[NET_NAME_SIZE];    /* OTHER_NAME: the server name; BAD_ADDRESS: the address */
};

struct egress_flow {
    struct egress_head head;
    uint64_t           sent, received;  /* bytes, as the box sees it */
    uint64_t           age_ms;
    uint16_t           port;
    uint16_t           reserved[3];
    char               what[NET_NAME_SIZE];
    char               address[NET_ADDRESS_TEXT];
};

/* Of one box since egress knows it. serial 0: told by itself, at most once a second while it changes. */
struct egress_usage {
    struct egress_head head;
    uint64_t           sent, received, connections, refusals;
    uint32_t           live;            /* connections */
    uint32_t           reserved;
};

#endif
