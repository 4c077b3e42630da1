/* The table of refused connections, and the line about them. */
#include "unit/unit.h"

#include "proto/refusals.h"

static void add(struct refusals *r, const char *name, uint64_t now_us)
{
    struct egress_refused word = { .why = EGRESS_NOT_ALLOWED, .count = 1, .last_us = now_us };

    snprintf(word.what, sizeof word.what, "%s", name);
    assert_string_equal(refusals_add(r, &word, now_us)->what, name);
}

static void check_line(const struct refusals *r, uint64_t since_us, const char *line)
{
    static const struct net_policy none;
    char rule[NET_RULE_TEXT];
    struct buf out;

    buf_init(&out, 4096);
    assert_int_equal(refusals_write(r, since_us, &none, "--deny ", &out, rule), line != NULL);
    assert_string_equal(buf_string(&out), line ? line : "");
    buf_done(&out);
}

static void fill(struct refusals *r, size_t n)
{
    char name[32];

    for (size_t i = 0; i < n; i++) {
        snprintf(name, sizeof name, "n%zu.test", i);
        add(r, name, 1000 + i);
    }
}

static void test_a_new_refusal_takes_the_place_of_the_oldest_if_the_table_is_full(void **state)
{
    static struct refusals r;

    (void)state;
    r = (struct refusals){ 0 };
    fill(&r, REFUSALS_MOST);
    add(&r, "n0.test", 2000);       /* now n1 is the oldest */
    add(&r, "new.test", 3000);
    assert_int_equal(r.n, REFUSALS_MOST);
    assert_int_equal(r.more, 1);
    assert_string_equal(r.list[0].what, "n0.test");
    assert_string_equal(r.list[1].what, "new.test");
    check_line(&r, 3000, "this box has no network: new.test was refused");
    check_line(&r, 3001, NULL);
}

static void test_the_line_tells_how_many_more_there_were(void **state)
{
    static struct refusals r;

    (void)state;
    r = (struct refusals){ 0 };
    fill(&r, 5);
    check_line(&r, 0, "this box has no network: n0.test, n1.test, n2.test and 2 more were refused");
    fill(&r, REFUSALS_MOST + 1);
    check_line(&r, 0, "this box has no network: n64.test, n1.test, n2.test and at least 61 more were refused");
    check_line(&r, 1001, "this box has no network: n64.test, n1.test, n2.test and 61 more were refused");
}

static void test_a_time_that_is_yet_to_come_is_now(void **state)
{
    static struct refusals r;
    struct egress_refused word = { .what = "a.test", .last_us = UINT64_MAX };

    (void)state;
    assert_int_equal(refusals_add(&r, &word, 5000)->last_us, 5000);
}

static void test_addresses_without_network_have_a_line(void **state)
{
    static struct refusals r;

    (void)state;
    assert_int_equal(refusals_add_unrouted(&r, 1000)->count, 1);
    assert_int_equal(refusals_add_unrouted(&r, 2000)->count, 2);
    check_line(&r, 2000,
               "this box has no network: connections to addresses were refused; rules can name addresses, too");
    add(&r, "n.test", 3000);
    check_line(&r, 3000, "this box has no network: n.test was refused");
}

static void test_each_reason_has_words_of_its_own(void **state)
{
    (void)state;
    for (unsigned i = 0; i < EGRESS_WHYS; i++)
        for (unsigned j = 0; j <= i; j++)
            assert_int_equal(strcmp(net_refusal_why(i), net_refusal_why(j)) == 0, i == j);
    assert_string_equal(net_refusal_why(EGRESS_NO_BROKER), "the process that has its key is not there");
    assert_string_equal(net_refusal_why(EGRESS_WHYS), "refused");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_new_refusal_takes_the_place_of_the_oldest_if_the_table_is_full),
        cmocka_unit_test(test_the_line_tells_how_many_more_there_were),
        cmocka_unit_test(test_a_time_that_is_yet_to_come_is_now),
        cmocka_unit_test(test_addresses_without_network_have_a_line),
        cmocka_unit_test(test_each_reason_has_words_of_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
