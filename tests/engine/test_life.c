/* Freezing, ending, and what is left. */
#define _GNU_SOURCE
#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/ptrace.h>

/* A payload that never stops talking. */
static int start_talker(uint32_t box, unsigned payload)
{
    int out[2];
    assert_return_code(pipe2(out, O_CLOEXEC), errno);
    struct run run = { .script = "while :; do echo x; done", .out = out[1] };
    assert_int_equal(box_run(box, payload, run).event.head.result, 0);
    close(out[1]);
    read_until(out[0], "x");
    return out[0];
}

static size_t drain(int fd)
{
    char text[4096];
    size_t n = 0, got;
    struct pollfd ready = { .fd = fd, .events = POLLIN };

    while (poll(&ready, 1, 0) == 1 && (got = (size_t)read(fd, text, sizeof text)) > 0)
        n += got;
    return n;
}

static void test_a_frozen_box_stands_still_and_goes_on(void **state)
{
    (void)state;
    char text[65];
    box_make(0, NULL);
    int out = start_talker(0, 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(box_ask(REQUEST_FREEZE, 0, 0).event.head.result, 0);
        drain(out);
        assert_int_equal(read_some(out, text, 1, 60), 0);
        assert_int_equal(box_ask(REQUEST_FREEZE, 0, 0).event.head.result, -EBUSY);
        assert_int_equal(box_run(0, 1, (struct run){ .script = "true" }).event.head.result, -EBUSY);
        assert_int_equal(box_ask(REQUEST_USAGE, 0, 0).event.head.result, 0);
        assert_int_equal(box_ask(REQUEST_THAW, 0, 0).event.head.result, 0);
        assert_int_equal(read_some(out, text, 64, DEADLINE_MS), 64);
        assert_int_equal(box_ask(REQUEST_THAW, 0, 0).event.head.result, -EBUSY);
    }
    close(out);
    box_end(0);
}

static void test_a_frozen_box_can_be_destroyed(void **state)
{
    (void)state;
    box_make(0, NULL);
    int out = start_talker(0, 0);
    box_run(0, 1, (struct run){ .script = "sleep 60" });
    front_expect(EVENT_STARTED, 0, 1);      /* frozen before that it never ran, and has no end */
    assert_int_equal(box_ask(REQUEST_FREEZE, 0, 0).event.head.result, 0);
    box_end(0);
    assert_int_equal(front_expect(EVENT_ENDED, 0, 0).event.ended.end.signal, 9);
    assert_int_equal(front_expect(EVENT_ENDED, 0, 1).event.ended.end.signal, 9);
    close(out);
}

static void test_destroy_with_running_payloads(void **state)
{
    (void)state;
    pid_t pids[64];
    box_make(3, NULL);
    size_t before = keeper_children(pids, 64);
    for (unsigned i = 0; i < 6; i++)
        assert_int_equal(box_run(3, i, (struct run){ .script = "setsid sleep 60 & sleep 60 & sleep 60" })
                             .event.head.result, 0);
    wait_for(keeper_children(pids, 64) >= before + 10);
    box_end(3);
    for (int i = 0; i < 6; i++)
        front_expect(EVENT_ENDED, 3, i);
    assert_int_equal(cgroups_of(front.keeper), 0);
    wait_for(keeper_children(pids, 64) <= 1);       /* the janitor */
    /* The slot is free again. */
    box_make(3, NULL);
    box_end(3);
}

static void test_destroy_while_the_box_is_made(void **state)
{
    (void)state;
    for (int i = 0; i < 10; i++) {
        struct request_create q = create_frame(1);
        struct request_head end = { .type = REQUEST_DESTROY, .box = 1 };
        uint32_t create = front_send(&q, sizeof q, NULL, 0), destroy = front_send(&end, sizeof end, NULL, 0);
        struct event_head answer = front_answer(create).event.head;
        assert_true(answer.type == EVENT_READY || (answer.type == EVENT_DONE && answer.result == -ECANCELED));
        answer = front_answer(destroy).event.head;
        assert_int_equal(answer.type, EVENT_GONE);
        assert_int_equal(answer.result, 0);
    }
    assert_int_equal(cgroups_of(front.keeper), 0);
}

