/* Boxes of a family while they are being born: if the midwife or the box dies at any moment, the keeper serves others,
 * and no process is left. */
#define _GNU_SOURCE
#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SLOT = 5 };
enum { SOON_MS = 5000 };        /* less than a midwife's time, and enough for a busy machine */

/* A box that is being born: its midwife, and its init, are stopped as a hostile zygote could do it where there is only
 * one user. */
struct birth {
    uint32_t serial;
    pid_t    midwife, init;     /* init 0: not born yet */
    int      leaves, fds;       /* what the keeper had before */
};

static bool is_blank;           /* births that are stopped are of blank boxes */

/* Lets it run until it clones; the child is traced, too, and stopped. */
static pid_t next_child(pid_t parent)
{
    int status = 0;

    for (;;) {
        unsigned long child = 0;
        assert_int_equal(waitpid(parent, &status, __WALL), parent);
        assert_true(WIFSTOPPED(status));
        if (status >> 16 == PTRACE_EVENT_FORK || status >> 16 == PTRACE_EVENT_CLONE) {
            assert_return_code(ptrace(PTRACE_GETEVENTMSG, parent, NULL, &child), errno);
            assert_int_equal(waitpid((pid_t)child, &status, __WALL), (pid_t)child);
            return (pid_t)child;
        }
        int signal = status >> 16 ? 0 : WSTOPSIG(status);
        assert_return_code(ptrace(PTRACE_CONT, parent, NULL, signal), errno);
    }
}

static void leave_stopped(pid_t pid)
{
    assert_return_code(kill(pid, SIGSTOP), errno);
    assert_return_code(ptrace(PTRACE_DETACH, pid, NULL, NULL), errno);
}

/* Requests a box and stops its midwife: before its first step, or when init is born and not reported. */
static struct birth stop_birth(uint32_t box, bool with_init)
{
    struct birth b = { .leaves = cgroups_of(front.keeper), .fds = keeper_fds() };

    assert_return_code(ptrace(PTRACE_SEIZE, front.keeper, NULL, PTRACE_O_TRACEFORK | PTRACE_O_TRACECLONE), errno);
    b.serial = is_blank ? ahead_order(box, SLOT, CREATE_BLANK) : family_order_box(box, SLOT);
    b.midwife = next_child(front.keeper);
    assert_return_code(ptrace(PTRACE_DETACH, front.keeper, NULL, NULL), errno);
    if (with_init) {
        assert_return_code(ptrace(PTRACE_CONT, b.midwife, NULL, NULL), errno);
        b.init = next_child(b.midwife);
        leave_stopped(b.init);
    }
    leave_stopped(b.midwife);
    return b;
}

static void go_on(const struct birth *b)
{
    (void)kill(b->midwife, SIGCONT);
    if (b->init)
        (void)kill(b->init, SIGCONT);
}

static void assert_nothing_is_left(const struct birth *b)
{
    pid_t left[16];

    wait_for(!is_running(b->midwife));
    wait_for(!b->init || !is_running(b->init));
    wait_for(cgroups_of(front.keeper) <= b->leaves);
    wait_for(keeper_fds() <= b->fds);
    /* The janitor, init and zygote of the family. */
    wait_for(keeper_children(left, 16) <= 3);
}

static void test_a_box_that_is_being_born_holds_nobody_up(void **state)
{
    (void)state;
    char out[64];

    family_make(SLOT, "zygote");
    for (int with_init = 0; with_init < 2; with_init++) {
        struct birth b = stop_birth(1, with_init);
        uint64_t start = clock_monotonic_us();
        assert_keeper_serves(2);
        must_make(3, SLOT);
        box_end(3);
        assert_true(clock_monotonic_us() - start < SOON_MS * 1000ull);
        assert_int_equal(box_ask(REQUEST_USAGE, 1, 0).event.head.result, -EBUSY);
        go_on(&b);
        assert_int_equal(front_answer(b.serial).event.head.type, EVENT_READY);
        box_sh(1, 0, "echo born", out, sizeof out);
        assert_string_equal(out, "born\n");
        box_end(1);
        assert_nothing_is_left(&b);
    }
}

static uint64_t keeper_cpu_us(void)
{
    char path[48], text[64];

    snprintf(path, sizeof path, "/proc/%d/schedstat", (int)front.keeper);
    assert_true(fd_read_file(AT_FDCWD, path, text, sizeof text) > 0);
    return strtoull(text, NULL, 10) / 1000;
}

