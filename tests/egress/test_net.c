/* Rules of the network as text, and what they decide, as tables. */
#include "unit/unit.h"

#include "proto/net.h"

static void test_a_rule_is_read_and_shown_in_its_shortest_form(void **state)
{
    static const struct {
        const char *text, *shown;
    } cases[] = {
        { "index.example.org", "index.example.org" },
        { "INDEX.Example.org.", "index.example.org" },
        { "*.example.org:443", "*.example.org:443" },
        { "a:1-65535", "a:1-65535" },
        { "_dmarc.a-b.c:80-80", "_dmarc.a-b.c:80" },
        { "10.1.0.0/16:5432", "10.1.0.0/16:5432" },
        { "10.1.2.3", "10.1.2.3" },
        { "10.1.2.3/32", "10.1.2.3" },
        { "0.0.0.0/0", "0.0.0.0/0" },
        { "::/0", "::/0" },
        { "2001:db8::1", "2001:db8::1" },
        { "2001:db8::/32", "2001:db8::/32" },
        { "[2001:db8::/32]:8000-8010", "[2001:db8::/32]:8000-8010" },
        { "2001:db8::1/128", "2001:db8::1" },
        { "::ffff:192.0.2.2", "192.0.2.2" },
        { "[::ffff:192.0.2.2]:80", "192.0.2.2:80" },
        { "::ffff:10.0.0.0/104", "10.0.0.0/8" },
        { "::ffff:0:192.0.2.2", "192.0.2.2" },
        { "::192.0.2.2", "192.0.2.2" },
        { "64:ff9b::192.0.2.0/120", "192.0.2.0/24" },
        { "[2002:c000:202::/48]:80-90", "192.0.2.2:80-90" },
        { "2002:c000:202:1::1", "192.0.2.2" },
        { "2002:a00::/24", "10.0.0.0/8" },
        { "2000::/3", "2000::/3" },
    };
    struct net_rule rule, again;
    struct err e;
    char shown[NET_RULE_TEXT];

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        if (net_rule_parse("--allow", cases[i].text, false, &rule, &e) < 0)
            fail_msg("%s: %s", cases[i].text, e.what);
        net_rule_show(&rule, shown);
        assert_string_equal(shown, cases[i].shown);
        assert_int_equal(net_rule_parse("--allow", shown, false, &again, &e), 0);
        assert_memory_equal(&rule, &again, sizeof rule);
    }
}

static void test_what_is_no_rule_is_refused_with_its_position(void **state)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        { "", "character 1" },
        { "*", "network 'public'" },
        { "a.*.b", "character 3: a star may only be the first label" },
        { "a..b", "character 3" },
        { ".a", "character 1" },
        { "a b", "character 2" },
        { "https://a.b/c", "character 6: a rule has no scheme" },
        { "localhost:80", "in a box that is the box itself; a server of the host is host.carrel.internal" },
        { "*.localhost:80", "must be named exactly" },
        { "*.carrel.internal", "must be named exactly" },
        { "*.a.carrel.internal", "must be named exactly" },
        { "a:", "character 3" },
        { "a:x", "character 3" },
        { "a:0", "character 3" },
        { "a:65536", "character 3" },
        { "a:9-8", "character 3" },
        { "a:80x", "character 5" },
        { "10.1.2.3/16", "bits beyond its network" },
        { "198.18.0.0/15:80", "character 1: addresses of 198.18.0.0/15 stand for names" },
        { "198.19.255.1", "stand for names" },
        { "::ffff:198.18.0.1", "character 1: addresses of 198.18.0.0/15 stand for names" },
        { "::ffff:0:0/96", "character 1: IPv4 addresses in this notation are judged as IPv4; write 0.0.0.0/0" },
        { "[64:ff9b::/96]:80", "character 2: IPv4 addresses in this notation are judged as IPv4; write 0.0.0.0/0" },
        { "::/104", "write 0.0.0.0/8" },
        { "2002::/16", "write 0.0.0.0/0" },
        { "127.0.0.1:80", "character 1: in a box that is the box itself; a server of the host is host.carrel" },
        { "127.0.0.0/8", "host.carrel.internal" },
        { "[::1]:80", "character 2: in a box that is the box itself" },
        { "::ffff:127.0.0.1", "in a box that is the box itself" },
        { "10.0.0.0/33", "character 10" },
        { "10.0.0.0/", "character 10" },
        { "[10.0.0.1]:80", "character 2" },
        { "[::1", "character 2" },
        { "[::1]x", "character 6" },
        { "a\x80", "character 2: letters beyond ASCII are written as DNS has them" },
        { "10.1.2.300", "character 8: a name does not end in a number" },
        { "10.1.0.1.", "character 8" },
        { "10.1:80", "character 4" },
        { "*.10", "character 3" },
        { "7", "character 1" },
    };
    struct net_rule rule;
    struct err e;

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        if (net_rule_parse("--allow", cases[i].text, false, &rule, &e) == 0)
            fail_msg("%s was read", cases[i].text);
        assert_int_equal(e.step, STEP_USAGE);
        if (!strstr(e.what, cases[i].says))
            fail_msg("%s: %s", cases[i].text, e.what);
    }
}

