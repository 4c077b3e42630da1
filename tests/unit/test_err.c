#include "unit/unit.h"

#include <errno.h>

static void test_err_at_returns_the_negative_code_and_fills_all(void **state)
{
    struct err e;
    (void)state;

    memset(&e, 0x55, sizeof e);
    assert_int_equal(err_at(&e, ENOENT, STEP_MOUNT, 3, "/data"), -ENOENT);
    assert_int_equal(e.code, ENOENT);
    assert_int_equal(e.step, STEP_MOUNT);
    assert_int_equal(e.index, 3);
    assert_string_equal(e.what, "/data");
    for (size_t i = strlen(e.what); i < sizeof e.what; i++)
        assert_int_equal(e.what[i], 0); /* it crosses a process boundary: no stray memory in it */
}

static void test_an_error_never_looks_like_success(void **state)
{
    struct err e;
    (void)state;

    assert_int_equal(err_at(&e, 0, STEP_ROOT, 0, NULL), -EIO);
    assert_int_equal(err_at(&e, -EPERM, STEP_ROOT, 0, NULL), -EPERM);
    assert_int_equal(e.code, EPERM);
    assert_int_equal(err_at(NULL, EPERM, STEP_ROOT, 0, "x"), -EPERM);
}

static void test_a_long_noun_is_cut_and_a_large_index_saturates(void **state)
{
    char noun[1000];
    struct err e;
    (void)state;

    memset(noun, 'x', sizeof noun - 1);
    noun[sizeof noun - 1] = 0;
    err_at(&e, EIO, STEP_ROOT, 1000000, noun);
    assert_int_equal(strlen(e.what), sizeof e.what - 1);
    assert_int_equal(e.index, UINT16_MAX);
    assert_int_equal(err_set(&e, EIO, STEP_ROOT, "%s", noun), -EIO);
    assert_int_equal(strlen(e.what), sizeof e.what - 1);
}

static void test_text_names_step_noun_and_reason(void **state)
{
    struct err e;
    char text[200];
    (void)state;

    err_at(&e, ENOENT, STEP_MOUNT, 0, "/data");
    err_text(&e, text, sizeof text);
    assert_string_equal(text, "mount: /data: No such file or directory");
    err_at(&e, EPERM, STEP_SECCOMP, 0, NULL);
    err_text(&e, text, sizeof text);
    assert_string_equal(text, "seccomp: Operation not permitted");
    err_at(&e, EPERM, STEP_MOUNT, 2, NULL);
    err_text(&e, text, sizeof text);
    assert_string_equal(text, "mount 3: Operation not permitted");
    err_set(&e, EINVAL, STEP_USAGE, "--memory %d is wrong", 0);
    err_text(&e, text, sizeof text);
    assert_string_equal(text, "--memory 0 is wrong");
    e = (struct err){ 0 };
    err_text(&e, text, sizeof text);
    assert_string_equal(text, "no error");
}

static void test_text_fits_any_size_and_is_one_line(void **state)
{
    struct err e;
    char text[64];
    (void)state;

    err_at(&e, ENOENT, STEP_MOUNT, 0, "a\nb\033[31m");
    for (size_t size = 0; size <= sizeof text; size++) {
        memset(text, '#', sizeof text);
        err_text(&e, text, size);
        if (size)
            assert_true(strlen(text) < size);
        for (size_t i = size; i < sizeof text; i++)
            assert_int_equal(text[i], '#');
    }
    err_text(&e, text, sizeof text);
    assert_string_equal(text, "mount: a?b?[31m: No such file or directory");
}

static void test_text_of_a_damaged_error_is_safe(void **state)
{
    struct err e;
    char text[400];
    (void)state;

    memset(&e, 'A', sizeof e); /* no NUL anywhere, no such step */
    err_text(&e, text, sizeof text);
    assert_non_null(strstr(text, "unknown step"));
}

static void test_every_step_has_its_own_name(void **state)
{
    (void)state;
    for (unsigned i = 0; i < STEP_COUNT; i++) {
        assert_non_null(err_step_name(i));
        for (unsigned j = 0; j < i; j++)
            assert_string_not_equal(err_step_name(i), err_step_name(j));
    }
    assert_string_equal(err_step_name(STEP_COUNT), "unknown step");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_err_at_returns_the_negative_code_and_fills_all),
        cmocka_unit_test(test_an_error_never_looks_like_success),
        cmocka_unit_test(test_a_long_noun_is_cut_and_a_large_index_saturates),
        cmocka_unit_test(test_text_names_step_noun_and_reason),
        cmocka_unit_test(test_text_fits_any_size_and_is_one_line),
        cmocka_unit_test(test_text_of_a_damaged_error_is_safe),
        cmocka_unit_test(test_every_step_has_its_own_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