static void test_a_killed_init_is_told_with_its_cause(void **state)
{
    (void)state;
    box_make(0, NULL);
    box_run(0, 0, (struct run){ .script = "sleep 60" });
    front_expect(EVENT_STARTED, 0, 0);
    pid_t init = keeper_init();
    assert_true(init > 1);
    assert_return_code(kill(init, SIGKILL), errno);
    assert_int_equal(front_expect(EVENT_ENDED, 0, 0).event.ended.end.signal, 9);
    struct event_gone gone = front_expect(EVENT_GONE, 0, -1).event.gone;
    assert_int_equal(gone.head.serial, 0);
    assert_true(gone.cause.code && gone.cause.what[0]);
    assert_int_equal(gone.token, 1000);
    box_make(0, NULL);
    box_end(0);
}

static void test_the_guest_cannot_end_init(void **state)
{
    (void)state;
    box_make(0, NULL);
    assert_int_equal(box_sh(0, 0, "kill -9 1; kill -TERM 1; kill -9 -1; exit 0", NULL, 0).outcome, OUTCOME_OK);
    assert_int_equal(box_sh(0, 0, "exit 0", NULL, 0).outcome, OUTCOME_OK);
    box_end(0);
}

/* The keeper's companion clones, in the pid namespace of a given process, children of the keeper. */
static int companion_ask[2] = { -1, -1 }, companion_answer[2] = { -1, -1 };

static void make_strangers(void)
{
    pid_t init;
    char path[40], born = 1;

    if (read(companion_ask[0], &init, sizeof init) != sizeof init)
        return;
    snprintf(path, sizeof path, "/proc/%d/ns/pid", (int)init);
    FD ns = open(path, O_RDONLY | O_CLOEXEC);
    born = ns >= 0 && setns(ns, CLONE_NEWPID) == 0;
    for (int i = 0; i < 4 && born; i++) {
        long pid = syscall(SYS_clone, CLONE_PARENT | SIGCHLD, NULL, NULL, NULL, NULL);
        if (pid == 0)
            _exit(0);
        born = pid > 0;
    }
    (void)!write(companion_answer[1], &born, 1);
}

static int setup_with_companion(void **state)
{
    if (pipe2(companion_ask, O_CLOEXEC) < 0 || pipe2(companion_answer, O_CLOEXEC) < 0)
        return -1;
    keeper_companion = make_strangers;
    int r = setup_private(state);
    keeper_companion = NULL;
    return r;
}

static int teardown_with_companion(void **state)
{
    for (int i = 0; i < 2; i++) {
        close(companion_ask[i]);
        close(companion_answer[i]);
    }
    return teardown(state);
}

static void test_children_that_the_keeper_does_not_know_do_not_hold_up_a_boxs_end(void **state)
{
    char born = 0;

    (void)state;
    box_make(0, NULL);
    pid_t init = keeper_init();
    assert_true(init > 1);
    assert_int_equal(write(companion_ask[1], &init, sizeof init), sizeof init);
    assert_int_equal(read_some(companion_answer[0], &born, 1, DEADLINE_MS), 1);
    assert_true(born);
    assert_int_equal(box_sh(0, 0, "exit 3", NULL, 0).code, 3);
    box_end(0);
    box_make(0, NULL);
    box_end(0);
}

