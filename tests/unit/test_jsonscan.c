#include "unit/unit.h"

#include "base/jsonscan.h"

#define SLICE(text) ((struct jsonslice){ .data = (text), .size = strlen(text) })

static void test_what_is_json_and_what_is_not(void **state)
{
    static const char *const good[] = { "{}",
                                        " [ ] ",
                                        "0",
                                        "-0.5e-7",
                                        "\"\\u00e9\\/\\\"\"",
                                        "true",
                                        "{\"a\":{\"b\":[1,{}]}}",
                                        "null",
                                        "[\"\xc3\xa9\xf0\x9f\x98\x80\"]",
                                        "\"\\ud800\"",
                                        "\t\r\n1 ",
                                        "[[],[],{}]" };
    static const char *const bad[] = { "",
                                       " ",
                                       "{",
                                       "}",
                                       "[1,]",
                                       "{,}",
                                       "{\"a\"}",
                                       "{\"a\":}",
                                       "{\"a\":1,}",
                                       "{a:1}",
                                       "01",
                                       "1.",
                                       ".5",
                                       "-",
                                       "1e",
                                       "+1",
                                       "NaN",
                                       "Infinity",
                                       "nul",
                                       "truee",
                                       "\"",
                                       "\"\\x\"",
                                       "\"\\u12g4\"",
                                       "\"\n\"",
                                       "'a'",
                                       "1 2",
                                       "[1}",
                                       "{\"a\":1]",
                                       "\"\xff\"",
                                       "\"\xc3\"",
                                       "\"\xed\xa0\x80\"",
                                       "\"\xc0\xaf\"",
                                       "\"\xf4\x90\x80\x80\"",
                                       "// 1",
                                       "[1 2]",
                                       "{\"a\" 1}",
                                       "\"\\" };

    (void)state;
    for (size_t i = 0; i < COUNT(good); i++)
        if (!jsonscan_is_value(good[i], strlen(good[i])))
            fail_msg("refused: %s", good[i]);
    for (size_t i = 0; i < COUNT(bad); i++)
        if (jsonscan_is_value(bad[i], strlen(bad[i])))
            fail_msg("taken: %s", bad[i]);
    assert_false(jsonscan_is_value("1\0", 2));
    assert_true(jsonscan_is_object(" {}", 3));
    assert_false(jsonscan_is_object("[]", 2));
}

static void test_depth_has_a_bound(void **state)
{
    char text[2 * JSONSCAN_DEPTH + 3];

    (void)state;
    memset(text, '[', JSONSCAN_DEPTH);
    memset(text + JSONSCAN_DEPTH, ']', JSONSCAN_DEPTH);
    assert_true(jsonscan_is_value(text, 2 * (size_t)JSONSCAN_DEPTH));
    memset(text, '[', JSONSCAN_DEPTH + 1);
    memset(text + JSONSCAN_DEPTH + 1, ']', JSONSCAN_DEPTH + 1);
    assert_false(jsonscan_is_value(text, 2 * ((size_t)JSONSCAN_DEPTH + 1)));
}

static void test_every_byte_of_a_long_string_is_looked_at(void **state)
{
    char text[64];

    (void)state;
    for (size_t i = 1; i < 40; i++)
        for (int c = 0; c < 256; c++) {
            memset(text, 'x', sizeof text);
            text[0] = text[41] = '"';
            text[i] = (char)c;
            bool wanted = c >= 0x20 && c < 0x80 && c != '"' && c != '\\';
            if (jsonscan_is_value(text, 42) != wanted)
                fail_msg("byte %d at %zu", c, i);
        }
}

