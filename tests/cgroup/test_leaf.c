/* One leaf: limits, joining, counting, freezing, killing, removing, and failing without a trace. */
#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"

static const struct cgroup_limits all = { .memory_bytes = 64 << 20, .pids = 20, .cpu_milli = 1500, .freezer = true };
static uint32_t next = 1;

static struct cgroup leaf_new(const struct cgroup_limits *limits)
{
    struct cgroup leaf;

    assert_ok(cgroup_create(&host, next++, limits, &leaf, e));
    return leaf;
}

static void leaf_end(struct cgroup *leaf)
{
    char name[sizeof leaf->name];

    memcpy(name, leaf->name, sizeof name);
    assert_int_equal(cgroup_remove(&host, leaf), 0);
    assert_int_equal(places(name), 0);
}

static int dir_of(const struct cgroup *leaf, enum cgroup_controller c)
{
    return leaf->dir[c] >= 0 ? leaf->dir[c] : leaf->v2;
}

static void assert_memory_limit(const struct cgroup *leaf, const char *bytes)
{
    if (leaf->dir[CG_MEMORY] < 0) {
        assert_string_equal(leaf_text(leaf->v2, "memory.max"), bytes);
        assert_string_equal(leaf_text(leaf->v2, "memory.oom.group"), "1");
        return;
    }
    assert_string_equal(leaf_text(leaf->dir[CG_MEMORY], "memory.limit_in_bytes"), bytes);
    if (faccessat(leaf->dir[CG_MEMORY], "memory.memsw.limit_in_bytes", F_OK, 0) == 0)
        assert_string_equal(leaf_text(leaf->dir[CG_MEMORY], "memory.memsw.limit_in_bytes"), bytes);
}

static void assert_cpu_limit(const struct cgroup *leaf, const char *quota, const char *period)
{
    char both[64];

    if (leaf->dir[CG_CPU] < 0) {
        snprintf(both, sizeof both, "%s %s", quota, period);
        assert_string_equal(leaf_text(leaf->v2, "cpu.max"), both);
        return;
    }
    assert_string_equal(leaf_text(leaf->dir[CG_CPU], "cpu.cfs_quota_us"), quota);
    assert_string_equal(leaf_text(leaf->dir[CG_CPU], "cpu.cfs_period_us"), period);
}

static void test_limits_are_written_before_anybody_is_inside(void **state)
{
    struct cgroup leaf = leaf_new(&all);

    assert_memory_limit(&leaf, "67108864");
    assert_string_equal(leaf_text(dir_of(&leaf, CG_PIDS), "pids.max"), "20");
    assert_cpu_limit(&leaf, "150000", "100000");
    leaf_end(&leaf);
    (void)state;
}

static void test_limits_change_up_and_down(void **state)
{
    struct cgroup leaf = leaf_new(&all);

    assert_ok(cgroup_update(&host, &leaf, &(struct cgroup_limits){ .memory_bytes = 128 << 20, .cpu_milli = 5 }, e));
    assert_memory_limit(&leaf, "134217728");
    assert_cpu_limit(&leaf, "5000", "1000000");
    assert_ok(cgroup_update(&host, &leaf,
                            &(struct cgroup_limits){ .memory_bytes = 16 << 20, .cpu_milli = 10, .pids = 7 }, e));
    assert_memory_limit(&leaf, "16777216");
    assert_cpu_limit(&leaf, "1000", "100000");
    assert_string_equal(leaf_text(dir_of(&leaf, CG_PIDS), "pids.max"), "7");
    leaf_end(&leaf);
    (void)state;
}

static void test_hierarchies_not_asked_for_are_left_alone(void **state)
{
    struct cgroup leaf = leaf_new(&(struct cgroup_limits){ .pids = 10 });
    struct err e;

    for (int c = 0; c < CG_CONTROLLERS; c++)
        if (host.v1[c] >= 0)
            assert_int_equal(faccessat(host.v1[c], leaf.name, F_OK, 0) == 0, c == CG_PIDS);
    if (host.v1[CG_MEMORY] >= 0) /* nothing to write a limit into */
        assert_int_equal(cgroup_update(&host, &leaf, &(struct cgroup_limits){ .memory_bytes = 1 << 20 }, &e),
                         -EOPNOTSUPP);
    leaf_end(&leaf);
    (void)state;
}

static int work_tell_groups(volatile uint64_t *shared)
{
    return fd_read_file(AT_FDCWD, "/proc/self/cgroup", (char *)(uintptr_t)shared, 4096) > 0 ? 0 : 1;
}

