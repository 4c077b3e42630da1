#include "unit/unit.h"

#include <errno.h>

#include "base/jsonout.h"

static char storage[4096];
static struct buf out;
static struct jsonout j;

static int start(void **state)
{
    (void)state;
    buf_init_fixed(&out, storage, sizeof storage);
    jsonout_init(&j, &out);
    return 0;
}

static void test_objects_and_arrays_nest(void **state)
{
    (void)state;
    jsonout_open_object(&j, NULL);
    jsonout_string(&j, "a", "x");
    jsonout_open_array(&j, "b");
    jsonout_unsigned(&j, NULL, UINT64_MAX);
    jsonout_signed(&j, NULL, INT64_MIN);
    jsonout_open_object(&j, NULL);
    jsonout_close(&j);
    jsonout_open_array(&j, NULL);
    jsonout_close(&j);
    jsonout_close(&j);
    jsonout_bool(&j, "c", true);
    jsonout_null(&j, "d");
    jsonout_string(&j, "e", NULL);
    jsonout_decimal(&j, "f", 1234567, 3);
    jsonout_decimal(&j, "g", 7, 0);
    jsonout_decimal(&j, "h", 5, 3);
    jsonout_close(&j);
    assert_int_equal(jsonout_finish(&j), 0);
    assert_string_equal(storage, "{\"a\":\"x\",\"b\":[18446744073709551615,-9223372036854775808,{},[]],\"c\":true,"
                                 "\"d\":null,\"e\":null,\"f\":1234.567,\"g\":7,\"h\":0.005}");
}

static void test_each_level_begins_without_a_comma(void **state)
{
    (void)state;
    jsonout_open_array(&j, NULL);
    for (unsigned i = 1; i <= 2; i++) {
        jsonout_open_array(&j, NULL);
        jsonout_unsigned(&j, NULL, i);
        jsonout_unsigned(&j, NULL, i);
        jsonout_close(&j);
    }
    jsonout_close(&j);
    assert_int_equal(jsonout_finish(&j), 0);
    assert_string_equal(storage, "[[1,1],[2,2]]");
}

static void check_string(const char *data, size_t size, const char *json)
{
    start(NULL);
    jsonout_bytes(&j, NULL, data, size);
    assert_int_equal(jsonout_finish(&j), 0);
    assert_string_equal(storage, json);
}

static void test_strings_are_escaped(void **state)
{
    (void)state;
    check_string("", 0, "\"\"");
    check_string("a\"b\\c\n\r\t\b\f/", 11, "\"a\\\"b\\\\c\\n\\r\\t\\b\\f/\"");
    check_string("\0\x01\x1f\x7f", 4, "\"\\u0000\\u0001\\u001f\\u007f\"");
    check_string("a\xc2\x80\xc2\x9b" "31m\xc2\x9f", 10, "\"a\\u0080\\u009b31m\\u009f\"");     /* C1, which holds CSI */
    check_string("\xc2\xa0\xc3\x9b\xc2", 5, "\"\xc2\xa0\xc3\x9b\\ufffd\"");
    check_string("\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80", 9, "\"\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\"");
}

static void test_bytes_that_are_not_utf8_are_replaced(void **state)
{
    (void)state;
    check_string("a\xff" "b", 3, "\"a\\ufffdb\"");
    check_string("\xc3", 1, "\"\\ufffd\"");                                    /* cut short */
    check_string("\xc0\xaf", 2, "\"\\ufffd\\ufffd\"");                         /* overlong */
    check_string("\xe0\x80\xaf", 3, "\"\\ufffd\\ufffd\\ufffd\"");
    check_string("\xed\xa0\x80", 3, "\"\\ufffd\\ufffd\\ufffd\"");              /* a surrogate */
    check_string("\xf4\x90\x80\x80", 4, "\"\\ufffd\\ufffd\\ufffd\\ufffd\"");   /* above U+10FFFF */
    check_string("\xe2\x82" "x", 3, "\"\\ufffd\\ufffdx\"");
}

static void test_keys_are_escaped_too(void **state)
{
    (void)state;
    jsonout_open_object(&j, NULL);
    jsonout_null(&j, "a\"b");
    jsonout_close(&j);
    assert_int_equal(jsonout_finish(&j), 0);
    assert_string_equal(storage, "{\"a\\\"b\":null}");
}

static void test_wrong_calls_are_told(void **state)
{
    (void)state;
    assert_int_equal(jsonout_finish(&j), -EINVAL); /* nothing */
    start(NULL);
    jsonout_open_object(&j, NULL);
    assert_int_equal(jsonout_finish(&j), -EINVAL); /* not closed */
    start(NULL);
    jsonout_open_object(&j, NULL);
    jsonout_null(&j, NULL); /* no key in an object */
    jsonout_close(&j);
    assert_int_equal(jsonout_finish(&j), -EINVAL);
    start(NULL);
    jsonout_open_array(&j, NULL);
    jsonout_null(&j, "key"); /* a key in an array */
    jsonout_close(&j);
    assert_int_equal(jsonout_finish(&j), -EINVAL);
    start(NULL);
    jsonout_null(&j, NULL);
    jsonout_null(&j, NULL); /* two values */
    assert_int_equal(jsonout_finish(&j), -EINVAL);
    start(NULL);
    jsonout_close(&j);
    assert_int_equal(jsonout_finish(&j), -EINVAL);
}

static void test_depth_is_bounded(void **state)
{
    (void)state;
    for (int i = 0; i < JSON_DEPTH_MAX; i++)
        jsonout_open_array(&j, NULL);
    for (int i = 0; i < JSON_DEPTH_MAX; i++)
        jsonout_close(&j);
    assert_int_equal(jsonout_finish(&j), 0);
    assert_int_equal(out.length, 2 * JSON_DEPTH_MAX);
    start(NULL);
    for (int i = 0; i <= JSON_DEPTH_MAX; i++)
        jsonout_open_array(&j, NULL);
    assert_int_equal(jsonout_finish(&j), -EINVAL);
}

static void test_a_full_buffer_is_told(void **state)
{
    (void)state;
    buf_init_fixed(&out, storage, 4);
    jsonout_string(&j, NULL, "abcdef");
    assert_int_equal(jsonout_finish(&j), -EFBIG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_objects_and_arrays_nest, start),
        cmocka_unit_test_setup(test_each_level_begins_without_a_comma, start),
        cmocka_unit_test_setup(test_strings_are_escaped, start),
        cmocka_unit_test_setup(test_bytes_that_are_not_utf8_are_replaced, start),
        cmocka_unit_test_setup(test_keys_are_escaped_too, start),
        cmocka_unit_test_setup(test_wrong_calls_are_told, start),
        cmocka_unit_test_setup(test_depth_is_bounded, start),
        cmocka_unit_test_setup(test_a_full_buffer_is_told, start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
