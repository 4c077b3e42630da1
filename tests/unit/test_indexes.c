#include "unit/unit.h"

#include "box/indexes.h"

static void check(enum index_kind kind, const char *text, const char *left, unsigned dropped)
{
    struct buf out;

    buf_init(&out, 4096);
    assert_int_equal(indexes_clean(kind, text, &out), dropped);
    assert_string_equal(buf_string(&out), left);
    buf_done(&out);
}

static void test_pip_keeps_addresses_and_no_secret(void **state)
{
    (void)state;
    check(INDEX_PIP,
          "[global]\n# token hunter2\nindex-url = https://index.example.org/simple\nextra_index_url =\n"
          "    https://a.example.org/simple\n    https://me:hunter2@b.example.org/simple\n    https://c.example.org/\n"
          "password = hunter2\n[install]\nindex-url = https://other.example.org/\ntrusted-host = a.example.org\n",
          "index-url = https://index.example.org/simple\nextra-index-url = https://a.example.org/simple\n"
          "    https://c.example.org/\ntrusted-host = a.example.org\n", 1 + 0);
    check(INDEX_PIP, "[global]\nindex-url = https://__token__:hunter2@index.example.org/simple\n", "", 1);
    check(INDEX_PIP, "index-url=https://index.example.org/simple?key=hunter2", "", 1);
    check(INDEX_PIP, "index-url: http://index.example.org:8080/simple/\r\n",
          "index-url = http://index.example.org:8080/simple/\n", 0);
    check(INDEX_PIP, "[global]\ncert = /etc/x\n    https://continued.example.org/\nno-index = true\n", "", 0);
}

static void test_npm_keeps_registries_and_no_token(void **state)
{
    (void)state;
    check(INDEX_NPM,
          "//npm.example.org/:_authToken=hunter2\nregistry = "
          "https://npm.example.org/\n@us:registry=https://us.example.org/npm/\n"
          "_auth=hunter2\nemail=me@example.org\n; registry=https://old.example.org\n",
          "registry=https://npm.example.org/\n@us:registry=https://us.example.org/npm/\n", 0);
    check(INDEX_NPM, "registry=https://${NPM_TOKEN}@npm.example.org/\n@a\tb:registry=https://x.example.org/\n", "", 1);
}

static void test_uv_keeps_indexes(void **state)
{
    (void)state;
    check(INDEX_UV,
          "index-url = \"https://index.example.org/simple\"\n[pip]\nindex-url = \"https://not.example.org/\"\n"
          "[[index]]\nname = \"us\"\nurl = \"https://us.example.org/simple\"\ndefault = true\n"
          "[[index]]\nurl = \"https://me:hunter2@x.example.org/\"\n[[index]]\nurl = \"https://y.example.org/\"",
          "index-url = \"https://index.example.org/simple\"\n[[index]]\nurl = \"https://us.example.org/simple\"\n"
          "default = true\n[[index]]\nurl = \"https://y.example.org/\"\n", 1);
    check(INDEX_UV, "index-url = \"https://a.example.org/\nindex-url = 7\n", "", 2);
}

static void test_apt_drops_a_line_or_a_paragraph(void **state)
{
    (void)state;
    check(INDEX_APT_LIST,
          "deb http://deb.example.org/debian stable main\n# deb http://x:hunter2@y.example.org/ z\n"
          "deb [signed-by=/usr/share/keyrings/k.gpg] https://me:hunter2@private.example.org/ stable main\n"
          "deb-src http://deb.example.org/debian stable main\nnonsense hunter2\n",
          "deb http://deb.example.org/debian stable main\ndeb-src http://deb.example.org/debian stable main\n", 1);
    check(INDEX_APT_SOURCES,
          "Types: deb\nURIs: http://deb.example.org/debian\n# hunter2\nSuites: stable\n\n"
          "Types: deb\nURIs: https://me:hunter2@private.example.org/\nSuites: stable\n\nTypes: deb\nURIs: "
          "http://c.example.org/\n",
          "Types: deb\nURIs: http://deb.example.org/debian\nSuites: stable\n\nTypes: deb\nURIs: "
          "http://c.example.org/\n\n",
          1);
}

static void test_a_secret_at_the_end_leaves_nothing_behind(void **state)
{
    (void)state;
    check(INDEX_APT_SOURCES,
          "Types: deb\nURIs: http://a.example.org/\n\nTypes: deb\nURIs: https://me:hunter2@b.example.org/\n",
          "Types: deb\nURIs: http://a.example.org/\n\n", 1);
    check(INDEX_APT_SOURCES, "URIs: https://me:hunter2@b.example.org/", "", 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pip_keeps_addresses_and_no_secret),
        cmocka_unit_test(test_npm_keeps_registries_and_no_token),
        cmocka_unit_test(test_uv_keeps_indexes),
        cmocka_unit_test(test_apt_drops_a_line_or_a_paragraph),
        cmocka_unit_test(test_a_secret_at_the_end_leaves_nothing_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