static void test_payload_is_in_the_leaf_of_every_hierarchy(void **state)
{
    volatile uint64_t *shared = shared_new();
    struct cgroup leaf = leaf_new(&all);
    struct process process = enter(&leaf, work_tell_groups, shared);
    int wanted = places(leaf.name), found = 0;

    assert_int_equal(reap(&process).code, 0);
    for (const char *p = (const char *)(uintptr_t)shared; (p = strstr(p, leaf.name)); p++)
        found++;
    assert_true(wanted > 0);
    assert_int_equal(found, wanted);
    leaf_end(&leaf);
    (void)state;
}

static int work_use(volatile uint64_t *shared)
{
    char *p = mmap(NULL, 8 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct rusage usage;

    if (p == MAP_FAILED)
        return 1;
    memset(p, 1, 8 << 20);
    do
        getrusage(RUSAGE_SELF, &usage);
    while (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec < 50000 && !usage.ru_utime.tv_sec);
    shared[0] = 1;
    for (;;)
        pause();
}

static void test_usage_is_counted(void **state)
{
    volatile uint64_t *shared = shared_new();
    struct cgroup leaf = leaf_new(&all);
    struct cgroup_usage usage;
    struct process process = enter(&leaf, work_use, shared);

    wait_for(shared[0]);
    cgroup_usage_read(&leaf, &usage);
    assert_true(usage.has_memory && usage.has_pids);
    assert_in_range(usage.memory_bytes, 8 << 20, 64 << 20);
    assert_in_range(usage.memory_peak_bytes, usage.memory_bytes, 64 << 20);
    assert_int_equal(usage.pids, 1);
    if (usage.has_pids_peak)
        assert_int_equal(usage.pids_peak, 1);
    assert_int_equal(usage.oom_kills, 0);
    assert_int_equal(usage.pids_refused, 0);
    assert_true(usage.has_cpu || host.v2 < 0);
    if (usage.has_cpu)
        assert_in_range(usage.cpu_us, 40000, 60000000);
    cgroup_kill(&leaf);
    assert_int_equal(reap(&process).signal, SIGKILL);
    leaf_end(&leaf);
    (void)state;
}

static int work_hog(volatile uint64_t *shared)
{
    (void)shared;
    for (size_t i = 0; i < 256; i++) {
        char *p = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED)
            return 1;
        memset(p, (int)i, 1 << 20);
    }
    return 0;
}

static void test_memory_hog_is_killed_and_counted(void **state)
{
    struct cgroup leaf = leaf_new(&(struct cgroup_limits){ .memory_bytes = 32 << 20 });
    struct cgroup_usage usage;
    struct process process = enter(&leaf, work_hog, shared_new());

    assert_int_equal(reap(&process).signal, SIGKILL);
    cgroup_usage_read(&leaf, &usage);
    assert_true(usage.oom_kills >= 1);
    assert_in_range(usage.memory_peak_bytes, 16 << 20, 32 << 20);
    leaf_end(&leaf);
    (void)state;
}

static int work_fork_until_refused(volatile uint64_t *shared)
{
    for (shared[0] = 1; shared[0] < 100; shared[0]++) {
        pid_t pid = fork();
        if (pid < 0)
            return errno == EAGAIN ? 0 : 1;
        if (pid == 0)
            for (;;)
                pause();
    }
    return 2;
}

static void test_process_too_many_is_refused_and_counted(void **state)
{
    volatile uint64_t *shared = shared_new();
    struct cgroup leaf = leaf_new(&(struct cgroup_limits){ .pids = 5 });
    struct cgroup_usage usage;
    struct process process = enter(&leaf, work_fork_until_refused, shared);

    assert_int_equal(reap(&process).code, 0);
    assert_int_equal(shared[0], 5);
    cgroup_usage_read(&leaf, &usage);
    assert_int_equal(usage.pids_refused, 1);
    if (usage.has_pids_peak)
        assert_int_equal(usage.pids_peak, 5);
    cgroup_kill(&leaf);
    leaf_end(&leaf);
    (void)state;
}