static void test_what_reaches_nothing_may_be_denied(void **state)
{
    static const char *const cases[] = { "127.0.0.1:80", "::1", "localhost", "*.localhost" };
    struct net_rule rule;
    struct err e;

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++)
        if (net_rule_parse("--deny", cases[i], true, &rule, &e) < 0)
            fail_msg("%s: %s", cases[i], e.what);
}

static void test_bounds_are_read_alone_and_together(void **state)
{
    static const struct {
        const char *text;
        uint32_t    connections;
        uint64_t    bytes;
    } good[] = {
        { "connections=10", 10, 0 },
        { "bandwidth=4M", 0, 4 << 20 },
        { "connections=65536,bandwidth=1k", 65536, 1024 },
        { "bandwidth=1k,connections=1", 1, 1024 },
    };
    static const char *const bad[] = { "", ",", "connections", "connections=", "connections=0", "connections=65537",
                                       "bandwidth=1", "bandwidth=x", "connections=1,", "speed=3",
                                       "connections=1;bandwidth=1k" };
    struct err e;

    (void)state;
    for (size_t i = 0; i < COUNT(good); i++) {
        struct net_bounds bounds = { 0 };
        assert_int_equal(net_bounds_parse("--net-limit", good[i].text, &bounds, &e), 0);
        assert_int_equal(bounds.connections, good[i].connections);
        assert_int_equal(bounds.bytes_per_second, good[i].bytes);
    }
    for (size_t i = 0; i < COUNT(bad); i++) {
        struct net_bounds bounds = { .connections = 7 };
        if (net_bounds_parse("--net-limit", bad[i], &bounds, &e) == 0)
            fail_msg("%s was read", bad[i]);
        assert_int_equal(e.step, STEP_USAGE);
        assert_non_null(strstr(e.what, "--net-limit"));
        assert_int_equal(bounds.connections, 7);
    }
}

/* "allow" rules, or with a '!' before them "deny" rules, separated by blanks. */
static struct net_policy make_policy(enum net_mode mode, const char *rules)
{
    struct net_policy policy = { .mode = mode };
    struct err e;
    char text[200];

    snprintf(text, sizeof text, "%s", rules);
    for (char *save = NULL, *one = strtok_r(text, " ", &save); one; one = strtok_r(NULL, " ", &save))
        if (net_policy_add(&policy, "rule", one + (*one == '!'), *one == '!', &e) < 0)
            fail_msg("%s", e.what);
    assert_true(net_policy_is_sane(&policy));
    return policy;
}

