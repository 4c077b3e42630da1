/* The packets of a held connection: its SYN as netfilter logs it, the same SYN to send again, and the two refusals.
 * Pure; fuzzed. */
#ifndef CARREL_EGRESS_PACKET_H
#define CARREL_EGRESS_PACKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/net.h"

enum {
    PACKET_SYN = 40 + 60,               /* an IPv6 header without extensions, a TCP header with all options */
    PACKET_ANSWER = 40 + 8 + PACKET_SYN,
};

/* Both ends of a connection, as the box sees it. */
struct packet_ends {
    struct net_address from, to;
    uint16_t           from_port, to_port;
};

struct packet_syn {
    struct packet_ends ends;
    uint32_t           sequence;
    uint16_t           size, head_size;         /* total; of the IP header */
    uint8_t            bytes[PACKET_SYN];       /* as sent, without IPv4 options; checksums computed again */
};

/* One datagram of nfnetlink_log: calls on_packet for the payload of each packet in it. */
void   packet_each(const void *datagram, size_t size, void (*on_packet)(void *owner, const uint8_t *data, size_t size),
                   void *owner);

/* False: not the first piece of a datagram of UDP. */
bool   packet_read_udp(const uint8_t *data, size_t size, struct packet_ends *ret);

/* False: no complete TCP segment that opens a connection. */
bool   packet_read_syn(const uint8_t *data, size_t size, struct packet_syn *ret);

/* Connection refused. Returns the size. */
size_t packet_write_reset(const struct packet_syn *syn, uint8_t ret[PACKET_ANSWER]);
/* Host unreachable, or communication administratively prohibited. */
size_t packet_write_unreachable(const struct packet_syn *syn, bool is_prohibited, uint8_t ret[PACKET_ANSWER]);

bool   packet_ends_equal(const struct packet_ends *a, const struct packet_ends *b);

#endif
