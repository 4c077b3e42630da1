/* A value is covered wherever pieces cut it, and nothing else is changed. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "broker/mask.h"

static struct mask_value values[4];
static size_t n_values;

static void set_values(const char *const *texts)
{
    for (size_t i = 0; i < n_values; i++)
        mask_value_done(&values[i]);
    for (n_values = 0; texts[n_values]; n_values++)
        assert_int_equal(mask_value_init(&values[n_values], texts[n_values], strlen(texts[n_values])), 0);
}

static int forget_values(void **state)
{
    static const char *const none[] = { NULL };

    (void)state;
    set_values(none);
    return 0;
}

/* Whether pieces of every size give the same. */
static void expect(const char *text, const char *masked)
{
    size_t size = strlen(text);

    for (size_t piece = 1; piece <= size; piece++) {
        struct mask m;
        struct buf out;
        mask_init(&m);
        for (size_t i = 0; i < n_values; i++)
            mask_add(&m, &values[i]);
        buf_init(&out, 10000);
        for (size_t at = 0; at < size; at += piece)
            mask_feed(&m, text + at, size - at < piece ? size - at : piece, &out);
        mask_end(&m, &out);
        assert_string_equal(buf_string(&out), masked);
        buf_done(&out);
    }
}

static void test_a_value_is_covered(void **state)
{
    (void)state;
    set_values((const char *const[]){ "abcabd", NULL });
    expect("abcabd", "******");
    expect("xabcabdx", "x******x");
    expect("abcabcabd", "abc******");
    expect("abcabdabcabd", "************");
    expect("ababcabababcabd", "ababcabab******");
    expect("abcab", "abcab");
    expect("nothing of it", "nothing of it");
}

static void test_a_value_that_repeats_itself(void **state)
{
    (void)state;
    set_values((const char *const[]){ "aaaa", NULL });
    expect("aaa", "aaa");
    expect("aaaaa", "****a");
    expect("baaabaaaab", "baaab****b");
}

static void test_the_longer_of_two_values_comes_first(void **state)
{
    (void)state;
    set_values((const char *const[]){ "key-1", "key-12345", NULL });
    expect("key-1 key-12345 key-1234", "***** ********* *****234");
    set_values((const char *const[]){ "xyz9", "abcx", NULL });
    expect("abcxyz9", "abc****");
    expect("abxyz9abcx", "ab********");
}

static void test_held_bytes_come_with_the_end(void **state)
{
    struct mask m;
    struct buf out;

    (void)state;
    set_values((const char *const[]){ "secretvalue", NULL });
    mask_init(&m);
    mask_add(&m, &values[0]);
    buf_init(&out, 100);
    mask_feed(&m, "a secret", 8, &out);
    assert_string_equal(buf_string(&out), "a ");
    mask_end(&m, &out);
    assert_string_equal(buf_string(&out), "a secret");
    mask_feed(&m, "value", 5, &out);
    assert_string_equal(buf_string(&out), "a secretvalue");
    buf_done(&out);
}

/* Against the obvious way: masking a whole text at once. */
static void test_random_streams(void **state)
{
    (void)state;
    srand(7);
    for (int i = 0; i < 2000; i++) {
        char value[8] = "", text[64], masked[64];
        for (int k = 0; k < 3 + rand() % 4; k++)
            value[k] = (char)('a' + rand() % 2);
        for (size_t k = 0; k < sizeof text - 1; k++)
            text[k] = (char)('a' + rand() % 2);
        text[sizeof text - 1] = '\0';
        memcpy(masked, text, sizeof text);
        for (char *at = masked; (at = strstr(at, value)); at += strlen(value))
            memset(at, '*', strlen(value));
        set_values((const char *const[]){ value, NULL });
        expect(text, masked);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_a_value_is_covered, forget_values),
        cmocka_unit_test_teardown(test_a_value_that_repeats_itself, forget_values),
        cmocka_unit_test_teardown(test_the_longer_of_two_values_comes_first, forget_values),
        cmocka_unit_test_teardown(test_held_bytes_come_with_the_end, forget_values),
        cmocka_unit_test_teardown(test_random_streams, forget_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
