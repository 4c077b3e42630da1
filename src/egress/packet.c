/* Packets of a box reach nfnetlink_log with checksums that the loopback device left unfinished, so they are computed
 * again before a packet is sent. The box's packets are trusted only as far as it can harm itself: the destination of a
 * connection, and the address of the answer, which always goes to the box. */
#define _GNU_SOURCE
#include "egress/packet.h"

#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_log.h>
#include <linux/netlink.h>
#include <string.h>

enum {
    IPV4_HEAD = 20,
    IPV6_HEAD = 40,
    TCP_HEAD = 20,
    ICMP_HEAD = 8,
    PROTOCOL_ICMP = 1,
    PROTOCOL_TCP = 6,
    PROTOCOL_UDP = 17,
    UDP_HEAD = 8,
    PROTOCOL_ICMP6 = 58,
    FIN = 1,
    SYN = 2,
    RST = 4,
    ACK = 16,
    HOPS = 64,
};

static uint16_t get16(const uint8_t *at)
{
    return (uint16_t)(at[0] << 8 | at[1]);
}

static uint32_t get32(const uint8_t *at)
{
    return (uint32_t)get16(at) << 16 | get16(at + 2);
}

static void put16(uint8_t *at, uint32_t value)
{
    at[0] = (uint8_t)(value >> 8);
    at[1] = (uint8_t)value;
}

static void put32(uint8_t *at, uint32_t value)
{
    put16(at, value >> 16);
    put16(at + 2, value & 0xffff);
}

/* --- netlink --- */

/* One message: a subsystem's header, then attributes. */
static void read_message(const uint8_t *at, size_t size, void (*on_packet)(void *, const uint8_t *, size_t),
                         void *owner)
{
    struct nlattr attribute;

    for (at += sizeof(struct nfgenmsg), size -= sizeof(struct nfgenmsg); size >= sizeof attribute;) {
        memcpy(&attribute, at, sizeof attribute);
        if (attribute.nla_len < sizeof attribute || attribute.nla_len > size)
            return;
        if ((attribute.nla_type & NLA_TYPE_MASK) == NFULA_PAYLOAD)
            on_packet(owner, at + sizeof attribute, attribute.nla_len - sizeof attribute);
        size_t step = NLA_ALIGN((size_t)attribute.nla_len);
        if (step >= size)
            return;
        at += step;
        size -= step;
    }
}

void packet_each(const void *datagram, size_t size, void (*on_packet)(void *owner, const uint8_t *data, size_t size),
                 void *owner)
{
    const uint8_t *at = datagram;
    struct nlmsghdr head;

    while (size >= sizeof head) {
        memcpy(&head, at, sizeof head);
        if (head.nlmsg_len < sizeof head || head.nlmsg_len > size)
            return;
        if (head.nlmsg_type == (NFNL_SUBSYS_ULOG << 8 | NFULNL_MSG_PACKET) &&
            head.nlmsg_len >= sizeof head + sizeof(struct nfgenmsg))
            read_message(at + sizeof head, head.nlmsg_len - sizeof head, on_packet, owner);
        size_t step = NLMSG_ALIGN((size_t)head.nlmsg_len);
        if (step >= size)
            return;
        at += step;
        size -= step;
    }
}

/* --- checksums --- */

static uint32_t add_up(uint32_t sum, const uint8_t *data, size_t size)
{
    for (; size > 1; data += 2, size -= 2)
        sum += get16(data);
    return size ? sum + (uint32_t)(data[0] << 8) : sum;
}

static uint16_t fold(uint32_t sum)
{
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    return (uint16_t)~sum;
}

/* For a TCP or ICMPv6 part after an IP header, whose addresses count, too. */
static void put_checksum(uint8_t *packet, size_t head, size_t size, unsigned protocol, size_t field)
{
    size_t addresses = head == IPV4_HEAD ? 8 : 32;
    uint32_t sum = protocol + (uint32_t)(size - head);

    put16(packet + head + field, 0);
    sum = add_up(sum, packet + (head == IPV4_HEAD ? 12 : 8), addresses);
    put16(packet + head + field, fold(add_up(sum, packet + head, size - head)));
}

/* --- reading --- */

/* *ret_size: the length of the packet according to its header. */
static bool read_ends(const uint8_t *data, size_t size, unsigned protocol, struct packet_ends *ends, size_t *ret_head,
                      size_t *ret_size)
{
    if (size >= IPV4_HEAD && data[0] >> 4 == 4) {
        size_t head = (data[0] & 15u) * 4u;
        if (head < IPV4_HEAD || head > size || data[9] != protocol)
            return false;
        ends->from.size = ends->to.size = 4;
        memcpy(ends->from.byte, data + 12, 4);
        memcpy(ends->to.byte, data + 16, 4);
        *ret_head = head;
        *ret_size = get16(data + 2);
        return !(get16(data + 6) & (protocol == PROTOCOL_TCP ? 0x3fff : 0x1fff));
    }
    if (size < IPV6_HEAD || data[0] >> 4 != 6 || data[6] != protocol)
        return false;
    ends->from.size = ends->to.size = 16;
    memcpy(ends->from.byte, data + 8, 16);
    memcpy(ends->to.byte, data + 24, 16);
    *ret_head = IPV6_HEAD;
    *ret_size = (size_t)get16(data + 4) + IPV6_HEAD;
    return true;
}

