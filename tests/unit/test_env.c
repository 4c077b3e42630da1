#include "unit/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/fd.h"
#include "box/spec.h"
#include "cli/options/envfile.h"
#include "cli/options/exec_limits.h"

static struct arena arena;
static struct envlist list;
static struct err e;

static int start(void **state)
{
    (void)state;
    e = (struct err){ 0 };
    envlist_init(&list, &arena);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    envlist_done(&list);
    arena_reset(&arena);
    return 0;
}

static const char *value_of(const char *name)
{
    for (size_t i = 0; i < list.count; i++)
        if (!strncmp(list.entry[i], name, strlen(name)) && list.entry[i][strlen(name)] == '=')
            return list.entry[i] + strlen(name) + 1;
    return NULL;
}

static int set(const char *name, const char *value)
{
    return envlist_set(&list, name, strlen(name), value, strlen(value));
}

static int parse(const char *text)
{
    return envfile_parse("f.env", text, strlen(text), &list, &e);
}

static void test_a_later_value_replaces_an_earlier_one(void **state)
{
    char **env;
    (void)state;

    assert_int_equal(set("A", "1"), 0);
    assert_int_equal(set("AB", "2"), 0);
    assert_int_equal(set("A", "3"), 0);
    assert_true(envlist_has(&list, "A", 1));
    assert_false(envlist_has(&list, "B", 1));
    assert_int_equal(envlist_finish(&list, &env), 0);
    assert_string_equal(env[0], "A=3");
    assert_string_equal(env[1], "AB=2");
    assert_null(env[2]);
    free(env);
}

static void test_an_empty_list_finishes_as_an_empty_environment(void **state)
{
    char **env;
    (void)state;

    assert_false(envlist_has(&list, "A", 1));
    assert_int_equal(envlist_finish(&list, &env), 0);
    assert_null(env[0]);
    free(env);
}

static void test_names_are_checked(void **state)
{
    static const char *const good[] = { "A", "_", "a1", "A_B", "npm.config", "x-y" };
    static const char *const bad[] = { "", "1A", "A B", "A=B", "-A", ".a", "A\n", "\xc3\xa4" };
    (void)state;

    for (size_t i = 0; i < COUNT(good); i++)
        assert_int_equal(set(good[i], "x"), 0);
    for (size_t i = 0; i < COUNT(bad); i++)
        assert_int_equal(set(bad[i], "x"), -EINVAL);
    assert_int_equal(envlist_set(&list, "A", 1, "x\0y", 3), -EINVAL);
}

static void test_the_number_of_variables_is_bounded(void **state)
{
    char name[32];
    (void)state;

    for (int i = SPEC_ENV_MAX - 1; i >= 0; i--) { /* so that a name comes after many that begin with it */
        snprintf(name, sizeof name, "NAME_%d", i);
        assert_int_equal(set(name, "value"), 0);
    }
    assert_int_equal(list.count, SPEC_ENV_MAX);
    assert_int_equal(set("ONE_MORE", "value"), -ENOSPC);
    assert_int_equal(set("NAME_5", "other"), 0); /* replacing is still possible */
    assert_string_equal(value_of("NAME_5"), "other");
    assert_string_equal(value_of("NAME_16383"), "value");
    assert_int_equal(envlist_set_from(&list, "--env", "X", 1, "", 0, &e), -EINVAL);
    assert_says(&e, "--env: more than 16384 environment variables");
}

static void test_a_variable_is_as_long_as_linux_allows(void **state)
{
    AUTO_FREE char *value = malloc(EXEC_STRING_MAX + 1);
    (void)state;

    memset(value, 'x', EXEC_STRING_MAX);
    assert_int_equal(envlist_set(&list, "A", 1, value, EXEC_STRING_MAX - 2), 0);
    assert_int_equal(envlist_set_from(&list, "--env", "A", 1, value, EXEC_STRING_MAX - 1, &e), -EINVAL);
    assert_says(&e, "--env: the variable is 131072 bytes; Linux allows 131071");
}

static void test_lines_of_a_file(void **state)
{
    (void)state;
    assert_int_equal(parse("# comment\n"
                           "\n"
                           "PLAIN=some value  \n"
                           "  INDENTED=x\n"
                           "export EXPORTED=y\n"
                           "exported=no keyword\n"
                           "EMPTY=\n"
                           "EQUALS=a=b=c\n"
                           "HASH=a#b\n"
                           "HASHFIRST=#b\n"
                           "COMMENTED=a # why\n"
                           "ONLYCOMMENT= # why\n"
                           "SINGLE='  a \"b\" \\ $HOME # no '\n"
                           "DOUBLE=\"a \\\"b\\\" \\\\ \\n $HOME\" # yes\n"
                           "CRLF=x\r\n"
                           "CRLFQUOTED='x'\r\n"
                           "PLAIN=again"),
                     0);
    assert_string_equal(value_of("PLAIN"), "again");
    assert_string_equal(value_of("INDENTED"), "x");
    assert_string_equal(value_of("EXPORTED"), "y");
    assert_string_equal(value_of("exported"), "no keyword");
    assert_string_equal(value_of("EMPTY"), "");
    assert_string_equal(value_of("EQUALS"), "a=b=c");
    assert_string_equal(value_of("HASH"), "a#b");
    assert_string_equal(value_of("HASHFIRST"), "#b");
    assert_string_equal(value_of("COMMENTED"), "a");
    assert_string_equal(value_of("ONLYCOMMENT"), "");
    assert_string_equal(value_of("SINGLE"), "  a \"b\" \\ $HOME # no ");
    assert_string_equal(value_of("DOUBLE"), "a \"b\" \\ \\n $HOME");
    assert_string_equal(value_of("CRLF"), "x");
    assert_string_equal(value_of("CRLFQUOTED"), "x");
    assert_int_equal(list.count, 14);
}

