/* Which Host and Origin pass, as a table of what browsers and attackers send. */
#include <errno.h>

#include "front/identity/auth_host.h"
#include "unit/unit.h"

static struct http_text text_of(const char *text)
{
    return (struct http_text){ text, text ? strlen(text) : 0 };
}

static struct auth_rules rules_of(const char *listen, const char *origin)
{
    struct config config = { 0 };
    struct auth_rules rules;
    struct err e;

    snprintf(config.listen, sizeof config.listen, "%s", listen);
    if (origin)
        snprintf(config.origin[config.n_origins++], sizeof config.origin[0], "%s", origin);
    assert_int_equal(auth_rules_init(&rules, &config, &e), 0);
    return rules;
}

static void test_hosts_are_read(void **state)
{
    static const struct { const char *text, *name; enum host_kind kind; int port; } cases[] = {
        { "localhost", "localhost", HOST_NAME, -1 },
        { "LocalHost:7070", "localhost", HOST_NAME, 7070 },
        { "localhost.", "localhost", HOST_NAME, -1 },
        { "localhost.:80", "localhost", HOST_NAME, 80 },
        { "localhost:", "localhost", HOST_NAME, -1 },
        { "a-b_c.example", "a-b_c.example", HOST_NAME, -1 },
        { "127.0.0.1:65535", "127.0.0.1", HOST_IPV4, 65535 },
        { "127.0.0.1.", "127.0.0.1", HOST_IPV4, -1 },
        { "[::1]:7070", "::1", HOST_IPV6, 7070 },
        { "[0:0:0:0:0:0:0:1]", "::1", HOST_IPV6, -1 },
        { "[::FFFF:127.0.0.1]", "127.0.0.1", HOST_IPV4, -1 },
        { "[::ffff:7f00:1]:1", "127.0.0.1", HOST_IPV4, 1 },
        { "[::127.0.0.1]", "::127.0.0.1", HOST_IPV6, -1 },
        { "0x7f.example", "0x7f.example", HOST_NAME, -1 },
        { "127.0.0.1.example.org", "127.0.0.1.example.org", HOST_NAME, -1 },
    };
    (void)state;

    for (size_t i = 0; i < COUNT(cases); i++) {
        struct host h;
        if (host_parse(text_of(cases[i].text), &h) < 0)
            fail_msg("%s is refused", cases[i].text);
        assert_string_equal(h.name, cases[i].name);
        assert_int_equal(h.kind, cases[i].kind);
        assert_int_equal(h.port, cases[i].port);
    }
}

static void test_hosts_that_are_none(void **state)
{
    static const char *const cases[] = {
        "", ".", "..", ".localhost", "a..b", "localhost..", ":80", "localhost:0", "localhost:65536",
        "localhost:999999", "localhost:8o", "localhost:80:80", "localhost:-1", "localhost:+1", "localhost: 80",
        " localhost", "localhost ", "user@localhost", "u:p@localhost", "localhost/", "localhost/x", "localhost?x",
        "localhost#x", "localhost%00", "local%68ost", "localhost\\", "a,b", "a;b", "*", "127.1", "127.0.1",
        "0177.0.0.1", "127.000.000.001", "0x7f.0.0.1", "0x7f000001", "2130706433", "127.0.0.256", "127.0.0.1.1",
        "1.2.3.4.5", "example.0x7f", "::1", "[::1", "::1]", "[::1]x", "[::1]80", "[]", "[]:80", "[127.0.0.1]",
        "[::1%lo]", "[::1%25lo]", "[localhost]", "[::g]", "[[::1]]", "loc\xc3\xa4lhost", "localhost\t", "a\nb",
    };
    char label[80], name[400];
    struct host h;
    (void)state;

    for (size_t i = 0; i < COUNT(cases); i++)
        if (host_parse(text_of(cases[i]), &h) != -EINVAL)
            fail_msg("%s is accepted as %s", cases[i], h.name);
    assert_int_equal(host_parse((struct http_text){ "localhost\0.evil", 15 }, &h), -EINVAL);
    assert_int_equal(host_parse((struct http_text){ NULL, 0 }, &h), -EINVAL);
    memset(label, 'a', 64);
    label[64] = 0;
    assert_int_equal(host_parse(text_of(label), &h), -EINVAL);
    label[63] = 0;
    assert_int_equal(host_parse(text_of(label), &h), 0);
    snprintf(name, sizeof name, "%s.%s.%s.%s", label, label, label, label);     /* 255 */
    assert_int_equal(host_parse(text_of(name), &h), -EINVAL);
    assert_int_equal(host_parse(text_of(name + 2), &h), 0);
}