static void test_a_killed_keeper_leaves_nothing(void **state)
{
    (void)state;
    enum { BOXES = 20 };
    pid_t pids[512], keeper = front.keeper;
    for (uint32_t i = 0; i < BOXES; i++) {
        box_make(i, NULL);
        box_run(i, 0, (struct run){ .script = "setsid sleep 300 & setsid sleep 300 & sleep 300" });
        front_expect(EVENT_STARTED, i, 0);
    }
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(box_ask(REQUEST_FREEZE, i, 0).event.head.result, 0);
    size_t n;
    wait_for((n = keeper_children(pids, 512)) >= BOXES * 4);
    assert_true(cgroups_of(keeper) >= BOXES);
    assert_return_code(kill(keeper, SIGKILL), errno);
    assert_int_equal(keeper_wait(), SIGKILL);
    for (size_t i = 0; i < n; i++)
        wait_for(!is_running(pids[i]));
    wait_for(cgroups_of(keeper) == 0);
}

pid_t payload_pid(const char *name)
{
    pid_t pids[64];
    char path[64], comm[64];
    size_t n = keeper_children(pids, 64);

    for (size_t i = 0; i < n; i++) {
        snprintf(path, sizeof path, "/proc/%d/comm", (int)pids[i]);
        if (fd_read_file(AT_FDCWD, path, comm, sizeof comm) > 0 && strncmp(comm, name, strlen(name)) == 0)
            return pids[i];
    }
    return -1;
}

static void test_a_killed_keeper_leaves_nothing_that_dies_slowly(void **state)
{
    (void)state;
    pid_t keeper = front.keeper, slow;
    box_make(0, NULL);
    box_run(0, 0, (struct run){ .script = "exec sleep 300" });
    wait_for((slow = payload_pid("sleep")) > 0);
    /* It is stopped in the middle of its death for longer than any single wait. */
    assert_return_code(ptrace(PTRACE_SEIZE, slow, NULL, PTRACE_O_TRACEEXIT), errno);
    assert_return_code(kill(keeper, SIGKILL), errno);
    assert_int_equal(keeper_wait(), SIGKILL);
    assert_int_equal(waitpid(slow, NULL, __WALL), slow);
    usleep(3000000);
    (void)ptrace(PTRACE_DETACH, slow, NULL, NULL);
    wait_for(!is_running(slow));
    wait_for(cgroups_of(keeper) == 0);
}

/* Only the keeper reaps the payload that waits for a command. */
static void test_a_box_that_dies_slowly_holds_up_nobody(void **state)
{
    (void)state;
    pid_t slow;
    struct request_head end = { .type = REQUEST_DESTROY };
    box_make(0, NULL);
    wait_for((slow = payload_pid("payload")) > 0);
    assert_return_code(ptrace(PTRACE_SEIZE, slow, NULL, PTRACE_O_TRACEEXIT), errno);
    uint32_t serial = front_send(&end, sizeof end, NULL, 0);
    assert_int_equal(waitpid(slow, NULL, __WALL), slow);
    box_make(1, NULL);
    box_sh(1, 0, "true", NULL, 0);
    assert_int_equal(box_ask(REQUEST_USAGE, 0, 0).event.head.result, -ENOENT);
    (void)ptrace(PTRACE_DETACH, slow, NULL, NULL);
    assert_int_equal(front_answer(serial).event.head.result, 0);
    box_end(1);
}

/* Puts a process where the kernel does not let it come to where it could be frozen with its box. */
static void hold(const char *folder, pid_t pid)
{
    char text[16];

    if (mkdir(folder, 0755) < 0)
        assert_int_equal(errno, EEXIST);
    FD dir = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    snprintf(text, sizeof text, "%d", (int)pid);
    assert_int_equal(fd_write_file(dir, "tasks", text), 0);
    assert_int_equal(fd_write_file(dir, "freezer.state", "FROZEN"), 0);
    wait_for(fd_read_file(dir, "freezer.state", text, sizeof text) > 0 && strncmp(text, "FROZEN", 6) == 0);
}

static void let_go(const char *folder)
{
    FD dir = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);

    assert_int_equal(fd_write_file(dir, "freezer.state", "THAWED"), 0);
}