static void test_names_are_judged_by_rules(void **state)
{
    static const struct {
        enum net_mode  mode;
        const char    *rules, *name;
        uint16_t       port;
        bool           resolves;
        enum net_reach reach;
    } cases[] = {
        { NET_NONE, "", "a.b", 80, false, NET_REFUSED },
        { NET_NONE, "a.b", "a.b", 80, true, NET_BY_NAME },      /* a rule makes it a policy of listed rules */
        { NET_LISTED, "", "a.b", 80, false, NET_REFUSED },
        { NET_LISTED, "a.b", "c.a.b", 80, false, NET_REFUSED },
        { NET_LISTED, "a.b:443", "a.b", 80, true, NET_REFUSED },
        { NET_LISTED, "*.b", "a.b", 80, true, NET_BY_WILDCARD },
        { NET_LISTED, "*.b", "c.a.b", 80, true, NET_BY_WILDCARD },
        { NET_LISTED, "*.b", "b", 80, false, NET_REFUSED },
        { NET_LISTED, "*.b", "ab", 80, false, NET_REFUSED },
        { NET_LISTED, "*.b.c", "xb.c", 80, false, NET_REFUSED },
        { NET_LISTED, "*.b a.b", "a.b", 80, true, NET_BY_NAME },
        { NET_LISTED, "a.b *.b", "a.b", 80, true, NET_BY_NAME },
        { NET_LISTED, "a.b !a.b", "a.b", 80, false, NET_REFUSED },
        { NET_LISTED, "!a.b a.b", "a.b", 80, false, NET_REFUSED },
        { NET_LISTED, "*.b !a.b:25", "a.b", 25, true, NET_REFUSED },
        { NET_LISTED, "*.b !a.b:25", "a.b", 80, true, NET_BY_WILDCARD },
        { NET_LISTED, "a.b !*.b", "a.b", 80, false, NET_REFUSED },
        { NET_PUBLIC, "", "a.b", 80, true, NET_BY_WILDCARD },
        { NET_PUBLIC, "a.b", "a.b", 80, true, NET_BY_NAME },
        { NET_PUBLIC, "!a.b", "a.b", 80, false, NET_REFUSED },
        { NET_LISTED, "10.0.0.0/8", "a.b", 80, false, NET_REFUSED },
        { NET_LISTED, "a.localhost:80", "a.localhost", 80, true, NET_BY_LOOPBACK },
        { NET_LISTED, "host.carrel.internal:80", "host.carrel.internal", 80, true, NET_BY_LOOPBACK },
        { NET_LISTED, "host.carrel.internal:80", "other.carrel.internal", 80, false, NET_REFUSED },
        { NET_LISTED, "host.carrel.internal !*.carrel.internal", "host.carrel.internal", 80, false, NET_REFUSED },
        { NET_LISTED, "*.internal", "host.carrel.internal", 80, false, NET_REFUSED },
        { NET_LISTED, "*.internal", "carrel.internal", 80, true, NET_BY_WILDCARD },
        { NET_PUBLIC, "", "a.localhost", 80, false, NET_REFUSED },
        { NET_PUBLIC, "", "a.carrel.internal", 80, false, NET_REFUSED },
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct net_policy policy = make_policy(cases[i].mode, cases[i].rules);
        if (net_resolves(&policy, cases[i].name) != cases[i].resolves ||
            net_judge_name(&policy, cases[i].name, cases[i].port) != cases[i].reach)
            fail_msg("case %zu: '%s' for %s:%u", i, cases[i].rules, cases[i].name, cases[i].port);
    }
}

static struct net_address address_of(const char *text)
{
    struct net_address address = { 0 };

    if (!net_address_parse(text, &address))
        fail_msg("%s is no address", text);
    return address;
}

