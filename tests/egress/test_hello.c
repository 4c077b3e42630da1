/* The server name of TLS, whole, in pieces, in records of one byte, twice, and what is no TLS. */
#include "unit/unit.h"

#include "egress/hello.h"

struct bytes {
    uint8_t at[4096];
    size_t  n;
};

static void add(struct bytes *b, const void *data, size_t size)
{
    assert_true(b->n + size <= sizeof b->at);
    memcpy(b->at + b->n, data, size);
    b->n += size;
}

static void add16(struct bytes *b, size_t value)
{
    add(b, (uint8_t[]){ (uint8_t)(value >> 8), (uint8_t)value }, 2);
}

static void add_extension(struct bytes *b, unsigned type, const struct bytes *body)
{
    add16(b, type);
    add16(b, body->n);
    add(b, body->at, body->n);
}

/* A server_name extension with one name. */
static struct bytes name_list(const char *name)
{
    struct bytes list = { .n = 0 };
    size_t length = strlen(name);

    add16(&list, length + 3);
    add(&list, "\x00", 1);
    add16(&list, length);
    add(&list, name, length);
    return list;
}

/* The handshake message: names[0..n) as extensions, perhaps one for early data. */
static struct bytes message_of(const char *const *names, size_t n, bool early)
{
    struct bytes body = { .n = 0 }, extensions = { .n = 0 }, all = { .n = 0 }, other = { .n = 2 };

    add(&body, "\x03\x03", 2);
    memset(body.at + body.n, 7, 32);
    body.n += 32;
    add(&body, "\x00\x00\x02\x13\x01\x01\x00", 7);
    add_extension(&extensions, 43, &other);
    for (size_t i = 0; i < n; i++) {
        struct bytes list = name_list(names[i]);
        add_extension(&extensions, 0, &list);
    }
    other.n = 0;
    if (early)
        add_extension(&extensions, 42, &other);
    add16(&body, extensions.n);
    add(&body, extensions.at, extensions.n);
    add(&all, "\x01\x00", 2);
    add16(&all, body.n);
    add(&all, body.at, body.n);
    return all;
}

static void add_records(struct bytes *to, unsigned type, const struct bytes *body, size_t each)
{
    for (size_t at = 0; at < body->n; at += each) {
        size_t size = body->n - at < each ? body->n - at : each;
        add(to, (uint8_t[]){ (uint8_t)type, 3, 1 }, 3);
        add16(to, size);
        add(to, body->at + at, size);
    }
}

static enum hello_verdict feed_pieces(const struct bytes *b, size_t piece, char other[NET_NAME_SIZE])
{
    struct hello h = { 0 };
    enum hello_verdict verdict = HELLO_MORE;

    for (size_t at = 0; at < b->n && verdict < HELLO_PASS; at += piece)
        verdict = hello_feed(&h, "good.test", b->at + at, b->n - at < piece ? b->n - at : piece);
    if (other)
        memcpy(other, h.other, NET_NAME_SIZE);
    hello_done(&h);
    return verdict;
}

static void test_the_right_name_passes_however_it_is_cut(void **state)
{
    static const size_t records[] = { 1, 2, 7, 100, 4000 }, pieces[] = { 1, 3, 4096 };
    const char *names[] = { "GOOD.test" };
    struct bytes message = message_of(names, 1, false), follows = { .n = 40 };

    (void)state;
    memset(follows.at, 0xee, follows.n);
    for (size_t r = 0; r < COUNT(records); r++)
        for (size_t p = 0; p < COUNT(pieces); p++) {
            struct bytes stream = { .n = 0 };
            add_records(&stream, 0x16, &message, records[r]);
            assert_int_equal(feed_pieces(&stream, pieces[p], NULL), HELLO_SO_FAR);
            add_records(&stream, 0x17, &follows, 40);
            assert_int_equal(feed_pieces(&stream, pieces[p], NULL), HELLO_PASS);
        }
}