static void test_a_box_that_freezes_slowly_holds_up_nobody(void **state)
{
    (void)state;
    struct request_head freeze = { .type = REQUEST_FREEZE }, usage = { .type = REQUEST_USAGE, .box = 1 };
    struct request_socket connect = { .head.type = REQUEST_SOCKET, .port = 1 };
    char folder[64];
    pid_t slow;

    /* Where v1 freezes the box itself, it cannot exempt any process. */
    if (access("/sys/fs/cgroup/unified/cgroup.procs", F_OK) < 0 || access("/sys/fs/cgroup/freezer/tasks", F_OK) < 0)
        skip();
    snprintf(folder, sizeof folder, "/sys/fs/cgroup/freezer/test-engine-%d", getpid());
    box_make(0, NULL);
    box_make(1, NULL);
    box_run(0, 0, (struct run){ .script = "exec sleep 300" });
    wait_for((slow = payload_pid("sleep")) > 0);
    front_expect(EVENT_STARTED, 0, 0);
    hold(folder, slow);
    /* Stopped, so that it finds all of them, however slow this machine is. */
    assert_return_code(kill(front.keeper, SIGSTOP), errno);
    uint32_t frozen = front_send(&freeze, sizeof freeze, NULL, 0);
    uint32_t connected = front_send(&connect, sizeof connect, NULL, 0);
    uint32_t used = front_send(&usage, sizeof usage, NULL, 0);
    assert_return_code(kill(front.keeper, SIGCONT), errno);
    struct told told[2];
    for (int i = 0; i < 2; i += told[i].event.head.serial != 0)
        told[i] = front_next();
    let_go(folder);
    assert_int_equal(told[0].event.head.serial, connected);
    assert_int_equal(told[0].event.head.result, -EBUSY);
    assert_int_equal(told[1].event.head.serial, used);
    int r = front_answer(frozen).event.head.result;
    /* Too slow for its deadline, maybe; then it runs, and can be frozen now. */
    if (r == -ETIMEDOUT)
        r = box_ask(REQUEST_FREEZE, 0, 0).event.head.result;
    assert_int_equal(r, 0);
    assert_int_equal(box_ask(REQUEST_THAW, 0, 0).event.head.result, 0);

    /* One that is destroyed meanwhile is not frozen any more. */
    hold(folder, slow);
    assert_return_code(kill(front.keeper, SIGSTOP), errno);
    frozen = front_send(&freeze, sizeof freeze, NULL, 0);
    struct request_head end = { .type = REQUEST_DESTROY };
    uint32_t gone = front_send(&end, sizeof end, NULL, 0);
    assert_return_code(kill(front.keeper, SIGCONT), errno);
    assert_int_equal(front_answer(frozen).event.head.result, -ECANCELED);
    let_go(folder);
    assert_int_equal(front_answer(gone).event.head.result, 0);
    assert_int_equal(front_expect(EVENT_ENDED, 0, 0).event.ended.end.signal, 9);
    wait_for(rmdir(folder) == 0);
    box_end(1);
}

/* Lets the keeper run until it has taken another effective id. */
static void wait_for_other_id(pid_t keeper)
{
    struct ptrace_syscall_info call = { 0 };
    bool is_the_call = false;
    int status;

    for (;;) {
        assert_return_code(ptrace(PTRACE_SYSCALL, keeper, NULL, NULL), errno);
        assert_int_equal(waitpid(keeper, &status, 0), keeper);
        assert_true(WIFSTOPPED(status));
        if (ptrace(PTRACE_GET_SYSCALL_INFO, keeper, sizeof call, &call) < 0)
            continue;
        if (call.op == PTRACE_SYSCALL_INFO_EXIT && is_the_call)
            return;
        is_the_call = call.op == PTRACE_SYSCALL_INFO_ENTRY && call.entry.nr == SYS_setresuid
                      && (uid_t)call.entry.args[1] != 0;
    }
}

