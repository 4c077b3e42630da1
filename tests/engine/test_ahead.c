/* Boxes of a family that are made ahead without a payload: complete at init's report, used like others, and gone
 * whatever dies while they wait. Commands that are forked into many of them at once queue for the zygote. */
#define _GNU_SOURCE
#include "support.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { SLOT = 5, SOON_MS = 5000 };
enum { OF_FAMILY = 3 };         /* processes: the janitor, init and zygote of the family */

static char *echo_here[] = { "@echo", "here", NULL };
static const struct run forked = { .argv = echo_here, .way = START_FORK };

uint32_t ahead_order(uint32_t box, uint32_t slot, uint32_t flags)
{
    struct request_create frame = create_frame(box);

    frame_mount_add(&frame.mounts, MOUNT_LAYER, 1);
    frame.family = slot + 1;
    frame.flags |= flags;
    return front_send(&frame, sizeof frame, NULL, 0);
}

static void make_blank(uint32_t box)
{
    struct told told = front_answer(ahead_order(box, SLOT, CREATE_AHEAD | CREATE_BLANK));
    char text[300];

    err_text(&told.event.done.err, text, sizeof text);
    if (told.event.head.type != EVENT_READY)
        fail_msg("blank box: %d %s", told.event.head.result, text);
}

static void assert_forks(uint32_t box)
{
    char out[64];
    int way;

    box_do(box, 0, forked, out, sizeof out, &way);
    assert_int_equal(way, WAY_FORKED);
    assert_string_equal(out, "here\n");
}

static void test_a_blank_box_has_no_payload_until_one_is_requested(void **state)
{
    (void)state;
    pid_t pids[16];
    char out[64];
    int way;

    family_make(SLOT, "zygote");
    make_blank(1);
    /* And init of the box. The midwife may not be reaped yet. */
    wait_for(keeper_children(pids, 16) == OF_FAMILY + 1);
    assert_forks(1);
    box_do(1, 0, (struct run){ .script = "echo $0" }, out, sizeof out, &way);
    assert_int_equal(way, WAY_EXECUTED);
    assert_string_equal(out, "/bin/sh\n");
    make_blank(2);
    box_do(2, 0, (struct run){ .script = "echo first" }, out, sizeof out, &way);
    assert_string_equal(out, "first\n");
    assert_forks(2);
    box_end(1);
    box_end(2);
    family_end(SLOT);
}

/* What a program could see of the time before its caller came. */
static void test_a_blank_box_shows_no_use(void **state)
{
    (void)state;
    char out[128];

    family_make(SLOT, "zygote");
    make_blank(1);
    struct frame_usage usage = box_ask(REQUEST_USAGE, 1, 0).event.usage.usage;
    assert_int_equal(usage.disk_bytes, 0);
    assert_int_equal(usage.pids, 0);
    assert_int_equal(usage.pids_peak, 0);
    assert_int_equal(usage.cpu_us, 0);
    assert_int_equal(usage.oom_kills + usage.pids_refused + usage.disk_full, 0);
    box_sh(1, 0, "ls -A /tmp /home/box /dev/shm | grep -v : ; ls -d /proc/[0-9]* | grep -c . ", out, sizeof out);
    assert_string_equal(strrchr(out, '\n') - 1, "4\n");     /* init, the shell, ls and grep */
    box_end(1);
}

static void test_only_a_family_has_blank_boxes(void **state)
{
    (void)state;
    struct request_create frame = create_frame(1);

    frame.flags |= CREATE_BLANK;
    assert_int_equal(front_answer(front_send(&frame, sizeof frame, NULL, 0)).event.head.result, -EINVAL);
    frame = create_frame(1);
    frame.flags |= CREATE_FLAGS + 1;
    assert_int_equal(front_answer(front_send(&frame, sizeof frame, NULL, 0)).event.head.result, -EINVAL);
    assert_keeper_serves(1);
}

static void test_a_killed_zygote_leaves_blank_boxes_that_execute(void **state)
{
    (void)state;
    char out[64];
    pid_t left[16];

    family_make(SLOT, "zygote");
    make_blank(1);
    assert_return_code(kill(find_zygote(), SIGKILL), errno);
    front_expect(EVENT_FAMILY_GONE, SLOT, -1);
    assert_int_equal(box_run(1, 0, forked).event.head.result, -ECHILD);
    assert_int_equal(front_answer(ahead_order(2, SLOT, CREATE_BLANK)).event.head.result, -ECHILD);
    box_sh(1, 0, "echo alive", out, sizeof out);
    assert_string_equal(out, "alive\n");
    box_end(1);
    wait_for(keeper_children(left, 16) <= 1);
}

/* The init of the only box: it came last. */
static pid_t last_init(void)
{
    pid_t pids[16], found = 0;
    size_t n = keeper_children(pids, 16);

    for (size_t i = 0; i < n; i++)
        found = pids[i] > found ? pids[i] : found;
    return found;
}

static void test_a_blank_box_whose_init_is_killed_is_gone(void **state)
{
    (void)state;
    pid_t left[16];

    family_make(SLOT, "zygote");
    int leaves = cgroups_of(front.keeper), fds = keeper_fds();
    make_blank(1);
    wait_for(keeper_children(left, 16) == OF_FAMILY + 1);
    assert_return_code(kill(last_init(), SIGKILL), errno);
    assert_int_equal(front_expect(EVENT_GONE, 1, -1).event.gone.cause.code, ECHILD);
    wait_for(keeper_children(left, 16) == OF_FAMILY);
    wait_for(cgroups_of(front.keeper) <= leaves && keeper_fds() <= fds);
    make_blank(1);
    assert_forks(1);
    box_end(1);
}

