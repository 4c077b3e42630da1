/* How many boxes are made ahead: demand, and the host's memory. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "front/boxes/demand.h"
#include "front/boxes/headroom.h"
#include "unit/unit.h"

static void note(struct demand *d, unsigned n, unsigned alive, uint64_t now_ms)
{
    for (unsigned i = 0; i < n; i++)
        demand_note(d, alive + i, now_ms);
}

static void test_a_burst_is_remembered_and_forgotten(void **state)
{
    struct demand d = { 0 };

    (void)state;
    assert_int_equal(demand_now(&d, 5), 0);
    note(&d, 100, 7, 1000);
    assert_int_equal(demand_now(&d, 1000), 100);
    assert_int_equal(demand_now(&d, 1000 + DEMAND_HALF_MS), 50);
    assert_int_equal(demand_now(&d, 1000 + 7 * UINT64_C(60000)), 0);
    assert_int_equal(demand_now(&d, 1000 + 99 * UINT64_C(60000)), 0);
}

static void test_a_smaller_burst_takes_nothing_from_a_larger_one(void **state)
{
    struct demand d = { 0 };

    (void)state;
    note(&d, 100, 0, 1000);
    note(&d, 30, 0, 5000);
    assert_int_equal(demand_now(&d, 5000), 100);
    note(&d, 60, 0, 1000 + DEMAND_HALF_MS);
    assert_int_equal(demand_now(&d, 1000 + DEMAND_HALF_MS), 60);
    note(&d, 200, 0, 2000 + DEMAND_HALF_MS);
    assert_int_equal(demand_now(&d, 2000 + DEMAND_HALF_MS), 200);
}

static void test_boxes_that_come_and_go_are_not_many_at_once(void **state)
{
    struct demand d = { 0 };

    (void)state;
    for (unsigned i = 0; i < 1000; i++)
        demand_note(&d, 3 + i % 2, 1000 + i);
    assert_int_equal(demand_now(&d, 2000), 2);
}

static void test_boxes_that_come_slowly_are_not_many_at_once(void **state)
{
    struct demand d = { 0 };

    (void)state;
    for (unsigned i = 0; i < 50; i++)
        demand_note(&d, i, 1000 + i * 2 * DEMAND_GAP_MS);
    assert_int_equal(demand_now(&d, 30000), 1);
}

static void say(int fd, const char *text)
{
    assert_int_equal(ftruncate(fd, 0), 0);
    assert_int_equal(pwrite(fd, text, strlen(text), 0), (ssize_t)strlen(text));
}

static void test_memory_that_is_short_leaves_no_headroom(void **state)
{
    int memory = memfd_create("meminfo", MFD_CLOEXEC), pressure = memfd_create("pressure", MFD_CLOEXEC);
    struct headroom *h = headroom_new(memory, pressure);

    (void)state;
    say(memory, "MemTotal:       24000000 kB\nMemFree:        100 kB\nMemAvailable:   16000000 kB\n");
    say(pressure, "some avg10=0.50 avg60=9.00 avg300=0.00 total=1\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=1\n");
    assert_int_equal(headroom_bytes(h, 1000), UINT64_C(16000000) * 1024 / 64);
    say(memory, "MemTotal:       24000000 kB\nMemFree:        100 kB\nMemAvailable:   1400000 kB\n");
    assert_true(headroom_bytes(h, 1500) > 0);       /* looked at a moment ago */
    assert_int_equal(headroom_bytes(h, 2000), 0);
    say(memory, "MemTotal:       24000000 kB\nMemFree:        100 kB\nMemAvailable:   16000000 kB\n");
    say(pressure, "some avg10=5.00 avg60=0.00 avg300=0.00 total=1\n");
    assert_int_equal(headroom_bytes(h, 3000), 0);
    headroom_free(h);
}

static void test_files_that_say_nothing_bound_nothing(void **state)
{
    struct headroom *h = headroom_new(-1, open("/dev/null", O_RDONLY | O_CLOEXEC));

    (void)state;
    assert_true(headroom_bytes(h, 1) == UINT64_MAX && headroom_bytes(NULL, 1) == UINT64_MAX);
    headroom_free(h);
    h = headroom_open();
    assert_true(headroom_bytes(h, 1) > 0);
    headroom_free(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_burst_is_remembered_and_forgotten),
        cmocka_unit_test(test_a_smaller_burst_takes_nothing_from_a_larger_one),
        cmocka_unit_test(test_boxes_that_come_and_go_are_not_many_at_once),
        cmocka_unit_test(test_boxes_that_come_slowly_are_not_many_at_once),
        cmocka_unit_test(test_memory_that_is_short_leaves_no_headroom),
        cmocka_unit_test(test_files_that_say_nothing_bound_nothing),
    };

    return cmocka_run_group_tests_name("ahead", tests, NULL, NULL);
}
