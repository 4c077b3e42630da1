/* Descriptors on their way between processes. */
#include "unit/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/fdpass.h"

static int ends[2];

static int open_pair(void **state)
{
    (void)state;
    return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends);
}

static int close_pair(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++)
        ends[i] = fd_close(ends[i]);
    return 0;
}

static unsigned count_open(void)
{
    unsigned n = 0;

    for (int fd = 0; fd < 256; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

static void test_descriptors_arrive_in_order_and_close_on_exec(void **state)
{
    FD null = open("/dev/null", O_RDONLY), zero = open("/dev/zero", O_RDONLY);
    struct stat sent, came;
    struct fdpass passed;
    char byte;

    (void)state;
    assert_int_equal(fdpass_send(ends[0], "x", 1, (int[]){ null, zero }, 2, 0), 1);
    assert_int_equal(fdpass_receive(ends[1], &byte, 1, 0, &passed), 1);
    assert_int_equal(byte, 'x');
    assert_int_equal(passed.n, 2);
    assert_false(passed.cut);
    assert_int_equal(passed.sender, 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(fcntl(passed.fd[i], F_GETFD), FD_CLOEXEC);
        assert_int_equal(fstat(i ? zero : null, &sent), 0);
        assert_int_equal(fstat(passed.fd[i], &came), 0);
        assert_int_equal(sent.st_rdev, came.st_rdev);
    }
    (void)!fdpass_take(&passed, NULL, 0);
}

static void test_what_is_not_taken_is_closed(void **state)
{
    struct fdpass passed;
    unsigned before = count_open();
    int all[FDPASS_MAX], kept[2] = { -1, -1 };
    char byte;

    (void)state;
    for (int i = 0; i < FDPASS_MAX; i++)
        all[i] = STDIN_FILENO;
    assert_int_equal(fdpass_send(ends[0], "", 1, all, FDPASS_MAX, 0), 1);
    assert_int_equal(fdpass_receive(ends[1], &byte, 1, 0, &passed), 1);
    assert_int_equal(passed.n, FDPASS_MAX);
    assert_int_equal(fdpass_take(&passed, kept, 2), 2);
    assert_int_equal(count_open(), before + 2);
    fd_close(kept[0]);
    fd_close(kept[1]);
    assert_int_equal(fdpass_send(ends[0], "", 1, all, FDPASS_MAX + 1, 0), -EINVAL);
}

static void test_a_message_that_does_not_fit_is_called_cut(void **state)
{
    struct fdpass passed;
    char bytes[2];

    (void)state;
    assert_int_equal(fdpass_send(ends[0], "abc", 3, NULL, 0, 0), 3);
    assert_int_equal(fdpass_receive(ends[1], bytes, sizeof bytes, 0, &passed), 2);
    assert_true(passed.cut);
}

static void test_the_sender_is_told_where_it_was_asked_for(void **state)
{
    struct fdpass passed;
    int one = 1;
    char byte;

    (void)state;
    assert_int_equal(setsockopt(ends[1], SOL_SOCKET, SO_PASSCRED, &one, sizeof one), 0);
    assert_int_equal(fdpass_send(ends[0], "", 1, (int[]){ STDIN_FILENO }, 1, 0), 1);
    assert_int_equal(fdpass_receive(ends[1], &byte, 1, 0, &passed), 1);
    assert_int_equal(passed.sender, getpid());
    assert_int_equal(fdpass_take(&passed, NULL, 0), 0);
}

static void test_the_end_and_nothing_yet_are_told_apart(void **state)
{
    struct fdpass passed;
    char byte;

    (void)state;
    assert_int_equal(fdpass_receive(ends[1], &byte, 1, MSG_DONTWAIT, &passed), -EAGAIN);
    ends[0] = fd_close(ends[0]);
    assert_int_equal(fdpass_receive(ends[1], &byte, 1, MSG_DONTWAIT, &passed), 0);
    assert_int_equal(fdpass_send(ends[1], "", 1, NULL, 0, 0), -EPIPE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_descriptors_arrive_in_order_and_close_on_exec, open_pair, close_pair),
        cmocka_unit_test_setup_teardown(test_what_is_not_taken_is_closed, open_pair, close_pair),
        cmocka_unit_test_setup_teardown(test_a_message_that_does_not_fit_is_called_cut, open_pair, close_pair),
        cmocka_unit_test_setup_teardown(test_the_sender_is_told_where_it_was_asked_for, open_pair, close_pair),
        cmocka_unit_test_setup_teardown(test_the_end_and_nothing_yet_are_told_apart, open_pair, close_pair),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