bool packet_read_udp(const uint8_t *data, size_t size, struct packet_ends *ret)
{
    struct packet_ends ends = { .from_port = 0 };
    size_t head, whole;

    if (!read_ends(data, size, PROTOCOL_UDP, &ends, &head, &whole) || size - head < UDP_HEAD)
        return false;
    ends.from_port = get16(data + head);
    ends.to_port = get16(data + head + 2);
    *ret = ends;
    return true;
}

bool packet_read_syn(const uint8_t *data, size_t size, struct packet_syn *ret)
{
    struct packet_syn syn = { 0 };
    size_t head, whole;

    if (!read_ends(data, size, PROTOCOL_TCP, &syn.ends, &head, &whole) || whole != size || size - head < TCP_HEAD)
        return false;
    const uint8_t *tcp = data + head;
    size_t tcp_size = (tcp[12] >> 4) * 4u;
    if (tcp_size < TCP_HEAD || tcp_size > size - head || (tcp[13] & (FIN | SYN | RST | ACK)) != SYN)
        return false;
    syn.ends.from_port = get16(tcp);
    syn.ends.to_port = get16(tcp + 2);
    syn.sequence = get32(tcp + 4);
    if (syn.ends.from_port == 0 || syn.ends.to_port == 0)
        return false;
    /* Data in a SYN (TCP fast open) is dropped; the box sends it again. */
    syn.head_size = syn.ends.to.size == 4 ? IPV4_HEAD : IPV6_HEAD;
    syn.size = (uint16_t)(syn.head_size + tcp_size);
    memcpy(syn.bytes, data, syn.head_size);
    memcpy(syn.bytes + syn.head_size, tcp, tcp_size);
    if (syn.head_size == IPV4_HEAD) {
        syn.bytes[0] = 0x45;
        put16(syn.bytes + 2, syn.size);
        put16(syn.bytes + 10, 0);
        put16(syn.bytes + 10, fold(add_up(0, syn.bytes, IPV4_HEAD)));
    } else {
        put16(syn.bytes + 4, (uint32_t)tcp_size);
    }
    put_checksum(syn.bytes, syn.head_size, syn.size, PROTOCOL_TCP, 16);
    *ret = syn;
    return true;
}

/* --- answers --- */

/* An IP header from the connection's destination to the box. */
static void put_head(const struct packet_syn *syn, unsigned protocol, size_t size, uint8_t *ret)
{
    if (syn->head_size == IPV4_HEAD) {
        ret[0] = 0x45;
        put16(ret + 2, (uint32_t)size);
        put16(ret + 6, 0x4000);
        ret[8] = HOPS;
        ret[9] = (uint8_t)protocol;
        memcpy(ret + 12, syn->ends.to.byte, 4);
        memcpy(ret + 16, syn->ends.from.byte, 4);
        put16(ret + 10, fold(add_up(0, ret, IPV4_HEAD)));
        return;
    }
    ret[0] = 0x60;
    put16(ret + 4, (uint32_t)(size - IPV6_HEAD));
    ret[6] = (uint8_t)protocol;
    ret[7] = HOPS;
    memcpy(ret + 8, syn->ends.to.byte, 16);
    memcpy(ret + 24, syn->ends.from.byte, 16);
}

size_t packet_write_reset(const struct packet_syn *syn, uint8_t ret[PACKET_ANSWER])
{
    size_t head = syn->head_size, size = head + TCP_HEAD;

    memset(ret, 0, PACKET_ANSWER);
    put_head(syn, PROTOCOL_TCP, size, ret);
    put16(ret + head, syn->ends.to_port);
    put16(ret + head + 2, syn->ends.from_port);
    put32(ret + head + 8, syn->sequence + 1);
    ret[head + 12] = TCP_HEAD / 4 << 4;
    ret[head + 13] = RST | ACK;
    put_checksum(ret, head, size, PROTOCOL_TCP, 16);
    return size;
}

size_t packet_write_unreachable(const struct packet_syn *syn, bool is_prohibited, uint8_t ret[PACKET_ANSWER])
{
    bool is_v4 = syn->head_size == IPV4_HEAD;
    size_t head = syn->head_size, size = head + ICMP_HEAD + syn->size;

    memset(ret, 0, PACKET_ANSWER);
    put_head(syn, is_v4 ? PROTOCOL_ICMP : PROTOCOL_ICMP6, size, ret);
    ret[head] = is_v4 ? 3 : 1;
    ret[head + 1] = is_prohibited ? (is_v4 ? 13 : 1) : (is_v4 ? 1 : 3);
    memcpy(ret + head + ICMP_HEAD, syn->bytes, syn->size);
    if (is_v4)
        put16(ret + head + 2, fold(add_up(0, ret + head, size - head)));
    else
        put_checksum(ret, head, size, PROTOCOL_ICMP6, 2);
    return size;
}

static bool same_address(const struct net_address *a, const struct net_address *b)
{
    return a->size == b->size && memcmp(a->byte, b->byte, a->size) == 0;
}

bool packet_ends_equal(const struct packet_ends *a, const struct packet_ends *b)
{
    return a->from_port == b->from_port && a->to_port == b->to_port && same_address(&a->from, &b->from) &&
           same_address(&a->to, &b->to);
}