static void test_addresses_have_a_class_in_every_notation(void **state)
{
    static const struct {
        const char    *address;
        enum net_class class;
    } cases[] = {
        { "1.1.1.1", NET_IS_PUBLIC },           { "203.0.113.7", NET_IS_PUBLIC },
        { "2001:db8::1", NET_IS_PUBLIC },       { "2606:4700::1", NET_IS_PUBLIC },
        { "10.0.0.1", NET_IS_PRIVATE },         { "172.16.0.1", NET_IS_PRIVATE },
        { "172.31.255.255", NET_IS_PRIVATE },   { "172.32.0.1", NET_IS_PUBLIC },
        { "192.168.1.1", NET_IS_PRIVATE },      { "100.64.0.1", NET_IS_PRIVATE },
        { "fd12::1", NET_IS_PRIVATE },          { "fec0::1", NET_IS_PRIVATE },
        { "::ffff:10.0.0.1", NET_IS_PRIVATE },  { "64:ff9b::a00:1", NET_IS_PRIVATE },
        { "2002:a00:1::1", NET_IS_PRIVATE },    { "64:ff9b:1::1", NET_IS_PRIVATE },
        { "0.0.0.0", NET_IS_SPECIAL },          { "0.1.2.3", NET_IS_SPECIAL },
        { "127.0.0.1", NET_IS_SPECIAL },        { "127.255.0.1", NET_IS_SPECIAL },
        { "169.254.169.254", NET_IS_SPECIAL },  { "224.0.0.1", NET_IS_SPECIAL },
        { "255.255.255.255", NET_IS_SPECIAL },  { "100.100.100.200", NET_IS_SPECIAL },
        { "192.0.0.192", NET_IS_SPECIAL },      { "168.63.129.16", NET_IS_SPECIAL },
        { "::", NET_IS_SPECIAL },               { "::1", NET_IS_SPECIAL },
        { "fe80::1", NET_IS_SPECIAL },          { "ff02::1", NET_IS_SPECIAL },
        { "fd00:ec2::254", NET_IS_SPECIAL },    { "fd20:ce::254", NET_IS_SPECIAL },
        { "fd00:c1::a9fe:a9fe", NET_IS_SPECIAL }, { "fd00:42::42", NET_IS_SPECIAL },
        { "::ffff:0:169.254.169.254", NET_IS_SPECIAL },
        { "2001::1", NET_IS_SPECIAL },          { "::ffff:169.254.169.254", NET_IS_SPECIAL },
        { "::169.254.169.254", NET_IS_SPECIAL }, { "64:ff9b::a9fe:a9fe", NET_IS_SPECIAL },
        { "2002:a9fe:a9fe::", NET_IS_SPECIAL }, { "2002:7f00:1::", NET_IS_SPECIAL },
        { "::ffff:127.0.0.1", NET_IS_SPECIAL },
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct net_address address = address_of(cases[i].address);
        if (net_class(&address) != cases[i].class)
            fail_msg("%s", cases[i].address);
    }
}

static void test_addresses_are_judged_by_policy_reach_and_class(void **state)
{
    static const struct {
        enum net_mode  mode;
        const char    *rules;
        enum net_reach reach;
        const char    *address;
        uint16_t       port;
        bool           is_own, accepted;
    } cases[] = {
        { NET_LISTED, "", NET_REFUSED, "1.1.1.1", 80, false, false },
        { NET_LISTED, "", NET_BY_NAME, "1.1.1.1", 80, false, true },
        { NET_LISTED, "", NET_BY_NAME, "10.0.0.1", 80, false, true },
        { NET_LISTED, "", NET_BY_NAME, "10.0.0.1", 80, true, false },
        { NET_LISTED, "", NET_BY_NAME, "169.254.169.254", 80, false, false },
        { NET_LISTED, "", NET_BY_NAME, "127.0.0.1", 80, true, false },
        { NET_LISTED, "", NET_BY_WILDCARD, "1.1.1.1", 80, false, true },
        { NET_LISTED, "", NET_BY_WILDCARD, "10.0.0.1", 80, false, false },
        { NET_PUBLIC, "", NET_REFUSED, "1.1.1.1", 80, false, true },
        { NET_PUBLIC, "", NET_REFUSED, "10.0.0.1", 80, false, false },
        { NET_PUBLIC, "", NET_REFUSED, "1.1.1.1", 80, true, false },
        { NET_PUBLIC, "!1.1.1.0/24", NET_BY_NAME, "1.1.1.1", 80, false, false },
        { NET_PUBLIC, "!1.1.1.0/24", NET_BY_NAME, "::ffff:1.1.1.1", 80, false, false },
        { NET_LISTED, "10.0.0.0/8:80", NET_REFUSED, "10.0.0.1", 80, false, true },
        { NET_LISTED, "10.0.0.0/8:80", NET_REFUSED, "10.0.0.1", 81, false, false },
        { NET_LISTED, "10.0.0.0/8:80", NET_REFUSED, "::ffff:10.0.0.1", 80, false, true },
        { NET_LISTED, "0.0.0.0/0", NET_REFUSED, "8.8.8.8", 80, false, true },
        { NET_LISTED, "0.0.0.0/0", NET_REFUSED, "169.254.169.254", 80, false, false },
        { NET_LISTED, "0.0.0.0/0", NET_REFUSED, "127.0.0.1", 80, true, false },
        { NET_LISTED, "0.0.0.0/0", NET_REFUSED, "8.8.8.8", 80, true, false },
        { NET_LISTED, "169.254.169.254", NET_REFUSED, "169.254.169.254", 80, false, true },
        { NET_LISTED, "192.0.2.2 !::ffff:192.0.2.2", NET_REFUSED, "::ffff:192.0.2.2", 80, false, false },
        { NET_LISTED, "192.0.2.2 !::ffff:192.0.2.2", NET_REFUSED, "192.0.2.2", 80, false, false },
        { NET_LISTED, "192.0.2.2 !64:ff9b::192.0.2.2", NET_BY_NAME, "192.0.2.2", 80, false, false },
        { NET_PUBLIC, "!2002:c000:202::/48", NET_BY_NAME, "2002:c000:202::1", 80, false, false },
        { NET_LISTED, "::ffff:192.0.2.2", NET_REFUSED, "192.0.2.2", 80, false, true },
        /* A network of IPv6 that is wider than a notation for IPv4 denies that notation, and not IPv4. */
        { NET_PUBLIC, "!2000::/3", NET_REFUSED, "2002:c000:202::1", 80, false, false },
        { NET_PUBLIC, "!::/0", NET_REFUSED, "64:ff9b::192.0.2.2", 80, false, false },
        { NET_PUBLIC, "!::/0", NET_REFUSED, "192.0.2.2", 80, false, true },
        { NET_LISTED, "2000::/3", NET_REFUSED, "2002:a00:1::1", 80, false, false },
        { NET_NONE, "", NET_BY_NAME, "1.1.1.1", 80, false, false },
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct net_policy policy = make_policy(cases[i].mode, cases[i].rules);
        struct net_address address = address_of(cases[i].address);
        if (net_judge_address(&policy, cases[i].reach, &address, cases[i].port, cases[i].is_own) != cases[i].accepted)
            fail_msg("case %zu: '%s' for %s", i, cases[i].rules, cases[i].address);
    }
}

