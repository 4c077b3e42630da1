/* Heads as the broker writes them. Refusals are proved with real programs (test_attacks.py). */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "broker/message.h"

static struct message_host host = { .name = "api.test", .n_keys = 2,
                                    .key = { { .header = "Authorization", .before = "Bearer ",
                                        .placeholder = "PLACE-1" },
                                             { .header = "X-Key", .after = ";v=1", .placeholder = "PLACE-2" } } };

static int set_up(void **state)
{
    (void)state;
    return mask_value_init(&host.key[0].value, "value-one", 9) | mask_value_init(&host.key[1].value, "value-two", 9);
}

static int tear_down(void **state)
{
    (void)state;
    mask_value_done(&host.key[0].value);
    mask_value_done(&host.key[1].value);
    return 0;
}

/* The status of the refusal, or 0 with the head in written. */
static int write_request(const char *text, char *written, size_t size)
{
    struct message_refusal why = { 0 };
    struct http_head h;
    struct buf out;

    http_head_init(&h, false);
    assert_int_equal(http_head_parse(&h, text, strlen(text)), strlen(text));
    buf_init(&out, 65536);
    bool is_passed = message_request(&h, &host, &out, &why);
    snprintf(written, size, "%s", is_passed ? buf_string(&out) : why.why);
    buf_done(&out);
    return is_passed ? 0 : why.status;
}

static void expect_request(const char *text, const char *written)
{
    char got[4096];

    assert_int_equal(write_request(text, got, sizeof got), 0);
    assert_string_equal(got, written);
}

static void test_keys_go_into_their_fields(void **state)
{
    (void)state;
    expect_request("GET /a?b=PLACE-1 HTTP/1.1\r\nhost: API.test:443\r\nauthorization:BEARER PLACE-1\r\n"
        "X-Key: PLACE-2;V=1\r\n"
                   "X-Other: PLACE-1\r\n\r\n",
                   "GET /a?b=PLACE-1 HTTP/1.1\r\nHost: api.test\r\nauthorization: Bearer value-one\r\n"
                       "X-Key: value-two;v=1\r\n"
                   "X-Other: PLACE-1\r\nAccept-Encoding: identity\r\n\r\n");
    /* The placeholder of another field's key is a text like any other. */
    expect_request("GET / HTTP/1.1\r\nHost: api.test\r\nAuthorization: Bearer PLACE-2\r\n\r\n",
                   "GET / HTTP/1.1\r\nHost: api.test\r\nAuthorization: Bearer PLACE-2\r\n"
                       "Accept-Encoding: identity\r\n\r\n");
    expect_request("GET / HTTP/1.1\r\nHost: api.test\r\nAuthorization: Bearer mine\r\n\r\n",
                   "GET / HTTP/1.1\r\nHost: api.test\r\nAuthorization: Bearer mine\r\n"
                       "Accept-Encoding: identity\r\n\r\n");
}

static void test_the_framing_is_written_in_one_way(void **state)
{
    (void)state;
    expect_request("POST / HTTP/1.1\r\nHost: api.test\r\nTransfer-Encoding:  Chunked\r\n"
        "Connection: keep-alive, x-b\r\nX-B: 1\r\n"
                   "TE: trailers\r\n\r\n",
                   "POST / HTTP/1.1\r\nHost: api.test\r\nAccept-Encoding: identity\r\n"
                       "Transfer-Encoding: chunked\r\n\r\n");
    expect_request("POST / HTTP/1.1\r\nHost: api.test\r\nContent-Length: 007\r\nConnection: close\r\n"
        "Expect: 100-continue\r\n\r\n",
                   "POST / HTTP/1.1\r\nHost: api.test\r\nAccept-Encoding: identity\r\nContent-Length: 7\r\n"
                   "Expect: 100-continue\r\nConnection: close\r\n\r\n");
}

static void test_a_key_that_would_not_fit_is_refused(void **state)
{
    char got[500];

    (void)state;
    assert_int_equal(write_request("GET / HTTP/1.1\r\nHost: api.test\r\nAuthorization: PLACE-1\r\n\r\n",
        got, sizeof got), 400);
    assert_non_null(strstr(got, "Authorization: Bearer {}"));
    assert_int_equal(write_request("GET / HTTP/1.1\r\nHost: api.test\r\nX-Key: PLACE-2;v=1\r\nx-key: a\r\n\r\n",
        got, sizeof got), 400);
    assert_int_equal(write_request("GET / HTTP/1.1\r\nHost: b.test\r\n\r\n", got, sizeof got), 421);
    assert_null(strstr(got, "value-"));
}

static void expect_answer(const char *text, bool was_head, bool close, const char *written)
{
    struct http_head h;
    struct mask mask;
    struct buf out;

    mask_init(&mask);
    mask_add(&mask, &host.key[0].value);
    http_head_init(&h, true);
    assert_int_equal(http_head_parse(&h, text, strlen(text)), strlen(text));
    buf_init(&out, 65536);
    assert_true(message_answer(&h, http_head_response_body(&h, was_head), close, &mask, &out));
    assert_string_equal(buf_string(&out), written);
    buf_done(&out);
}

static void test_answers_are_masked_and_framed(void **state)
{
    (void)state;
    expect_answer("HTTP/1.1 200 value-one\r\nX: a value-one b\r\nContent-Length: 5\r\nConnection: close, x-y\r\n"
        "X-Y: 1\r\n\r\n", false, true,
                  "HTTP/1.1 200 *********\r\nX: a ********* b\r\nContent-Length: 5\r\nConnection: close\r\n\r\n");
    expect_answer("HTTP/1.0 200 OK\r\nAlt-Svc: h3\r\n\r\n", false, true,
                  "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n");
    expect_answer("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", true, false, "HTTP/1.1 200 OK\r\n"
        "Content-Length: 9\r\n\r\n");
    expect_answer("HTTP/1.1 204 No Content\r\n\r\n", false, false, "HTTP/1.1 204 No Content\r\n\r\n");
}

static bool is_encoded(const char *field)
{
    struct http_head h;
    char text[200];

    snprintf(text, sizeof text, "HTTP/1.1 200 OK\r\n%s\r\nContent-Length: 5\r\n\r\n", field);
    http_head_init(&h, true);
    assert_int_equal(http_head_parse(&h, text, strlen(text)), strlen(text));
    return message_is_encoded(&h);
}

static void test_an_answer_in_a_coding_is_known(void **state)
{
    (void)state;
    assert_true(is_encoded("Content-Encoding: gzip"));
    assert_true(is_encoded("content-encoding: identity, BR"));
    assert_true(is_encoded("Content-Encoding: identity\r\nContent-Encoding: x-unknown"));
    assert_false(is_encoded("Content-Encoding: Identity"));
    assert_false(is_encoded("Content-Encoding:"));
    assert_false(is_encoded("X-Content-Encoding: gzip"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keys_go_into_their_fields),
        cmocka_unit_test(test_the_framing_is_written_in_one_way),
        cmocka_unit_test(test_a_key_that_would_not_fit_is_refused),
        cmocka_unit_test(test_answers_are_masked_and_framed),
        cmocka_unit_test(test_an_answer_in_a_coding_is_known),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
