/* The supervisor's table of children, with shells as children; and that they end with it, whenever it is killed. */
#include "unit/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "server/children.h"
#include "server/confine.h"

enum { PATIENCE_US = 20000000 };

/* ---- a parent that dies just before the death signal is armed ---- */

static bool is_late, forgets;

static void lose_parent(void)
{
    pid_t parent = getppid();

    kill(parent, SIGKILL);
    while (getppid() == parent)
        usleep(1000);
}

int __real_prctl(int option, ...);
int __wrap_prctl(int option, unsigned long a, unsigned long b, unsigned long c, unsigned long d);
int __wrap_setgroups(size_t n, const gid_t *list);
int __wrap_setresgid(gid_t real, gid_t effective, gid_t saved);
int __wrap_setresuid(uid_t real, uid_t effective, uid_t saved);

int __wrap_prctl(int option, unsigned long a, unsigned long b, unsigned long c, unsigned long d)
{
    if (option == PR_SET_PDEATHSIG && is_late)
        lose_parent();
    return __real_prctl(option, a, b, c, d);
}

int __wrap_setgroups(size_t n, const gid_t *list)
{
    (void)n;
    (void)list;
    return 0;
}

int __wrap_setresgid(gid_t real, gid_t effective, gid_t saved)
{
    (void)real;
    (void)effective;
    (void)saved;
    return 0;
}

/* Like the kernel, without the right to change the user. */
int __wrap_setresuid(uid_t real, uid_t effective, uid_t saved)
{
    (void)real;
    (void)effective;
    (void)saved;
    return forgets ? __real_prctl(PR_SET_PDEATHSIG, 0, 0, 0, 0) : 0;
}

struct scene {
    const char *script[2];      /* $0 is the name of the child, descriptor 9 the log; NULL: no such program */
    int         log;
};

static int   reader = -1;
static pid_t supervisor;

static void describe(const struct scene *scene, int which, struct child_command *c)
{
    child_word(c, scene->script[which] ? "/bin/sh" : "/nonexistent/program");
    child_word(c, "-c");
    child_word(c, scene->script[which] ? scene->script[which] : "");
    child_format(c, "child%d", which);
    child_keep(c, scene->log);
}

static void describe_first(const void *owner, struct child_command *c)
{
    describe(owner, 0, c);
}

static void describe_second(const void *owner, struct child_command *c)
{
    describe(owner, 1, c);
}

static void start(const char *first, const char *second)
{
    int ends[2];

    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    supervisor = fork();
    assert_true(supervisor >= 0);
    if (supervisor == 0) {
        struct scene scene = { { first, second }, 9 };
        struct child child[] = { { .name = "first", .describe = describe_first, .death_signal = SIGTERM },
                                 { .name = "second", .describe = describe_second, .death_signal = SIGKILL } };
        if (dup3(ends[1], 9, O_CLOEXEC) < 0 || dup2(open("/dev/null", O_WRONLY), STDERR_FILENO) < 0)
            _exit(1);
        close(ends[0]);
        close(ends[1]);
        children_run(child, second || !first ? 2 : 1, &scene);
        children_end(child, 2);
        _exit(0);
    }
    close(ends[1]);
    reader = ends[0];
}

/* The next line that a child wrote, without its end. */
static void next_line(char *text, size_t size)
{
    size_t n = 0;

    alarm(PATIENCE_US / 1000000);
    while (n + 1 < size && read(reader, text + n, 1) == 1 && text[n] != '\n')
        n++;
    alarm(0);
    text[n] = '\0';
}

static int stop(void **state)
{
    (void)state;
    kill(supervisor, SIGTERM);
    waitpid(supervisor, NULL, 0);
    reader = fd_close(reader);
    return 0;
}

static void test_who_ends_at_once_is_started_again_later_and_later(void **state)
{
    static const uint64_t least_us[] = { 100000, 200000, 400000 };
    char line[64];

    (void)state;
    start("echo up >&9", NULL);
    next_line(line, sizeof line);
    for (size_t i = 0; i < 3; i++) {
        uint64_t before_us = clock_monotonic_us();
        next_line(line, sizeof line);
        assert_string_equal(line, "up");
        /* What lies between two lines is the pause and two starts of a shell; the clock here began a little late. */
        assert_true(clock_monotonic_us() - before_us > least_us[i] / 2);
    }
}

static void test_who_is_killed_comes_back_though_another_cannot_start(void **state)
{
    char first[64], second[64];

    (void)state;
    start(NULL, "echo $$ >&9; exec sleep 1000");
    next_line(first, sizeof first);
    assert_int_equal(kill((pid_t)strtol(first, NULL, 10), SIGKILL), 0);
    next_line(second, sizeof second);
    assert_true(strtol(second, NULL, 10) > 0);
    assert_string_not_equal(first, second);
}

