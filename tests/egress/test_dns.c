/* DNS messages: questions as they come, and answers. */
#include "unit/unit.h"

#include "proto/dns.h"

#define HEAD(flags, questions) "\x12\x34" flags "\x00" questions "\x00\x00\x00\x00\x00\x00"
#define BYTES(text) (const uint8_t *)(text), sizeof(text) - 1

static void test_a_question_is_read(void **state)
{
    struct dns_query q;
    enum dns_code code;

    (void)state;
    assert_int_equal(dns_read(BYTES(HEAD("\x01\x00", "\x01") "\x04gOOd\x04test\x00\x00\x1c\x00\x01"), &q, &code),
                     DNS_IS_QUERY);
    assert_string_equal(q.name, "good.test");
    assert_int_equal(q.type, 28);
    assert_false(q.has_edns);
    assert_int_equal(q.id, 0x1234);
}

static void test_the_answer_repeats_the_question_and_has_the_address(void **state)
{
    static const char expected[] = "\x12\x34\x81\x80\x00\x01\x00\x01\x00\x00\x00\x00"
                                   "\x04gOOd\x04test\x00\x00\x01\x00\x01"
                                   "\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x3c\x00\x04\xc6\x12\x01\x02";
    struct dns_query q;
    enum dns_code code;
    uint8_t reply[DNS_REPLY], address[4] = { 198, 18, 1, 2 };

    (void)state;
    assert_int_equal(dns_read(BYTES(HEAD("\x01\x00", "\x01") "\x04gOOd\x04test\x00\x00\x01\x00\x01"), &q, &code),
                     DNS_IS_QUERY);
    assert_int_equal(dns_write(&q, DNS_OK, address, 60, reply), sizeof expected - 1);
    assert_memory_equal(reply, expected, sizeof expected - 1);
}

static void test_a_refusal_says_blocked_to_those_who_understand_it(void **state)
{
    static const char plain[] = HEAD("\x01\x00", "\x01") "\x01" "a\x00\x00\x01\x00\x01";
    static const char edns[] = "\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x01" "\x01" "a\x00\x00\x01\x00\x01"
                               "\x00\x00\x29\x04\xd0\x00\x00\x00\x00\x00\x00";
    struct dns_query q;
    enum dns_code code;
    uint8_t reply[DNS_REPLY];

    (void)state;
    assert_int_equal(dns_read(BYTES(plain), &q, &code), DNS_IS_QUERY);
    assert_int_equal(dns_write(&q, DNS_BLOCKED, NULL, 0, reply), sizeof plain - 1);
    assert_int_equal(reply[3] & 15, DNS_NXDOMAIN);
    assert_int_equal(dns_read(BYTES(edns), &q, &code), DNS_IS_QUERY);
    assert_true(q.has_edns);
    size_t size = dns_write(&q, DNS_BLOCKED, NULL, 0, reply);
    assert_int_equal(reply[3] & 15, DNS_NXDOMAIN);
    assert_memory_equal(reply + sizeof plain - 1 + 11, "\x00\x0f", 2);          /* the option for errors */
    assert_memory_equal(reply + sizeof plain - 1 + 15, "\x00\x0f", 2);          /* blocked */
    assert_int_equal(size, sizeof plain - 1 + 9 + (size_t)(reply[sizeof plain - 1 + 9] << 8) + 2 +
                               reply[sizeof plain - 1 + 10]);
}

