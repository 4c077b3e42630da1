/* A value is covered wherever pieces cut it, and nothing else is changed. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

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

static void init_mask(struct mask *m)
{
    mask_init(m);
    for (size_t i = 0; i < n_values; i++)
        mask_add(m, &values[i]);
}

/* Whether pieces of every size give the same. */
static void expect(const char *text, const char *masked)
{
    size_t size = strlen(text);

    for (size_t piece = 1; piece <= size; piece++) {
        struct mask m;
        struct buf out;
        init_mask(&m);
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
    expect("aaaaa", "*****");
    expect("baaabaaaab", "baaab****b");
}

static void test_values_that_overlap_are_all_covered(void **state)
{
    (void)state;
    set_values((const char *const[]){ "key-1", "key-12345", NULL });
    expect("key-1 key-12345 key-1234", "***** ********* *****234");
    set_values((const char *const[]){ "xyz9", "abcx", NULL });
    expect("abcxyz9", "*******");
    expect("abxyz9abcx", "ab********");
}

static void feed(struct mask *m, const char *text, struct buf *out)
{
    mask_feed(m, text, strlen(text), out);
}

static void test_held_bytes_come_with_the_end(void **state)
{
    struct mask m;
    struct buf out;

    (void)state;
    set_values((const char *const[]){ "secretvalue", NULL });
    init_mask(&m);
    buf_init(&out, 100);
    feed(&m, "a secret", &out);
    assert_string_equal(buf_string(&out), "");
    mask_end(&m, &out);
    assert_string_equal(buf_string(&out), "a secret");
    feed(&m, "value", &out);
    mask_end(&m, &out);
    assert_string_equal(buf_string(&out), "a secretvalue");
    buf_done(&out);
}

/* A pause of the upstream in the middle of a value: what was let go is gone, the rest is covered. */
static void test_a_value_goes_on_after_a_release(void **state)
{
    struct mask m;
    struct buf out;

    (void)state;
    set_values((const char *const[]){ "secretvalue", NULL });
    init_mask(&m);
    buf_init(&out, 100);
    feed(&m, "a secret", &out);
    mask_release(&m, &out);
    assert_string_equal(buf_string(&out), "a secret");
    feed(&m, "value secretvalue", &out);
    mask_end(&m, &out);
    assert_string_equal(buf_string(&out), "a secret***** ***********");
    mask_done(&m);
    buf_done(&out);
}

/* The lengths that a box sees must not tell whether a text is a part of the value. */
static void test_the_held_length_does_not_depend_on_the_bytes(void **state)
{
    static const char value[] = "secretvalue-long", other[] = "nothing of the kind, at all";

    (void)state;
    set_values((const char *const[]){ value, "longer-than-the-other", NULL });
    for (size_t known = 0; known <= strlen(value); known++)
        for (size_t piece = 1; piece < 20; piece++) {
            struct mask guess, plain;
            struct buf guess_out, plain_out;
            init_mask(&guess);
            init_mask(&plain);
            buf_init(&guess_out, 1000);
            buf_init(&plain_out, 1000);
            for (size_t at = 0; at < known; at += piece) {
                size_t n = known - at < piece ? known - at : piece;
                mask_feed(&guess, value + at, n, &guess_out);
                mask_feed(&plain, other + at, n, &plain_out);
                assert_int_equal(guess_out.length, plain_out.length);
                assert_int_equal(guess.n_held, plain.n_held);
            }
            mask_end(&guess, &guess_out);
            assert_int_equal(guess_out.length, known);
            assert_memory_equal(buf_string(&guess_out), known < strlen(value) ? value : "****************", known);
            buf_done(&guess_out);
            buf_done(&plain_out);
        }
}

/* The best of many rounds, in processor time. text is repeated. */
static uint64_t search_time_ns(const char *text)
{
    static char long_text[1 << 16];
    uint64_t best = UINT64_MAX;
    struct timespec begun, ended;
    struct mask m;
    struct buf out;

    for (size_t i = 0, n = strlen(text); i < sizeof long_text; i++)
        long_text[i] = text[i % n];
    init_mask(&m);
    buf_init(&out, 2 * sizeof long_text);
    for (int i = 0; i < 50; i++) {
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begun);
        mask_feed(&m, long_text, sizeof long_text, &out);
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ended);
        uint64_t took = (uint64_t)(ended.tv_sec - begun.tv_sec) * 1000000000 + (uint64_t)ended.tv_nsec -
                        (uint64_t)begun.tv_nsec;
        best = took < best ? took : best;
        buf_clear(&out);
    }
    buf_done(&out);
    return best;
}

/* Nor must the time of a long answer: with a search that skips it is hundreds of times as long for one text as for
 * another. */
static void test_the_search_takes_the_same_time_for_all_texts(void **state)
{
    static const char *const guesses[] = { "s", "secre!", "secretvalue-lon!", "value-lon", "secretvalue-lonh" };

    (void)state;
    set_values((const char *const[]){ "secretvalue-long", NULL });
    uint64_t other_ns = search_time_ns("x");
    for (size_t i = 0; i < sizeof guesses / sizeof *guesses; i++) {
        uint64_t guess_ns = search_time_ns(guesses[i]);
        assert_true(guess_ns < 3 * other_ns && other_ns < 3 * guess_ns);
    }
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
        for (const char *at = text; (at = strstr(at, value)); at++)
            memset(masked + (at - text), '*', strlen(value));
        set_values((const char *const[]){ value, NULL });
        expect(text, masked);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_a_value_is_covered, forget_values),
        cmocka_unit_test_teardown(test_a_value_that_repeats_itself, forget_values),
        cmocka_unit_test_teardown(test_values_that_overlap_are_all_covered, forget_values),
        cmocka_unit_test_teardown(test_held_bytes_come_with_the_end, forget_values),
        cmocka_unit_test_teardown(test_a_value_goes_on_after_a_release, forget_values),
        cmocka_unit_test_teardown(test_the_held_length_does_not_depend_on_the_bytes, forget_values),
        cmocka_unit_test_teardown(test_the_search_takes_the_same_time_for_all_texts, forget_values),
        cmocka_unit_test_teardown(test_random_streams, forget_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
