/* Addresses that stand for names, and what was refused. */
#include "unit/unit.h"

#include "egress/nametable.h"
#include "egress/refusallog.h"
#include "egress/fair.h"

static void test_a_name_has_one_address_and_the_address_one_name(void **state)
{
    struct nametable *t = nametable_new(), *other = nametable_new();
    uint8_t first[4], again[4];
    char name[32];

    (void)state;
    for (int i = 0; i < 1000; i++) {
        snprintf(name, sizeof name, "host%d.example.org", i);
        assert_true(nametable_give(t, name, false, first));
        struct net_address address = { .size = 4 };
        memcpy(address.byte, first, 4);
        assert_true(net_address_is_stand_in(&address));
        assert_true(nametable_give(t, name, false, again));
        assert_memory_equal(first, again, 4);
        assert_string_equal(nametable_find(t, first), name);
    }
    /* Another table, as after a restart, gives the same address, in whatever order they come, but for collisions. */
    int same = 0;
    for (int i = 999; i >= 0; i--) {
        snprintf(name, sizeof name, "host%d.example.org", i);
        assert_true(nametable_give(t, name, false, first));
        assert_true(nametable_give(other, name, false, again));
        same += memcmp(first, again, 4) == 0;
    }
    assert_true(same > 980);
    nametable_free(t);
    nametable_free(other);
}

static void test_the_name_that_was_not_used_for_longest_is_dropped_and_pinned_ones_stay(void **state)
{
    struct nametable *t = nametable_new();
    uint8_t pinned[4], used[4], old[4], address[4];
    char name[32];

    (void)state;
    assert_true(nametable_give(t, "pinned", true, pinned));
    assert_true(nametable_give(t, "old", false, old));
    assert_true(nametable_give(t, "used", false, used));
    for (int i = 3; i < NAMETABLE_MOST; i++) {
        snprintf(name, sizeof name, "n%d", i);
        assert_true(nametable_give(t, name, false, address));
    }
    assert_non_null(nametable_find(t, used));
    assert_true(nametable_give(t, "one more", false, address));
    assert_null(nametable_find(t, old));
    assert_string_equal(nametable_find(t, used), "used");
    assert_string_equal(nametable_find(t, pinned), "pinned");
    nametable_unpin(t);
    for (int i = 0; i < NAMETABLE_MOST; i++) {
        snprintf(name, sizeof name, "m%d", i);
        assert_true(nametable_give(t, name, true, address));
    }
    assert_null(nametable_find(t, pinned));
    assert_false(nametable_give(t, "no room", false, address));
    nametable_free(t);
}

static void test_a_refusal_is_told_at_once_then_once_a_second_with_its_count(void **state)
{
    struct refusallog log = { 0 };
    struct refusallog_entry *e;

    (void)state;
    assert_null(refusallog_due(&log, 5000000));
    refusallog_note(&log, EGRESS_NOT_ALLOWED, "a.b", 80, NULL, 5000000);
    assert_non_null(e = refusallog_due(&log, 5000000));
    assert_int_equal(e->frame.count, 1);
    refusallog_told(&log, e, 5000000);
    assert_false(refusallog_wait(&log));
    for (int i = 0; i < 9; i++)
        refusallog_note(&log, EGRESS_NOT_ALLOWED, "a.b", 80, NULL, 5100000);
    assert_null(refusallog_due(&log, 5999999));
    assert_true(refusallog_wait(&log));
    refusallog_note(&log, EGRESS_NOT_ALLOWED, "a.b", 81, NULL, 5999000);      /* another port is another one */
    assert_int_equal((e = refusallog_due(&log, 5999999))->frame.port, 81);
    refusallog_told(&log, e, 5999999);
    assert_int_equal((e = refusallog_due(&log, 6000000))->frame.count, 10);
    assert_int_equal(e->frame.last_us, 5100000);
    refusallog_done(&log);
}

