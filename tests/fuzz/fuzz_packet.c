/* Any bytes as a packet of a box and as a datagram of netfilter's log: answers have their right size and go back. */
#include "fuzz.h"

#include "egress/packet.h"

static void on_packet(void *owner, const uint8_t *data, size_t size)
{
    uint8_t answer[PACKET_ANSWER];
    struct packet_syn syn, again;

    (void)owner;
    if (!packet_read_syn(data, size, &syn))
        return;
    HOLDS(syn.size <= PACKET_SYN && syn.size >= syn.head_size + 20);
    HOLDS(packet_read_syn(syn.bytes, syn.size, &again) && packet_ends_equal(&syn.ends, &again.ends));
    HOLDS(again.size == syn.size && memcmp(again.bytes, syn.bytes, syn.size) == 0);
    HOLDS(packet_write_reset(&syn, answer) == syn.head_size + 20u);
    HOLDS(packet_write_unreachable(&syn, data[0] & 1, answer) == syn.head_size + 8u + syn.size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *copy = (uint8_t *)fuzz_string(data, size);

    on_packet(NULL, copy, size);
    packet_each(copy, size, on_packet, NULL);
    free(copy);
    return 0;
}