static void test_another_name_none_or_two_are_refused(void **state)
{
    const char *other[] = { "other.test" }, *two[] = { "good.test", "good.test" }, *odd[] = { "good.test:443" };
    const char *below[] = { "x.good.test" };
    static const struct {
        size_t             n;
        enum hello_verdict verdict;
    } cases[] = { { 1, HELLO_OTHER }, { 0, HELLO_OTHER }, { 2, HELLO_WRONG }, { 1, HELLO_WRONG }, { 1, HELLO_OTHER } };
    const char *const *names[] = { other, other, two, odd, below };
    char told[NET_NAME_SIZE];

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct bytes message = message_of(names[i], cases[i].n, false), stream = { .n = 0 };
        add_records(&stream, 0x16, &message, 50);
        assert_int_equal(feed_pieces(&stream, 5, told), cases[i].verdict);
        if (i < 2)
            assert_string_equal(told, cases[i].n ? "other.test" : "");
    }
}

static void test_a_second_hello_is_checked_like_the_first(void **state)
{
    const char *good[] = { "good.test" }, *other[] = { "other.test" };
    struct bytes first = message_of(good, 1, true), second = message_of(other, 1, false), change = { { 1 }, 1 };
    struct bytes early = { .n = 300 }, stream = { .n = 0 };

    (void)state;
    add_records(&stream, 0x16, &first, 4000);
    add_records(&stream, 0x14, &change, 1);
    add_records(&stream, 0x17, &early, 100);
    assert_int_equal(feed_pieces(&stream, 1, NULL), HELLO_SO_FAR);
    size_t before = stream.n;
    add_records(&stream, 0x16, &second, 10);
    assert_int_equal(feed_pieces(&stream, 4096, NULL), HELLO_OTHER);
    stream.n = before;
    add_records(&stream, 0x16, &first, 10);
    assert_int_equal(feed_pieces(&stream, 1, NULL), HELLO_PASS);
    /* Of TLS 1.2: a key exchange follows. */
    struct bytes exchange = { { 0x10, 0, 0, 1, 0 }, 5 };
    stream.n = 0;
    add_records(&stream, 0x16, &first, 4000);
    add_records(&stream, 0x16, &exchange, 5);
    assert_int_equal(feed_pieces(&stream, 1, NULL), HELLO_PASS);
}

static void test_what_is_no_tls_passes_and_what_is_broken_does_not(void **state)
{
    static const struct {
        const char        *bytes;
        size_t             size;
        enum hello_verdict verdict;
    } cases[] = {
#undef CASE
#define CASE(text, verdict) { text, sizeof(text) - 1, verdict }
        CASE("GET / HTTP/1.1\r\n", HELLO_PASS),
        CASE("\x00", HELLO_PASS),
        CASE("\x16\x02", HELLO_PASS),
        CASE("\x80\x2e\x01\x03\x01", HELLO_PASS),               /* SSLv2's, which has no name */
        CASE("\x16", HELLO_MORE),
        CASE("\x16\x03\x01", HELLO_MORE),
        CASE("\x15\x03\x01\x00\x02\x01\x00", HELLO_WRONG),      /* an alert before the hello */
        CASE("\x16\x03\x01\x00\x00", HELLO_WRONG),              /* an empty record */
        CASE("\x16\x03\x01\xff\xff", HELLO_WRONG),
        CASE("\x16\x03\x01\x00\x05\x02", HELLO_WRONG),          /* no ClientHello */
        CASE("\x16\x03\x01\x00\x04\x01\xff\xff\xff", HELLO_WRONG),
        CASE("\x16\x03\x01\x00\x05\x01\x00\x00\x01\x03", HELLO_WRONG),
        CASE("\x16\x03\x01\x00\x01\x01\x14\x03\x01\x00\x01\x01", HELLO_WRONG),
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct bytes stream = { .n = 0 };
        add(&stream, cases[i].bytes, cases[i].size);
        if (feed_pieces(&stream, 1, NULL) != cases[i].verdict)
            fail_msg("case %zu", i);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_right_name_passes_however_it_is_cut),
        cmocka_unit_test(test_another_name_none_or_two_are_refused),
        cmocka_unit_test(test_a_second_hello_is_checked_like_the_first),
        cmocka_unit_test(test_what_is_no_tls_passes_and_what_is_broken_does_not),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