/* It takes the id of a box's range to make that box's user namespace, and must not lose the right to end the others. */
static void test_a_keeper_killed_as_somebody_else_leaves_nothing(void **state)
{
    (void)state;
    enum { BOXES = 3 };
    pid_t pids[64], keeper = front.keeper;
    for (uint32_t i = 0; i < BOXES; i++)
        box_make(i, NULL);
    size_t n = keeper_children(pids, 64);
    assert_true(n >= BOXES);
    assert_return_code(ptrace(PTRACE_SEIZE, keeper, NULL, PTRACE_O_TRACESYSGOOD), errno);
    assert_return_code(ptrace(PTRACE_INTERRUPT, keeper, NULL, NULL), errno);
    assert_int_equal(waitpid(keeper, NULL, 0), keeper);
    struct request_create create = create_frame(BOXES);
    front_send(&create, sizeof create, NULL, 0);
    wait_for_other_id(keeper);
    assert_return_code(kill(keeper, SIGKILL), errno);
    assert_int_equal(keeper_wait(), SIGKILL);
    for (size_t i = 0; i < n; i++)
        wait_for(!is_running(pids[i]));
    wait_for(cgroups_of(keeper) == 0);
}

static void test_sigterm_ends_the_keeper_cleanly(void **state)
{
    (void)state;
    pid_t pids[64], keeper = front.keeper;
    box_make(0, NULL);
    box_make(1, NULL);
    box_run(0, 0, (struct run){ .script = "sleep 300" });
    front_expect(EVENT_STARTED, 0, 0);
    assert_int_equal(box_ask(REQUEST_FREEZE, 0, 0).event.head.result, 0);
    size_t n = keeper_children(pids, 64);
    assert_return_code(kill(keeper, SIGTERM), errno);
    front_expect(EVENT_GONE, 0, -1);
    front_expect(EVENT_GONE, 1, -1);
    assert_int_equal(keeper_wait(), 0);
    for (size_t i = 0; i < n; i++)
        wait_for(!is_running(pids[i]));
    assert_int_equal(cgroups_of(keeper), 0);
}

static void test_payloads_get_no_blocked_signals(void **state)
{
    (void)state;
    char out[64];
    box_make(0, NULL);
    box_sh(0, 0, "grep -h SigBlk /proc/self/status", out, sizeof out);
    assert_string_equal(out, "SigBlk:\t0000000000000000\n");
    box_end(0);
}

static void test_the_keeper_ends_with_its_front(void **state)
{
    (void)state;
    pid_t keeper = front.keeper;
    box_make(0, NULL);
    box_run(0, 0, (struct run){ .script = "sleep 300" });
    front_close();
    assert_int_equal(keeper_wait(), 0);
    assert_int_equal(cgroups_of(keeper), 0);
}

static void test_500_boxes_leave_no_trace_in_the_keeper(void **state)
{
    (void)state;
    enum { AT_ONCE = 4, WARM = 40 };
    /* The second layout differs only in its cgroups. */
    const uint32_t boxes = access("/sys/fs/cgroup/unified/cgroup.procs", F_OK) == 0 ? 500 : 100;
    int fds = 0;
    long memory = 0;
    for (uint32_t i = 0; i < boxes + WARM; i++) {
        if (i == WARM) {
            for (uint32_t k = 0; k < AT_ONCE; k++)
                box_end(k);
            fds = keeper_fds();
            memory = keeper_anonymous_kb();
        }
        if (i >= AT_ONCE && !(i >= WARM && i < WARM + AT_ONCE))
            box_end(i % AT_ONCE);
        box_make(i % AT_ONCE, NULL);
        if (i % 10 == 0)
            box_sh(i % AT_ONCE, 0, "exit 0", NULL, 0);
    }
    for (uint32_t k = 0; k < AT_ONCE; k++)
        box_end(k);
    assert_int_equal(keeper_fds(), fds);
    assert_true(memory > 0);
    assert_in_range(keeper_anonymous_kb(), 1, memory + 256);
    assert_int_equal(cgroups_of(front.keeper), 0);
    pid_t pids[16];
    wait_for(keeper_children(pids, 16) <= 1);
}