static void test_loopback(void **state)
{
    static const struct { const char *text; bool is_loopback; } cases[] = {
        { "localhost", true }, { "LOCALHOST.:7070", true }, { "8080-b1.localhost", true }, { "127.0.0.1", true },
        { "127.255.255.254", true }, { "[::1]", true }, { "[::ffff:127.0.0.1]", true },
        { "[::ffff:7f01:203]", true }, { "xlocalhost", false }, { "localhost.example", false },
        { "localhost.evil.com", false }, { "128.0.0.1", false }, { "126.255.255.255", false }, { "0.0.0.0", false },
        { "[::]", false }, { "[::2]", false }, { "[::127.0.0.1]", false }, { "[fe80::1]", false },
        { "[::ffff:0.0.0.0]", false }, { "localhost.localdomain", false }, { "127.0.0.1.nip.io", false },
        { "ip6-localhost", false },
    };
    (void)state;

    for (size_t i = 0; i < COUNT(cases); i++) {
        struct host h;
        assert_int_equal(host_parse(text_of(cases[i].text), &h), 0);
        if (host_is_loopback(&h) != cases[i].is_loopback)
            fail_msg("%s", cases[i].text);
    }
}

static void test_host_is_a_name_of_this_server(void **state)
{
    static const struct { const char *listen, *origin, *host; bool allowed; } cases[] = {
        { "127.0.0.1:7070", NULL, "127.0.0.1:7070", true },
        { "127.0.0.1:7070", NULL, "localhost:9999", true },     /* a forwarded port */
        { "127.0.0.1:7070", NULL, "evil.example:7070", false }, /* DNS rebinding */
        { "127.0.0.1:7070", NULL, "127.0.0.1.nip.io:7070", false },
        { "127.0.0.1:7070", NULL, "localhost.evil.example:7070", false },
        { "127.0.0.1:7070", NULL, "192.0.2.1:7070", false },
        { "127.0.0.1:7070", NULL, "0.0.0.0:7070", false },
        { "127.0.0.1:7070", NULL, "[::]:7070", false },
        { "[::1]:7070", NULL, "[::1]:7070", true },
        { "192.0.2.1:7070", NULL, "192.0.2.1:7070", true },
        { "192.0.2.1:7070", NULL, "[::ffff:192.0.2.1]:7070", true },
        { "192.0.2.1:7070", NULL, "192.0.2.2:7070", false },
        { "192.0.2.1:7070", NULL, "my-server:7070", false },
        { "0.0.0.0:7070", NULL, "192.0.2.9:7070", true },
        { "0.0.0.0:7070", NULL, "[2001:db8::1]:7070", true },
        { "0.0.0.0:7070", NULL, "0.0.0.0:7070", false },
        { "[::]:7070", NULL, "192.0.2.9", true },
        { "[::]:7070", NULL, "evil.example", false },
        { "127.0.0.1:7070", "https://carrel.example", "carrel.example", true },
        { "127.0.0.1:7070", "https://carrel.example", "CARREL.example.:443", true },
        { "127.0.0.1:7070", "https://carrel.example", "x.carrel.example", false },
        { "", NULL, "localhost", true },
        { "", NULL, "192.0.2.1", false },
    };
    (void)state;

    for (size_t i = 0; i < COUNT(cases); i++) {
        struct auth_rules rules = rules_of(cases[i].listen, cases[i].origin);
        struct host h;
        assert_int_equal(host_parse(text_of(cases[i].host), &h), 0);
        if (auth_host_allowed(&rules, &h) != cases[i].allowed)
            fail_msg("listen %s, host %s", cases[i].listen, cases[i].host);
    }
}

