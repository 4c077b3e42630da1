/* EGRESS_HOLD: a connect() in the box succeeds only if the connection outside did. The kernel logs the first packet of
 * a connection to us and drops it. When the connection outside is open, the same packet is sent again, with a mark that
 * lets it pass, and the kernel carries out the handshake with our listener; otherwise the packet is answered in the
 * name of its destination. */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/socket.h>

#include "base/list.h"
#include "egress/netbox.h"

enum { PACKETS_PER_TURN = 64, DATAGRAM = 16384 };

static struct carry **bucket_of(const struct netbox *b, const struct packet_ends *ends)
{
    uint32_t h = (uint32_t)ends->from_port * 40503u + ends->to_port * 9973u + ends->to.byte[ends->to.size - 1];

    return (struct carry **)(uintptr_t)&b->waiting[(h ^ h >> 8) % NETBOX_WAITING];
}

struct carry *hold_find(const struct netbox *b, const struct packet_ends *ends)
{
    struct carry *c = *bucket_of(b, ends);

    while (c && !packet_ends_equal(&c->ends, ends))
        c = c->next_waiting;
    return c;
}

void hold_add(struct carry *c)
{
    struct carry **bucket = bucket_of(c->box, &c->ends);

    c->next_waiting = *bucket;
    c->back_waiting = bucket;
    if (c->next_waiting)
        c->next_waiting->back_waiting = &c->next_waiting;
    *bucket = c;
}

void hold_remove(struct carry *c)
{
    if (!c->back_waiting)
        return;
    *c->back_waiting = c->next_waiting;
    if (c->next_waiting)
        c->next_waiting->back_waiting = c->back_waiting;
    c->back_waiting = NULL;
}

static void send_packet(struct netbox *b, const struct packet_syn *syn, const uint8_t *packet, size_t size)
{
    struct sockaddr_storage to;
    socklen_t to_size;
    bool to_box = packet != syn->bytes;
    int fd = netbox_fd(b, syn->ends.to.size == 4 ? EGRESS_RAW4 : EGRESS_RAW6);

    if (fd < 0)
        return;
    dial_fill(to_box ? &syn->ends.from : &syn->ends.to, 0, &to, &to_size);
    /* If it is lost, the box sends again after a second. */
    (void)sendto(fd, packet, size, MSG_DONTWAIT | MSG_NOSIGNAL, (struct sockaddr *)&to, to_size);
}

void hold_answer(struct netbox *b, const struct packet_syn *syn, enum hold_answer answer)
{
    uint8_t packet[PACKET_ANSWER];

    if (answer == HOLD_GO_ON) {
        send_packet(b, syn, syn->bytes, syn->size);
        return;
    }
    if (answer != HOLD_REFUSED)
        send_packet(b, syn, packet, packet_write_unreachable(syn, answer == HOLD_PROHIBITED, packet));
    /* The kernel drops an ICMP message that arrives while connect() has the socket locked. A reset is queued; if the
     * first answer was taken, the second finds no connection. */
    send_packet(b, syn, packet, packet_write_reset(syn, packet));
}

/* Protocols for finding neighbours address all hosts, and expect no answer. */
static bool is_for_many(const struct net_address *to)
{
    return to->size == 4 ? to->byte[0] >= 224 : to->byte[0] == 0xff;
}

static void refuse_datagram(struct netbox *b, const struct packet_ends *ends)
{
    bool is_name = net_address_is_stand_in(&ends->to) && b->names;
    const char *name = is_name ? nametable_find(b->names, ends->to.byte) : NULL;
    char text[NET_ADDRESS_TEXT];

    net_address_show(&ends->to, text);
    if (!is_for_many(&ends->to))
        netbox_refuse(b, EGRESS_UDP, name ? name : text, ends->to_port, NULL);
}

static void on_packet(void *owner, const uint8_t *data, size_t size)
{
    struct netbox *b = owner;
    struct packet_syn syn;

    if (packet_read_udp(data, size, &syn.ends)) {
        refuse_datagram(b, &syn.ends);
        return;
    }
    if (!packet_read_syn(data, size, &syn))
        return;
    struct carry *c = hold_find(b, &syn.ends);
    /* Another sequence number: the program gave up and retries from the same port. */
    if (c && c->syn->sequence != syn.sequence) {
        carry_drop(c);
        c = NULL;
    }
    /* A retransmission, because the answer takes long. */
    if (!c)
        carry_open(b, &syn.ends, -1, &syn);
    else if (c->state == CARRY_READY)
        hold_answer(b, &syn, HOLD_GO_ON);
}

void hold_on_syn(struct loop_fd *w, uint32_t events)
{
    struct netbox *b = container_of(w, struct netbox_socket, watch)->box;
    static uint8_t datagram[DATAGRAM] __attribute__((aligned(8)));

    (void)events;
    for (int i = 0; i < PACKETS_PER_TURN; i++) {
        struct sockaddr_storage from;
        socklen_t size = sizeof from;
        ssize_t n = recvfrom(w->fd, datagram, sizeof datagram, MSG_DONTWAIT, (struct sockaddr *)&from, &size);
        if (n < 0 && (errno == EINTR || errno == ENOBUFS))
            continue;           /* ENOBUFS: some were lost; the box sends them again */
        if (n <= 0)
            return;
        packet_each(datagram, (size_t)n, on_packet, b);
    }
}