static void test_frozen_stands_still_and_thawed_goes_on(void **state)
{
    volatile uint64_t *shared = shared_new();
    struct cgroup leaf = leaf_new(&all);
    struct process process = enter(&leaf, work_count, shared);

    wait_for(shared[0] > 1000);
    assert_ok(cgroup_freeze(&leaf, true, e));
    uint64_t seen = shared[0];
    usleep(30000); /* not waiting for anything: watching that nothing happens */
    assert_int_equal(shared[0], seen);
    assert_ok(cgroup_freeze(&leaf, false, e));
    wait_for(shared[0] > seen);
    cgroup_kill(&leaf);
    assert_int_equal(reap(&process).signal, SIGKILL);
    leaf_end(&leaf);
    (void)state;
}

static void test_frozen_can_be_killed(void **state)
{
    volatile uint64_t *shared = shared_new();
    struct cgroup leaf = leaf_new(&all);
    struct process process = enter(&leaf, work_count, shared);

    wait_for(shared[0] > 1000);
    assert_ok(cgroup_freeze(&leaf, true, e));
    cgroup_kill(&leaf);
    assert_int_equal(reap(&process).signal, SIGKILL);
    leaf_end(&leaf);
    (void)state;
}

static void test_empty_leaf_freezes(void **state)
{
    struct cgroup leaf = leaf_new(&(struct cgroup_limits){ .freezer = true });

    assert_ok(cgroup_freeze(&leaf, true, e));
    assert_ok(cgroup_freeze(&leaf, false, e));
    leaf_end(&leaf);
    (void)state;
}

static void kill_bomb(const struct cgroup_limits *limits)
{
    volatile uint64_t *shared = shared_new();
    struct cgroup leaf = leaf_new(limits);
    struct process process = enter(&leaf, work_fork_bomb, shared);

    wait_for(shared[0] >= 20);
    cgroup_kill(&leaf);
    assert_int_equal(reap(&process).signal, SIGKILL);
    leaf_end(&leaf); /* would be busy if one had got away */
}

static void test_fork_bomb_is_killed_whole(void **state)
{
    kill_bomb(&(struct cgroup_limits){ .pids = 40, .freezer = true });
    (void)state;
}

static void test_fork_bomb_is_killed_without_a_freezer(void **state)
{
    kill_bomb(&(struct cgroup_limits){ .pids = 40 });
    (void)state;
}

static void test_remove_waits_for_the_dying(void **state)
{
    for (int i = 0; i < 20; i++) {
        volatile uint64_t *shared = shared_new();
        struct cgroup leaf = leaf_new(&all);
        struct process process = enter(&leaf, work_pause, shared);
        wait_for(shared[0]);
        cgroup_kill(&leaf);
        leaf_end(&leaf);
        assert_int_equal(reap(&process).signal, SIGKILL);
        munmap((void *)(uintptr_t)shared, 4096);
    }
    (void)state;
}

static void test_remove_gives_up_on_the_living(void **state)
{
    volatile uint64_t *shared = shared_new();
    struct cgroup leaf = leaf_new(&all);
    struct process process = enter(&leaf, work_pause, shared);
    uint64_t before = clock_monotonic_us();

    wait_for(shared[0]);
    assert_int_equal(cgroup_remove(&host, &leaf), -EBUSY);
    assert_true(clock_monotonic_us() - before >= 900000);
    assert_int_equal(cgroup_sweep(&host, getpid()), 1); /* what remove left, its owner can still end */
    assert_int_equal(reap(&process).signal, SIGKILL);
    assert_int_equal(places(leaf.name), 0);
    (void)state;
}

static void test_refused_limit_leaves_nothing(void **state)
{
    int fds = open_fds();
    struct cgroup leaf;
    struct err e = { 0 };
    char name[80];

    /* More processes than the kernel can number; the memory leaf exists already at that moment. */
    assert_int_equal(
        cgroup_create(&host, 777, &(struct cgroup_limits){ .memory_bytes = 1 << 24, .pids = UINT32_MAX }, &leaf, &e),
        -EINVAL);
    assert_int_equal(e.step, STEP_CGROUP);
    assert_string_equal(e.what, "pids.max");
    snprintf(name, sizeof name, "carrel-%" PRIu64 "-%d-%" PRIu64 "-777", host.owner.pid_namespace, getpid(),
             host.owner.start);
    assert_int_equal(places(name), 0);
    assert_int_equal(open_fds(), fds);
    (void)state;
}