static void test_the_rule_that_denies_is_found(void **state)
{
    static const struct {
        const char *rules, *what;
        uint16_t    port;
        const char *denial;     /* NULL: no rule denies it */
    } cases[] = {
        { "a.b", "c.d", 0, NULL },
        { "!a.b", "a.b", 0, "a.b" },
        { "a.b !*.b", "a.b", 443, "*.b" },
        { "*.b !a.b:443", "a.b", 443, "a.b:443" },
        { "*.b !a.b:443", "a.b", 80, NULL },
        { "*.b !a.b:443", "a.b", 0, NULL },         /* the name resolves for its other ports */
        { "!10.0.0.0/8", "10.1.2.3", 80, "10.0.0.0/8" },
        { "!10.0.0.0/8:80", "10.1.2.3", 81, NULL },
        { "!::ffff:10.1.2.3", "10.1.2.3", 80, "10.1.2.3" },
        { "!2000::/3", "2001:db8::1", 80, "2000::/3" },
        { "!10.0.0.0/8", "a.b", 80, NULL },
        { "!a.b", "?", 0, NULL },
    };
    char shown[NET_RULE_TEXT];

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct net_policy policy = make_policy(NET_NONE, cases[i].rules);
        const struct net_rule *denial = net_find_denial(&policy, cases[i].what, cases[i].port);
        if (denial)
            net_rule_show(denial, shown);
        if (!denial != !cases[i].denial || (denial && strcmp(shown, cases[i].denial) != 0))
            fail_msg("'%s' for %s: %s", cases[i].rules, cases[i].what, denial ? shown : "none");
    }
}