static void test_100_boxes_at_once(void **state)
{
    (void)state;
    enum { BOXES = 100 };
    int fds = keeper_fds();
    uint64_t start = clock_monotonic_us();
    for (uint32_t i = 0; i < BOXES; i++) {
        struct request_create q = create_frame(i);
        front_send(&q, sizeof q, NULL, 0);
    }
    for (uint32_t i = 0; i < BOXES; i++)
        front_expect(EVENT_READY, i, -1);
    for (uint32_t i = 0; i < BOXES; i++)
        box_run(i, 0, (struct run){ .script = "exit 7" });
    for (uint32_t i = 0; i < BOXES; i++)
        assert_int_equal(front_expect(EVENT_ENDED, i, 0).event.ended.end.code, 7);
    printf("engine: 100 boxes made and run in %.2f s\n", (double)(clock_monotonic_us() - start) / 1e6);
    for (uint32_t i = 0; i < BOXES; i++) {
        struct request_head q = { .type = REQUEST_DESTROY, .box = i };
        front_send(&q, sizeof q, NULL, 0);
    }
    for (uint32_t i = 0; i < BOXES; i++)
        front_expect(EVENT_GONE, i, -1);
    assert_int_equal(keeper_fds(), fds);
    assert_int_equal(cgroups_of(front.keeper), 0);
}

/* What came in time is in time, however late the keeper looks. */
static void test_a_keeper_that_was_stopped_calls_nobody_late(void **state)
{
    (void)state;
    int in[2], out[2];
    char text[8];

    box_make(1, NULL);
    assert_return_code(pipe2(in, O_CLOEXEC) | pipe2(out, O_CLOEXEC), errno);
    struct run run = { .script = "echo runs; read x; exit 3", .in = in[0], .out = out[1], .timeout_ms = 10000 };
    uint64_t start = clock_monotonic_us();
    assert_int_equal(box_run(1, 0, run).event.head.result, 0);
    close(in[0]);
    close(out[1]);
    read_until(out[0], "runs\n");
    kill(front.keeper, SIGSTOP);
    assert_int_equal(write(in[1], "\n", 1), 1);
    assert_int_equal(read_some(out[0], text, sizeof text, DEADLINE_MS), 0);
    wait_for(clock_monotonic_us() > start + 10100000);
    kill(front.keeper, SIGCONT);
    struct frame_end ended = front_expect(EVENT_ENDED, 1, 0).event.ended.end;
    assert_int_equal(ended.outcome, OUTCOME_ERROR);
    assert_int_equal(ended.code, 3);
    close(in[1]);
    close(out[0]);
    box_end(1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup_private, teardown)
const struct CMUnitTest life_tests[] = {
    TEST(test_a_frozen_box_stands_still_and_goes_on),
    TEST(test_a_frozen_box_can_be_destroyed),
    TEST(test_destroy_with_running_payloads),
    TEST(test_destroy_while_the_box_is_made),
    TEST(test_a_killed_init_is_told_with_its_cause),
    TEST(test_the_guest_cannot_end_init),
    cmocka_unit_test_setup_teardown(test_children_that_the_keeper_does_not_know_do_not_hold_up_a_boxs_end,
                                    setup_with_companion, teardown_with_companion),
    TEST(test_a_killed_keeper_leaves_nothing),
    TEST(test_a_killed_keeper_leaves_nothing_that_dies_slowly),
    TEST(test_a_box_that_dies_slowly_holds_up_nobody),
    TEST(test_a_box_that_freezes_slowly_holds_up_nobody),
    TEST(test_a_keeper_killed_as_somebody_else_leaves_nothing),
    TEST(test_sigterm_ends_the_keeper_cleanly),
    TEST(test_payloads_get_no_blocked_signals),
    TEST(test_the_keeper_ends_with_its_front),
    TEST(test_500_boxes_leave_no_trace_in_the_keeper),
    TEST(test_100_boxes_at_once),
    TEST(test_a_keeper_that_was_stopped_calls_nobody_late),
};
const size_t n_life_tests = sizeof life_tests / sizeof *life_tests;
