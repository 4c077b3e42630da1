/* The protocol of carrel-egress: fixed frames and descriptors over SOCK_SEQPACKET sockets.
 *
 *   keeper ---- BOX, with sockets in the box's network; GONE; FRONT, with the front's end of a link
 *   front  ---- POLICY, SHOW, COMMAND, GONE; BROKER, with egress's end of a link to the broker; BROKERED
 *   egress ---- REFUSED, USAGE, FLOW to the front
 *
 * `carrel run` plays both parts: it starts its own egress and sends everything over one link. A box is identified by a
 * number that the front chose; its frames may come in any order. A box without a policy reaches nothing.
 *
 * Egress sends REFUSED before it answers the program in the box. So a reader that has seen the program's end finds the
 * refusal on the link already. It does so for the first refusal of a name or address and port since COMMAND or POLICY,
 * up to 64 of them at once; what a program repeats in a loop is counted and reported once a second. */
#ifndef CARREL_PROTO_EGRESS_H
#define CARREL_PROTO_EGRESS_H

#include <stddef.h>
#include <stdint.h>

#include "proto/net.h"

enum { EGRESS_VERSION = 1, EGRESS_FDS = 8, EGRESS_BROKERED_MOST = 16 };

enum egress_type {
    EGRESS_BOX = 1,     /* struct egress_box; fds: its sockets, in the order of enum egress_socket */
    EGRESS_GONE,        /* struct egress_head: the box has ended, or has no network any more */
    EGRESS_FRONT,       /* struct egress_head, box 0; fd: a link for POLICY, SHOW and events */
    EGRESS_POLICY,      /* struct egress_policy, cut after its last rule: replaces the old one; cuts connections that it
                         * does not allow */
    EGRESS_SHOW,        /* struct egress_head: answered by a FLOW for each connection, 1,000 at most, then a USAGE */
    EGRESS_REFUSED,     /* struct egress_refused */
    EGRESS_FLOW,        /* struct egress_flow */
    EGRESS_USAGE,       /* struct egress_usage */
    EGRESS_BROKER,      /* struct egress_head, box 0; fd: a link to carrel-broker (proto/broker.h) */
    EGRESS_BROKERED,    /* struct egress_brokered: replaces the box's list. It comes before the policy */
    EGRESS_COMMAND,     /* struct egress_head: a command, cell or call begins, whose refusals are reported at once, also
                         * if an earlier one had the same. Not needed if no REFUSED came since the last */
};

struct egress_head {
    uint32_t type;
    uint32_t serial;    /* of SHOW; the answers repeat it */
    uint64_t box;
};
_Static_assert(sizeof(struct egress_head) == 16, "a frame has no hidden bytes");

/* How connections of a box are intercepted. */
enum egress_way {
    EGRESS_HOLD,        /* TPROXY, and connect() in the box waits until the upstream has answered */
    EGRESS_TPROXY,      /* connect() succeeds at once, and the connection is reset if the upstream refuses */
};

/* Bits of egress_box.has; the present sockets come in this order. */
enum egress_socket {
    EGRESS_DNS_UDP = 1,     /* 127.0.0.53:53 in the box */
    EGRESS_DNS_TCP = 2,
    EGRESS_TCP4 = 4,        /* listeners for all connections of the box; getsockname() of */
    EGRESS_TCP6 = 8,        /* an accepted one is the address that the program connected to */
    EGRESS_SYN = 16,        /* netlink: the first packet of each connection, which was dropped (EGRESS_HOLD) */
    EGRESS_RAW4 = 32,       /* for packets to the box, with the mark that lets them pass */
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
    uint64_t           bytes_per_second;    /* both directions together; 0: unlimited */
    struct net_policy  policy;
};
_Static_assert(sizeof(struct egress_policy) == 32 + sizeof(struct net_policy), "a frame has no hidden bytes");

/* The sent part. A complete one has 36 KB; only five of those fit into a link at a time. */
static inline size_t egress_policy_size(const struct egress_policy *frame)
{
    return offsetof(struct egress_policy, policy.rule) + frame->policy.n_rules * sizeof(struct net_rule);
}

/* Connections to these names on port 443 go through the broker, which has keys for them; without it they fail. The
 * policy must allow them, too. */
struct egress_brokered {
    struct egress_head head;
    uint32_t           n, reserved;
    char               name[EGRESS_BROKERED_MOST][NET_NAME_SIZE];
};
_Static_assert(sizeof(struct egress_brokered) == 24 + EGRESS_BROKERED_MOST * NET_NAME_SIZE, "no hidden bytes");

enum egress_why {
    EGRESS_NOT_ALLOWED,     /* no rule allows it, or one denies it */
    EGRESS_BAD_ADDRESS,     /* the name is allowed, but resolves only to addresses that are not */
    EGRESS_OTHER_NAME,      /* the TLS server name is not the name that was looked up */
    EGRESS_TOO_MANY,        /* connections */
    EGRESS_UNRESOLVED,      /* allowed, but the host's resolver does not answer, or fails */
    EGRESS_UDP,             /* a datagram; only connections are carried */
    EGRESS_NO_BROKER,       /* the name has a key, and the broker is gone or has too much to do */
    EGRESS_TOO_MANY_NAMES,  /* looked up at once */
    EGRESS_NO_ROUTE,        /* addresses, in a box without network; not egress's: the kernel refuses them */
    EGRESS_WHYS,
};

struct egress_refused {
    struct egress_head head;
    uint32_t           why;             /* enum egress_why */
    uint16_t           port;            /* 0: only the name was looked up */
    uint16_t           reserved;
    uint64_t           count;           /* so far */
    uint64_t           last_us;         /* when, by CLOCK_MONOTONIC: it may have been long before this report */
    char               what[NET_NAME_SIZE];     /* a name, or an address as text */
    char               other[NET_NAME_SIZE];    /* OTHER_NAME: the server name; BAD_ADDRESS: the address */
};
_Static_assert(sizeof(struct egress_refused) == 552, "a frame has no hidden bytes");

struct egress_flow {
    struct egress_head head;
    uint64_t           sent, received;  /* bytes, from the box's view */
    uint64_t           age_ms;
    uint16_t           port;
    uint16_t           reserved[3];
    char               what[NET_NAME_SIZE];
    char               address[NET_ADDRESS_TEXT];
};
_Static_assert(sizeof(struct egress_flow) == 352, "a frame has no hidden bytes");

/* Of one box since egress knows it. serial 0: unrequested, after the end of a connection, and once a second while it
 * changes. */
struct egress_usage {
    struct egress_head head;
    uint64_t           sent, received, connections, refusals;
    uint32_t           live;            /* connections */
    uint32_t           way;             /* enum egress_way + 1; 0: egress has no sockets of the box */
    uint64_t           since_ms;        /* when counting began; another value means that it began again */
};
_Static_assert(sizeof(struct egress_usage) == 64, "a frame has no hidden bytes");

#endif
