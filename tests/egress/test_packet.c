/* Packets of held connections: read from netfilter's log, sent again, answered. */
#include "unit/unit.h"

#include <linux/netfilter/nfnetlink_log.h>
#include <linux/netlink.h>

#include "egress/packet.h"

static const uint8_t syn4[] = { 0x45, 0, 0, 44, 0, 1, 0x40, 0, 64, 6, 0xab, 0xcd, 10, 0, 2, 100, 198, 18, 1, 2,
                                0x9c, 0x40, 1, 0xbb, 0, 0, 0, 9, 0, 0, 0, 0, 0x60, 2, 0xff, 0xff, 0x12, 0x34, 0, 0,
                                2, 4, 5, 0xb4 };
static const uint8_t syn6[] = { 0x60, 0, 0, 0, 0, 20, 6, 64, 0xfd, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0,
                                0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1,
                                0x9c, 0x40, 1, 0xbb, 0, 0, 0, 9, 0, 0, 0, 0, 0x50, 2, 0xff, 0xff, 0x12, 0x34, 0, 0 };

/* By another way than packet.c: the sum over everything, with the checksum in it, is all ones. */
static bool sums_up(const uint8_t *packet, size_t size, size_t head, unsigned protocol, bool with_addresses)
{
    uint64_t sum = with_addresses ? protocol + (size - head) : 0;
    size_t from = with_addresses ? (head == 20 ? 12 : 8) : head;

    for (size_t i = from; i < size; i++)
        if (i < head ? with_addresses : true)
            sum += (uint64_t)packet[i] << ((i - from) % 2 ? 0 : 8);
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    return sum == 0xffff;
}

static bool head_sums_up(const uint8_t *packet)
{
    uint32_t sum = 0;

    for (int i = 0; i < 20; i += 2)
        sum += (uint32_t)(packet[i] << 8 | packet[i + 1]);
    return ((sum & 0xffff) + (sum >> 16)) == 0xffff;
}

static void test_a_first_packet_is_read_and_its_checksums_are_right(void **state)
{
    struct packet_syn syn;

    (void)state;
    assert_true(packet_read_syn(syn4, sizeof syn4, &syn));
    assert_int_equal(syn.ends.from_port, 40000);
    assert_int_equal(syn.ends.to_port, 443);
    assert_int_equal(syn.sequence, 9);
    assert_memory_equal(syn.ends.to.byte, "\xc6\x12\x01\x02", 4);
    assert_true(head_sums_up(syn.bytes));
    assert_true(sums_up(syn.bytes, syn.size, 20, 6, true));
    assert_true(packet_read_syn(syn6, sizeof syn6, &syn));
    assert_int_equal(syn.ends.to.size, 16);
    assert_true(sums_up(syn.bytes, syn.size, 40, 6, true));
}

static void test_answers_go_back_with_right_checksums(void **state)
{
    struct packet_syn syn;
    uint8_t packet[PACKET_ANSWER];

    (void)state;
    assert_true(packet_read_syn(syn4, sizeof syn4, &syn));
    size_t size = packet_write_reset(&syn, packet);
    assert_int_equal(size, 40);
    assert_memory_equal(packet + 12, "\xc6\x12\x01\x02\x0a\x00\x02\x64", 8);
    assert_memory_equal(packet + 20, "\x01\xbb\x9c\x40\x00\x00\x00\x00\x00\x00\x00\x0a\x50\x14", 14);
    assert_true(head_sums_up(packet) && sums_up(packet, size, 20, 6, true));
    size = packet_write_unreachable(&syn, true, packet);
    assert_int_equal(size, 20 + 8 + syn.size);
    assert_memory_equal(packet + 20, "\x03\x0d", 2);
    assert_memory_equal(packet + 28, syn.bytes, syn.size);
    assert_true(head_sums_up(packet) && sums_up(packet, size, 20, 1, false));
    packet_write_unreachable(&syn, false, packet);
    assert_memory_equal(packet + 20, "\x03\x01", 2);
    assert_true(packet_read_syn(syn6, sizeof syn6, &syn));
    size = packet_write_unreachable(&syn, true, packet);
    assert_memory_equal(packet + 40, "\x01\x01", 2);
    assert_true(sums_up(packet, size, 40, 58, true));
    size = packet_write_reset(&syn, packet);
    assert_true(sums_up(packet, size, 40, 6, true));
}

static void test_what_opens_no_connection_is_not_read(void **state)
{
    static const struct {
        size_t  at;
        uint8_t value;
    } changes[] = {
        { 0, 0x44 }, { 0, 0x4f }, { 0, 0x65 }, { 3, 45 }, { 3, 40 }, { 6, 0x20 }, { 7, 1 }, { 9, 17 },
        { 33, 0x12 }, { 33, 0x10 }, { 33, 3 }, { 33, 6 }, { 32, 0x40 }, { 32, 0xf0 },
    };
    struct packet_syn syn;

    (void)state;
    for (size_t i = 0; i < COUNT(changes); i++) {
        uint8_t packet[sizeof syn4];
        memcpy(packet, syn4, sizeof packet);
        packet[changes[i].at] = changes[i].value;
        if (packet_read_syn(packet, sizeof packet, &syn))
            fail_msg("change %zu", i);
    }
    for (size_t size = 0; size < sizeof syn4; size++)
        assert_false(packet_read_syn(syn4, size, &syn));
    for (size_t size = 0; size < sizeof syn6; size++)
        assert_false(packet_read_syn(syn6, size, &syn));
}

static void count_packet(void *owner, const uint8_t *data, size_t size)
{
    size_t *n = owner;

    assert_int_equal(size, sizeof syn4);
    assert_memory_equal(data, syn4, size);
    ++*n;
}

static size_t put_message(uint8_t *to, uint16_t type)
{
    struct nlmsghdr head = { .nlmsg_len = 16 + 4 + 8 + 4 + sizeof syn4, .nlmsg_type = type };
    struct nlattr other = { .nla_len = 6, .nla_type = NFULA_PACKET_HDR };
    struct nlattr payload = { .nla_len = 4 + sizeof syn4, .nla_type = NFULA_PAYLOAD };

    memset(to, 0, head.nlmsg_len);
    memcpy(to, &head, 16);
    memcpy(to + 20, &other, 4);
    memcpy(to + 28, &payload, 4);
    memcpy(to + 32, syn4, sizeof syn4);
    return head.nlmsg_len;
}

static void test_packets_are_found_in_what_netfilter_logs(void **state)
{
    uint8_t datagram[512];
    size_t n = 0, size = put_message(datagram, 4 << 8);

    (void)state;
    size += put_message(datagram + size, 4 << 8);
    size += put_message(datagram + size, 3);        /* another kind of message */
    packet_each(datagram, size, count_packet, &n);
    assert_int_equal(n, 2);
    /* Lengths that lie lead nowhere. */
    for (size_t i = 0; i < 4; i++) {
        uint8_t bad[512];
        memcpy(bad, datagram, size);
        bad[i] = 0xff;
        packet_each(bad, size, count_packet, &n);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_first_packet_is_read_and_its_checksums_are_right),
        cmocka_unit_test(test_answers_go_back_with_right_checksums),
        cmocka_unit_test(test_what_opens_no_connection_is_not_read),
        cmocka_unit_test(test_packets_are_found_in_what_netfilter_logs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
