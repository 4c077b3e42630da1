/* Leaves without an owner are ended; all others are left alone. */
#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"

/* An owner: a process that makes a leaf with a process inside, writes its name to shared + 8 and waits. */
struct owner {
    struct process     process;
    volatile uint64_t *shared;
    char               name[80];
};

static int own_leaf(volatile uint64_t *shared, bool frozen)
{
    struct cgroup_host mine;
    struct cgroup leaf;
    struct err e;

    if (cgroup_host_open(&mine, &e) < 0 ||
        cgroup_create(&mine, 1, &(struct cgroup_limits){ .memory_bytes = 1 << 25, .pids = 10, .freezer = true }, &leaf,
                      &e) < 0)
        return 1;
    struct process guest;
    int r = process_clone(0, leaf.v2, -1, &guest);
    if (r == 0) { /* outlives its owner on purpose */
        if (cgroup_join_self(&leaf) < 0)
            _exit(1);
        work_count(shared);
    }
    while (!shared[0])
        usleep(200);
    if (frozen && cgroup_freeze(&leaf, true, &e) < 0)
        return 1;
    snprintf((char *)(uintptr_t)(shared + 8), sizeof leaf.name, "%s", leaf.name);
    shared[1] = (uint64_t)guest.pid;
    shared[2] = 1;
    for (;;)
        pause();
}

static struct owner owner_start(bool frozen)
{
    struct owner owner = { .shared = shared_new() };
    int r = process_clone(0, -1, -1, &owner.process);

    if (r == 0)
        _exit(own_leaf(owner.shared, frozen));
    assert_int_equal(r, 1);
    wait_for(owner.shared[2]);
    snprintf(owner.name, sizeof owner.name, "%s", (const char *)(uintptr_t)(owner.shared + 8));
    assert_true(places(owner.name) >= 2);
    return owner;
}

static bool still_counts(const struct owner *owner)
{
    uint64_t seen = owner->shared[0];

    for (int i = 0; i < 200 && owner->shared[0] == seen; i++)
        usleep(500);
    return owner->shared[0] != seen;
}

static void owner_wait_dead(struct owner *owner)
{
    struct pollfd p = { .fd = owner->process.pidfd, .events = POLLIN };

    assert_return_code(process_signal(&owner->process, SIGKILL), errno);
    assert_int_equal(poll(&p, 1, DEADLINE_US / 1000), 1);
}

struct told {
    int         times, result;
    const char *name;
    pid_t       owner;
};

static void tell(const char *name, pid_t owner, int result, void *data)
{
    struct told *told = data;

    if (strcmp(name, told->name) != 0)
        return;
    told->times++;
    told->result = result;
    told->owner = owner;
}

static void sweep_dead(bool frozen, bool reaped)
{
    struct owner owner = owner_start(frozen);
    struct told told = { .name = owner.name };
    pid_t pid = owner.process.pid;

    owner_wait_dead(&owner);
    if (reaped)
        reap(&owner.process);
    assert_true(places(owner.name) >= 2);
    assert_true(cgroup_sweep_each(&host, 0, tell, &told) >= 1);
    assert_int_equal(told.times, 1);
    assert_int_equal(told.result, 0);
    assert_int_equal(told.owner, pid);
    assert_int_equal(places(owner.name), 0);
    assert_false(still_counts(&owner));
    if (!reaped)
        reap(&owner.process);
}

static void test_leaf_of_dead_owner_is_ended(void **state)
{
    sweep_dead(false, true);
    (void)state;
}

static void test_frozen_leaf_of_dead_owner_is_ended(void **state)
{
    sweep_dead(true, true);
    (void)state;
}

static void test_zombie_owner_is_dead(void **state)
{
    sweep_dead(false, false);
    (void)state;
}

