/* The v2 tree alone: /sys/fs/cgroup covered by it in a mount namespace of this program's own. On a hybrid host that
 * tree has no memory, pids and cpu, so this proves the choice of the base, delegation to a user and the explanations;
 * limits are proved by a v2 kernel. */
#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"

static const struct cgroup_limits freezer_only = { .freezer = true };

static void test_v2_is_chosen_and_tells_what_it_lacks(void **state)
{
    char offered[256];
    struct cgroup leaf;
    struct err e;

    assert_int_equal(host.mode, CGROUP_V2);
    assert_true(host.can[CG_FREEZER]);
    assert_string_equal(cgroup_means(&host, CG_FREEZER), "cgroup v2 freeze");
    assert_true(fd_read_file(host.v2, "cgroup.controllers", offered, sizeof offered) >= 0);
    if (strstr(offered, "memory")) {
        assert_true(host.can[CG_MEMORY] && host.v2_controllers);
    } else {
        assert_non_null(strstr(host.why[CG_MEMORY], "does not offer 'memory'"));
        assert_int_equal(cgroup_create(&host, 1, &(struct cgroup_limits){ .memory_bytes = 1 << 20 }, &leaf, &e),
                         -EOPNOTSUPP);
    }
    (void)state;
}

static void test_v2_leaf_lives_freezes_and_dies(void **state)
{
    volatile uint64_t *shared = shared_new();
    struct cgroup leaf;
    struct cgroup_usage usage;

    assert_ok(cgroup_create(&host, 2, &freezer_only, &leaf, e));
    struct process process = enter(&leaf, work_count, shared);
    wait_for(shared[0] > 1000);
    assert_ok(cgroup_freeze(&leaf, true, e));
    uint64_t seen = shared[0];
    cgroup_usage_read(&leaf, &usage);
    assert_true(usage.has_cpu && usage.cpu_us > 0);
    assert_int_equal(shared[0], seen);
    cgroup_kill(&leaf);
    assert_int_equal(reap(&process).signal, SIGKILL);
    assert_int_equal(cgroup_remove(&host, &leaf), 0);
    (void)state;
}

/* What an ordinary user does in a tree that was delegated to him. */
static int use_delegated(void)
{
    struct cgroup_host mine;
    struct cgroup leaf;
    struct err e;
    struct process process;
    struct process_end end;

    if (setgid(65534) < 0 || setuid(65534) < 0 || cgroup_host_open(&mine, &e) < 0)
        return 1;
    if (mine.mode != CGROUP_V2 || !mine.can[CG_FREEZER] || mine.can[CG_MEMORY])
        return 2;
    if (!strstr(mine.why[CG_MEMORY], "not delegated"))
        return 3;
    if (cgroup_create(&mine, 1, &freezer_only, &leaf, &e) < 0)
        return 4;
    int r = process_clone(0, leaf.v2, -1, &process);
    if (r == 0)
        for (;;)
            pause();
    if (r < 0 || cgroup_freeze(&leaf, true, &e) < 0)
        return 5;
    cgroup_kill(&leaf);
    if (process_reap(&process, 1, &end) != 1 || end.signal != SIGKILL)
        return 6;
    return cgroup_remove(&mine, &leaf) < 0 ? 7 : 0;
}