static void test_taken_name_is_refused_and_left_alone(void **state)
{
    struct cgroup leaf;
    struct err e = { 0 };
    char name[80];
    int last = host.v1[CG_PIDS] >= 0 ? host.v1[CG_PIDS] : host.v2;

    snprintf(name, sizeof name, "carrel-%" PRIu64 "-%d-%" PRIu64 "-778", host.owner.pid_namespace, getpid(),
             host.owner.start);
    assert_return_code(mkdirat(last, name, 0755), errno);
    assert_int_equal(cgroup_create(&host, 778, &all, &leaf, &e), -EEXIST);
    assert_int_equal(places(name), 1);
    assert_return_code(unlinkat(last, name, AT_REMOVEDIR), errno);
    (void)state;
}

static void test_running_out_of_descriptors_at_every_step_leaves_nothing(void **state)
{
    struct rlimit before, less;
    struct cgroup leaf;
    struct err e;
    int r, highest = 0, failed = 0, filler[256], n_fillers = 0;
    char name[80];

    for (int fd = 0; fd < 256; fd++)
        if (fcntl(fd, F_GETFD) >= 0)
            highest = fd;
    while (n_fillers < 256 && (r = dup(0)) < highest) /* a gap below would be used first */
        filler[n_fillers++] = r;
    close(r);
    int fds = open_fds();
    snprintf(name, sizeof name, "carrel-%" PRIu64 "-%d-%" PRIu64 "-779", host.owner.pid_namespace, getpid(),
             host.owner.start);
    assert_return_code(getrlimit(RLIMIT_NOFILE, &before), errno);
    for (rlim_t more = 1;; more++) {
        less = (struct rlimit){ .rlim_cur = (rlim_t)highest + more, .rlim_max = before.rlim_max };
        assert_return_code(setrlimit(RLIMIT_NOFILE, &less), errno);
        r = cgroup_create(&host, 779, &all, &leaf, &e);
        setrlimit(RLIMIT_NOFILE, &before);
        if (r == 0)
            break;
        failed++;
        assert_int_equal(r, -EMFILE);
        assert_int_equal(places(name), 0);
        assert_int_equal(open_fds(), fds);
    }
    assert_true(failed >= 2);
    leaf_end(&leaf);
    assert_int_equal(open_fds(), fds);
    while (n_fillers)
        close(filler[--n_fillers]);
    (void)state;
}

static void test_ordinary_user_is_told_what_to_do(void **state)
{
    pid_t pid = fork();

    if (pid == 0) {
        struct cgroup_host mine;
        struct cgroup leaf;
        struct err e = { 0 };
        if (setgid(65534) < 0 || setuid(65534) < 0 || cgroup_host_open(&mine, &e) < 0)
            _exit(1);
        for (int c = 0; c < CG_FREEZER; c++)
            if (mine.can[c] || strlen(mine.why[c]) < 20)
                _exit(2);
        if (cgroup_create(&mine, 1, &all, &leaf, &e) != -EOPNOTSUPP || !strstr(e.what, mine.why[CG_MEMORY]))
            _exit(3);
        if (cgroup_create(&mine, 1, &(struct cgroup_limits){ 0 }, &leaf, &e) < 0 || cgroup_remove(&mine, &leaf) < 0)
            _exit(4);
        cgroup_host_close(&mine);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    (void)state;
}

const struct CMUnitTest leaf_tests[] = {
    cmocka_unit_test(test_limits_are_written_before_anybody_is_inside),
    cmocka_unit_test(test_limits_change_up_and_down),
    cmocka_unit_test(test_hierarchies_not_asked_for_are_left_alone),
    cmocka_unit_test(test_payload_is_in_the_leaf_of_every_hierarchy),
    cmocka_unit_test(test_usage_is_counted),
    cmocka_unit_test(test_memory_hog_is_killed_and_counted),
    cmocka_unit_test(test_process_too_many_is_refused_and_counted),
    cmocka_unit_test(test_frozen_stands_still_and_thawed_goes_on),
    cmocka_unit_test(test_frozen_can_be_killed),
    cmocka_unit_test(test_empty_leaf_freezes),
    cmocka_unit_test(test_fork_bomb_is_killed_whole),
    cmocka_unit_test(test_fork_bomb_is_killed_without_a_freezer),
    cmocka_unit_test(test_remove_waits_for_the_dying),
    cmocka_unit_test(test_remove_gives_up_on_the_living),
    cmocka_unit_test(test_refused_limit_leaves_nothing),
    cmocka_unit_test(test_taken_name_is_refused_and_left_alone),
    cmocka_unit_test(test_running_out_of_descriptors_at_every_step_leaves_nothing),
    cmocka_unit_test(test_ordinary_user_is_told_what_to_do),
};
const size_t n_leaf_tests = sizeof leaf_tests / sizeof *leaf_tests;