static void test_an_empty_file_and_a_byte_order_mark(void **state)
{
    (void)state;
    assert_int_equal(parse(""), 0);
    assert_int_equal(parse("\xef\xbb\xbfKEY=1\n"), 0);
    assert_string_equal(value_of("KEY"), "1");
}

static void test_a_broken_line_is_named_but_never_shown(void **state)
{
    static const struct {
        const char *text, *says;
    } bad[] = {
        { "A=1\nsecret-text\n", "f.env:2: no '=' in the line; write NAME=VALUE" },
        { "A=1\n\n1secret=2\n", "f.env:3: not a variable name" },
        { "se cret=2\n", "f.env:1: not a variable name" },
        { "=secret\n", "f.env:1: not a variable name" },
        { "export\n", "f.env:1: no '='" },
        { "export =secret\n", "f.env:1: not a variable name" },
        { "A='secret\nB=2\n", "f.env:1: the quote is not closed on this line" },
        { "A=\"secret\\\"\n", "f.env:1: the quote is not closed on this line" },
        { "A='x'secret\n", "f.env:1: there is text after the closing quote" },
    };
    (void)state;
    for (size_t i = 0; i < COUNT(bad); i++) {
        e = (struct err){ 0 };
        assert_int_equal(parse(bad[i].text), -EINVAL);
        assert_int_equal(e.step, STEP_USAGE);
        assert_says(&e, bad[i].says);
        assert_null(strstr(e.what, "secret"));
    }
    assert_int_equal(envfile_parse("f.env", "A=\"x\\\"\"", 5, &list, &e), -EINVAL); /* the text ends at the backslash */
    assert_says(&e, "f.env:1: the quote is not closed on this line");
    assert_int_equal(envfile_parse("f.env", "A=1\nB=x\0y\n", 10, &list, &e), -EINVAL);
    assert_says(&e, "f.env:2: there is a NUL byte in the line");
}

static void test_files_are_read_whole_or_refused(void **state)
{
    char path[] = "/tmp/carrel-unit-XXXXXX", expected[100];
    static char much[ENVFILE_BYTES_MAX + 1];
    (void)state;

    FD fd = mkostemp(path, O_CLOEXEC);
    assert_true(fd >= 0);
    memset(much, '#', sizeof much);
    assert_int_equal(fd_write_all(fd, "KEY=1\n", 6), 0);
    assert_int_equal(fd_write_all(fd, much, ENVFILE_BYTES_MAX - 6), 0);
    assert_int_equal(envfile_read(path, &list, &e), 0); /* exactly the most */
    assert_string_equal(value_of("KEY"), "1");
    assert_int_equal(fd_write_all(fd, "#", 1), 0);
    assert_int_equal(envfile_read(path, &list, &e), -EINVAL);
    assert_says(&e, "is larger than 4 MiB");
    unlink(path);
    assert_int_equal(envfile_read(path, &list, &e), -ENOENT);
    snprintf(expected, sizeof expected, "--env-file %s: No such file or directory", path);
    assert_says(&e, expected);
    assert_int_equal(envfile_read("/", &list, &e), -EISDIR);
    assert_says(&e, "Is a directory");
}

static void test_arguments_are_checked_against_the_kernel(void **state)
{
    AUTO_FREE char *large = malloc((1 << 20) + 1);
    char *argv[] = { (char[]){ "cmd" }, (char[]){ "x" }, large, NULL };
    char *env[] = { NULL };
    char *many[101];
    (void)state;

    memset(large, 'x', 1 << 20);
    large[1 << 20] = 0;
    assert_int_equal(exec_limits_check(argv, env, &e), -EINVAL);
    assert_says(&e, "argument 2 is 1048576 bytes; Linux allows 131071");
    large[EXEC_STRING_MAX] = 0;
    assert_int_equal(exec_limits_check(argv, env, &e), 0);
    for (size_t i = 0; i < COUNT(many) - 1; i++)
        many[i] = large;
    many[COUNT(many) - 1] = NULL;
    assert_int_equal(exec_limits_check(many, env, &e), -EINVAL); /* 13 MB is too much with any stack limit */
    assert_says(&e, "arguments and environment take 13108000 bytes; Linux allows ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_later_value_replaces_an_earlier_one, start, stop),
        cmocka_unit_test_setup_teardown(test_an_empty_list_finishes_as_an_empty_environment, start, stop),
        cmocka_unit_test_setup_teardown(test_names_are_checked, start, stop),
        cmocka_unit_test_setup_teardown(test_the_number_of_variables_is_bounded, start, stop),
        cmocka_unit_test_setup_teardown(test_a_variable_is_as_long_as_linux_allows, start, stop),
        cmocka_unit_test_setup_teardown(test_lines_of_a_file, start, stop),
        cmocka_unit_test_setup_teardown(test_an_empty_file_and_a_byte_order_mark, start, stop),
        cmocka_unit_test_setup_teardown(test_a_broken_line_is_named_but_never_shown, start, stop),
        cmocka_unit_test_setup_teardown(test_files_are_read_whole_or_refused, start, stop),
        cmocka_unit_test_setup_teardown(test_arguments_are_checked_against_the_kernel, start, stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