/* The first child is sealed and has said so, but without init there is no box for it. */
static void test_an_init_that_is_slow_costs_no_processor_time(void **state)
{
    (void)state;
    enum { LOOK_US = 500000 };
    pid_t left[16];

    family_make(SLOT, "zygote");
    struct birth b = stop_birth(1, true);
    assert_return_code(kill(b.midwife, SIGCONT), errno);
    /* The janitor, init and zygote of the family, init and child of the box. */
    wait_for(!is_running(b.midwife) && keeper_children(left, 16) == 5);
    usleep(LOOK_US / 5);
    uint64_t before = keeper_cpu_us();
    usleep(LOOK_US);
    assert_true(keeper_cpu_us() - before < LOOK_US / 10);
    go_on(&b);
    assert_int_equal(front_answer(b.serial).event.head.type, EVENT_READY);
    box_end(1);
}

static void test_a_midwife_that_never_answers_costs_its_box_only(void **state)
{
    (void)state;
    family_make(SLOT, "zygote");
    struct birth b = stop_birth(1, true);
    uint64_t start = clock_monotonic_us();
    assert_keeper_serves(2);
    assert_true(clock_monotonic_us() - start < SOON_MS * 1000ull);
    assert_int_equal(front_answer(b.serial).event.head.result, -ETIMEDOUT);
    assert_nothing_is_left(&b);
    must_make(1, SLOT);
    box_end(1);
    family_end(SLOT);
}

static void test_a_midwife_that_is_killed_costs_its_box_only(void **state)
{
    (void)state;
    family_make(SLOT, "zygote");
    for (int with_init = 0; with_init < 2; with_init++) {
        struct birth b = stop_birth(1, with_init);
        assert_return_code(kill(b.midwife, SIGKILL), errno);
        assert_int_equal(front_answer(b.serial).event.head.result, -ECHILD);
        assert_nothing_is_left(&b);
        must_make(1, SLOT);
        box_end(1);
    }
}

static void test_an_init_that_is_killed_before_it_is_known_costs_its_box_only(void **state)
{
    (void)state;
    family_make(SLOT, "zygote");
    struct birth b = stop_birth(1, true);
    assert_return_code(kill(b.init, SIGKILL), errno);
    wait_for(!is_running(b.init));
    go_on(&b);
    assert_true(front_answer(b.serial).event.head.result < 0);
    assert_nothing_is_left(&b);
    must_make(1, SLOT);
    box_end(1);
}

/* They are dead and unreported when the keeper ends, which is right away. */
static void test_a_keeper_ends_with_unknown_children(void **state)
{
    (void)state;
    family_make(SLOT, "zygote");
    struct birth a = stop_birth(1, true), b = stop_birth(2, true);
    assert_return_code(kill(a.init, SIGKILL), errno);
    assert_return_code(kill(b.init, SIGKILL), errno);
    wait_for(!is_running(a.init) && !is_running(b.init));
    assert_return_code(kill(a.midwife, SIGKILL), errno);
    go_on(&b);
    assert_int_equal(front_answer(a.serial).event.head.result, -ECHILD);
    assert_true(front_answer(b.serial).event.head.result < 0);
}

static void test_a_box_is_destroyed_while_it_is_being_born(void **state)
{
    (void)state;
    family_make(SLOT, "zygote");
    for (int with_init = 0; with_init < 2; with_init++) {
        struct birth b = stop_birth(1, with_init);
        uint64_t start = clock_monotonic_us();
        assert_int_equal(box_ask(REQUEST_DESTROY, 1, 0).event.head.type, EVENT_GONE);
        assert_true(clock_monotonic_us() - start < SOON_MS * 1000ull);
        assert_int_equal(front_answer(b.serial).event.head.result, -ECANCELED);
        assert_nothing_is_left(&b);
        must_make(1, SLOT);
        box_end(1);
    }
}

static void test_boxes_are_destroyed_at_any_moment_of_their_birth(void **state)
{
    (void)state;
    enum { N = 60 };
    pid_t left[16];

    family_make(SLOT, "zygote");
    int fds = keeper_fds(), leaves = cgroups_of(front.keeper);
    for (uint32_t i = 0; i < N; i++) {
        struct request_head end = { .type = REQUEST_DESTROY, .box = 1 };
        uint32_t made = family_order_box(1, SLOT);
        usleep(i * 100);
        uint32_t ended = front_send(&end, sizeof end, NULL, 0);
        union event event = front_answer(made).event;
        assert_true(event.head.type == EVENT_READY || event.head.result == -ECANCELED);
        assert_int_equal(front_answer(ended).event.head.type, EVENT_GONE);
    }
    wait_for(cgroups_of(front.keeper) <= leaves);
    wait_for(keeper_fds() <= fds);
    wait_for(keeper_children(left, 16) <= 3);
    must_make(1, SLOT);
    box_end(1);
}

