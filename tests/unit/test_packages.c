/* Lists of packages: what is one requirement and what are several, files, refusals, keys; trees that go; layers. */
#include "unit/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/rmtree.h"
#include "proto/packages.h"

#define A_HASH "sha256:00000000000000000000000000000000000000000000000000000000000000aa"
#define B_HASH "sha256:00000000000000000000000000000000000000000000000000000000000000BB"

static void check_list(const char *words, const char *const *expected)
{
    struct packages p = { 0 };
    struct err e = { 0 };
    size_t n = 0;

    assert_int_equal(packages_add(&p, "--packages", words, &e), 0);
    for (; expected[n]; n++) {
        assert_true(n < p.n);
        assert_string_equal(p.line[n], expected[n]);
    }
    assert_int_equal(p.n, n);
    packages_done(&p);
}

static void test_commas_and_spaces_separate_packages_and_not_versions(void **state)
{
    (void)state;
    check_list("numpy", (const char *[]){ "numpy", NULL });
    check_list("numpy<2,pandas", (const char *[]){ "numpy<2", "pandas", NULL });
    check_list("numpy>=1,<2 pandas", (const char *[]){ "numpy>=1,<2", "pandas", NULL });
    check_list("numpy >= 1, < 2, pandas", (const char *[]){ "numpy >= 1, < 2", "pandas", NULL });
    check_list("httpx[http2,socks]>0.2 , rich", (const char *[]){ "httpx[http2,socks]>0.2", "rich", NULL });
    check_list("x==1.0; python_version < '3.9'", (const char *[]){ "x==1.0; python_version < '3.9'", NULL });
    check_list("a==1.*,b~=2.0,c!=3", (const char *[]){ "a==1.*", "b~=2.0", "c!=3", NULL });
}

static void test_options_addresses_and_paths_are_refused(void **state)
{
    static const char *const bad[] = {
        "", "  ", "-r other.txt", "--index-url=x", "./here", "/abs", "x @ https://y/z", "https://y/z", "git+ssh://y",
        "name with spaces --pre", "x==1 --config-settings a=b", "x\001", "-", "x[",
        "x==1 --hash=sha256:aa", "x==1 --hash=md5:00000000000000000000000000000000",
        "x==1 --hash=" A_HASH "0", "x==1\t--index-url=y", "x==1\t--hash=md5:0"
    };
    (void)state;

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct packages p = { 0 };
        struct err e = { 0 };
        if (packages_add(&p, "--packages", bad[i], &e) == 0)
            fail_msg("'%s' was taken", bad[i]);
        assert_true(strstr(e.what, "--packages") == e.what);
        packages_done(&p);
    }
}

static void test_a_file_has_comments_continued_lines_and_hashes(void **state)
{
    static const char text[] = "# a lock\nnumpy==1.26.4 \\\n    --hash=" A_HASH " \\\n    --hash=" B_HASH "\n\n"
                               "pandas  # why\r\nc#d\n";
    struct packages p = { 0 };
    struct err e = { 0 };
    (void)state;

    assert_int_not_equal(packages_add_file(&p, "lock.txt", text, &e), 0);
    assert_non_null(strstr(e.what, "lock.txt, line 7"));
    packages_done(&p);
    assert_int_equal(packages_add_file(&p, "lock.txt", "numpy==1 \\\n --hash=" A_HASH "\n# x\npandas # why\n", &e), 0);
    assert_int_equal(p.n, 2);
    assert_non_null(strstr(p.line[0], "numpy==1"));
    assert_non_null(strstr(p.line[0], "--hash=" A_HASH));
    assert_string_equal(p.line[1], "pandas");
    packages_done(&p);
}

static void test_the_order_of_a_list_does_not_change_its_key(void **state)
{
    struct packages a = { 0 }, b = { 0 };
    struct err e = { 0 };
    char one[SHA256_HEX + 1], other[SHA256_HEX + 1];
    (void)state;

    assert_int_equal(packages_add(&a, "x", "numpy<2,pandas,pandas", &e), 0);
    assert_int_equal(packages_add(&b, "x", "pandas numpy<2", &e), 0);
    packages_sort(&a);
    packages_sort(&b);
    packages_key(&a, "/usr/bin/python3.11", "https://index.example.org", one);
    packages_key(&b, "/usr/bin/python3.11", "https://index.example.org", other);
    assert_string_equal(one, other);
    packages_key(&b, "/usr/bin/python3.12", "https://index.example.org", other);
    assert_string_not_equal(one, other);
    packages_key(&b, "/usr/bin/python3.11", "https://other.example.org", other);
    assert_string_not_equal(one, other);
    packages_done(&a);
    packages_done(&b);
}

static void test_an_owner_is_a_plain_name(void **state)
{
    char owner[PACKAGES_OWNER];
    (void)state;

    packages_owner("uid:1000", owner);
    assert_string_equal(owner, "uid-1000");
    packages_owner("uid:../../x", owner);
    assert_true(strncmp(owner, "id-", 3) == 0 && !strchr(owner, '/') && !strchr(owner, '.'));
}

static void test_a_deep_tree_and_one_with_links_is_removed_and_nothing_else(void **state)
{
    char place[] = "/tmp/carrel-rmtree-XXXXXX";
    (void)state;

    assert_non_null(mkdtemp(place));
    FD top = open(place, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(mkdirat(top, "keep", 0755), 0);
    assert_int_equal(mkdirat(top, "tree", 0755), 0);
    FD deep = openat(top, "tree", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(symlinkat("../keep", deep, "link"), 0);
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(mkdirat(deep, "d", 0700), 0);
        assert_int_equal(mkdirat(deep, "e", 0), 0);
        int next = openat(deep, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_true(next >= 0);
        fd_close(deep);
        deep = next;
    }
    assert_true(rmtree_bytes(top, "tree", UINT64_MAX) > 0);
    assert_int_equal(rmtree(top, "tree"), 0);
    assert_int_equal(faccessat(top, "tree", F_OK, 0), -1);
    assert_int_equal(faccessat(top, "keep", F_OK, 0), 0);
    assert_int_equal(rmtree(top, "tree"), 0);
    assert_int_equal(rmtree(AT_FDCWD, place), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_commas_and_spaces_separate_packages_and_not_versions),
        cmocka_unit_test(test_options_addresses_and_paths_are_refused),
        cmocka_unit_test(test_a_file_has_comments_continued_lines_and_hashes),
        cmocka_unit_test(test_the_order_of_a_list_does_not_change_its_key),
        cmocka_unit_test(test_an_owner_is_a_plain_name),
        cmocka_unit_test(test_a_deep_tree_and_one_with_links_is_removed_and_nothing_else),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
