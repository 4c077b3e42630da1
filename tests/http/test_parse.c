/* Heads, chunks, paths, queries. Every request is parsed at once, byte by byte, and with the buffer moving in between;
 * the outcome must be the same. */
#include <errno.h>
#include <stdio.h>

#include "http/parse.h"
#include "unit.h"

#define H "Host: a\r\n"

static struct http_head head;
static char *kept;

/* The fault, or HTTP_OK; -1 if more bytes are needed. step 0: all at once. */
static int parse_in_steps(const char *data, size_t size, size_t step, bool is_response, size_t *ret_size)
{
    http_head_init(&head, is_response);
    for (size_t n = step && step < size ? step : size;; n = n + step < size ? n + step : size) {
        char *copy = malloc(n ? n : 1);     /* exactly as large as what has arrived, so that ASan sees any overrun */
        memcpy(copy, data, n);
        free(kept);
        kept = copy;
        ssize_t r = http_head_parse(&head, copy, n);
        if (r < 0) {
            assert_int_equal(r, -EBADMSG);
            assert_int_not_equal(head.fault, HTTP_OK);
            return (int)head.fault;
        }
        if (r > 0) {
            *ret_size = (size_t)r;
            return HTTP_OK;
        }
        if (n == size)
            return -1;
    }
}

static int parse_bytes(const char *data, size_t size, bool is_response)
{
    size_t whole = 0, part = 0;
    int by_byte = parse_in_steps(data, size, 1, is_response, &part);
    int by_seven = parse_in_steps(data, size, 7, is_response, &part);
    int at_once = parse_in_steps(data, size, 0, is_response, &whole);
    assert_int_equal(by_byte, at_once);
    assert_int_equal(by_seven, at_once);
    if (at_once == HTTP_OK)
        assert_int_equal(whole, part);
    return at_once;
}

static int parse(const char *text)
{
    return parse_bytes(text, strlen(text), false);
}

static void assert_text(struct http_text t, const char *word)
{
    if (!http_text_is(t, word))
        fail_msg("\"%.*s\" is not \"%s\"", HTTP_TEXT_FORMAT(t), word);
}

static void test_good_requests_are_taken(void **state)
{
    static const char *const good[] = {
        "GET / HTTP/1.1\r\n" H "\r\n",
        "\r\nGET / HTTP/1.1\r\n" H "\r\n",
        "OPTIONS * HTTP/1.1\r\n" H "\r\n",
        "GET http://a/ HTTP/1.1\r\n" H "\r\n",
        "GET HTTP://A/x?y HTTP/1.1\r\n" H "\r\n",
        "GET / HTTP/1.0\r\n\r\n",
        "BREW /pot HTTP/1.1\r\n" H "\r\n",
        "GET /a%20b/%e2%82%ac?x=%zz HTTP/1.1\r\n" H "\r\n",
        "GET /a//b/...a/.x/x. HTTP/1.1\r\n" H "\r\n",
        "GET /?a|b{c}[d]^`\\ HTTP/1.1\r\n" H "\r\n",
        "GET / HTTP/1.1\r\nHost: [::1]:8080\r\n\r\n",
        "GET / HTTP/1.1\r\nhOsT:\t a.example:80 \t\r\n\r\n",
        "GET / HTTP/1.1\r\n" H "Empty:\r\n\r\n",
        "M-SEARCH / HTTP/1.1\r\n" H "!#$%&'*+-.^_`|~09azAZ: every byte of a token\r\n\r\n",
        "GET / HTTP/1.1\r\n" H "Eight: \xc3\xbc\xff\r\n\r\n",
        "GET / HTTP/1.1\r\n" H "A: b\tc\r\n\r\n",
        "POST / HTTP/1.1\r\n" H "Content-Length: 0\r\n\r\n",
        "POST / HTTP/1.1\r\n" H "Content-Length: 000000000000000012\r\n\r\n",
        "POST / HTTP/1.1\r\n" H "Transfer-Encoding: Chunked\r\n\r\n",
        "POST / HTTP/1.1\r\n" H "Expect: 100-Continue\r\nContent-Length: 5\r\n\r\n",
    };
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        int r = parse(good[i]);
        if (r != HTTP_OK)
            fail_msg("%s\nrefused: %s", good[i], r < 0 ? "more bytes needed" : http_fault_text((enum http_fault)r));
    }
}