static void test_a_zygote_that_ends_during_a_birth_leaves_no_box(void **state)
{
    (void)state;
    family_make(SLOT, "zygote");
    struct birth b = stop_birth(1, true);
    assert_return_code(kill(find_zygote(), SIGKILL), errno);
    front_expect(EVENT_FAMILY_GONE, SLOT, -1);
    go_on(&b);
    assert_int_equal(front_answer(b.serial).event.head.result, -ECHILD);
    assert_nothing_is_left(&b);
    /* Nor a family: only the janitor. */
    pid_t left[16];
    wait_for(keeper_children(left, 16) <= 1);
    assert_keeper_serves(1);
}

static void test_a_birth_outlives_its_front(void **state)
{
    (void)state;
    char out[64];

    front_connect();
    family_make(SLOT, "zygote");
    struct birth b = stop_birth(1, true);
    front_close();
    front_connect();
    assert_int_equal(front_expect(EVENT_BOX, 1, -1).event.box.family, SLOT + 1);
    front_expect(EVENT_SYNCED, 0, -1);
    go_on(&b);
    front_expect(EVENT_READY, 1, -1);
    box_sh(1, 0, "echo born", out, sizeof out);
    assert_string_equal(out, "born\n");
    box_end(1);
}

/* As many as are born at once in one family; the next one is queued. */
enum { AT_ONCE = 4 };

static void stop_births(struct birth *ret)
{
    for (uint32_t i = 0; i < AT_ONCE; i++)
        ret[i] = stop_birth(10 + i, i % 2);
}

static void test_boxes_stand_in_line_for_a_birth(void **state)
{
    (void)state;
    struct birth b[AT_ONCE];
    uint32_t in_line[3];

    family_make(SLOT, "zygote");
    family_make(SLOT + 1, "zygote");
    stop_births(b);
    for (uint32_t i = 0; i < 3; i++)
        in_line[i] = family_order_box(20 + i, SLOT);
    uint64_t start = clock_monotonic_us();
    assert_keeper_serves(2);
    must_make(3, SLOT + 1);
    box_end(3);
    assert_int_equal(box_ask(REQUEST_USAGE, 20, 0).event.head.result, -EBUSY);
    assert_int_equal(box_ask(REQUEST_DESTROY, 20, 0).event.head.type, EVENT_GONE);
    assert_int_equal(front_answer(in_line[0]).event.head.result, -ECANCELED);
    assert_true(clock_monotonic_us() - start < SOON_MS * 1000ull);
    /* One place is enough for both others. */
    assert_return_code(kill(b[0].midwife, SIGKILL), errno);
    assert_int_equal(front_answer(b[0].serial).event.head.result, -ECHILD);
    for (uint32_t i = 1; i < 3; i++)
        assert_int_equal(front_answer(in_line[i]).event.head.type, EVENT_READY);
    for (uint32_t i = 1; i < AT_ONCE; i++) {
        go_on(&b[i]);
        assert_int_equal(front_answer(b[i].serial).event.head.type, EVENT_READY);
        box_end(10 + i);
    }
    box_end(21);
    box_end(22);
    family_end(SLOT + 1);
    assert_nothing_is_left(&b[0]);
}

/* One that is made ahead was requested first. It waits until no caller's box is being born. */
static void test_callers_boxes_are_born_before_those_made_ahead(void **state)
{
    (void)state;
    struct birth b[AT_ONCE];

    family_make(SLOT, "zygote");
    family_make(SLOT + 1, "zygote");
    stop_births(b);
    uint32_t ahead = ahead_order(20, SLOT, CREATE_AHEAD | CREATE_BLANK);
    uint32_t elsewhere = ahead_order(21, SLOT + 1, CREATE_AHEAD);
    uint32_t callers = family_order_box(22, SLOT);
    must_make(3, SLOT + 1);
    assert_return_code(kill(b[0].midwife, SIGKILL), errno);
    assert_int_equal(front_answer(b[0].serial).event.head.result, -ECHILD);
    assert_int_equal(front_answer(callers).event.head.type, EVENT_READY);
    assert_int_equal(box_ask(REQUEST_USAGE, 20, 0).event.head.result, -EBUSY);
    assert_int_equal(box_ask(REQUEST_USAGE, 21, 0).event.head.result, -EBUSY);
    for (uint32_t i = 1; i < AT_ONCE; i++) {
        go_on(&b[i]);
        assert_int_equal(front_answer(b[i].serial).event.head.type, EVENT_READY);
        box_end(10 + i);
    }
    assert_int_equal(front_answer(ahead).event.head.type, EVENT_READY);
    assert_int_equal(front_answer(elsewhere).event.head.type, EVENT_READY);
    for (uint32_t i = 20; i < 23; i++)
        box_end(i);
    box_end(3);
    family_end(SLOT + 1);
    assert_nothing_is_left(&b[0]);
}

