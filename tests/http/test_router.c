/* Patterns against paths. */
#include <errno.h>

#include "http/router.h"
#include "unit.h"

static void nothing(struct http_request *r, const struct http_match *m, void *owner)
{
    (void)r;
    (void)m;
    (void)owner;
}

static const struct http_route table[] = {
    { "GET", "/", nothing },
    { "GET", "/v1/boxes", nothing },
    { "POST", "/v1/boxes", nothing },
    { "GET", "/v1/boxes/{id}", nothing },
    { "DELETE", "/v1/boxes/{id}", nothing },
    { "POST", "/v1/boxes/{id}/exec", nothing },
    { "GET", "/v1/boxes/{id}/files/{path...}", nothing },
    { "GET", "/v1/boxes/all", nothing },
    { "GET", "/v1/{kind}/count", nothing },
    { "GET", "/static/{path...}", nothing },
};

static struct arena arena;
static struct http_router *router;
static struct http_match match;

static int find(const char *method, const char *path)
{
    return http_router_find(router, &arena, (struct http_text){ method, strlen(method) },
                            (struct http_text){ path, strlen(path) }, &match);
}

static void test_patterns_match(void **state)
{
    static const struct { const char *method, *path, *pattern; } cases[] = {
        { "GET", "/", "/" },
        { "GET", "/v1/boxes", "/v1/boxes" },
        { "POST", "/v1/boxes", "/v1/boxes" },
        { "GET", "/v1/boxes/b1", "/v1/boxes/{id}" },
        { "HEAD", "/v1/boxes/b1", "/v1/boxes/{id}" },
        { "GET", "/v1/boxes/all", "/v1/boxes/all" },
        { "POST", "/v1/boxes/all/exec", "/v1/boxes/{id}/exec" },       /* back from the literal "all" */
        { "GET", "/v1/volumes/count", "/v1/{kind}/count" },
        { "GET", "/v1/boxes/b1/files/", "/v1/boxes/{id}/files/{path...}" },
        { "GET", "/v1/boxes/b1/files", "/v1/boxes/{id}/files/{path...}" },
        { "GET", "/v1/boxes/b1/files/a/b/c", "/v1/boxes/{id}/files/{path...}" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(find(cases[i].method, cases[i].path), 200);
        assert_string_equal(match.route->pattern, cases[i].pattern);
    }
}

static void test_parameters_are_unescaped_one_segment_at_a_time(void **state)
{
    (void)state;
    assert_int_equal(find("POST", "/v1/boxes/a%2Fb%20c/exec"), 200);
    assert_string_equal(http_match_get(&match, "id").data, "a/b c");
    assert_int_equal(find("GET", "/v1/boxes/x/files/d%20e/f"), 200);
    assert_string_equal(http_match_get(&match, "id").data, "x");
    assert_string_equal(http_match_get(&match, "path").data, "d e/f");
    assert_true(http_text_is(match.raw_rest, "d%20e/f"));
    assert_int_equal(find("GET", "/static"), 200);
    assert_int_equal(http_match_get(&match, "path").size, 0);
    assert_int_equal(http_match_get(&match, "none").size, 0);
}

static void test_unknown_paths_and_methods(void **state)
{
    (void)state;
    assert_int_equal(find("GET", "/v1"), 404);
    assert_int_equal(find("GET", "/v1/"), 404);
    assert_int_equal(find("GET", "/v1/boxes/"), 404);
    assert_int_equal(find("GET", "//v1/boxes"), 404);
    assert_int_equal(find("GET", "/v1/boxes//files/a"), 404);
    assert_int_equal(find("GET", "/v%31/boxes"), 404);
    assert_int_equal(find("GET", "*"), 404);
    assert_int_equal(find("PUT", "/v1/boxes"), 405);
    assert_string_equal(match.allow, "GET, HEAD, POST");
    assert_int_equal(find("GET", "/v1/boxes/b1/exec"), 405);
    assert_string_equal(match.allow, "POST");
    assert_int_equal(find("get", "/v1/boxes"), 405);
}

static void test_bad_tables_are_refused(void **state)
{
    static const struct http_route bad[][2] = {
        { { "GET", "no-slash", nothing }, { "GET", "/", nothing } },
        { { "GET", "", nothing }, { "GET", "/", nothing } },
        { { "GET", "/a/{b}", nothing }, { "GET", "/a/{c}", nothing } },
        { { "GET", "/a/{b...}/c", nothing }, { "GET", "/", nothing } },
        { { "GET", "/{a}/{b}/{c}/{d}/{e}/{f}/{g}/{h}/{i}", nothing }, { "GET", "/", nothing } },
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct http_router *t;
        assert_int_equal(http_router_new(bad[i], 2, &t), -EINVAL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_patterns_match),
        cmocka_unit_test(test_parameters_are_unescaped_one_segment_at_a_time),
        cmocka_unit_test(test_unknown_paths_and_methods),
        cmocka_unit_test(test_bad_tables_are_refused),
    };
    arena_init(&arena, NULL, 0);
    if (http_router_new(table, sizeof table / sizeof *table, &router) < 0)
        return 1;
    int r = cmocka_run_group_tests(tests, NULL, NULL);
    http_router_free(router);
    arena_reset(&arena);
    return r;
}
