/* WebSocket frames: what a client may send, what it may not, whatever the pieces. */
#include "http/wsframe.h"
#include "unit.h"

struct bytes {
    uint8_t data[4096];
    size_t size;
};

/* A masked frame; first is the first byte of its header. */
static void add_frame(struct bytes *b, uint8_t first, const char *payload, size_t size)
{
    static const uint8_t mask[4] = { 0x12, 0x80, 0xff, 0x01 };
    b->data[b->size++] = first;
    if (size < 126) {
        b->data[b->size++] = (uint8_t)(0x80 | size);
    } else {
        b->data[b->size++] = 0x80 | 126;
        b->data[b->size++] = (uint8_t)(size >> 8);
        b->data[b->size++] = (uint8_t)size;
    }
    memcpy(b->data + b->size, mask, 4);
    b->size += 4;
    for (size_t i = 0; i < size; i++)
        b->data[b->size++] = (uint8_t)payload[i] ^ mask[i & 3];
}

/* What comes out, as "T:hello" and the like with a space after each; ends with "!code" if refused. */
static void read_all(const struct bytes *b, size_t step, char *out, size_t max_bytes)
{
    struct wsreader w = { .max_bytes = max_bytes };
    *out = 0;
    for (size_t at = 0; at < b->size;) {
        size_t n = b->size - at < step ? b->size - at : step, taken = 0, size = 0;
        const char *data = NULL;
        uint8_t *exact = malloc(n);
        memcpy(exact, b->data + at, n);
        int r = wsreader_take(&w, exact, n, &taken, &data, &size);
        free(exact);
        at += taken;
        out += strlen(out);
        if (r < 0) {
            snprintf(out, 32, "!%d", -r);
            break;
        }
        if (r > 0)
            snprintf(out, size + 8, "%c:%.*s ", "?TB?????CIO"[r], (int)size, data);
    }
    wsreader_done(&w);
}

static void expect(const struct bytes *b, const char *wanted, size_t max_bytes)
{
    for (size_t step = 1; step <= b->size; step++) {
        char out[8192];
        read_all(b, step, out, max_bytes);
        assert_string_equal(out, wanted);
    }
}

static void test_messages_fragments_and_control_frames(void **state)
{
    struct bytes b = { .size = 0 };
    (void)state;
    add_frame(&b, 0x81, BYTES("hello"));
    add_frame(&b, 0x01, BYTES("a "));
    add_frame(&b, 0x89, BYTES("ping"));
    add_frame(&b, 0x00, BYTES(""));
    add_frame(&b, 0x80, BYTES("b"));
    add_frame(&b, 0x8a, BYTES(""));
    add_frame(&b, 0x82, BYTES(""));
    add_frame(&b, 0x88, BYTES("\x03\xe8" "bye"));
    expect(&b, "T:hello I:ping T:a b O: B: C:\x03\xe8" "bye ", 100);
}

static void test_a_long_message(void **state)
{
    struct bytes b = { .size = 0 };
    char text[2000], wanted[2100] = "T:";
    (void)state;
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (char)('a' + i % 26);
    add_frame(&b, 0x81, text, sizeof text);
    memcpy(wanted + 2, text, sizeof text);
    wanted[2002] = ' ';
    char out[8192];
    for (size_t step = 1; step < b.size; step += 13) {
        read_all(&b, step, out, 2000);
        assert_string_equal(out, wanted);
    }
    expect(&b, "!1009", 1999);
}

static void test_fragments_together_are_bounded(void **state)
{
    struct bytes b = { .size = 0 };
    (void)state;
    add_frame(&b, 0x01, BYTES("12345"));
    add_frame(&b, 0x80, BYTES("678901"));
    expect(&b, "!1009", 10);
    expect(&b, "T:12345678901 ", 11);
}

static void test_what_a_client_may_not_send(void **state)
{
    static const struct { const char *data; size_t size; } bad[] = {
        { BYTES("\x81\x05hello") },                             /* not masked */
        { BYTES("\xc1\x80\0\0\0\0") },                          /* a reserved bit */
        { BYTES("\x83\x80\0\0\0\0") },                          /* unknown opcodes */
        { BYTES("\x8b\x80\0\0\0\0") },
        { BYTES("\x09\x80\0\0\0\0") },                          /* a fragmented ping */
        { BYTES("\x89\xfe\x00\x7e\0\0\0\0") },                  /* a long ping */
        { BYTES("\x80\x80\0\0\0\0") },                          /* a continuation of nothing */
        { BYTES("\x01\x80\0\0\0\0\x81\x80\0\0\0\0") },          /* a message inside another */
        { BYTES("\x81\xfe\x00\x7d\0\0\0\0") },                  /* lengths in a longer form than needed */
        { BYTES("\x81\xff\0\0\0\0\0\0\xff\xff\0\0\0\0") },
        { BYTES("\x81\xff\x80\0\0\0\0\0\0\0\0\0\0\0") },        /* the highest bit of a length */
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct bytes b = { .size = bad[i].size };
        memcpy(b.data, bad[i].data, bad[i].size);
        expect(&b, "!1002", 1 << 20);
    }
    struct bytes text = { .size = 0 }, binary = { .size = 0 };
    add_frame(&text, 0x81, BYTES("\xff"));
    expect(&text, "!1007", 100);
    add_frame(&binary, 0x82, BYTES("\xff"));
    expect(&binary, "B:\xff ", 100);
}