static unsigned tell_all(struct refusallog *log, uint64_t now_us)
{
    struct refusallog_entry *e;
    unsigned told = 0;

    for (; (e = refusallog_due(log, now_us)); told++)
        refusallog_told(log, e, now_us);
    return told;
}

static void test_the_same_refusal_of_the_next_command_is_told_at_once(void **state)
{
    struct refusallog log = { 0 };

    (void)state;
    for (uint64_t now_us = 5000000; now_us < 5000100; now_us++) {
        refusallog_renew(&log);
        refusallog_note(&log, EGRESS_NOT_ALLOWED, "a.b", 80, NULL, now_us);
        assert_int_equal(tell_all(&log, now_us), 1);
        refusallog_note(&log, EGRESS_NOT_ALLOWED, "a.b", 80, NULL, now_us);
        assert_int_equal(tell_all(&log, now_us), 0);
    }
    refusallog_done(&log);
}

static void test_a_crowd_of_refusals_is_bounded_and_leaves_room_for_the_next_command(void **state)
{
    struct refusallog log = { 0 };
    unsigned told = 0;
    char name[32];

    (void)state;
    for (int i = 0; i < 10000; i++) {
        snprintf(name, sizeof name, "n%d", i);
        refusallog_note(&log, EGRESS_NOT_ALLOWED, name, 0, NULL, 5000000);
        told += tell_all(&log, 5000000);
    }
    assert_int_equal(told, REFUSALLOG_BURST);
    assert_true(refusallog_wait(&log));
    refusallog_renew(&log);
    assert_int_equal(tell_all(&log, 5000000), REFUSALLOG_KEPT);
    refusallog_renew(&log);
    refusallog_note(&log, EGRESS_NOT_ALLOWED, "n1", 0, NULL, 5000000);
    assert_int_equal(tell_all(&log, 5000000), 1);
    refusallog_done(&log);
}

static unsigned take_all(struct fair_share *s, unsigned n)
{
    unsigned taken = 0;

    while (fair_take(s, n))
        taken += n;
    return taken;
}

static void test_who_wants_all_leaves_others_as_much_as_it_has(void **state)
{
    struct fair_pool pool = { .most = 1000 };
    struct fair_share a = { .pool = &pool }, b = { .pool = &pool }, c = { .pool = &pool };

    (void)state;
    assert_in_range(take_all(&a, 2), 496, 500);
    assert_in_range(take_all(&b, 2), 246, 252);
    assert_in_range(take_all(&c, 1), 120, 128);
    /* The first gives some back and wants all again: it comes to what the second has. */
    fair_give(&a, a.used);
    assert_in_range(take_all(&a, 2), 300, 318);
    /* However many want all, one that has nothing yet finds something until the last is gone. */
    struct fair_share more[64];
    for (size_t i = 0; i < COUNT(more) && pool.used < pool.most; i++) {
        more[i] = (struct fair_share){ .pool = &pool };
        assert_true(take_all(&more[i], 1) > 0);
    }
    assert_int_equal(pool.used, pool.most);
    struct fair_share late = { .pool = &pool };
    assert_false(fair_take(&late, 1));
    fair_give(&a, 2);
    assert_true(fair_take(&late, 2));
    pool = (struct fair_pool){ .most = 1000, .is_one_boxs = true };
    struct fair_share alone = { .pool = &pool };
    assert_int_equal(take_all(&alone, 2), 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_name_has_one_address_and_the_address_one_name),
        cmocka_unit_test(test_the_name_that_was_not_used_for_longest_is_dropped_and_pinned_ones_stay),
        cmocka_unit_test(test_a_refusal_is_told_at_once_then_once_a_second_with_its_count),
        cmocka_unit_test(test_the_same_refusal_of_the_next_command_is_told_at_once),
        cmocka_unit_test(test_a_crowd_of_refusals_is_bounded_and_leaves_room_for_the_next_command),
        cmocka_unit_test(test_who_wants_all_leaves_others_as_much_as_it_has),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
