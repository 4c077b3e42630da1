#include "unit/unit.h"

#include <errno.h>

#include "zmtp/hmac.h"
#include "zmtp/wire.h"
#include "zmtp/zmtp.h"

/* ---- signatures: the vectors of RFC 4231, and keys and texts around the block size ---- */

static void check_hmac(const char *key, size_t key_size, const char *text, const char *expected)
{
    char hex[HMAC_HEX + 1];
    struct iovec halves[2] = { { (char *)(uintptr_t)text, strlen(text) / 2 },
                               { (char *)(uintptr_t)text + strlen(text) / 2, strlen(text) - strlen(text) / 2 } };

    hmac_hex(key, key_size, halves, 2, hex);
    assert_string_equal(hex, expected);
}

static void test_signatures_are_those_of_the_standard(void **state)
{
    char key[131];
    (void)state;

    check_hmac("Jefe", 4, "what do ya want for nothing?",
               "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    memset(key, 0x0b, 20);
    check_hmac(key, 20, "Hi There", "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
    memset(key, 0xaa, sizeof key);
    check_hmac(key, sizeof key, "Test Using Larger Than Block-Size Key - Hash Key First",
               "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
    check_hmac(
        key, sizeof key,
        "This is a test using a larger than block-size key and a larger than block-size data. The key needs to be "
        "hashed before being used by the HMAC algorithm.",
        "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2");
}

/* ---- two ends ---- */

struct seen {
    unsigned n;
    size_t   parts;
    char     text[4096];        /* the parts, each with a bar behind it */
};

static void note(struct zmtp *z, const struct iovec *part, size_t n, void *arg)
{
    struct seen *seen = arg;
    size_t at = 0;

    (void)z;
    seen->n++;
    seen->parts = n;
    for (size_t i = 0; i < n && at + part[i].iov_len + 2 < sizeof seen->text; i++) {
        memcpy(seen->text + at, part[i].iov_base ? part[i].iov_base : "", part[i].iov_len);
        at += part[i].iov_len;
        seen->text[at++] = '|';
    }
    seen->text[at] = '\0';
}

/* Hands over what waits, in pieces of this size. */
static void hand_over(struct zmtp *from, struct zmtp *to, size_t piece, struct seen *seen)
{
    while (from->out.length > 0) {
        size_t n = from->out.length < piece ? from->out.length : piece;
        assert_int_equal(zmtp_feed(to, from->out.data, n, note, seen), 0);
        zmtp_sent(from, n);
    }
}

static void test_messages_pass_in_any_pieces(void **state)
{
    static const size_t pieces[] = { 1, 2, 7, 64, 1000, 1 << 20 };
    char large[3000];
    (void)state;

    memset(large, 'y', sizeof large);
    for (size_t i = 0; i < COUNT(pieces); i++) {
        struct zmtp router, dealer;
        struct seen at_router = { 0 }, at_dealer = { 0 };
        zmtp_open(&router, ZMTP_ROUTER, NULL, 0);
        zmtp_open(&dealer, ZMTP_DEALER, "me", 2);
        struct iovec parts[] = { { "a", 1 }, { NULL, 0 }, { large, sizeof large }, { "end", 3 } };
        assert_int_equal(zmtp_send(&dealer, parts, 4), 0);
        assert_int_equal(zmtp_send(&dealer, parts, 1), 0);
        hand_over(&dealer, &router, pieces[i], &at_router);
        assert_int_equal(router.state, ZMTP_OPEN);
        assert_int_equal(router.identity_size, 2);
        assert_memory_equal(router.identity, "me", 2);
        assert_int_equal(at_router.n, 2);
        assert_string_equal(at_router.text, "a|");
        assert_int_equal(zmtp_send(&router, parts, 4), 0);
        hand_over(&router, &dealer, pieces[i], &at_dealer);
        assert_int_equal(at_dealer.n, 1);
        assert_int_equal(at_dealer.parts, 4);
        assert_memory_equal(at_dealer.text, "a||yyy", 6);
        zmtp_close(&router);
        zmtp_close(&dealer);
    }
}

static void test_a_publisher_sends_what_was_asked_for(void **state)
{
    struct zmtp pub, sub;
    struct seen at_pub = { 0 }, at_sub = { 0 };
    struct iovec message[] = { { "kernel.1.status", 15 }, { "x", 1 } };
    (void)state;

    zmtp_open(&pub, ZMTP_PUB, NULL, 0);
    zmtp_open(&sub, ZMTP_SUB, NULL, 0);
    hand_over(&pub, &sub, 1000, &at_sub);
    assert_int_equal(zmtp_send(&pub, message, 2), 0);
    assert_int_equal(pub.out.length, 0);        /* no subscriber yet */
    hand_over(&sub, &pub, 1000, &at_pub);
    assert_int_equal(zmtp_send(&pub, message, 2), 0);
    hand_over(&pub, &sub, 1000, &at_sub);
    assert_string_equal(at_sub.text, "kernel.1.status|x|");
    assert_int_equal(at_pub.n, 0);
    /* Not everything any more, but one topic. */
    assert_int_equal(zmtp_feed(&pub, "\0\1\0" "\0\7\1stream", 12, note, &at_pub), 0);
    assert_int_equal(zmtp_send(&pub, message, 2), 0);
    assert_int_equal(pub.out.length, 0);
    message[0] = (struct iovec){ "stream.stdout", 13 };
    assert_int_equal(zmtp_send(&pub, message, 2), 0);
    assert_true(pub.out.length > 0);
    zmtp_close(&pub);
    zmtp_close(&sub);
}

static void greet(struct zmtp *z)
{
    char greeting[64] = { '\xff', [9] = 0x7f, [10] = 3, [12] = 'N', 'U', 'L', 'L' };

    zmtp_open(z, ZMTP_ROUTER, NULL, 0);
    assert_int_equal(zmtp_feed(z, greeting, sizeof greeting, note, NULL), 0);
}

static void test_broken_peers_are_refused(void **state)
{
    static const struct {
        const char *bytes;
        size_t      size;
        int         error;
    } wrong[] = {
        { "\0\1x", 3, -EPROTO },                                /* a message before READY */
        { "\4\6\5HELLO", 8, -EPROTO },
        { "\4\1\5", 3, -EPROTO },                               /* a name longer than the command */
        { "\4\22\5READY\10Identity\0\1\0\0", 20, -EPROTO },     /* a value longer than the command */
        { "\10\0", 2, -EPROTO },                                /* an unknown flag */
        { "\5\6\5READY", 8, -EPROTO },                          /* a command that goes on */
        { "\6\0\0\0\0\0\1\0\0", 9, -EMSGSIZE },                 /* a command of 64 kB */
    };
    struct zmtp z;
    (void)state;

    for (size_t i = 0; i < COUNT(wrong); i++) {
        greet(&z);
        assert_int_equal(zmtp_feed(&z, wrong[i].bytes, wrong[i].size, note, NULL), wrong[i].error);
        zmtp_close(&z);
    }
    greet(&z);
    assert_int_equal(zmtp_feed(&z, "\4\6\5READY", 8, note, NULL), 0);
    assert_int_equal(zmtp_feed(&z, "\2\0\0\0\0\xff\0\0\0", 9, note, NULL), -EMSGSIZE);
    zmtp_close(&z);
    /* Another security mechanism, an older version, something else altogether. */
    char greeting[64] = { '\xff', [9] = 0x7f, [10] = 3, [12] = 'C', 'U', 'R', 'V', 'E' };
    zmtp_open(&z, ZMTP_ROUTER, NULL, 0);
    assert_int_equal(zmtp_feed(&z, greeting, sizeof greeting, note, NULL), -EPROTO);
    zmtp_close(&z);
    memset(greeting, 'G', sizeof greeting);
    zmtp_open(&z, ZMTP_ROUTER, NULL, 0);
    assert_int_equal(zmtp_feed(&z, greeting, sizeof greeting, note, NULL), -EPROTO);
    zmtp_close(&z);
}

static void test_a_ping_is_answered(void **state)
{
    struct zmtp z;
    (void)state;

    greet(&z);
    assert_int_equal(zmtp_feed(&z, "\4\6\5READY", 8, note, NULL), 0);
    zmtp_sent(&z, z.out.length);
    assert_int_equal(zmtp_feed(&z, "\4\11\4PING\0\12ab", 11, note, NULL), 0);
    assert_int_equal(z.out.length, 9);
    assert_memory_equal(z.out.data, "\4\7\4PONGab", 9);
    zmtp_close(&z);
}

/* ---- Jupyter's messages ---- */

static const struct wire_key secret = { .text = "secret", .size = 6 };

static struct wire sample(void)
{
    return (struct wire){ .ident = { { "who", 3 } },
                          .n_idents = 1,
                          .part = { { "{\"a\":1}", 7 }, { "{}", 2 }, { "{}", 2 }, { "{\"c\":2}", 7 } },
                          .buffer = { { "\0\1\2", 3 } },
                          .n_buffers = 1 };
}

static void test_a_message_keeps_its_parts_both_ways(void **state)
{
    struct wire message = sample(), again;
    struct iovec parts[ZMTP_PARTS];
    char signature[HMAC_HEX + 1];
    struct buf v1;
    (void)state;

    int n = wire_to_zmq(&secret, &message, signature, parts);
    assert_int_equal(n, 8);
    assert_int_equal(wire_from_zmq(&secret, parts, (size_t)n, &again), 0);
    assert_int_equal(again.n_idents, 1);
    assert_int_equal(again.n_buffers, 1);
    buf_init(&v1, 4096);
    wire_to_v1(&again, KERNEL_SHELL, &v1);
    assert_int_equal(wire_from_v1(v1.data, v1.length, &again), 0);
    assert_int_equal(again.channel, KERNEL_SHELL);
    for (int i = 0; i < KERNEL_PARTS; i++) {
        assert_int_equal(again.part[i].iov_len, message.part[i].iov_len);
        assert_memory_equal(again.part[i].iov_base, message.part[i].iov_base, message.part[i].iov_len);
    }
    assert_int_equal(again.buffer[0].iov_len, 3);
    buf_done(&v1);
}

static void test_wrong_signatures_and_shapes_are_refused(void **state)
{
    struct wire message = sample(), again;
    struct iovec parts[ZMTP_PARTS];
    char signature[HMAC_HEX + 1];
    const struct wire_key other = { .text = "Secret", .size = 6 }, none = { .size = 0 };
    (void)state;

    int n = wire_to_zmq(&secret, &message, signature, parts);
    assert_int_equal(wire_from_zmq(&other, parts, (size_t)n, &again), -EPERM);
    assert_int_equal(wire_from_zmq(&none, parts, (size_t)n, &again), 0);
    signature[5] ^= 1;
    assert_int_equal(wire_from_zmq(&secret, parts, (size_t)n, &again), -EPERM);
    parts[2].iov_len = 0;
    assert_int_equal(wire_from_zmq(&secret, parts, (size_t)n, &again), -EPERM);
    assert_int_equal(wire_from_zmq(&secret, parts, 6, &again), -EPROTO);
    assert_int_equal(wire_from_zmq(&secret, parts, 1, &again), -EPROTO);
    n = wire_to_zmq(&none, &message, signature, parts);
    assert_int_equal(wire_from_zmq(&secret, parts, (size_t)n, &again), -EPERM);
    message.n_buffers = ZMTP_PARTS;
    assert_int_equal(wire_to_zmq(&secret, &message, signature, parts), -EMSGSIZE);
}

static void test_wrong_offsets_are_refused(void **state)
{
    struct wire message = sample(), again;
    struct buf v1;
    (void)state;

    buf_init(&v1, 4096);
    wire_to_v1(&message, KERNEL_IOPUB, &v1);
    for (size_t cut = 0; cut < v1.length; cut++)
        assert_int_equal(wire_from_v1(v1.data, cut, &again), -EPROTO);
    /* Every offset made one smaller or larger moves a border that must not move, or is caught. */
    for (size_t i = 0; i < 8; i++) {
        uint64_t kept, changed;
        memcpy(&kept, v1.data + 8 * i, 8);
        changed = kept + (UINT64_C(1) << 40);
        memcpy(v1.data + 8 * i, &changed, 8);
        assert_int_equal(wire_from_v1(v1.data, v1.length, &again), -EPROTO);
        memcpy(v1.data + 8 * i, &kept, 8);
    }
    buf_done(&v1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_signatures_are_those_of_the_standard),
        cmocka_unit_test(test_messages_pass_in_any_pieces),
        cmocka_unit_test(test_a_publisher_sends_what_was_asked_for),
        cmocka_unit_test(test_broken_peers_are_refused),
        cmocka_unit_test(test_a_ping_is_answered),
        cmocka_unit_test(test_a_message_keeps_its_parts_both_ways),
        cmocka_unit_test(test_wrong_signatures_and_shapes_are_refused),
        cmocka_unit_test(test_wrong_offsets_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