static void test_leaf_of_living_owner_is_left_alone(void **state)
{
    struct owner owner = owner_start(false);
    struct told told = { .name = owner.name };
    int before = places(owner.name);

    cgroup_sweep_each(&host, 0, tell, &told);
    assert_int_equal(told.times, 0);
    assert_int_equal(places(owner.name), before);
    wait_for(still_counts(&owner));

    assert_int_equal(cgroup_sweep(&host, owner.process.pid), 1); /* unless it is named */
    assert_int_equal(places(owner.name), 0);
    assert_false(still_counts(&owner));
    owner_wait_dead(&owner);
    reap(&owner.process);
    (void)state;
}

/* A fork of the owner that outlives it sees to its leaves. */
static void test_janitor_ends_what_its_owner_left(void **state)
{
    volatile uint64_t *shared = shared_new();
    int pipes[2];
    struct cgroup leaf;
    struct process owner, janitor;

    assert_return_code(pipe2(pipes, O_CLOEXEC), errno);
    int r = process_clone(0, -1, -1, &owner);
    if (r == 0) {
        struct cgroup_host mine;
        struct err e;
        if (cgroup_host_open(&mine, &e) < 0 ||
            cgroup_create(&mine, 5, &(struct cgroup_limits){ .pids = 10 }, &leaf, &e) < 0)
            _exit(1);
        r = process_clone(0, -1, -1, &janitor);
        if (r == 0) {
            char c;
            close(pipes[1]);
            shared[3] = 1;
            if (read(pipes[0], &c, 1) == 0) /* the owner is gone */
                shared[1] = (uint64_t)cgroup_sweep(&mine, mine.owner.pid);
            shared[2] = 1;
            _exit(0);
        }
        snprintf((char *)(uintptr_t)(shared + 8), sizeof leaf.name, "%s", leaf.name);
        while (!shared[3])
            usleep(200);
        raise(SIGKILL);
    }
    close(pipes[1]);
    assert_int_equal(reap(&owner).signal, SIGKILL);
    wait_for(shared[2]);
    close(pipes[0]);
    assert_int_equal(shared[1], 1);
    assert_int_equal(places((const char *)(uintptr_t)(shared + 8)), 0);
    (void)state;
}

