#include "unit/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"

static bool is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

static void test_an_fd_is_closed_at_the_end_of_its_scope(void **state)
{
    int seen, kept;
    (void)state;

    {
        FD fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
        seen = fd;
        assert_true(is_open(seen));
        FD other = open("/dev/null", O_RDONLY | O_CLOEXEC);
        kept = TAKE_FD(other);
    }
    assert_false(is_open(seen));
    assert_true(is_open(kept));
    errno = EXDEV;
    assert_int_equal(fd_close(kept), -1);
    assert_int_equal(errno, EXDEV);
    assert_false(is_open(kept));
    assert_int_equal(fd_close(-1), -1);
}

static void test_what_is_taken_is_named_once(void **state)
{
    int fds[3] = { 10, 11, 12 };
    char *texts[2] = { "a", "b" };
    size_t n = 0, m = 0;
    (void)state;

    assert_int_equal(TAKE_FD(fds[n++]), 10);
    assert_string_equal(TAKE_PTR(texts[m++]), "a");
    assert_true(n == 1 && fds[0] == -1 && fds[1] == 11);
    assert_true(m == 1 && !texts[0] && texts[1]);
}

static void test_read_all_tells_an_early_end(void **state)
{
    int ends[2];
    char data[8];
    (void)state;

    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    assert_int_equal(fd_write_all(ends[1], "abcd", 4), 0);
    assert_int_equal(fd_read_all(ends[0], data, 4), 0);
    assert_memory_equal(data, "abcd", 4);
    assert_int_equal(fd_write_all(ends[1], "ab", 2), 0);
    fd_close(ends[1]);
    assert_int_equal(fd_read_all(ends[0], data, 4), -ENODATA);
    fd_close(ends[0]);
    assert_int_equal(fd_read_all(ends[0], data, 4), -EBADF);
}

/* A pipe takes 64 KiB at once; a megabyte goes through it in many reads and writes. */
static void *write_much(void *argument)
{
    static char data[1 << 20];
    int *fd = argument;

    memset(data, 'z', sizeof data);
    int r = fd_write_all(*fd, data, sizeof data);
    *fd = fd_close(*fd);
    return (void *)(intptr_t)r;
}

static void test_all_of_a_large_transfer_arrives(void **state)
{
    static char data[1 << 20];
    pthread_t writer;
    void *result;
    int ends[2];
    (void)state;

    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    assert_int_equal(pthread_create(&writer, NULL, write_much, &ends[1]), 0);
    assert_int_equal(fd_read_all(ends[0], data, sizeof data), 0);
    assert_int_equal(pthread_join(writer, &result), 0);
    assert_null(result);
    assert_int_equal(data[sizeof data - 1], 'z');
    fd_close(ends[0]);
}

static void test_read_file_gives_all_or_nothing(void **state)
{
    char path[] = "/tmp/carrel-unit-XXXXXX", text[8];
    (void)state;

    FD fd = mkostemp(path, O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(fd_write_file(AT_FDCWD, path, "1234567"), 0);
    assert_int_equal(fd_read_file(AT_FDCWD, path, text, sizeof text), 7);
    assert_string_equal(text, "1234567");
    assert_int_equal(fd_read_file(AT_FDCWD, path, text, sizeof text - 1), -EFBIG);
    assert_string_equal(text, "");
    assert_int_equal(fd_read_file(AT_FDCWD, path, text, 0), -EINVAL);
    unlink(path);
    assert_int_equal(fd_read_file(AT_FDCWD, path, text, sizeof text), -ENOENT);
    assert_int_equal(fd_write_file(AT_FDCWD, path, "x"), -ENOENT); /* it does not create */
}

static void test_read_file_works_on_proc(void **state)
{
    char text[64];
    (void)state;

    assert_true(fd_read_file(AT_FDCWD, "/proc/sys/kernel/ostype", text, sizeof text) > 0);
    assert_string_equal(text, "Linux\n");
}

static void test_closed_standard_fds_are_filled(void **state)
{
    int status;
    (void)state;

    pid_t child = fork();
    if (child == 0) {
        close(0);
        close(2);
        if (fd_fill_standard() < 0 || !is_open(0) || !is_open(2) || fcntl(0, F_GETFD) != 0)
            _exit(1);
        int next = open("/dev/null", O_RDONLY | O_CLOEXEC);
        _exit(next > 2 ? 0 : 2);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_fd_is_closed_at_the_end_of_its_scope),
        cmocka_unit_test(test_what_is_taken_is_named_once),
        cmocka_unit_test(test_read_all_tells_an_early_end),
        cmocka_unit_test(test_all_of_a_large_transfer_arrives),
        cmocka_unit_test(test_read_file_gives_all_or_nothing),
        cmocka_unit_test(test_read_file_works_on_proc),
        cmocka_unit_test(test_closed_standard_fds_are_filled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
