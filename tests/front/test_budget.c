/* Budgets: charges are released, in any order of leaving. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>

#include "base/budget.h"

static void test_a_budget_ends_and_another_owner_has_its_own(void **state)
{
    struct budgets all = { .most = 100 };
    struct share a = { 0 }, b = { 0 }, other = { 0 };

    (void)state;
    assert_int_equal(share_join(&a, &all, "alice"), 0);
    assert_int_equal(share_join(&b, &all, "alice"), 0);
    assert_int_equal(share_join(&other, &all, "bob"), 0);
    assert_true(share_is_of(&a, "alice") && share_is_of(&b, "alice") && !share_is_of(&other, "alice"));
    assert_true(share_move(&a, 0, 60));
    assert_false(share_move(&b, 0, 41));
    assert_false(share_fits(&b, 41));
    assert_true(share_move(&b, 0, 40));
    assert_true(share_move(&other, 0, 100));
    assert_false(share_move(&a, 60, 61));
    assert_true(share_move(&a, 60, 59));
    assert_true(share_move(&b, 40, 41));
    share_leave(&a);
    assert_true(share_move(&b, 41, 100));
    share_leave(&b);
    assert_false(budgets_are_empty(&all));
    share_leave(&other);
    assert_true(budgets_are_empty(&all));
    share_leave(&other);        /* a second call is harmless */
}

static void test_a_share_of_nobody_has_no_bound_and_takes_what_it_holds_along(void **state)
{
    struct budgets all = { .most = 100 };
    struct share a = { 0 }, b = { 0 };

    (void)state;
    assert_true(share_move(&a, 0, 1000));
    assert_true(share_move(&a, 1000, 90));
    assert_int_equal(share_join(&a, &all, "alice"), 0);
    assert_int_equal(share_join(&a, &all, "alice"), 0);
    assert_int_equal(share_join(&b, &all, "alice"), 0);
    assert_false(share_move(&b, 0, 11));
    assert_int_equal(share_join(&a, &all, "bob"), 0);
    assert_true(share_move(&b, 0, 100));
    assert_true(share_move(&b, 100, 0));
    /* More than there may be, from before: nothing more until it is less. */
    assert_int_equal(share_join(&a, &all, "alice"), 0);
    assert_true(share_move(&b, 0, 10));
    assert_false(share_move(&b, 10, 11));
    share_leave(&a);
    share_leave(&b);
    assert_true(budgets_are_empty(&all));
}

static void test_what_is_small_costs_nothing(void **state)
{
    struct budgets all = { .most = 100000 };
    struct share a = { 0 };

    (void)state;
    assert_int_equal(share_join(&a, &all, "alice"), 0);
    assert_true(share_move_bytes(&a, 0, 100000));
    assert_true(share_move_bytes(&a, 0, SHARE_SMALL_BYTES));
    assert_false(share_move_bytes(&a, SHARE_SMALL_BYTES, SHARE_SMALL_BYTES + 1));
    assert_true(share_move_bytes(&a, SHARE_SMALL_BYTES, 0));
    assert_true(share_move_bytes(&a, 100000, 0));
    assert_int_equal(a.held, 0);
    share_leave(&a);
    assert_true(budgets_are_empty(&all));
}

static void test_all_owners_together_have_a_bound(void **state)
{
    (void)state;
    struct budgets all = { .most = 100, .all_most = 150 };
    struct share one = { 0 }, two = { 0 };

    assert_int_equal(share_join(&one, &all, "uid:1"), 0);
    assert_int_equal(share_join(&two, &all, "uid:2"), 0);
    assert_true(share_move(&one, 0, 100));
    assert_false(share_move(&two, 0, 51));
    assert_true(share_move(&two, 0, 50));
    assert_false(share_fits(&two, 1));
    /* What changes its owner counts once. */
    assert_int_equal(share_join(&two, &all, "uid:3"), 0);
    assert_true(share_move(&one, 100, 40));
    assert_true(share_fits(&two, 50));
    share_leave(&one);
    assert_true(share_move(&two, 50, 100));
    share_leave(&two);
    assert_int_equal(all.used, 0);
    assert_true(budgets_are_empty(&all));
}

static void test_many_owners_come_and_go(void **state)
{
    enum { OWNERS = 300, TURNS = 20000 };
    static struct share share[OWNERS];
    static uint64_t size[OWNERS];
    struct budgets all = { .most = 1000 };

    (void)state;
    srandom(1);
    for (int i = 0; i < TURNS; i++) {
        int k = (int)(random() % OWNERS);
        char name[16];
        snprintf(name, sizeof name, "uid:%d", k / 3);
        if (!share[k].budget)
            assert_int_equal(share_join(&share[k], &all, name), 0);
        uint64_t to = (uint64_t)random() % 600, sum = 0;
        for (int j = k / 3 * 3; j < k / 3 * 3 + 3; j++)
            sum += j == k ? to : size[j];
        bool fits = sum <= 1000 || to <= size[k];
        assert_int_equal(share_move(&share[k], size[k], to), fits);
        if (fits)
            size[k] = to;
        if (random() % 4 == 0) {
            share_leave(&share[k]);
            size[k] = 0;
        }
    }
    for (int k = 0; k < OWNERS; k++)
        share_leave(&share[k]);
    assert_true(budgets_are_empty(&all));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_budget_ends_and_another_owner_has_its_own),
        cmocka_unit_test(test_a_share_of_nobody_has_no_bound_and_takes_what_it_holds_along),
        cmocka_unit_test(test_what_is_small_costs_nothing),
        cmocka_unit_test(test_all_owners_together_have_a_bound),
        cmocka_unit_test(test_many_owners_come_and_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