static void test_v2_user_works_in_what_was_delegated(void **state)
{
    static const char *const files[] = { "", "/cgroup.procs", "/cgroup.subtree_control", "/cgroup.threads" };
    char top[96], path[160];
    int status;

    snprintf(top, sizeof top, "/sys/fs/cgroup/carreltest-%d", getpid());
    assert_return_code(mkdir(top, 0755), errno);
    for (size_t i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s%s", top, files[i]);
        assert_return_code(chown(path, 65534, 65534), errno);
    }
    snprintf(path, sizeof path, "%s/session", top);
    assert_return_code(mkdir(path, 0755), errno);
    assert_return_code(chown(path, 65534, 65534), errno);
    snprintf(path, sizeof path, "%s/session/cgroup.procs", top);
    assert_return_code(chown(path, 65534, 65534), errno);
    pid_t pid = fork();
    if (pid == 0) {
        snprintf(path, sizeof path, "%s/session/cgroup.procs", top);
        _exit(fd_write_file(AT_FDCWD, path, "0") < 0 ? 100 : use_delegated());
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    snprintf(path, sizeof path, "%s/session", top);
    rmdir(path);
    assert_return_code(rmdir(top), errno); /* busy if a leaf was left */
    assert_int_equal(status, 0);
    (void)state;
}

enum { AT_TOP = 2, AT_ROOT = 3 };

/* What the keeper does as a service. Where its leaves are then, or another number for what failed. */
static int use_given(const char *top)
{
    struct cgroup_host mine;
    struct cgroup leaf;
    struct err e;
    char path[256];

    cgroup_settle();
    if (cgroup_host_open(&mine, &e) < 0 || cgroup_create(&mine, 1, &freezer_only, &leaf, &e) < 0)
        return 1;
    snprintf(path, sizeof path, "%s/%s", top, leaf.name);
    int where = access(path, F_OK) == 0 ? AT_TOP : 0;
    snprintf(path, sizeof path, "/sys/fs/cgroup/%s", leaf.name);
    if (access(path, F_OK) == 0)
        where = AT_ROOT;
    return cgroup_remove(&mine, &leaf) < 0 ? 4 : where;
}

static void test_v2_service_stays_in_what_it_was_given(void **state)
{
    for (int given = 0; given < 2; given++) {
        char top[96], path[160];
        int status;
        snprintf(top, sizeof top, "/sys/fs/cgroup/carreltest-%d", getpid());
        assert_return_code(mkdir(top, 0755), errno);
        if (given)
            assert_return_code(setxattr(top, "trusted.delegate", "1", 1, 0), errno);
        pid_t pid = fork();
        if (pid == 0) {
            snprintf(path, sizeof path, "%s/cgroup.procs", top);
            _exit(fd_write_file(AT_FDCWD, path, "0") < 0 ? 100 : use_given(top));
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        snprintf(path, sizeof path, "%s/keeper", top);
        assert_int_equal(rmdir(path), given ? 0 : -1);
        assert_return_code(rmdir(top), errno);
        assert_int_equal(WEXITSTATUS(status), given ? AT_TOP : AT_ROOT);
    }
    (void)state;
}

static void test_v2_user_without_delegation_is_told_how_to_get_it(void **state)
{
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        struct cgroup_host mine;
        struct err e;
        if (setgid(65534) < 0 || setuid(65534) < 0 || cgroup_host_open(&mine, &e) < 0)
            _exit(1);
        for (int c = 0; c < CG_CPUACCT; c++)
            if (mine.can[c] || !strstr(mine.why[c], "systemd-run --user --scope -p Delegate=yes"))
                _exit(2);
        _exit(mine.mode == CGROUP_NONE && mine.v2 < 0 ? 0 : 3);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    (void)state;
}

static void test_read_only_tree_is_explained(void **state)
{
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        struct cgroup_host mine;
        struct err e;
        if (unshare(CLONE_NEWNS) < 0 ||
            mount(NULL, "/sys/fs/cgroup", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL) < 0 ||
            cgroup_host_open(&mine, &e) < 0)
            _exit(1);
        _exit(!mine.can[CG_MEMORY] && !mine.can[CG_FREEZER] && strstr(mine.why[CG_MEMORY], "read-only") ? 0 : 2);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    (void)state;
}

const struct CMUnitTest v2_tests[] = {
    cmocka_unit_test(test_v2_is_chosen_and_tells_what_it_lacks),
    cmocka_unit_test(test_v2_leaf_lives_freezes_and_dies),
    cmocka_unit_test(test_v2_user_works_in_what_was_delegated),
    cmocka_unit_test(test_v2_service_stays_in_what_it_was_given),
    cmocka_unit_test(test_v2_user_without_delegation_is_told_how_to_get_it),
    cmocka_unit_test(test_read_only_tree_is_explained),
};
const size_t n_v2_tests = sizeof v2_tests / sizeof *v2_tests;
