/* What a leaf is guaranteed: its weight beside other leaves; and the memory that this host's cgroups leave to boxes. */
#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "sys/cgroup_impl.h"

static void test_weights_are_in_the_ratio_of_the_requests(void **state)
{
    static const uint32_t processors[] = { 1, 2, 8, 10, 64, 128 };

    for (size_t i = 0; i < sizeof processors / sizeof *processors; i++) {
        uint32_t n = processors[i], small = cgroup_cpu_weight(500, n), large = cgroup_cpu_weight(1500, n);
        assert_in_range(large, 3 * small - 3, 3 * small + 3);
        assert_true(cgroup_cpu_weight(1000, n) >= 7 * cgroup_cpu_weight(0, n));   /* a promise beats having none */
        assert_in_range(cgroup_cpu_weight(n * 1000, n), 1, 10000);
        assert_in_range(cgroup_cpu_weight(10, n), 1, 10000);
    }
    assert_int_equal(cgroup_cpu_weight(0, 2), 100);         /* as the kernel's: nothing has to be written */
    assert_int_equal(cgroup_cpu_weight(1500, 2), 1500);
    assert_int_equal(cgroup_cpu_weight(UINT32_MAX, 2), 10000);
    (void)state;
}

static void assert_shares(const struct cgroup *leaf, const char *shares)
{
    assert_true(leaf->dir[CG_CPU] >= 0);
    assert_string_equal(leaf_text(leaf->dir[CG_CPU], "cpu.shares"), shares);
}

/* Weights are compared among the directories of one parent. */
static void assert_siblings(const struct cgroup *a, const struct cgroup *b)
{
    struct stat above_a, above_b;

    assert_int_equal(fstatat(a->dir[CG_CPU], "..", &above_a, 0), 0);
    assert_int_equal(fstatat(b->dir[CG_CPU], "..", &above_b, 0), 0);
    assert_true(above_a.st_dev == above_b.st_dev && above_a.st_ino == above_b.st_ino);
}

static void test_a_request_is_a_weight_of_the_leaf_on_v1(void **state)
{
    struct cgroup large, small, usual;

    if (host.v1[CG_CPU] < 0 || sysconf(_SC_NPROCESSORS_ONLN) > 10)
        skip();
    assert_ok(cgroup_create(&host, 901, &(struct cgroup_limits){ .cpu_request_milli = 1500 }, &large, e));
    assert_ok(cgroup_create(&host, 902, &(struct cgroup_limits){ .cpu_milli = 1000, .cpu_request_milli = 500 }, &small,
                            e));
    assert_ok(cgroup_create(&host, 903, &(struct cgroup_limits){ .cpu_milli = 1000 }, &usual, e));
    assert_shares(&large, "15360");
    assert_shares(&small, "5120");
    assert_shares(&usual, "1024");
    assert_siblings(&large, &small);
    assert_siblings(&large, &usual);
    /* A new limit leaves the weight alone, and a new request the limit. */
    assert_ok(cgroup_update(&host, &small, &(struct cgroup_limits){ .cpu_milli = 2000 }, e));
    assert_shares(&small, "5120");
    assert_ok(cgroup_update(&host, &small, &(struct cgroup_limits){ .cpu_request_milli = 1000 }, e));
    assert_shares(&small, "10240");
    assert_string_equal(leaf_text(small.dir[CG_CPU], "cpu.cfs_quota_us"), "200000");
    assert_int_equal(cgroup_remove(&host, &large), 0);
    assert_int_equal(cgroup_remove(&host, &small), 0);
    assert_int_equal(cgroup_remove(&host, &usual), 0);
    (void)state;
}

/* A v2 tree with the cpu controller is rare where v1 has it, so the writes alone are proved: into plain files. */
static void test_a_request_is_a_weight_of_the_leaf_on_v2(void **state)
{
    char path[] = "/tmp/carrel-cpu-XXXXXX";
    struct cgroup leaf = { .v2 = -1, .dir = CG_NONE, .tasks = CG_NONE, .cpu_period_us = CGROUP_CPU_PERIOD_US };

    if (sysconf(_SC_NPROCESSORS_ONLN) > 10)
        skip();
    assert_non_null(mkdtemp(path));
    leaf.v2 = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    assert_true(leaf.v2 >= 0);
    for (int i = 0; i < 2; i++)
        close(openat(leaf.v2, i ? "cpu.weight" : "cpu.max", O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    assert_ok(cgroup_write_cpu(&leaf, &(struct cgroup_limits){ .cpu_milli = 2000, .cpu_request_milli = 1500 }, e));
    assert_string_equal(leaf_text(leaf.v2, "cpu.weight"), "1500");
    assert_string_equal(leaf_text(leaf.v2, "cpu.max"), "200000 100000");
    unlinkat(leaf.v2, "cpu.weight", 0);
    unlinkat(leaf.v2, "cpu.max", 0);
    close(leaf.v2);
    assert_int_equal(rmdir(path), 0);
    (void)state;
}

static void test_a_host_without_the_controller_refuses_a_request(void **state)
{
    struct cgroup_host none = { .v2 = -1, .v1 = CG_NONE, .owner = host.owner };
    struct cgroup leaf;
    struct err e = { 0 };

    snprintf(none.why[CG_CPU], sizeof none.why[CG_CPU], "cpu is not here");
    assert_int_equal(cgroup_create(&none, 904, &(struct cgroup_limits){ .cpu_request_milli = 500 }, &leaf, &e),
                     -EOPNOTSUPP);
    assert_non_null(strstr(e.what, "cpu is not here"));
    (void)state;
}

/* As in a container whose own cgroup is limited. */
static void test_the_bound_of_the_groups_above_is_found(void **state)
{
    struct cgroup_host inside = host;
    struct cgroup group;

    if (host.v1[CG_MEMORY] < 0)
        skip();
    uint64_t before = cgroup_memory_bound(&host);
    assert_ok(cgroup_create(&host, 905, &(struct cgroup_limits){ .memory_bytes = 256 << 20 }, &group, e));
    inside.v1[CG_MEMORY] = group.dir[CG_MEMORY];
    assert_int_equal(cgroup_memory_bound(&inside), 256 << 20);
    assert_int_equal(cgroup_memory_bound(&host), before);
    assert_int_equal(cgroup_remove(&host, &group), 0);
    (void)state;
}

const struct CMUnitTest cpu_tests[] = {
    cmocka_unit_test(test_weights_are_in_the_ratio_of_the_requests),
    cmocka_unit_test(test_a_request_is_a_weight_of_the_leaf_on_v1),
    cmocka_unit_test(test_a_request_is_a_weight_of_the_leaf_on_v2),
    cmocka_unit_test(test_a_host_without_the_controller_refuses_a_request),
    cmocka_unit_test(test_the_bound_of_the_groups_above_is_found),
};
const size_t n_cpu_tests = sizeof cpu_tests / sizeof *cpu_tests;