static pid_t dead_pid(void)
{
    pid_t pid = fork();

    if (pid == 0)
        _exit(0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    return pid;
}

static void test_names_of_other_pid_namespaces_and_other_forms_are_left_alone(void **state)
{
    char name[8][80];
    uint64_t ns = host.owner.pid_namespace;
    int dead = dead_pid(), n = 0;

    snprintf(name[n++], 80, "carrel-%" PRIu64 "-%d-1-1", ns + 1, dead);
    snprintf(name[n++], 80, "carrel-%" PRIu64 "-%d-1", ns, dead);
    snprintf(name[n++], 80, "carrel-%" PRIu64 "-%d-1-1-", ns, dead);
    snprintf(name[n++], 80, "carrel-%" PRIu64 "-%d-1-01", ns, dead);
    snprintf(name[n++], 80, "carrel-%" PRIu64 "-%d-1-1x", ns, dead);
    snprintf(name[n++], 80, "carrel-%" PRIu64 "-0-1-%d", ns, dead);
    snprintf(name[n++], 80, "carrel-%" PRIu64 "-+%d-1-1", ns, dead);
    snprintf(name[n++], 80, "carrel-%d", dead);
    for (int i = 0; i < n; i++)
        make_places(name[i]);
    int before = places(name[0]);
    cgroup_sweep(&host, 0);
    cgroup_sweep(&host, dead);
    for (int i = 0; i < n; i++) {
        int left = places(name[i]);
        remove_places(name[i]);
        assert_int_equal(left, before);
        assert_int_equal(places(name[i]), 0);
    }
    (void)state;
}

static void test_pid_with_a_new_bearer_is_no_owner(void **state)
{
    char name[80];

    /* This process has the pid, but it started at another time. */
    snprintf(name, sizeof name, "carrel-%" PRIu64 "-%d-%" PRIu64 "-1", host.owner.pid_namespace, getpid(),
             host.owner.start - 1);
    make_places(name);
    assert_int_equal(cgroup_sweep(&host, getpid()), 0);
    assert_true(places(name) > 0);
    assert_true(cgroup_sweep(&host, 0) >= 1);
    assert_int_equal(places(name), 0);
    (void)state;
}

static void test_leaf_in_one_hierarchy_only_is_removed(void **state)
{
    char name[80];
    int base = host.v1[CG_PIDS] >= 0 ? host.v1[CG_PIDS] : host.v2;

    snprintf(name, sizeof name, "carrel-%" PRIu64 "-%d-1-1", host.owner.pid_namespace, dead_pid());
    assert_return_code(mkdirat(base, name, 0755), errno);
    assert_true(cgroup_sweep(&host, 0) >= 1);
    assert_int_equal(places(name), 0);
    (void)state;
}

/* A family's boxes have theirs within the family's, where all of them are counted together. */
static void test_leaves_within_a_leaf_are_ended_with_it(void **state)
{
    volatile uint64_t *shared = shared_new();
    struct process guest;
    char name[80], path[200];

    if (host.v1[CG_PIDS] < 0)
        skip();
    int dead = dead_pid();
    snprintf(name, sizeof name, "carrel-%" PRIu64 "-%d-1-1", host.owner.pid_namespace, dead);
    snprintf(path, sizeof path, "%s/carrel-%" PRIu64 "-%d-1-2", name, host.owner.pid_namespace, dead);
    assert_return_code(mkdirat(host.v1[CG_PIDS], name, 0755), errno);
    assert_return_code(mkdirat(host.v1[CG_PIDS], path, 0755), errno);
    FD dir = openat(host.v1[CG_PIDS], path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    FD tasks = openat(dir, "tasks", O_WRONLY | O_CLOEXEC);
    assert_true(tasks >= 0);
    int r = process_clone(0, -1, -1, &guest);
    if (r == 0) {
        if (write(tasks, "0", 1) != 1)
            _exit(1);
        work_count(shared);
    }
    wait_for(shared[0] > 0);
    assert_true(cgroup_sweep(&host, 0) >= 1);
    assert_int_equal(places(name), 0);
    reap(&guest);
    (void)state;
}

/* A leaf made after a fork is the child's own, though the child inherited its parent's struct cgroup_host. */
static void test_forked_maker_owns_what_it_makes(void **state)
{
    pid_t pid = fork();

    if (pid == 0) {
        struct cgroup leaf;
        struct err e;
        char mine[32];
        snprintf(mine, sizeof mine, "-%d-", getpid());
        if (cgroup_create(&host, 3, &(struct cgroup_limits){ .pids = 3 }, &leaf, &e) < 0)
            _exit(1);
        int wrong = !strstr(leaf.name, mine);
        _exit(cgroup_remove(&host, &leaf) < 0 ? 2 : wrong);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    (void)state;
}

const struct CMUnitTest sweep_tests[] = {
    cmocka_unit_test(test_leaf_of_dead_owner_is_ended),
    cmocka_unit_test(test_frozen_leaf_of_dead_owner_is_ended),
    cmocka_unit_test(test_zombie_owner_is_dead),
    cmocka_unit_test(test_leaf_of_living_owner_is_left_alone),
    cmocka_unit_test(test_janitor_ends_what_its_owner_left),
    cmocka_unit_test(test_names_of_other_pid_namespaces_and_other_forms_are_left_alone),
    cmocka_unit_test(test_pid_with_a_new_bearer_is_no_owner),
    cmocka_unit_test(test_leaf_in_one_hierarchy_only_is_removed),
    cmocka_unit_test(test_leaves_within_a_leaf_are_ended_with_it),
    cmocka_unit_test(test_forked_maker_owns_what_it_makes),
};
const size_t n_sweep_tests = sizeof sweep_tests / sizeof *sweep_tests;
