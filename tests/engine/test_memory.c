/* What happens after a box has run out of memory. */
#define _GNU_SOURCE
#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

/* Until the last killed process has gone, its memory is in use and the kernel may still count: no new command may lack
 * the one or be blamed for the other. */
static void test_a_box_that_ran_out_of_memory_settles_before_it_goes_on(void **state)
{
    (void)state;
    struct request_head usage = { .type = REQUEST_USAGE };
    pid_t slow;
    box_make(0, NULL);      /* 96 MB */
    box_run(0, 0, (struct run){ .script = "dd if=/dev/zero bs=30M 2>/dev/null | sleep 300" });
    wait_for(box_ask(REQUEST_USAGE, 0, 0).event.usage.usage.memory_bytes > 30 << 20);
    assert_true((slow = payload_pid("dd")) > 0);
    assert_return_code(ptrace(PTRACE_SEIZE, slow, NULL, PTRACE_O_TRACEEXIT), errno);
    box_run(0, 1, (struct run){ .script = "exec tail /dev/zero" });
    assert_int_equal(waitpid(slow, NULL, __WALL), slow);    /* killed, but it is not gone yet */
    uint32_t ordered = box_order(0, 2, (struct run){ .script = "head -c 75m /dev/zero | tail >/dev/null" });
    uint32_t asked = front_send(&usage, sizeof usage, NULL, 0);
    int went_on = 0;
    for (uint32_t serial = 0; serial != asked;) {
        union event event = front_next().event;
        serial = event.head.serial;
        went_on += serial == ordered || event.head.type == EVENT_ENDED;
    }
    (void)ptrace(PTRACE_DETACH, slow, NULL, NULL);
    assert_int_equal(went_on, 0);
    assert_int_equal(front_expect(EVENT_ENDED, 0, 0).event.ended.end.outcome, OUTCOME_OOM);
    assert_int_equal(front_expect(EVENT_ENDED, 0, 1).event.ended.end.outcome, OUTCOME_OOM);
    assert_int_equal(front_answer(ordered).event.head.result, 0);
    assert_int_equal(front_expect(EVENT_ENDED, 0, 2).event.ended.end.outcome, OUTCOME_OK);
    box_end(0);
}

static void test_a_box_that_settles_can_be_destroyed(void **state)
{
    (void)state;
    pid_t slow;
    box_make(0, NULL);
    box_run(0, 0, (struct run){ .script = "exec sleep 300" });
    wait_for((slow = payload_pid("sleep")) > 0);
    assert_return_code(ptrace(PTRACE_SEIZE, slow, NULL, PTRACE_O_TRACEEXIT), errno);
    box_run(0, 1, (struct run){ .script = "exec tail /dev/zero" });
    assert_int_equal(waitpid(slow, NULL, __WALL), slow);
    uint32_t ordered = box_order(0, 2, (struct run){ .script = "true" });
    struct request_head end = { .type = REQUEST_DESTROY };
    uint32_t gone = front_send(&end, sizeof end, NULL, 0);
    int r = front_answer(ordered).event.head.result;
    (void)ptrace(PTRACE_DETACH, slow, NULL, NULL);
    assert_int_equal(r, -ENOENT);
    assert_int_equal(front_expect(EVENT_ENDED, 0, 0).event.ended.end.outcome, OUTCOME_OOM);
    assert_int_equal(front_answer(gone).event.head.result, 0);
}

static void test_what_ran_out_of_memory_between_two_commands_is_not_the_second_s_fault(void **state)
{
    (void)state;
    pid_t eater;
    int in[2];
    box_make(0, NULL);
    assert_return_code(pipe2(in, O_CLOEXEC), errno);
    box_run(0, 0, (struct run){ .script = "exec 3<&0; (read line <&3; exec tail /dev/zero) & exit 0", .in = in[0] });
    assert_int_equal(front_expect(EVENT_ENDED, 0, 0).event.ended.end.outcome, OUTCOME_OK);
    wait_for((eater = payload_pid("sh")) > 0);
    /* Stopped, so that it is the kernel that kills, and counts it. */
    assert_return_code(kill(front.keeper, SIGSTOP), errno);
    assert_int_equal(write(in[1], "go\n", 3), 3);
    wait_for(!is_running(eater));
    assert_return_code(kill(front.keeper, SIGCONT), errno);
    assert_int_equal(box_ask(REQUEST_USAGE, 0, 0).event.usage.usage.oom_kills, 1);
    assert_int_equal(box_sh(0, 1, "exit 0", NULL, 0).outcome, OUTCOME_OK);
    assert_int_equal(box_sh(0, 1, "exit 1", NULL, 0).outcome, OUTCOME_ERROR);
    close(in[0]);
    close(in[1]);
    box_end(0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup_private, teardown)
const struct CMUnitTest memory_tests[] = {
    TEST(test_a_box_that_ran_out_of_memory_settles_before_it_goes_on),
    TEST(test_a_box_that_settles_can_be_destroyed),
    TEST(test_what_ran_out_of_memory_between_two_commands_is_not_the_second_s_fault),
};
const size_t n_memory_tests = sizeof memory_tests / sizeof *memory_tests;