static void test_origins_that_are_none(void **state)
{
    static const char *const cases[] = {
        "", "null", "localhost", "//localhost", "http:", "http://", "http:localhost", "http:/localhost",
        "ftp://localhost", "file://", "file:///etc/passwd", "chrome-extension://abc", "http://localhost/",
        "http://localhost/x", "http://localhost?x", "http://localhost#", "http://user@localhost",
        "http://localhost:7070@evil.example", "http://localhost:0", "http://local host",
        "http://localhost, http://evil.example", "http://localhost http://evil.example", "http://::1",
        "http://127.1", "javascript:alert(1)", "httpx://localhost", "https//localhost",
    };
    struct origin o;
    (void)state;

    for (size_t i = 0; i < COUNT(cases); i++)
        if (origin_parse(text_of(cases[i]), &o) != -EINVAL)
            fail_msg("%s is accepted", cases[i]);
}

static void test_origin_is_that_of_host_or_configured(void **state)
{
    static const struct { const char *origin, *host; bool allowed; } cases[] = {
        { "http://localhost:7070", "localhost:7070", true },
        { "HTTP://LOCALHOST:7070", "localhost:7070", true },
        { "http://[::1]:7070", "[0::1]:7070", true },
        { "http://localhost", "localhost", true },
        { "http://localhost:80", "localhost", true },
        { "https://localhost", "localhost", true },             /* a TLS proxy before us */
        { "https://localhost", "localhost:443", true },
        { "https://localhost", "localhost:80", false },
        { "http://localhost", "localhost:7070", false },
        { "http://localhost:7071", "localhost:7070", false },   /* another program on this machine */
        { "http://127.0.0.1:7070", "localhost:7070", false },
        { "http://8080-b1.localhost:7070", "localhost:7070", false },   /* what runs in a box */
        { "http://localhost:7070", "8080-b1.localhost:7070", false },
        { "http://evil.example", "localhost:7070", false },
        { "http://localhost.evil.example:7070", "localhost:7070", false },
        { "https://app.example", "localhost:7070", true },      /* configured */
        { "https://app.example:443", "localhost:7070", true },
        { "https://APP.example.", "localhost:7070", true },
        { "http://app.example", "localhost:7070", false },
        { "https://app.example:8443", "localhost:7070", false },
        { "https://x.app.example", "localhost:7070", false },
        { "https://app.example.evil.example", "localhost:7070", false },
    };
    struct auth_rules rules = rules_of("127.0.0.1:7070", "https://app.example");
    (void)state;

    for (size_t i = 0; i < COUNT(cases); i++) {
        struct origin o;
        struct host h;
        assert_int_equal(host_parse(text_of(cases[i].host), &h), 0);
        assert_int_equal(origin_parse(text_of(cases[i].origin), &o), 0);
        if (auth_origin_allowed(&rules, &o, &h) != cases[i].allowed)
            fail_msg("origin %s, host %s", cases[i].origin, cases[i].host);
    }
}

static void test_origins_are_written_in_one_way(void **state)
{
    static const char *const cases[][2] = {
        { "https://A.example.:443", "https://a.example" },
        { "http://a:80", "http://a" },
        { "http://a:443", "http://a:443" },
        { "https://[0::1]:7", "https://[::1]:7" },
        { "http://[::ffff:127.0.0.1]", "http://127.0.0.1" },
    };
    char text[300];
    (void)state;

    for (size_t i = 0; i < COUNT(cases); i++) {
        struct origin o;
        assert_int_equal(origin_parse(text_of(cases[i][0]), &o), 0);
        origin_format(&o, text, sizeof text);
        assert_string_equal(text, cases[i][1]);
    }
}