static void test_bad_requests_are_refused_for_the_right_reason(void **state)
{
    static const struct { enum http_fault fault; const char *text; } bad[] = {
        { HTTP_BARE_LF, "GET / HTTP/1.1\n" H "\r\n" },
        { HTTP_BARE_LF, "GET / HTTP/1.1\r\nHost: a\n\r\n" },
        { HTTP_BARE_LF, "GET / HTTP/1.1\r\n" H "\n" },
        { HTTP_BARE_LF, "\nGET / HTTP/1.1\r\n" H "\r\n" },
        { HTTP_BARE_CR, "GET / HTTP/1.1\r\nHost: a\rX: b\r\n\r\n" },
        { HTTP_BARE_CR, "GET / HTTP/1.1\r\n" H "\rX: b\r\n\r\n" },
        { HTTP_BARE_CR, "GET / HTTP/1.1\rHost: a\r\n\r\n" },
        { HTTP_BARE_CR, "GET / HTTP/1.1\r\r\n" H "\r\n" },
        { HTTP_BARE_CR, "GET / HTTP/1.1\r\n" H "A: b\r\r\n\r\n" },
        { HTTP_BAD_METHOD, "\r\n\r\nGET / HTTP/1.1\r\n" H "\r\n" },
        { HTTP_BAD_METHOD, " GET / HTTP/1.1\r\n" H "\r\n" },
        { HTTP_BAD_METHOD, "G(T / HTTP/1.1\r\n" H "\r\n" },
        { HTTP_BAD_METHOD, "GET\t/ HTTP/1.1\r\n" H "\r\n" },
        { HTTP_BAD_METHOD, "GETGETGETGETGETGETGETGETGETGETGET / HTTP/1.1\r\n" H "\r\n" },
        { HTTP_BAD_METHOD, "GET\r\n" H "\r\n" },
        { HTTP_BAD_TARGET, "GET  / HTTP/1.1\r\n" H "\r\n" },
        { HTTP_BAD_TARGET, "GET /\r\n" H "\r\n" },
        { HTTP_BAD_TARGET, "GET /\tHTTP/1.1\r\n" H "\r\n" },
        { HTTP_BAD_TARGET, "GET /a#b HTTP/1.1\r\n" H "\r\n" },
        { HTTP_BAD_TARGET, "GET /a\"b HTTP/1.1\r\n" H "\r\n" },
        { HTTP_BAD_TARGET, "GET /a\x80 HTTP/1.1\r\n" H "\r\n" },
        { HTTP_BAD_TARGET, "GET /a\\..\\b HTTP/1.1\r\n" H "\r\n" },
        { HTTP_BAD_TARGET, "GET a HTTP/1.1\r\n" H "\r\n" },
        { HTTP_BAD_TARGET, "GET * HTTP/1.1\r\n" H "\r\n" },
        { HTTP_BAD_TARGET, "GET ftp://a/ HTTP/1.1\r\n" H "\r\n" },
        { HTTP_BAD_TARGET, "GET http://a HTTP/1.1\r\n" H "\r\n" },
        { HTTP_BAD_TARGET, "GET http://a?b HTTP/1.1\r\n" H "\r\n" },
        { HTTP_BAD_ESCAPE, "GET /%00 HTTP/1.1\r\n" H "\r\n" },
        { HTTP_BAD_ESCAPE, "GET /%0 HTTP/1.1\r\n" H "\r\n" },
        { HTTP_BAD_ESCAPE, "GET /%zz HTTP/1.1\r\n" H "\r\n" },
        { HTTP_BAD_ESCAPE, "GET /a% HTTP/1.1\r\n" H "\r\n" },
        { HTTP_DOT_SEGMENT, "GET /a/../b HTTP/1.1\r\n" H "\r\n" },
        { HTTP_DOT_SEGMENT, "GET /.. HTTP/1.1\r\n" H "\r\n" },
        { HTTP_DOT_SEGMENT, "GET /./a HTTP/1.1\r\n" H "\r\n" },
        { HTTP_DOT_SEGMENT, "GET /a/%2e%2E/b HTTP/1.1\r\n" H "\r\n" },
        { HTTP_DOT_SEGMENT, "GET /a/.%2e HTTP/1.1\r\n" H "\r\n" },
        { HTTP_DOT_SEGMENT, "GET /a%2f..%2fb HTTP/1.1\r\n" H "\r\n" },
        { HTTP_DOT_SEGMENT, "GET http://a/.. HTTP/1.1\r\n" H "\r\n" },
        { HTTP_BAD_VERSION, "GET / HTTP/1.1 \r\n" H "\r\n" },
        { HTTP_BAD_VERSION, "GET / http/1.1\r\n" H "\r\n" },
        { HTTP_BAD_VERSION, "GET / HTTP/11\r\n" H "\r\n" },
        { HTTP_BAD_VERSION, "GET / /b HTTP/1.1\r\n" H "\r\n" },
        { HTTP_OTHER_VERSION, "GET / HTTP/2.0\r\n" H "\r\n" },
        { HTTP_OTHER_VERSION, "GET / HTTP/0.9\r\n" H "\r\n" },
        { HTTP_OTHER_VERSION, "GET / HTTP/1.2\r\n" H "\r\n" },
        { HTTP_OTHER_VERSION, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" },
        { HTTP_BAD_NAME, "GET / HTTP/1.1\r\n" H ": b\r\n\r\n" },
        { HTTP_BAD_NAME, "GET / HTTP/1.1\r\n" H "nocolon\r\n\r\n" },
        { HTTP_BAD_NAME, "GET / HTTP/1.1\r\n" H "a(b: c\r\n\r\n" },
        { HTTP_BAD_NAME, "GET / HTTP/1.1\r\n" H "a\x80: c\r\n\r\n" },
        { HTTP_SPACE_BEFORE_COLON, "GET / HTTP/1.1\r\nHost : a\r\n\r\n" },
        { HTTP_SPACE_BEFORE_COLON, "POST / HTTP/1.1\r\n" H "Content-Length\t: 5\r\n\r\n" },
        { HTTP_SPACE_BEFORE_COLON, "POST / HTTP/1.1\r\n" H "Transfer Encoding: chunked\r\n\r\n" },
        { HTTP_FOLDED_FIELD, "GET / HTTP/1.1\r\n" H "A: b\r\n c\r\n\r\n" },
        { HTTP_FOLDED_FIELD, "GET / HTTP/1.1\r\n\tHost: a\r\n\r\n" },
        { HTTP_OTHER_CODING, "POST / HTTP/1.1\r\n" H "Transfer-Encoding:\r\n chunked\r\n\r\n" },
        { HTTP_BAD_VALUE, "GET / HTTP/1.1\r\n" H "A: b\x01\r\n\r\n" },
        { HTTP_BAD_VALUE, "GET / HTTP/1.1\r\n" H "A: b\x7f\r\n\r\n" },
        { HTTP_NO_HOST, "GET / HTTP/1.1\r\n\r\n" },
        { HTTP_MANY_HOSTS, "GET / HTTP/1.1\r\n" H H "\r\n" },
        { HTTP_BAD_HOST, "GET / HTTP/1.1\r\nHost:\r\n\r\n" },
        { HTTP_BAD_HOST, "GET / HTTP/1.1\r\nHost: a b\r\n\r\n" },
        { HTTP_BAD_HOST, "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n" },
        { HTTP_BAD_HOST, "GET / HTTP/1.1\r\nHost: u@a\r\n\r\n" },
        { HTTP_BAD_HOST, "GET / HTTP/1.1\r\nHost: a:b\r\n\r\n" },
        { HTTP_BAD_HOST, "GET / HTTP/1.1\r\nHost: [::1\r\n\r\n" },
        { HTTP_BAD_HOST, "GET / HTTP/1.1\r\nHost: [::1]a\r\n\r\n" },
        { HTTP_OTHER_HOST, "GET http://b/ HTTP/1.1\r\n" H "\r\n" },
        { HTTP_OTHER_HOST, "GET http://a:80/ HTTP/1.1\r\n" H "\r\n" },
        { HTTP_BAD_TARGET, "GET http://u@a/ HTTP/1.1\r\n" H "\r\n" },
        { HTTP_BAD_TARGET, "GET http://|/ HTTP/1.0\r\n\r\n" },
        { HTTP_BAD_LENGTH, "POST / HTTP/1.1\r\n" H "Content-Length:\r\n\r\n" },
        { HTTP_BAD_LENGTH, "POST / HTTP/1.1\r\n" H "Content-Length: -1\r\n\r\n" },
        { HTTP_BAD_LENGTH, "POST / HTTP/1.1\r\n" H "Content-Length: +1\r\n\r\n" },
        { HTTP_BAD_LENGTH, "POST / HTTP/1.1\r\n" H "Content-Length: 1 2\r\n\r\n" },
        { HTTP_BAD_LENGTH, "POST / HTTP/1.1\r\n" H "Content-Length: 1, 1\r\n\r\n" },
        { HTTP_BAD_LENGTH, "POST / HTTP/1.1\r\n" H "Content-Length: 0x1\r\n\r\n" },
        { HTTP_BAD_LENGTH, "POST / HTTP/1.1\r\n" H "Content-Length: 9999999999999999999\r\n\r\n" },
        { HTTP_MANY_LENGTHS, "POST / HTTP/1.1\r\n" H "Content-Length: 1\r\nContent-Length: 2\r\n\r\n" },
        { HTTP_MANY_LENGTHS, "POST / HTTP/1.1\r\n" H "Content-Length: 1\r\ncontent-length: 1\r\n\r\n" },
        { HTTP_LENGTH_AND_CODING, "POST / HTTP/1.1\r\n" H "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n" },
        { HTTP_LENGTH_AND_CODING, "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n" },
        { HTTP_MANY_CODINGS, "POST / HTTP/1.1\r\n" H
                             "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n" },
        { HTTP_OTHER_CODING, "POST / HTTP/1.1\r\n" H "Transfer-Encoding: identity\r\n\r\n" },
        { HTTP_OTHER_CODING, "POST / HTTP/1.1\r\n" H "Transfer-Encoding: gzip, chunked\r\n\r\n" },
        { HTTP_OTHER_CODING, "POST / HTTP/1.1\r\n" H "Transfer-Encoding: xchunked\r\n\r\n" },
        { HTTP_OTHER_CODING, "POST / HTTP/1.1\r\n" H "Transfer-Encoding: \"chunked\"\r\n\r\n" },
        { HTTP_OTHER_CODING, "POST / HTTP/1.1\r\n" H "Transfer-Encoding:\tchunked\r\n\r\n" },
        { HTTP_OTHER_CODING, "POST / HTTP/1.1\r\n" H "Transfer-Encoding: chunked\t\r\n\r\n" },
        { HTTP_BAD_LENGTH, "POST / HTTP/1.1\r\n" H "Content-Length: 3\t\r\n\r\n" },
        { HTTP_OTHER_CODING, "POST / HTTP/1.0\r\n" H "Transfer-Encoding: chunked\r\n\r\n" },
        { HTTP_OTHER_EXPECTATION, "POST / HTTP/1.1\r\n" H "Expect: tea\r\n\r\n" },
        { HTTP_NO_TUNNELS, "CONNECT a:80 HTTP/1.1\r\n" H "\r\n" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int r = parse(bad[i].text);
        if (r != (int)bad[i].fault)
            fail_msg("%s\ngave %s", bad[i].text, r < 0 ? "more bytes needed" : http_fault_text((enum http_fault)r));
        assert_true(http_fault_status((enum http_fault)r) >= 400);
    }
}

static void test_nul_bytes_are_refused(void **state)
{
    (void)state;
    assert_int_equal(parse_bytes(BYTES("GET /\0 HTTP/1.1\r\n" H "\r\n"), false), HTTP_BAD_TARGET);
    assert_int_equal(parse_bytes(BYTES("GET / HTTP/1.1\r\n" H "A: \0\r\n\r\n"), false), HTTP_BAD_VALUE);
    assert_int_equal(parse_bytes(BYTES("GET / HTTP/1.1\r\n" H "A\0: b\r\n\r\n"), false), HTTP_BAD_NAME);
}

static void test_every_prefix_of_a_good_request_wants_more(void **state)
{
    static const char text[] = "POST /a?b=c HTTP/1.1\r\n" H "Content-Length: 3\r\n\r\n";
    (void)state;
    for (size_t n = 0; n < sizeof text - 1; n++)
        assert_int_equal(parse_bytes(text, n, false), -1);
}

static void test_parts_of_a_request(void **state)
{
    (void)state;
    assert_int_equal(parse("POST /a/b%20c?x=1&y HTTP/1.1\r\nHost: box:80\r\nA: 1\r\na:  two \r\n"
                           "Content-Length: 42\r\nConnection: Upgrade, close\r\n\r\n"), HTTP_OK);
    assert_text(head.method, "POST");
    assert_text(head.target, "/a/b%20c?x=1&y");
    assert_text(head.path, "/a/b%20c");
    assert_text(head.query, "x=1&y");
    assert_text(head.host, "box:80");
    assert_int_equal(head.length, 42);
    assert_int_equal(head.minor, 1);
    assert_false(head.keep_alive);
    assert_true(head.wants_upgrade);
    assert_int_equal(head.n_fields, 5);
    struct http_text name, value;
    http_head_field(&head, 2, &name, &value);
    assert_text(name, "a");
    assert_text(value, "two");
    assert_text(http_head_get(&head, "A"), "1");
    assert_null(http_head_get(&head, "b").data);
    assert_int_equal(parse("GET http://a/x?y HTTP/1.1\r\n" H "\r\n"), HTTP_OK);
    assert_text(head.path, "/x");
    assert_text(head.query, "y");
    assert_true(head.keep_alive);
}

static char *long_request(const char *start, char fill, size_t n, const char *end)
{
    char *text = malloc(strlen(start) + n + strlen(end) + 1);
    size_t at = strlen(start);
    memcpy(text, start, at);
    memset(text + at, fill, n);
    memcpy(text + at + n, end, strlen(end) + 1);
    return text;
}

static int parse_long(const char *start, char fill, size_t n, const char *end)
{
    size_t size;
    char *text = long_request(start, fill, n, end);
    int r = parse_in_steps(text, strlen(text), 0, false, &size);
    assert_int_equal(parse_in_steps(text, strlen(text), 1000, false, &size), r);
    free(text);
    return r;
}

static void test_bounds_hold(void **state)
{
    (void)state;
    assert_int_equal(parse_long("GET /", 'a', HTTP_TARGET_MAX_BYTES - 1, " HTTP/1.1\r\n" H "\r\n"), HTTP_OK);
    assert_int_equal(parse_long("GET /", 'a', HTTP_TARGET_MAX_BYTES, " HTTP/1.1\r\n" H "\r\n"), HTTP_LONG_TARGET);
    assert_int_equal(parse_long("GET /", 'a', HTTP_TARGET_MAX_BYTES + 200, ""), HTTP_LONG_TARGET);
    assert_int_equal(parse_long("GET / HTTP/1.1\r\n" H "A: ", 'a', 30000, "\r\n\r\n"), HTTP_OK);
    assert_int_equal(parse_long("GET / HTTP/1.1\r\n" H "A: ", 'a', HTTP_HEAD_MAX_BYTES, "\r\n\r\n"), HTTP_LONG_HEAD);
    assert_int_equal(parse_long("GET / HTTP/1.1\r\n" H "A: ", 'a', HTTP_HEAD_MAX_BYTES, ""), HTTP_LONG_HEAD);
    assert_int_equal(parse_long("GET / HTTP/1.1\r\n", '\r', HTTP_HEAD_MAX_BYTES, ""), HTTP_LONG_HEAD);
}

static void test_a_hundred_fields_and_no_more(void **state)
{
    (void)state;
    for (int n = HTTP_FIELDS_MAX; n <= HTTP_FIELDS_MAX + 1; n++) {
        char text[4096], *at = text;
        at += snprintf(at, 64, "GET / HTTP/1.1\r\n" H);
        for (int i = 1; i < n; i++)
            at += snprintf(at, 64, "A%d: b\r\n", i);
        snprintf(at, 64, "\r\n");
        assert_int_equal(parse(text), n == HTTP_FIELDS_MAX ? HTTP_OK : HTTP_MANY_FIELDS);
    }
    assert_int_equal(http_fault_status(HTTP_MANY_FIELDS), 431);
    assert_int_equal(http_fault_status(HTTP_LONG_TARGET), 414);
}

static int parse_response(const char *text)
{
    return parse_bytes(text, strlen(text), true);
}

static void test_responses(void **state)
{
    (void)state;
    assert_int_equal(parse_response("HTTP/1.1 200 OK then\r\nContent-Length: 5\r\n\r\n"), HTTP_OK);
    assert_int_equal(head.status, 200);
    assert_text(head.reason, "OK then");
    assert_int_equal(http_head_response_body(&head, false), HTTP_BODY_LENGTH);
    assert_int_equal(http_head_response_body(&head, true), HTTP_BODY_NONE);
    assert_int_equal(parse_response("HTTP/1.1 204\r\n\r\n"), HTTP_OK);
    assert_int_equal(http_head_response_body(&head, false), HTTP_BODY_NONE);
    assert_int_equal(parse_response("HTTP/1.0 200 \r\n\r\n"), HTTP_OK);
    assert_int_equal(http_head_response_body(&head, false), HTTP_BODY_UNTIL_CLOSE);
    assert_int_equal(parse_response("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"), HTTP_OK);
    assert_int_equal(http_head_response_body(&head, false), HTTP_BODY_CHUNKED);
    assert_int_equal(parse_response("HTTP/1.1 20 OK\r\n\r\n"), HTTP_BAD_STATUS);
    assert_int_equal(parse_response("HTTP/1.1 2000\r\n\r\n"), HTTP_BAD_STATUS);
    assert_int_equal(parse_response("HTTP/1.1 099 x\r\n\r\n"), HTTP_BAD_STATUS);
    assert_int_equal(parse_response("HTTP/1.1 200 O\x01K\r\n\r\n"), HTTP_BAD_STATUS);
    assert_int_equal(parse_response("ICY 200 OK really\r\n\r\n"), HTTP_BAD_STATUS);
    assert_int_equal(parse_response("HTTP/2.0 200 OK\r\n\r\n"), HTTP_OTHER_VERSION);
    assert_int_equal(parse_response("HTTP/1.1 200 OK\nA: b\r\n\r\n"), HTTP_BARE_LF);
    assert_int_equal(parse_response("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n"),
                     HTTP_MANY_LENGTHS);
}

/* ---- chunked ---- */

/* Decodes in steps of in_step bytes to room bytes at a time. Returns the fault, HTTP_OK at the end, -1 if it
 * goes on. */
static int decode(const char *in, size_t size, size_t in_step, size_t room, char *out, size_t *ret_out, size_t *ret_in)
{
    struct http_chunked c = { 0 };
    size_t at = 0, n = 0;
    while (at < size) {
        size_t take = size - at < in_step ? size - at : in_step, taken, put;
        char *exact = malloc(take);
        memcpy(exact, in + at, take);
        int r = http_chunked_decode(&c, exact, take, out + n, room, &taken, &put);
        free(exact);
        at += taken;
        n += put;
        *ret_out = n;
        *ret_in = at;
        if (r < 0)
            return (int)c.fault;
        if (r == 1)
            return HTTP_OK;
    }
    return -1;
}

static void test_chunks_are_decoded_however_they_arrive(void **state)
{
    static const char in[] = "5\r\nhello\r\n1;ext=\"1\"\r\n \r\n"
                             "00006\r\nworld!\r\n0\r\nTrailer: x\r\nB:\r\n\r\nGET /next";
    (void)state;
    for (size_t step = 1; step < sizeof in; step++)
        for (size_t room = 1; room < 8; room++) {
            char out[64];
            size_t n, used;
            assert_int_equal(decode(in, sizeof in - 1, step, room, out, &n, &used), HTTP_OK);
            assert_int_equal(n, 12);
            assert_memory_equal(out, "hello world!", 12);
            assert_string_equal(in + used, "GET /next");
        }
}

static void test_chunks_can_be_decoded_in_place(void **state)
{
    char text[] = "5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n";
    struct http_chunked c = { 0 };
    size_t taken, put;
    (void)state;
    assert_int_equal(http_chunked_decode(&c, text, sizeof text - 1, text, sizeof text - 1, &taken, &put), 1);
    assert_int_equal(put, 11);
    assert_memory_equal(text, "hello world", 11);
}

static void test_bad_chunks_are_refused(void **state)
{
    static const struct { enum http_fault fault; const char *text; } bad[] = {
        { HTTP_BAD_CHUNK_SIZE, "\r\n" },
        { HTTP_BAD_CHUNK_SIZE, "g\r\n" },
        { HTTP_BAD_CHUNK_SIZE, "-1\r\n" },
        { HTTP_BAD_CHUNK_SIZE, "+1\r\n" },
        { HTTP_BAD_CHUNK_SIZE, "0x1\r\n" },
        { HTTP_BAD_CHUNK_SIZE, " 1\r\n" },
        { HTTP_BAD_CHUNK_SIZE, "1 \r\n" },
        { HTTP_BAD_CHUNK_SIZE, "1 ;a\r\n" },
        { HTTP_BAD_CHUNK_SIZE, "1000000000000000\r\n" },
        { HTTP_BAD_CHUNK_SIZE, "ffffffffffffffffffff\r\n" },
        { HTTP_BAD_CHUNK_SIZE, "1\r\na\r\n\r\n" },
        { HTTP_BARE_LF, "1\na\r\n" },
        { HTTP_BARE_LF, "1;a\na\r\n" },
        { HTTP_BARE_CR, "1\ra\r\n" },
        { HTTP_BAD_CHUNK_EXT, "1;\x01\r\n" },
        { HTTP_BAD_CHUNK_END, "1\r\nab\r\n" },
        { HTTP_BAD_CHUNK_END, "1\r\na\n" },
        { HTTP_BAD_CHUNK_END, "1\r\na\r\r" },
        { HTTP_BAD_TRAILER, "0\r\nab\r\n" },
        { HTTP_BAD_TRAILER, "0\r\n a: b\r\n" },
        { HTTP_BAD_TRAILER, "0\r\na: b\n" },
        { HTTP_BAD_TRAILER, "0\r\na : b\r\n" },
        { HTTP_BAD_TRAILER, "0\r\n\n" },
        { HTTP_BAD_TRAILER, "0\r\n\r\r\n" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        for (size_t step = 1; step < 20; step += 6) {
            char out[64];
            size_t n, used;
            int r = decode(bad[i].text, strlen(bad[i].text), step, sizeof out, out, &n, &used);
            if (r != (int)bad[i].fault)
                fail_msg("%s\ngave %s", bad[i].text, r < 0 ? "more" : http_fault_text((enum http_fault)r));
        }
}

static int decode_repeated(const char *piece, int times, const char *end)
{
    size_t size = strlen(piece) * (size_t)times, n, used;
    char *text = malloc(size + strlen(end)), *out = malloc(size);
    for (int i = 0; i < times; i++)
        memcpy(text + strlen(piece) * (size_t)i, piece, strlen(piece));
    memcpy(text + size, end, strlen(end));
    int r = decode(text, size + strlen(end), 1000, size, out, &n, &used);
    free(text);
    free(out);
    return r;
}

static void test_extensions_and_trailers_are_bounded(void **state)
{
    (void)state;
    char piece[400] = "1;";
    memset(piece + 2, 'x', HTTP_CHUNK_EXT_MAX);
    memcpy(piece + 2 + HTTP_CHUNK_EXT_MAX, "\r\na\r\n", 6);
    assert_int_equal(decode_repeated(piece, HTTP_CHUNK_EXT_SUM_MAX / HTTP_CHUNK_EXT_MAX, "0\r\n\r\n"), HTTP_OK);
    assert_int_equal(decode_repeated(piece, HTTP_CHUNK_EXT_SUM_MAX / HTTP_CHUNK_EXT_MAX + 1, "0\r\n\r\n"),
                     HTTP_LONG_CHUNK_EXT);
    memset(piece + 2, 'x', HTTP_CHUNK_EXT_MAX + 1);
    memcpy(piece + 3 + HTTP_CHUNK_EXT_MAX, "\r\na\r\n", 6);
    assert_int_equal(decode_repeated(piece, 1, "0\r\n\r\n"), HTTP_LONG_CHUNK_EXT);
    assert_int_equal(decode_repeated("0\r\n", 1, ""), -1);
    char many[HTTP_TRAILER_MAX_BYTES + 100] = "0\r\n";
    for (size_t i = 3; i + 6 < sizeof many; i += 6)
        memcpy(many + i, "a: b\r\n", 6);
    assert_int_equal(decode_repeated(many, 1, "\r\n"), HTTP_LONG_TRAILER);
}

/* ---- paths, queries, lists ---- */

static void test_unescaping(void **state)
{
    struct arena a;
    struct http_text t;
    (void)state;
    arena_init(&a, NULL, 0);
    assert_int_equal(http_unescape(&a, (struct http_text){ BYTES("a%2Fb+%c3%bc") }, false, &t), 0);
    assert_text(t, "a/b+\xc3\xbc");
    assert_int_equal(http_unescape(&a, (struct http_text){ BYTES("a+b") }, true, &t), 0);
    assert_text(t, "a b");
    assert_int_equal(http_unescape(&a, (struct http_text){ BYTES("%00") }, false, &t), -EBADMSG);
    assert_int_equal(http_unescape(&a, (struct http_text){ BYTES("%4") }, false, &t), -EBADMSG);
    struct http_text query = { BYTES("a=1&b&&c=x%3dy+z&a=2&%64=5") };
    assert_int_equal(http_query_get(&a, query, "a", &t), 0);
    assert_text(t, "1");
    assert_int_equal(http_query_get(&a, query, "b", &t), 0);
    assert_text(t, "");
    assert_int_equal(http_query_get(&a, query, "c", &t), 0);
    assert_text(t, "x=y z");
    assert_int_equal(http_query_get(&a, query, "d", &t), 0);
    assert_text(t, "5");
    assert_int_equal(http_query_get(&a, query, "e", &t), -ENOENT);
    assert_int_equal(http_query_get(&a, (struct http_text){ NULL, 0 }, "e", &t), -ENOENT);
    arena_reset(&a);
}

static void test_lists(void **state)
{
    (void)state;
    assert_true(http_list_has((struct http_text){ BYTES("keep-alive, Upgrade") }, "upgrade"));
    assert_true(http_list_has((struct http_text){ BYTES(",, \tclose ,") }, "close"));
    assert_false(http_list_has((struct http_text){ BYTES("closed, xclose") }, "close"));
    assert_false(http_list_has((struct http_text){ NULL, 0 }, "close"));
}

static void test_arena_gives_aligned_memory_that_stays(void **state)
{
    static _Alignas(16) char first[64];
    struct arena a;
    (void)state;
    arena_init(&a, first, sizeof first);
    char *texts[200];
    for (int i = 0; i < 200; i++) {
        texts[i] = arena_printf(&a, "text number %d of some length", i);
        assert_non_null(texts[i]);
        assert_int_equal((uintptr_t)texts[i] % _Alignof(max_align_t), 0);
    }
    assert_ptr_equal(texts[0], first);
    char *large = arena_alloc(&a, 100000);
    memset(large, 'x', 100000);
    for (int i = 0; i < 200; i++) {
        char expected[64];
        snprintf(expected, sizeof expected, "text number %d of some length", i);
        assert_string_equal(texts[i], expected);
    }
    assert_null(arena_alloc(&a, SIZE_MAX));
    arena_reset(&a);
    assert_ptr_equal(arena_copy(&a, "again", 5), first);
    arena_reset(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good_requests_are_taken),
        cmocka_unit_test(test_bad_requests_are_refused_for_the_right_reason),
        cmocka_unit_test(test_nul_bytes_are_refused),
        cmocka_unit_test(test_every_prefix_of_a_good_request_wants_more),
        cmocka_unit_test(test_parts_of_a_request),
        cmocka_unit_test(test_bounds_hold),
        cmocka_unit_test(test_a_hundred_fields_and_no_more),
        cmocka_unit_test(test_responses),
        cmocka_unit_test(test_chunks_are_decoded_however_they_arrive),
        cmocka_unit_test(test_chunks_can_be_decoded_in_place),
        cmocka_unit_test(test_bad_chunks_are_refused),
        cmocka_unit_test(test_extensions_and_trailers_are_bounded),
        cmocka_unit_test(test_unescaping),
        cmocka_unit_test(test_lists),
        cmocka_unit_test(test_arena_gives_aligned_memory_that_stays),
    };
    int r = cmocka_run_group_tests(tests, NULL, NULL);
    free(kept);
    return r;
}
