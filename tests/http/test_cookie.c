/* Cookies of a server behind the proxy, which has a path of the origin and not all of it. */
#include "http/proxy_private.h"
#include "unit.h"

#define HERE  "/v1/boxes/job/ports/80"
#define ALIAS "/v1/boxes/b1/ports/80"

static struct arena arena;

static const char *confine(const char *cookie, bool at_top)
{
    const char *made = "";

    assert_int_equal(proxy_cookie_confine(&arena, (struct http_text){ cookie, strlen(cookie) }, HERE, ALIAS, at_top,
                                          &made), 0);
    return made;
}

static void test_a_path_is_below_the_servers_own(void **state)
{
    static const struct { const char *cookie, *made; } cases[] = {
        { "a=b; Path=/", "a=b; Path=" HERE },
        { "a=b;Path=/;HttpOnly", "a=b;HttpOnly; Path=" HERE },
        { "a=b; path=/app; Max-Age=60; SameSite=Lax", "a=b; Max-Age=60; SameSite=Lax; Path=" HERE "/app" },
        { "a=b; PATH=/; Expires=Wed, 09 Jun 2031 10:18:14 GMT",
          "a=b; Expires=Wed, 09 Jun 2031 10:18:14 GMT; Path=" HERE },
        { "a=b; \tPath \t= \t/\t ", "a=b; Path=" HERE },
        { "a=b; Path=/x; Path=/", "a=b; Path=" HERE },                         /* the last counts */
        { "a=b; Path=/; Path=/x", "a=b; Path=" HERE "/x" },
        { "a=\"x; Path=/; y\"", "a=\"x; y\"; Path=" HERE },                    /* quotes mean nothing to browsers */
        { "a=Path=/; Path=/", "a=Path=/; Path=" HERE },                        /* a value is no attribute */
        { "Path=/", "Path=/" },                                                /* nor is a name */
        { "Path=/; Path=/", "Path=/; Path=" HERE },
        { "a=b; Path=/../../..", "a=b; Path=" HERE "/../../.." },
        { "__Secure-a=b; Secure; Path=/", "__Secure-a=b; Secure; Path=" HERE },
        { "=__Host-a=b; Path=/", "=__Host-a=b; Path=" HERE },
        { "; Path=/", "; Path=" HERE },
        { "a=b; Pathology=/; XPath=/", "a=b; Pathology=/; XPath=/" },
        { "", "" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_string_equal(confine(cases[i].cookie, false), cases[i].made);
        arena_reset(&arena);
    }
}

static void test_a_server_that_knows_its_path_is_understood(void **state)
{
    static const struct { const char *path, *made; } cases[] = {
        { HERE, HERE }, { HERE "/", HERE "/" }, { HERE "/app", HERE "/app" },
        { ALIAS, ALIAS }, { ALIAS "/app", ALIAS "/app" },
        { HERE "80", HERE HERE "80" },                  /* another port */
        { ALIAS "80/", HERE ALIAS "80/" },
        { "/v1/boxes/job/ports", HERE "/v1/boxes/job/ports" },
        { "/v1/boxes/other/ports/80", HERE "/v1/boxes/other/ports/80" },
    };
    char cookie[200], made[200];
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(cookie, sizeof cookie, "a=b; Path=%s", cases[i].path);
        snprintf(made, sizeof made, "a=b; Path=%s", cases[i].made);
        assert_string_equal(confine(cookie, false), made);
        arena_reset(&arena);
    }
}

/* A browser's own choice is the folder of what it asked for; that of the server's top is already outside. */
static void test_without_a_path_it_is_the_browsers_choice_below_the_top(void **state)
{
    static const char *const none[] = { "a=b", "a=b; Path", "a=b; Path=", "a=b; Path=app", "a=b; Path=/; Path=" };
    (void)state;
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        assert_string_equal(confine(none[i], false), "a=b");
        assert_string_equal(confine(none[i], true), "a=b; Path=" HERE);
        arena_reset(&arena);
    }
}

static void test_a_domain_is_taken_out(void **state)
{
    (void)state;
    assert_string_equal(confine("a=b; Domain=localhost; Secure; domain=.example.org; DOMAIN", false), "a=b; Secure");
    arena_reset(&arena);
}

static void test_what_must_hold_for_the_whole_origin_is_refused(void **state)
{
    static const char *const all[] = { "__Host-a=b; Secure; Path=/", "__host-a=b", " \t__HOST-=b", "__Host-a" };
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        assert_null(confine(all[i], false));
    arena_reset(&arena);
}

/* Browsers overlook an attribute of more than 1024 bytes. */
static void test_a_path_that_a_browser_would_not_take_is_the_top(void **state)
{
    char cookie[4096], path[2048] = "/", made[4096];
    (void)state;
    memset(path + 1, 'x', 1024 - strlen(HERE) - 1);
    snprintf(cookie, sizeof cookie, "a=b; Path=%s", path);
    snprintf(made, sizeof made, "a=b; Path=" HERE "%s", path);
    assert_string_equal(confine(cookie, true), made);
    snprintf(cookie, sizeof cookie, "a=b; Path=%sx", path);
    assert_string_equal(confine(cookie, true), "a=b; Path=" HERE);
    memset(path, 'x', sizeof path - 1);
    memcpy(path, HERE "/", strlen(HERE "/"));
    snprintf(cookie, sizeof cookie, "a=b; Path=%s", path);
    assert_string_equal(confine(cookie, true), "a=b; Path=" HERE);
    arena_reset(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_path_is_below_the_servers_own),
        cmocka_unit_test(test_a_server_that_knows_its_path_is_understood),
        cmocka_unit_test(test_without_a_path_it_is_the_browsers_choice_below_the_top),
        cmocka_unit_test(test_a_domain_is_taken_out),
        cmocka_unit_test(test_what_must_hold_for_the_whole_origin_is_refused),
        cmocka_unit_test(test_a_path_that_a_browser_would_not_take_is_the_top),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