static void test_text_of_any_kind_where_that_is_wanted(void **state)
{
    struct bytes b = { 0 };
    struct wsreader w = { .max_bytes = 100, .any_text = true };
    size_t taken, size;
    const char *data;
    (void)state;

    add_frame(&b, 0x81, "\x07\xc8\xff", 3);
    assert_int_equal(wsreader_take(&w, b.data, b.size, &taken, &data, &size), WS_TEXT);
    assert_int_equal(size, 3);
    wsreader_done(&w);
    expect(&b, "!1007", 100);
}

static void test_utf8(void **state)
{
    static const char *const good[] = { "", "ascii only, longer than eight", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80",
        "\xed\x9f\xbf", "\xee\x80\x80", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf", "12345678\xe2\x82\xac" "1234567" };
    static const char *const bad[] = { "\x80", "\xc0\x80", "\xc1\xbf", "\xe0\x9f\xbf", "\xed\xa0\x80",
        "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xc2", "\xe2\x82", "\xe2\x82z",
        "\xf0\x90\x80", "12345678\xff" "1234567" };
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_true(wsframe_is_utf8(good[i], strlen(good[i])));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(wsframe_is_utf8(bad[i], strlen(bad[i])));
}

static void test_close_codes(void **state)
{
    (void)state;
    assert_int_equal(wsframe_close_code("", 0), WS_NO_STATUS);
    assert_int_equal(wsframe_close_code("\x03", 1), -WS_PROTOCOL_ERROR);
    assert_int_equal(wsframe_close_code(BYTES("\x03\xe8")), 1000);
    assert_int_equal(wsframe_close_code(BYTES("\x03\xec")), -WS_PROTOCOL_ERROR);        /* 1004 */
    assert_int_equal(wsframe_close_code(BYTES("\x03\xed")), -WS_PROTOCOL_ERROR);        /* 1005 may not be sent */
    assert_int_equal(wsframe_close_code(BYTES("\x0b\xb8")), 3000);
    assert_int_equal(wsframe_close_code(BYTES("\x13\x88")), -WS_PROTOCOL_ERROR);        /* 5000 */
    assert_int_equal(wsframe_close_code(BYTES("\x03\xe8\xff")), -WS_BAD_DATA);
}

/* size bytes, sent by one role and read by the other or by itself. */
static int exchange(size_t size, bool from_client, bool to_client)
{
    static const uint8_t mask[4] = { 9, 8, 7, 6 };
    struct wsreader w = { .max_bytes = 1 << 20, .is_client = to_client };
    char *payload = malloc(size + 1);
    uint8_t *frame = malloc(WSFRAME_HEADER_MAX + size);
    size_t taken, got = 0;
    const char *data = NULL;

    for (size_t i = 0; i < size; i++)
        payload[i] = (char)(i * 7);
    size_t n = from_client ? wsframe_header_masked(frame, WS_BINARY, size, mask)
                           : wsframe_header(frame, WS_BINARY, size);
    if (from_client)
        wsframe_mask((char *)frame + n, payload, size, mask, 0);
    else
        memcpy(frame + n, payload, size);
    int r = wsreader_take(&w, frame, n + size, &taken, &data, &got);
    if (r == WS_BINARY) {
        assert_int_equal(got, size);
        assert_memory_equal(data, payload, size);
    }
    free(payload);
    free(frame);
    wsreader_done(&w);
    return r;
}

static void test_each_role_reads_what_the_other_sends(void **state)
{
    static const size_t sizes[] = { 0, 1, 7, 8, 125, 126, 65535, 65536, 100001 };
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        assert_int_equal(exchange(sizes[i], true, false), WS_BINARY);
        assert_int_equal(exchange(sizes[i], false, true), WS_BINARY);
        assert_int_equal(exchange(sizes[i], true, true), -WS_PROTOCOL_ERROR);
        assert_int_equal(exchange(sizes[i], false, false), sizes[i] < 2 ? 0 : -WS_PROTOCOL_ERROR);
    }
}

static void test_headers_use_the_shortest_length(void **state)
{
    static const struct { size_t payload, header; } cases[] = {
        { 0, 2 }, { 125, 2 }, { 126, 4 }, { 65535, 4 }, { 65536, 10 }, { (size_t)1 << 40, 10 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint8_t h[10];
        assert_int_equal(wsframe_header(h, WS_BINARY, cases[i].payload), cases[i].header);
        assert_int_equal(h[0], 0x82);
        uint64_t length = cases[i].header == 2 ? h[1] : 0;
        for (size_t j = 2; j < cases[i].header; j++)
            length = length << 8 | h[j];
        assert_int_equal(length, cases[i].payload);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages_fragments_and_control_frames),
        cmocka_unit_test(test_a_long_message),
        cmocka_unit_test(test_fragments_together_are_bounded),
        cmocka_unit_test(test_what_a_client_may_not_send),
        cmocka_unit_test(test_text_of_any_kind_where_that_is_wanted),
        cmocka_unit_test(test_utf8),
        cmocka_unit_test(test_close_codes),
        cmocka_unit_test(test_each_role_reads_what_the_other_sends),
        cmocka_unit_test(test_headers_use_the_shortest_length),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
