#include "unit/unit.h"

#include <errno.h>

#include "base/buf.h"
#include "base/arena.h"

static void test_a_buffer_grows_and_stays_a_string(void **state)
{
    struct buf b;
    (void)state;

    buf_init(&b, 1 << 20);
    assert_string_equal(buf_string(&b), "");
    for (int i = 0; i < 10000; i++)
        buf_printf(&b, "%d,", i % 10);
    buf_add(&b, NULL, 0);
    assert_int_equal(buf_error(&b), 0);
    assert_int_equal(b.length, 20000);
    assert_int_equal(strlen(buf_string(&b)), 20000);
    assert_memory_equal(buf_string(&b), "0,1,2,3,", 8);
    buf_clear(&b);
    assert_string_equal(buf_string(&b), "");
    buf_done(&b);
}

static void test_what_exceeds_the_limit_is_refused_whole(void **state)
{
    struct buf b;
    (void)state;

    buf_init(&b, 5);
    buf_add_text(&b, "abc");
    buf_add_text(&b, "def");
    assert_int_equal(buf_error(&b), -EFBIG);
    assert_string_equal(buf_string(&b), "abc");
    buf_add_text(&b, "d"); /* a failure stays: what follows would be out of place */
    assert_string_equal(buf_string(&b), "abc");
    buf_clear(&b);
    buf_add_text(&b, "abcde");
    assert_int_equal(buf_error(&b), 0);
    assert_string_equal(buf_string(&b), "abcde");
    buf_done(&b);
}

static void test_fixed_storage_is_never_overrun(void **state)
{
    char storage[8];
    struct buf b;
    (void)state;

    memset(storage, '#', sizeof storage);
    buf_init_fixed(&b, storage, 4);
    buf_printf(&b, "%s", "123");
    assert_int_equal(buf_error(&b), 0);
    buf_add_char(&b, '4');
    assert_int_equal(buf_error(&b), -EFBIG);
    assert_string_equal(storage, "123");
    assert_int_equal(storage[4], '#');
    buf_done(&b);
    buf_init_fixed(&b, storage, 0);
    buf_add_text(&b, "");
    assert_int_equal(buf_error(&b), -EFBIG);
    assert_string_equal(buf_string(&b), "");
}

static void test_pieces_of_an_arena_are_aligned_and_apart(void **state)
{
    struct arena arena = { 0 };
    char *large, *piece[1000];
    (void)state;

    for (size_t i = 0; i < COUNT(piece); i++) {
        piece[i] = arena_alloc(&arena, i);
        assert_non_null(piece[i]);
        assert_int_equal((uintptr_t)piece[i] % _Alignof(max_align_t), 0);
        memset(piece[i], (int)(i % 127) + 1, i);
    }
    large = arena_alloc(&arena, 1 << 20);
    assert_non_null(large);
    memset(large, 1, 1 << 20);
    for (size_t i = 1; i < COUNT(piece); i++)
        assert_int_equal(piece[i][i - 1], (int)(i % 127) + 1);
    assert_string_equal(arena_copy(&arena, "abcdef", 3), "abc");
    assert_null(arena_alloc(&arena, SIZE_MAX));
    assert_null(arena_copy(&arena, "", SIZE_MAX));
    arena_reset(&arena);
    assert_null(arena.blocks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_buffer_grows_and_stays_a_string),
        cmocka_unit_test(test_what_exceeds_the_limit_is_refused_whole),
        cmocka_unit_test(test_fixed_storage_is_never_overrun),
        cmocka_unit_test(test_pieces_of_an_arena_are_aligned_and_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