/* Twice: as often as a zygote may be late. It has no part in this. */
static void test_a_blank_box_whose_init_says_nothing_costs_no_zygote(void **state)
{
    (void)state;
    struct birth b[2];

    family_make(SLOT, "zygote");
    for (uint32_t i = 0; i < 2; i++) {
        is_blank = true;
        b[i] = stop_birth(1 + i, true);
        is_blank = false;
        assert_return_code(kill(b[i].midwife, SIGCONT), errno);
    }
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(front_answer(b[i].serial).event.head.result, -ETIMEDOUT);
    assert_nothing_is_left(&b[0]);
    must_make(1, SLOT);
    box_end(1);
    family_end(SLOT);
}

static void test_a_zygote_that_ends_leaves_nobody_in_line(void **state)
{
    (void)state;
    struct birth b[AT_ONCE];
    pid_t left[16];

    family_make(SLOT, "zygote");
    stop_births(b);
    uint32_t in_line = family_order_box(20, SLOT);
    assert_return_code(kill(find_zygote(), SIGKILL), errno);
    uint64_t start = clock_monotonic_us();
    assert_int_equal(front_answer(in_line).event.head.result, -ECHILD);
    assert_true(clock_monotonic_us() - start < SOON_MS * 1000ull);
    for (uint32_t i = 0; i < AT_ONCE; i++) {
        go_on(&b[i]);
        assert_int_equal(front_answer(b[i].serial).event.head.result, -ECHILD);
    }
    wait_for(keeper_children(left, 16) <= 1);
    assert_nothing_is_left(&b[0]);
}

static void test_a_line_outlives_its_front(void **state)
{
    (void)state;
    struct birth b[AT_ONCE];

    front_connect();
    family_make(SLOT, "zygote");
    stop_births(b);
    (void)family_order_box(20, SLOT);
    front_close();
    front_connect();
    assert_int_equal(front_expect(EVENT_BOX, 20, -1).event.box.family, SLOT + 1);
    front_expect(EVENT_SYNCED, 0, -1);
    for (uint32_t i = 0; i < AT_ONCE; i++)
        go_on(&b[i]);
    front_expect(EVENT_READY, 20, -1);
    for (uint32_t i = 0; i < AT_ONCE; i++)
        box_end(10 + i);
    box_end(20);
}

/* It ends cleanly; the end of the test looks at that. */
static void test_a_keeper_ends_during_births(void **state)
{
    (void)state;
    family_make(SLOT, "zygote");
    struct birth b[AT_ONCE];
    stop_births(b);
    for (uint32_t i = 0; i < 3; i++)            /* they stand in line */
        (void)family_order_box(20 + i, SLOT);
    pid_t keeper = front.keeper;
    assert_int_equal(box_ask(REQUEST_USAGE, 22, 0).event.head.result, -EBUSY);
    front_close();
    keeper_wait();
    for (uint32_t i = 0; i < AT_ONCE; i++)
        assert_false(is_running(b[i].midwife) || (b[i].init && is_running(b[i].init)));
    assert_int_equal(cgroups_of(keeper), 0);
}

static void test_a_killed_keeper_leaves_no_birth(void **state)
{
    (void)state;
    family_make(SLOT, "zygote");
    struct birth early = stop_birth(1, false), late = stop_birth(2, true);
    pid_t keeper = front.keeper;
    kill(keeper, SIGKILL);
    keeper_wait();
    wait_for(!is_running(early.midwife) && !is_running(late.midwife) && !is_running(late.init));
    wait_for(cgroups_of(keeper) == 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup_family, teardown_family)
const struct CMUnitTest birth_tests[] = {
    TEST(test_a_box_that_is_being_born_holds_nobody_up),
    TEST(test_an_init_that_is_slow_costs_no_processor_time),
    TEST(test_a_midwife_that_never_answers_costs_its_box_only),
    TEST(test_a_midwife_that_is_killed_costs_its_box_only),
    TEST(test_an_init_that_is_killed_before_it_is_known_costs_its_box_only),
    TEST(test_a_keeper_ends_with_unknown_children),
    TEST(test_a_box_is_destroyed_while_it_is_being_born),
    TEST(test_boxes_are_destroyed_at_any_moment_of_their_birth),
    TEST(test_a_zygote_that_ends_during_a_birth_leaves_no_box),
    cmocka_unit_test_setup_teardown(test_a_birth_outlives_its_front, setup_family_listening, teardown_family),
    TEST(test_boxes_stand_in_line_for_a_birth),
    TEST(test_callers_boxes_are_born_before_those_made_ahead),
    TEST(test_a_blank_box_whose_init_says_nothing_costs_no_zygote),
    TEST(test_a_zygote_that_ends_leaves_nobody_in_line),
    cmocka_unit_test_setup_teardown(test_a_line_outlives_its_front, setup_family_listening, teardown_family),
    TEST(test_a_keeper_ends_during_births),
    TEST(test_a_killed_keeper_leaves_no_birth),
};
const size_t n_birth_tests = sizeof birth_tests / sizeof *birth_tests;