static void test_members_are_found_by_their_name(void **state)
{
    struct jsonslice o = SLICE("{ \"a\" : 1 , \"b\\u0063\" : {\"a\":2}, \"d\":\"x\\ty\", \"a\":3}"), v;
    unsigned long long number;
    char text[8];

    (void)state;
    assert_true(jsonscan_number(jsonscan_find(o, "a"), &number));
    assert_int_equal(number, 3);
    v = jsonscan_find(o, "bc");
    assert_memory_equal(v.data, "{\"a\":2}", v.size);
    assert_null(jsonscan_find(o, "c").data);
    assert_null(jsonscan_find(SLICE("{}"), "a").data);
    assert_true(jsonscan_text(jsonscan_find(o, "d"), text, sizeof text));
    assert_string_equal(text, "x\ty");
    assert_true(jsonscan_is(jsonscan_find(o, "d"), "x\ty"));
    assert_false(jsonscan_is(jsonscan_find(o, "d"), "x\\ty"));
    assert_false(jsonscan_is(jsonscan_find(o, "a"), "3"));
}

static void test_texts_are_decoded(void **state)
{
    char text[8];

    (void)state;
    assert_true(jsonscan_text(SLICE("\"\\ud83d\\ude00\""), text, sizeof text));
    assert_string_equal(text, "\xf0\x9f\x98\x80");
    assert_true(jsonscan_text(SLICE("\"\\ud83d\""), text, sizeof text));
    assert_string_equal(text, "\xef\xbf\xbd");
    assert_false(jsonscan_text(SLICE("\"12345678\""), text, sizeof text));
    assert_false(jsonscan_text(SLICE("\"\\u0000\""), text, sizeof text));
    assert_false(jsonscan_text(SLICE("5"), text, sizeof text));
}

/* Every bound gives the longest beginning that keeps to it, and no half character. */
static void test_a_text_is_cut_between_characters(void **state)
{
    static const char text[] = "\"a\\n\xc3\xbc\\u00fc\\ud83d\\ude00\xf0\x9f\x98\x80\\ud83d\\\"b\"";
    static const size_t ends[][2] = { { 0, 0 }, { 1, 1 }, { 3, 2 }, { 5, 4 }, { 11, 6 }, { 23, 10 }, { 27, 14 },
                                      { 33, 17 }, { 35, 18 }, { 36, 19 } };
    struct jsonslice inside = jsonscan_inside(SLICE(text));
    size_t n;

    (void)state;
    for (size_t bound = 0, i = 0; bound < 25; bound++) {
        while (i + 1 < sizeof ends / sizeof *ends && ends[i + 1][1] <= bound)
            i++;
        assert_int_equal(jsonscan_cut(inside, bound, &n), ends[i][0]);
        assert_int_equal(n, ends[i][1]);
    }
    assert_int_equal(jsonscan_cut(jsonscan_inside(SLICE("\"\"")), 5, &n), 0);
}

static void test_members_and_elements_are_walked_through(void **state)
{
    static const struct { const char *text, *seen; } all[] = {
        { "{}", "" }, { "[]", "" }, { "5", "" }, { "null", "" }, { " { } ", "" },
        { "{\"a\":1,\"b\":{\"c\":[2,3]}, \"d\" : \"x,}\"}", "\"a\"=1;\"b\"={\"c\":[2,3]};\"d\"=\"x,}\";" },
        { "[1, [2,3] ,{\"a\":4}]", "=1;=[2,3];={\"a\":4};" },
    };

    (void)state;
    for (size_t i = 0; i < COUNT(all); i++) {
        char seen[256] = "";
        struct jsonwalk w = jsonscan_walk((struct jsonslice){ all[i].text, strlen(all[i].text) });
        while (jsonscan_next(&w))
            snprintf(seen + strlen(seen), sizeof seen - strlen(seen), "%.*s=%.*s;", (int)w.key.size,
                     w.key.data ? w.key.data : "", (int)w.value.size, w.value.data);
        assert_string_equal(seen, all[i].seen);
    }
    struct jsonwalk none = jsonscan_walk((struct jsonslice){ 0 });
    assert_false(jsonscan_next(&none));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_json_and_what_is_not),
        cmocka_unit_test(test_depth_has_a_bound),
        cmocka_unit_test(test_every_byte_of_a_long_string_is_looked_at),
        cmocka_unit_test(test_members_are_found_by_their_name),
        cmocka_unit_test(test_texts_are_decoded),
        cmocka_unit_test(test_a_text_is_cut_between_characters),
        cmocka_unit_test(test_members_and_elements_are_walked_through),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