static void start_two_that_say_their_end(void)
{
    static const char *const script =
        "trap 'echo end $0 >&9; exit 0' TERM; echo up >&9; while :; do sleep 0.05; done";
    char line[64];

    start(script, script);
    next_line(line, sizeof line);
    next_line(line, sizeof line);
}

static void test_the_last_ends_first(void **state)
{
    char line[64];
    int status;

    (void)state;
    start_two_that_say_their_end();
    assert_int_equal(kill(supervisor, SIGTERM), 0);
    next_line(line, sizeof line);
    assert_string_equal(line, "end child1");
    next_line(line, sizeof line);
    assert_string_equal(line, "end child0");
    assert_int_equal(waitpid(supervisor, &status, 0), supervisor);
    assert_int_equal(status, 0);
    assert_int_equal(read(reader, line, 1), 0);         /* no process has the other end any more */
}

static void test_a_killed_supervisors_children_get_each_its_signal(void **state)
{
    char line[64];

    (void)state;
    start_two_that_say_their_end();
    assert_int_equal(kill(supervisor, SIGKILL), 0);
    next_line(line, sizeof line);
    assert_string_equal(line, "end child0");
    next_line(line, sizeof line);
    assert_string_equal(line, "");          /* the end: the other one said nothing */
}

static void test_a_child_whose_supervisor_is_dead_already_does_not_start(void **state)
{
    char line[64];

    (void)state;
    is_late = true;
    start("echo up >&9; exec sleep 20", NULL);
    is_late = false;
    next_line(line, sizeof line);
    assert_string_equal(line, "");
}

/* What a child says whose parent has this signal for it and, if late, dies while the child becomes another user. */
static void become_another(int death_signal, bool late, char *text, size_t size)
{
    int ends[2];

    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    supervisor = fork();
    assert_true(supervisor >= 0);
    if (supervisor == 0) {
        if (fork() != 0) {
            close(ends[0]);
            close(ends[1]);
            pause();
        }
        struct err e = { 0 };
        int now = 0;
        (void)__real_prctl(PR_SET_PDEATHSIG, death_signal, 0, 0, 0);
        forgets = true;
        is_late = late;
        int r = confine_user(geteuid() + 1, getegid() + 1, &e);
        (void)__real_prctl(PR_GET_PDEATHSIG, &now, 0, 0, 0);
        dprintf(ends[1], "%d %d\n", r, now);
        _exit(0);
    }
    close(ends[1]);
    reader = ends[0];
    next_line(text, size);
}

static void test_a_death_signal_outlives_a_change_of_user(void **state)
{
    char line[64], expected[64];

    (void)state;
    become_another(SIGUSR2, false, line, sizeof line);
    snprintf(expected, sizeof expected, "0 %d", SIGUSR2);
    assert_string_equal(line, expected);
    kill(supervisor, SIGKILL);
    waitpid(supervisor, NULL, 0);
    reader = fd_close(reader);
    become_another(SIGUSR2, true, line, sizeof line);
    snprintf(expected, sizeof expected, "%d %d", -ESRCH, SIGUSR2);
    assert_string_equal(line, expected);
}

static void test_a_command_that_is_too_long_is_noticed(void **state)
{
    static struct child_command c;

    (void)state;
    for (int i = 0; i < CHILD_WORDS; i++)
        child_word(&c, "word");
    assert_true(c.argc <= CHILD_WORDS);
    child_word(&c, "word");
    assert_true(c.argc > CHILD_WORDS);
    c = (struct child_command){ 0 };
    child_format(&c, "%*s", CHILD_TEXT, "");
    assert_true(c.argc > CHILD_WORDS);
    c = (struct child_command){ 0 };
    for (int i = 0; i <= CHILD_FDS; i++)
        child_keep(&c, i);
    assert_true(c.argc > CHILD_WORDS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_who_ends_at_once_is_started_again_later_and_later, stop),
        cmocka_unit_test_teardown(test_who_is_killed_comes_back_though_another_cannot_start, stop),
        cmocka_unit_test(test_the_last_ends_first),
        cmocka_unit_test_teardown(test_a_killed_supervisors_children_get_each_its_signal, stop),
        cmocka_unit_test_teardown(test_a_child_whose_supervisor_is_dead_already_does_not_start, stop),
        cmocka_unit_test_teardown(test_a_death_signal_outlives_a_change_of_user, stop),
        cmocka_unit_test(test_a_command_that_is_too_long_is_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