static void test_where_a_request_comes_from(void **state)
{
    static const struct {
        bool is_unix, is_post, many;
        const char *host, *origin, *site, *mode, *dest;
        int status;
    } cases[] = {
        /* programs */
        { false, false, false, "localhost:7070", NULL, NULL, NULL, NULL, 0 },
        { false, false, false, "evil.example:7070", NULL, NULL, NULL, NULL, 403 },
        { false, false, false, "u@localhost", NULL, NULL, NULL, NULL, 403 },
        { false, false, false, "", NULL, NULL, NULL, NULL, 403 }, /* HTTP/1.0 */
        /* a unix socket: any Host, but no foreign page through a forwarder */
        { true, false, false, "", NULL, NULL, NULL, NULL, 0 },
        { true, true, false, "whatever", NULL, NULL, NULL, NULL, 0 },
        { true, false, false, "localhost", "http://localhost", NULL, NULL, NULL, 0 },
        { true, false, false, "whatever", "https://app.example", NULL, NULL, NULL, 403 },
        { true, false, false, "localhost", "https://app.example", NULL, NULL, NULL, 0 },
        { true, false, false, "localhost", "http://evil.example", NULL, NULL, NULL, 403 },
        { true, false, false, "evil.example", "http://evil.example", NULL, NULL, NULL, 403 },
        { true, false, false, "localhost", "null", NULL, NULL, NULL, 403 },
        { true, false, false, "localhost", NULL, "cross-site", "no-cors", "image", 403 },
        /* pages */
        { false, true, false, "localhost:7070", "http://localhost:7070", "same-origin", "cors", "empty", 0 },
        { false, true, false, "localhost:7070", "https://app.example", "cross-site", "cors", "empty", 0 },
        { false, true, false, "localhost:7070", "http://evil.example", "cross-site", "cors", "empty", 403 },
        { false, true, false, "evil.example:7070", "http://evil.example:7070", "same-origin", "cors", "empty",
          403 }, /* rebinding */
        { false, true, false, "localhost:7070", "null", NULL, NULL, NULL, 403 },
        { false, true, false, "localhost:7070", "", NULL, NULL, NULL, 403 },
        { false, true, true, "localhost:7070", "http://localhost:7070", NULL, NULL, NULL, 403 },
        { false, false, false, "localhost:7070", NULL, "same-origin", "no-cors", "image", 0 },
        { false, false, false, "localhost:7070", NULL, "none", "navigate", "document", 0 },
        { false, false, false, "localhost:7070", NULL, "cross-site", "navigate", "document", 0 }, /* a link */
        { false, false, false, "localhost:7070", NULL, "cross-site", "navigate", "iframe", 403 },
        { false, true, false, "localhost:7070", NULL, "cross-site", "navigate", "document", 403 }, /* a form */
        { false, false, false, "localhost:7070", NULL, "cross-site", "no-cors", "image", 403 },
        { false, false, false, "localhost:7070", NULL, "same-site", "no-cors", "script",
          403 }, /* another port of localhost */
        { false, false, false, "localhost:7070", NULL, "nonsense", NULL, NULL, 403 },
        { false, false, false, "localhost:7070", NULL, "", NULL, NULL, 403 },
    };
    struct auth_rules rules = rules_of("127.0.0.1:7070", "https://app.example");
    (void)state;

    for (size_t i = 0; i < COUNT(cases); i++) {
        struct auth_source source = {
            .is_unix = cases[i].is_unix, .is_get = !cases[i].is_post, .many_origins = cases[i].many,
            .host = text_of(cases[i].host), .origin = text_of(cases[i].origin), .site = text_of(cases[i].site),
            .mode = text_of(cases[i].mode), .dest = text_of(cases[i].dest),
        };
        const char *why = NULL;
        int status = auth_source_check(&rules, &source, &why);
        if (status != cases[i].status)
            fail_msg("case %zu: host %s, origin %s gives %d (%s)", i, cases[i].host, cases[i].origin, status,
                     why ? why : "");
        assert_int_equal(why != NULL, status != 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hosts_are_read),
        cmocka_unit_test(test_hosts_that_are_none),
        cmocka_unit_test(test_loopback),
        cmocka_unit_test(test_host_is_a_name_of_this_server),
        cmocka_unit_test(test_origins_that_are_none),
        cmocka_unit_test(test_origin_is_that_of_host_or_configured),
        cmocka_unit_test(test_origins_are_written_in_one_way),
        cmocka_unit_test(test_where_a_request_comes_from),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
