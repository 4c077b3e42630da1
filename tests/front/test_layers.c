/* What of the host a template needs: environments, the real interpreter's prefix, further directories. */
#include <errno.h>
#include <limits.h>
#include <sys/stat.h>

#include "base/guest.h"
#include "front/config/layers.h"
#include "front/scratch.h"

static char home[256], list[4096];
static struct err e;

static const char *PRINTF_LIKE(1, 2) at(const char *format, ...)
{
    static char path[8][PATH_MAX];
    static unsigned next;
    char *text = path[next++ % 8];
    va_list args;

    int n = snprintf(text, PATH_MAX, "%s/", home);
    va_start(args, format);
    vsnprintf(text + n, PATH_MAX - (size_t)n, format, args);
    va_end(args);
    return text;
}

static void make(const char *name)
{
    assert_int_equal(mkdir(at("%s", name), 0755), 0);
}

static void touch(const char *name)
{
    FILE *file = fopen(at("%s", name), "w");
    assert_non_null(file);
    fclose(file);
}

/* env/bin/python -> other/bin/python -> real/bin/python3 */
static int arrange(void **state)
{
    if (scratch_make(state) < 0)
        return -1;
    snprintf(home, sizeof home, "%s", scratch_file(state, "places"));
    assert_int_equal(mkdir(home, 0755), 0);
    static const char *const dirs[] = { "env", "env/bin", "other", "other/bin", "real", "real/bin", "real/lib",
                                        "guest", "data", "data/inner", "odd", "odd/bin" };
    for (size_t i = 0; i < sizeof dirs / sizeof *dirs; i++)
        make(dirs[i]);
    touch("env/pyvenv.cfg");
    touch("other/pyvenv.cfg");
    touch("real/bin/python3");
    touch("odd/bin/python");
    assert_int_equal(symlink(at("other/bin/python"), at("env/bin/python")), 0);
    assert_int_equal(symlink("../../real/bin/python3", at("other/bin/python")), 0);
    return 0;
}

static struct config_template template_of(const char *python)
{
    struct config_template t = { 0 };
    snprintf(t.python, sizeof t.python, "%s", python);
    return t;
}

static void test_links_are_followed_and_each_prefix_is_there(void **state)
{
    (void)state;
    struct config_template t = template_of(at("env/bin/python"));
    char wanted[5 * PATH_MAX];

    assert_int_equal(layers_of(&t, at("guest"), list, sizeof list, &e), 0);
    snprintf(wanted, sizeof wanted, "%s:%s:%s:%s", at("env"), at("other"), at("real"), at("guest"));
    assert_string_equal(list, wanted);
}

static void test_what_is_under_usr_or_missing_is_left_out(void **state)
{
    (void)state;
    struct config_template t = template_of("/usr/bin/python3");

    assert_int_equal(layers_of(&t, "/usr/lib/carrel/guest", list, sizeof list, &e), 0);
    assert_string_equal(list, "");
    t = template_of(at("nowhere/bin/python"));
    assert_int_equal(layers_of(&t, at("no-guest"), list, sizeof list, &e), 0);
    assert_string_equal(list, "");
    /* Neither an environment nor anything with a library. */
    t = template_of(at("odd/bin/python"));
    assert_int_equal(layers_of(&t, "", list, sizeof list, &e), 0);
    assert_string_equal(list, "");
}

static void test_further_layers(void **state)
{
    (void)state;
    struct config_template t = template_of(at("real/bin/python3"));
    char wanted[5 * PATH_MAX];

    snprintf(t.layers, sizeof t.layers, "%s:%s", at("data"), at("data/inner"));
    snprintf(t.startup, sizeof t.startup, "%s", at("data/inner"));
    assert_int_equal(layers_of(&t, "", list, sizeof list, &e), 0);
    snprintf(wanted, sizeof wanted, "%s:%s:%s", at("real"), at("data/inner"), at("data"));
    assert_string_equal(list, wanted);
    /* One that holds the other comes first: then one is enough. */
    t.startup[0] = 0;
    assert_int_equal(layers_of(&t, "", list, sizeof list, &e), 0);
    snprintf(wanted, sizeof wanted, "%s:%s", at("real"), at("data"));
    assert_string_equal(list, wanted);
    assert_int_equal(layers_of(&t, "", list, 20, &e), -E2BIG);
    assert_int_equal(mkdir(at("a:b"), 0755), 0);
    assert_int_equal(layers_of(&t, at("a:b"), list, sizeof list, &e), -EINVAL);
}

static void test_the_guest_directory(void **state)
{
    (void)state;
    char guest[256];

    setenv("CARREL_GUEST", at("guest"), 1);
    guest_find_files(guest, sizeof guest);
    assert_string_equal(guest, at("guest"));
    setenv("CARREL_GUEST", at("missing"), 1);
    guest_find_files(guest, sizeof guest);
    assert_string_equal(guest, "");
    unsetenv("CARREL_GUEST");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_links_are_followed_and_each_prefix_is_there),
        cmocka_unit_test(test_what_is_under_usr_or_missing_is_left_out),
        cmocka_unit_test(test_further_layers),
        cmocka_unit_test(test_the_guest_directory),
    };

    return cmocka_run_group_tests(tests, arrange, scratch_remove);
}