static void test_the_next_front_hears_of_blank_boxes(void **state)
{
    (void)state;

    front_connect();
    family_make(SLOT, "zygote");
    make_blank(1);
    front_close();
    front_connect();
    assert_int_equal(front_expect(EVENT_BOX, 1, -1).event.box.state, BOX_READY);
    front_expect(EVENT_SYNCED, 0, -1);
    assert_forks(1);
    box_end(1);
}

static void test_a_killed_keeper_leaves_no_blank_box(void **state)
{
    (void)state;
    pid_t pids[16];

    family_make(SLOT, "zygote");
    make_blank(1);
    make_blank(2);
    pid_t keeper = front.keeper;
    size_t n = keeper_children(pids, 16);
    assert_true(n >= OF_FAMILY + 2);
    kill(keeper, SIGKILL);
    keeper_wait();
    for (size_t i = 0; i < n; i++)
        wait_for(!is_running(pids[i]));
    wait_for(cgroups_of(keeper) == 0);
}

/* It tries every process that it sees before it forks: the blank box was made before, and is taken afterwards. */
static void test_a_zygote_that_looks_for_blank_boxes_keeps_none(void **state)
{
    (void)state;
    pid_t left[16];
    char out[64], *echo[] = { "/bin/echo", "hi", NULL };

    family_make(SLOT, "zygote-prowl");
    int leaves = cgroups_of(front.keeper);
    make_blank(1);
    must_make(2, SLOT);
    for (uint32_t box = 1; box <= 2; box++) {
        box_do(box, 0, (struct run){ .argv = echo, .way = START_FORK }, out, sizeof out, NULL);
        assert_string_equal(out, "hi\n");
        box_end(box);
    }
    wait_for(cgroups_of(front.keeper) <= leaves);
    family_end(SLOT);
    wait_for(keeper_children(left, 16) <= 1);
    assert_keeper_serves(3);
}

/* ---- many at once ---- */

enum { BURST = 100, FEW = 20 };

/* The zygote is stopped until all are requested. A request that it has not answered holds a link; a queued command only
 * holds its descriptor. */
static pid_t order_burst(void)
{
    family_make(SLOT, "zygote");
    for (uint32_t i = 0; i < BURST; i++)
        make_blank(i);
    pid_t zygote = find_zygote();
    assert_return_code(kill(zygote, SIGSTOP), errno);
    int fds = keeper_fds();
    for (uint32_t i = 0; i < BURST; i++)
        assert_int_equal(box_run(i, 0, forked).event.head.result, 0);
    assert_true(keeper_fds() < fds + BURST + FEW);
    return zygote;
}

static void test_commands_in_many_blank_boxes_queue_for_the_zygote(void **state)
{
    (void)state;
    pid_t zygote = order_burst();

    /* They are commands like others meanwhile. */
    assert_int_equal(box_run(BURST - 1, 0, forked).event.head.result, -EBUSY);
    assert_int_equal(box_ask(REQUEST_DESTROY, BURST - 2, 0).event.head.type, EVENT_GONE);
    assert_keeper_serves(BURST);
    assert_return_code(kill(zygote, SIGCONT), errno);
    for (uint32_t i = 0; i < BURST; i++)
        if (i != BURST - 2)
            assert_int_equal(front_expect(EVENT_ENDED, i, 0).event.ended.end.code, 0);
    family_end(SLOT);
    for (uint32_t i = 0; i < BURST; i++)
        if (i != BURST - 2)
            box_end(i);
}

static void test_a_zygote_that_ends_leaves_no_command_queued(void **state)
{
    (void)state;
    pid_t zygote = order_burst();
    uint64_t start = clock_monotonic_us();

    assert_return_code(kill(zygote, SIGKILL), errno);
    for (uint32_t i = 0; i < BURST; i++)
        assert_int_equal(front_expect(EVENT_FAILED, i, 0).event.failed.err.code, ECHILD);
    assert_true(clock_monotonic_us() - start < SOON_MS * 1000ull);
}

/* It ends cleanly; the end of the test looks at that. */
static void test_a_keeper_ends_while_commands_are_queued(void **state)
{
    (void)state;
    pid_t zygote = order_burst();

    front_close();
    keeper_wait();
    assert_false(is_running(zygote));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup_family, teardown_family)
const struct CMUnitTest ahead_tests[] = {
    TEST(test_a_blank_box_has_no_payload_until_one_is_requested),
    TEST(test_a_blank_box_shows_no_use),
    TEST(test_only_a_family_has_blank_boxes),
    TEST(test_a_killed_zygote_leaves_blank_boxes_that_execute),
    TEST(test_a_blank_box_whose_init_is_killed_is_gone),
    cmocka_unit_test_setup_teardown(test_the_next_front_hears_of_blank_boxes, setup_family_listening, teardown_family),
    TEST(test_a_killed_keeper_leaves_no_blank_box),
    TEST(test_a_zygote_that_looks_for_blank_boxes_keeps_none),
    TEST(test_commands_in_many_blank_boxes_queue_for_the_zygote),
    TEST(test_a_zygote_that_ends_leaves_no_command_queued),
    TEST(test_a_keeper_ends_while_commands_are_queued),
};
const size_t n_ahead_tests = sizeof ahead_tests / sizeof *ahead_tests;