static void test_a_rule_covers_another(void **state)
{
    static const struct {
        const char *wide, *narrow;
        bool        covers;
    } cases[] = {
        { "a.b", "a.b", true },             { "a.b", "a.b:443", true },
        { "a.b:443", "a.b", false },        { "a.b:443", "a.b:443", true },
        { "a.b:1-65535", "a.b", true },     { "*.b", "a.b", true },
        { "*.b", "*.b", true },             { "*.b", "*.a.b", true },
        { "*.a.b", "*.b", false },          { "a.b", "*.b", false },
        { "a.b", "*.a.b", false },          { "10.0.0.0/8", "10.1.0.0/16:80", true },
        { "10.1.0.0/16", "10.0.0.0/8", false }, { "0.0.0.0/0", "::1", false },
        { "10.0.0.0/8", "a.b", false },     { "::/0", "2001:db8::1", true },
    };
    struct net_rule wide, narrow;
    struct err e;

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        assert_int_equal(net_rule_parse("rule", cases[i].wide, true, &wide, &e), 0);
        assert_int_equal(net_rule_parse("rule", cases[i].narrow, true, &narrow, &e), 0);
        if (net_rule_covers(&wide, &narrow) != cases[i].covers)
            fail_msg("%s, %s", cases[i].wide, cases[i].narrow);
    }
}

static void test_the_host_itself_is_out_of_reach_for_callers_from_elsewhere(void **state)
{
    struct net_policy policy = make_policy(NET_LISTED, "169.254.0.1 10.0.0.1 a.localhost own.test");
    struct net_address loopback = address_of("127.0.0.1"), own = address_of("10.0.0.1"), other = address_of("10.0.0.2");
    struct net_address special = address_of("169.254.0.1");

    (void)state;
    assert_true(net_judge_address(&policy, NET_BY_LOOPBACK, &loopback, 80, true));
    assert_false(net_judge_address(&policy, NET_BY_LOOPBACK, &other, 80, false));
    assert_true(net_judge_address(&policy, NET_REFUSED, &own, 80, true));
    assert_true(net_judge_address(&policy, NET_REFUSED, &special, 80, false));
    policy.no_host = 1;
    assert_false(net_judge_address(&policy, NET_BY_LOOPBACK, &loopback, 80, true));
    assert_false(net_judge_address(&policy, NET_REFUSED, &special, 80, false));
    assert_false(net_judge_address(&policy, NET_REFUSED, &own, 80, true));
    assert_true(net_judge_address(&policy, NET_BY_NAME, &other, 80, false));
}

static void test_a_policy_of_another_program_is_checked(void **state)
{
    char clean[NET_NAME_SIZE];
    struct net_policy good = make_policy(NET_LISTED, "a.b *.c:80 10.0.0.0/8"), bad;

    (void)state;
#define INSANE(change) bad = good; change; assert_false(net_policy_is_sane(&bad))
    INSANE(bad.mode = 3);
    INSANE(bad.no_host = 2);
    INSANE(bad.n_rules = NET_RULES + 1);
    INSANE(bad.rule[0].kind = 3);
    INSANE(bad.rule[0].denies = 2);
    INSANE(bad.rule[0].first = 9; bad.rule[0].last = 8);
    INSANE(memset(bad.rule[0].name, 'a', NET_NAME_SIZE));
    INSANE(bad.rule[0].name[0] = 'A');
    INSANE(bad.rule[0].name[0] = '\0');
    INSANE(bad.rule[2].address.size = 5);
    INSANE(bad.rule[2].bits = 33);
    INSANE(bad.rule[2].address = address_of("::ffff:10.0.0.1"); bad.rule[2].bits = 128);
    assert_true(net_name_clean("a.b2", 4, clean) && net_name_clean("1.a", 3, clean) && net_name_clean("a1.", 3, clean));
    assert_false(net_name_clean("127.1", 5, clean) || net_name_clean("2130706433", 10, clean));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_rule_is_read_and_shown_in_its_shortest_form),
        cmocka_unit_test(test_what_is_no_rule_is_refused_with_its_position),
        cmocka_unit_test(test_what_reaches_nothing_may_be_denied),
        cmocka_unit_test(test_bounds_are_read_alone_and_together),
        cmocka_unit_test(test_names_are_judged_by_rules),
        cmocka_unit_test(test_addresses_have_a_class_in_every_notation),
        cmocka_unit_test(test_addresses_are_judged_by_policy_reach_and_class),
        cmocka_unit_test(test_the_rule_that_denies_is_found),
        cmocka_unit_test(test_a_rule_covers_another),
        cmocka_unit_test(test_the_host_itself_is_out_of_reach_for_callers_from_elsewhere),
        cmocka_unit_test(test_a_policy_of_another_program_is_checked),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