static void test_what_is_wrong_is_answered_or_ignored(void **state)
{
    static const struct {
        const char      *bytes;
        size_t           size;
        enum dns_reading reading;
        enum dns_code    code;
    } cases[] = {
#define CASE(text, reading, code) { text, sizeof(text) - 1, reading, code }
        CASE("", DNS_IS_NOTHING, 0),
        CASE("\x12\x34\x01\x00", DNS_IS_NOTHING, 0),
        CASE(HEAD("\x81\x00", "\x01") "\x01" "a\x00\x00\x01\x00\x01", DNS_IS_NOTHING, 0),
        CASE(HEAD("\x01\x00", "\x01"), DNS_IS_WRONG, DNS_FORMERR),
        CASE(HEAD("\x01\x00", "\x00"), DNS_IS_WRONG, DNS_FORMERR),
        CASE(HEAD("\x01\x00", "\x02") "\x01" "a\x00\x00\x01\x00\x01\x01" "b\x00\x00\x01\x00\x01", DNS_IS_WRONG,
             DNS_FORMERR),
        CASE(HEAD("\x28\x00", "\x01") "\x01" "a\x00\x00\x01\x00\x01", DNS_IS_WRONG, DNS_NOTIMP),
        CASE(HEAD("\x01\x00", "\x01") "\x00\x00\x01\x00\x01", DNS_IS_WRONG, DNS_FORMERR),
        CASE(HEAD("\x01\x00", "\x01") "\x01" "a\x00\x00\x01\x00", DNS_IS_WRONG, DNS_FORMERR),
        CASE(HEAD("\x01\x00", "\x01") "\xc0\x0c\x00\x01\x00\x01", DNS_IS_WRONG, DNS_FORMERR),
        CASE(HEAD("\x01\x00", "\x01") "\x03" "a.b\x00\x00\x01\x00\x01", DNS_IS_WRONG, DNS_FORMERR),
        CASE(HEAD("\x01\x00", "\x01") "\x03" "a\x00" "b\x00\x00\x01\x00\x01", DNS_IS_WRONG, DNS_FORMERR),
        CASE(HEAD("\x01\x00", "\x01") "\x01\xe4\x00\x00\x01\x00\x01", DNS_IS_WRONG, DNS_FORMERR),
        CASE(HEAD("\x01\x00", "\x01") "\x01" "a\x00\x00\x01\x00\x03", DNS_IS_WRONG, DNS_REFUSED),
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct dns_query q;
        enum dns_code code = 0;
        uint8_t *copy = malloc(cases[i].size + 1), reply[DNS_REPLY];
        memcpy(copy, cases[i].bytes, cases[i].size);
        enum dns_reading reading = dns_read(copy, cases[i].size, &q, &code);
        if (reading != cases[i].reading || (reading == DNS_IS_WRONG && code != cases[i].code))
            fail_msg("case %zu: %d %d", i, (int)reading, (int)code);
        if (reading == DNS_IS_WRONG)
            assert_true(dns_write(&q, code, NULL, 0, reply) >= DNS_HEADER);
        free(copy);
    }
}

static void test_the_longest_name_fits_into_an_answer(void **state)
{
    uint8_t message[DNS_HEADER + 300] = { 0x12, 0x34, 1, 0, 0, 1 }, reply[DNS_REPLY], address[4] = { 198, 18, 0, 0 };
    size_t at = DNS_HEADER;
    struct dns_query q;
    enum dns_code code;

    (void)state;
    for (int label = 0; label < 4; label++) {
        size_t length = label < 3 ? 63 : 61;
        message[at++] = (uint8_t)length;
        memset(message + at, 'a', length);
        at += length;
    }
    message[at++] = 0;
    memcpy(message + at, "\x00\x01\x00\x01", 4);
    assert_int_equal(dns_read(message, at + 4, &q, &code), DNS_IS_QUERY);
    assert_int_equal(strlen(q.name), 253);
    q.has_edns = true;
    assert_true(dns_write(&q, DNS_OK, address, 60, reply) < DNS_REPLY);
    assert_true(dns_write(&q, DNS_BLOCKED, NULL, 60, reply) < DNS_REPLY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_question_is_read),
        cmocka_unit_test(test_the_answer_repeats_the_question_and_has_the_address),
        cmocka_unit_test(test_a_refusal_says_blocked_to_those_who_understand_it),
        cmocka_unit_test(test_what_is_wrong_is_answered_or_ignored),
        cmocka_unit_test(test_the_longest_name_fits_into_an_answer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
