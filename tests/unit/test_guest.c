/* Where kernels' files and interpreters are looked for. */
#include "unit/unit.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/guest.h"

static char top[64];

static const char *at(const char *name)
{
    static char paths[4][256];
    static unsigned next;
    char *path = paths[next++ % 4];

    snprintf(path, 256, "%s/%s", top, name);
    return path;
}

static void folder(const char *name)
{
    char path[256];

    snprintf(path, sizeof path, "%s/%s/", top, name);
    for (char *slash = strchr(path + strlen(top) + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(path, 0755);
        *slash = '/';
    }
}

static void file(const char *name, const char *text)
{
    FILE *out = fopen(at(name), "w");

    assert_non_null(out);
    fputs(text, out);
    fclose(out);
    assert_int_equal(chmod(at(name), 0755), 0);
}

/* base: an interpreter with a prefix of its own; env: an environment of it. */
static int make(void **state)
{
    (void)state;
    snprintf(top, sizeof top, "/tmp/carrel-unit-XXXXXX");
    assert_non_null(mkdtemp(top));
    folder("base/bin");
    folder("base/lib/python3.11/site-packages");
    file("base/bin/python3.11", "");
    assert_int_equal(symlink("python3.11", at("base/bin/python3")), 0);
    folder("env/bin");
    folder("env/lib/python3.11/site-packages");
    file("env/pyvenv.cfg", "home = x\ninclude-system-site-packages = false\n");
    assert_int_equal(symlink(at("base/bin/python3"), at("env/bin/python")), 0);
    return 0;
}

static int remove_one(const char *path, const struct stat *status, int type, struct FTW *where)
{
    (void)status;
    (void)type;
    (void)where;
    return remove(path);
}

static int clear(void **state)
{
    (void)state;
    return nftw(top, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void test_packages_are_found_where_an_interpreter_has_them(void **state)
{
    (void)state;
    assert_false(guest_has_ipykernel(at("env/bin/python")));
    assert_false(guest_has_ipykernel(at("base/bin/python3")));
    assert_false(guest_has_ipykernel(at("nothing")));
    folder("base/lib/python3.11/site-packages/ipykernel");
    assert_true(guest_has_ipykernel(at("base/bin/python3")));
    /* An environment has its own, and the others only if it says so. */
    assert_false(guest_has_ipykernel(at("env/bin/python")));
    file("env/pyvenv.cfg", "include-system-site-packages = true\n");
    assert_true(guest_has_ipykernel(at("env/bin/python")));
    file("env/pyvenv.cfg", "include-system-site-packages = false\n");
    folder("env/lib/python3.11/site-packages/ipykernel");
    assert_true(guest_has_ipykernel(at("env/bin/python")));
}

static void test_packages_of_another_version_are_not_taken(void **state)
{
    (void)state;
    folder("base/lib/python3.12/site-packages/ipykernel");
    assert_false(guest_has_ipykernel(at("base/bin/python3")));
    folder("base/lib/python3/dist-packages/ipykernel");     /* Debian's are for all */
    assert_true(guest_has_ipykernel(at("base/bin/python3")));
}

static void test_the_interpreter_that_is_named_is_taken_as_it_is(void **state)
{
    char found[GUEST_PATH];

    (void)state;
    setenv("CARREL_PYTHON", at("env/bin/python"), 1);
    assert_false(guest_find_python(found, sizeof found));
    assert_string_equal(found, at("env/bin/python"));
    folder("env/lib/python3.11/site-packages/ipykernel");
    assert_true(guest_find_python(found, sizeof found));
    unsetenv("CARREL_PYTHON");
}

static void test_what_was_set_up_counts_when_it_is_whole(void **state)
{
    char found[GUEST_PATH], place[GUEST_PATH];

    (void)state;
    setenv("CARREL_ENVIRONMENT", at("env"), 1);
    guest_setup_place(place, sizeof place);
    assert_string_equal(place, at("env"));
    folder("env/lib/python3.11/site-packages/ipykernel");
    assert_false(guest_is_set_up(place));
    file("env/carrel-setup", "");
    assert_true(guest_is_set_up(place));
    assert_true(guest_find_python(found, sizeof found));
    assert_string_equal(found, at("env/bin/python"));
    unsetenv("CARREL_ENVIRONMENT");
}

static void test_paths_are_cut_and_followed(void **state)
{
    char path[256] = "/a/b/c";

    (void)state;
    guest_cut(path, 2);
    assert_string_equal(path, "/a");
    guest_cut(path, 1);
    assert_string_equal(path, "");
    snprintf(path, sizeof path, "%s", at("base/bin/python3"));
    assert_true(guest_follow(path, sizeof path));
    assert_string_equal(path, at("base/bin/python3.11"));
    assert_false(guest_follow(path, sizeof path));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_packages_are_found_where_an_interpreter_has_them, make, clear),
        cmocka_unit_test_setup_teardown(test_packages_of_another_version_are_not_taken, make, clear),
        cmocka_unit_test_setup_teardown(test_the_interpreter_that_is_named_is_taken_as_it_is, make, clear),
        cmocka_unit_test_setup_teardown(test_what_was_set_up_counts_when_it_is_whole, make, clear),
        cmocka_unit_test_setup_teardown(test_paths_are_cut_and_followed, make, clear),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
