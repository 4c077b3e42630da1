/* Timers in order, tasks, fds that vanish while their events wait, signals, pidfds. */
#include <errno.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "http/loop.h"
#include "unit.h"

static struct loop *loop;

/* ---- timers ---- */

#define TIMERS 500

static struct timer_case {
    struct loop_timer timer;
    uint64_t delay_ms;
} timers[TIMERS];
static int fired;
static uint64_t last_deadline;

static void on_expire(struct loop_timer *t)
{
    assert_true(t->deadline_ms >= last_deadline);
    assert_true(loop_now_ms() >= t->deadline_ms);
    last_deadline = t->deadline_ms;
    fired++;
}

static void test_timers_fire_once_in_order_whatever_was_done_to_them(void **state)
{
    int expected = 0;
    (void)state;
    srandom(7);
    for (int i = 0; i < TIMERS; i++)
        timers[i].timer.on_expire = on_expire;
    for (int i = 0; i < TIMERS * 20; i++) {
        struct timer_case *c = &timers[random() % TIMERS];
        if (random() % 4 == 0)
            loop_timer_cancel(loop, &c->timer);
        else
            loop_timer_set(loop, &c->timer, (uint64_t)random() % 60);
    }
    for (int i = 0; i < TIMERS; i++)
        expected += timers[i].timer.armed;
    assert_true(expected > 100);
    uint64_t end = loop_now_ms() + 60000;
    while (fired < expected && loop_now_ms() < end)
        assert_int_equal(loop_turn(loop, 10), 0);
    assert_int_equal(fired, expected);
    for (int i = 0; i < TIMERS; i++)
        assert_false(timers[i].timer.armed);
}

static void on_expire_late(struct loop_timer *t)
{
    *(uint64_t *)(t + 1) = loop_now_ms();
}

static void test_a_deadline_moved_later_does_not_fire_early(void **state)
{
    struct { struct loop_timer timer; uint64_t when; } c = { .timer.on_expire = on_expire_late };
    uint64_t start = loop_now_ms();
    (void)state;
    loop_timer_set(loop, &c.timer, 5);
    loop_timer_set(loop, &c.timer, 40);
    while (!c.when && loop_now_ms() < start + 60000)
        assert_int_equal(loop_turn(loop, -1), 0);
    assert_true(c.when >= start + 40);
    loop_timer_set(loop, &c.timer, 600000);
    loop_timer_set(loop, &c.timer, 10);
    c.when = 0;
    start = loop_now_ms();
    while (!c.when)
        assert_int_equal(loop_turn(loop, -1), 0);
    assert_true(c.when < start + 300000);
}

/* ---- fds ---- */

static struct loop_fd *victims[2];
static int events_seen;

static void remove_the_other(struct loop_fd *w, uint32_t events)
{
    (void)events;
    events_seen++;
    for (int i = 0; i < 2; i++)
        if (victims[i] != w && victims[i]) {
            loop_fd_remove(loop, victims[i]);
            free(victims[i]);           /* ASan sees it if its waiting event is still delivered */
            victims[i] = NULL;
        }
}

static void test_a_watcher_removed_by_another_gets_no_event(void **state)
{
    int ends[2][2];
    (void)state;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pipe(ends[i]), 0);
        assert_int_equal(write(ends[i][1], "x", 1), 1);
        victims[i] = calloc(1, sizeof *victims[i]);
        victims[i]->on_event = remove_the_other;
        assert_int_equal(loop_fd_add(loop, victims[i], ends[i][0], EPOLLIN), 0);
    }
    assert_int_equal(loop_turn(loop, 1000), 0);
    assert_int_equal(events_seen, 1);
    for (int i = 0; i < 2; i++) {
        if (victims[i])
            loop_fd_remove(loop, victims[i]);
        free(victims[i]);
        close(ends[i][0]);
        close(ends[i][1]);
    }
}

/* ---- tasks ---- */

static struct loop_task task_a, task_b;
static int runs_a, runs_b;

static void on_a(struct loop_task *t)
{
    runs_a++;
    loop_task_cancel(loop, &task_b);
    if (runs_a < 3)
        loop_task_add(loop, t);
}

static void on_b(struct loop_task *t)
{
    (void)t;
    runs_b++;
}

static void test_tasks_run_once_per_turn_and_can_be_cancelled(void **state)
{
    (void)state;
    task_a.on_run = on_a;
    task_b.on_run = on_b;
    loop_task_add(loop, &task_a);
    loop_task_add(loop, &task_a);
    loop_task_add(loop, &task_b);
    for (int i = 1; i <= 3; i++) {
        assert_int_equal(loop_turn(loop, 0), 0);
        assert_int_equal(runs_a, i);
    }
    assert_int_equal(loop_turn(loop, 0), 0);
    assert_int_equal(runs_a, 3);
    assert_int_equal(runs_b, 0);
}

/* ---- signals and processes ---- */

static unsigned signal_seen;
static bool child_seen;

static void on_signal(struct loop_signal *s, const struct signalfd_siginfo *info)
{
    (void)s;
    signal_seen = info->ssi_signo;
    if (child_seen)
        loop_stop(loop);
}

static void on_child(struct loop_fd *w, uint32_t events)
{
    assert_true(events & EPOLLIN);
    loop_fd_remove(loop, w);
    child_seen = true;
    kill(getpid(), SIGUSR1);
}

static void test_a_childs_end_and_a_signal_arrive(void **state)
{
    struct loop_signal signals = { .on_signal = on_signal };
    struct loop_fd child = { .on_event = on_child };
    sigset_t set;
    (void)state;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    assert_int_equal(loop_signal_open(loop, &signals, &set), 0);
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    assert_true(pidfd >= 0);
    assert_int_equal(loop_fd_add(loop, &child, pidfd, EPOLLIN), 0);
    assert_int_equal(loop_run(loop), 0);
    assert_int_equal(signal_seen, SIGUSR1);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    close(pidfd);
    loop_signal_close(loop, &signals);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_timers_fire_once_in_order_whatever_was_done_to_them),
        cmocka_unit_test(test_a_deadline_moved_later_does_not_fire_early),
        cmocka_unit_test(test_a_watcher_removed_by_another_gets_no_event),
        cmocka_unit_test(test_tasks_run_once_per_turn_and_can_be_cancelled),
        cmocka_unit_test(test_a_childs_end_and_a_signal_arrive),
    };
    if (loop_new(&loop) < 0)
        return 1;
    int r = cmocka_run_group_tests(tests, NULL, NULL);
    loop_free(loop);
    return r;
}
