#include "scene.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define ASK(operation, ...) ((struct files_request){ .op = FILES_##operation, .length = UINT64_MAX, __VA_ARGS__ })

static struct listed only_entry(const struct answer *answer)
{
    struct listed listed;
    size_t at = 0;

    assert_true(answer_next(answer, &at, &listed));
    assert_int_equal(at, answer->entries_size);
    return listed;
}

static void test_stat_tells_all_of_a_file(void **state)
{
    (void)state;
    make_file("name", "hello", 5);
    assert_return_code(fchmodat(top, "name", 0751, 0), errno);
    struct timespec times[2] = { { .tv_sec = 1 }, { .tv_sec = 1234567890, .tv_nsec = 987654321 } };
    assert_return_code(utimensat(top, "name", times, 0), errno);
    client_ask(helper, ASK(STAT), "/name", NULL);
    struct answer answer = client_answer(helper, false);
    assert_int_equal(answer.done.code, 0);
    struct listed f = only_entry(&answer);
    assert_string_equal(f.name, "name");
    assert_int_equal(f.entry.size, 5);
    assert_int_equal(f.entry.mode, S_IFREG | 0751);
    assert_int_equal(f.entry.uid, getuid());
    assert_int_equal(f.entry.mtime_ns, 1234567890987654321);
    answer_free(&answer);
}

static void test_stat_follows_links_unless_told_not_to(void **state)
{
    (void)state;
    make_file("target", "xyz", 3);
    assert_return_code(symlinkat("/target", top, "link"), errno);
    client_ask(helper, ASK(STAT), "/link", NULL);
    struct answer answer = client_answer(helper, false);
    assert_int_equal(only_entry(&answer).entry.mode & S_IFMT, S_IFREG);
    answer_free(&answer);
    client_ask(helper, ASK(STAT, .flags = FILES_NOFOLLOW), "/link", NULL);
    answer = client_answer(helper, false);
    assert_int_equal(only_entry(&answer).entry.mode & S_IFMT, S_IFLNK);
    assert_string_equal(only_entry(&answer).link, "/target");
    answer_free(&answer);
}

static void test_errors_are_told_and_the_conversation_goes_on(void **state)
{
    (void)state;
    make_file("file", "", 0);
    mkdirat(top, "full", 0755);
    make_file("full/x", "", 0);
    assert_int_equal(client_do(helper, ASK(STAT), "/no/such", NULL).code, ENOENT);
    assert_int_equal(client_do(helper, ASK(READ), "/", NULL).code, EISDIR);
    assert_int_equal(client_do(helper, ASK(LIST), "/file", NULL).code, ENOTDIR);
    assert_int_equal(client_do(helper, ASK(MKDIR, .mode = 0755), "/file", NULL).code, EEXIST);
    assert_int_equal(client_do(helper, ASK(REMOVE), "/full", NULL).code, ENOTEMPTY);
    assert_int_equal(client_do(helper, ASK(REMOVE, .flags = FILES_RECURSIVE), "/", NULL).code, EBUSY);
    assert_int_equal(client_do(helper, ASK(REMOVE, .flags = FILES_RECURSIVE), "/full/..", NULL).code, EBUSY);
    assert_int_equal(client_do(helper, ASK(CHMOD, .mode = 07777 + 1), "/file", NULL).code, EINVAL);
    assert_int_equal(client_do(helper, ASK(STAT, .flags = FILES_ATOMIC), "/file", NULL).code, EINVAL);
    assert_int_equal(client_do(helper, ASK(STAT), "/file", "/other").code, EINVAL);
    assert_int_equal(client_do(helper, ASK(MOVE), "/file", NULL).code, EINVAL);
    assert_int_equal(client_upload(helper, ASK(WRITE), "/no/such", "x", 1).code, ENOENT);
    assert_int_equal(client_upload(helper, ASK(WRITE, .flags = FILES_CREATE), "/full", "x", 1).code, EISDIR);
    assert_done(client_do(helper, ASK(STAT), "/file", NULL));
    assert_true(exists("full/x"));
}

static void test_an_error_names_the_file_in_printable_text(void **state)
{
    (void)state;
    char path[1000] = "/";
    memset(path + 1, '\033', 300);
    struct files_done done = client_do(helper, ASK(STAT), path, NULL);
    assert_int_equal(done.code, ENAMETOOLONG);
    for (const char *p = done.text; *p; p++)
        assert_in_range((unsigned char)*p, 32, 126);
    assert_non_null(strstr(done.text, "?: the name is too long"));
}

static void test_relative_paths_start_at_home(void **state)
{
    (void)state;
    assert_done(client_do(helper, ASK(MKDIR, .flags = FILES_PARENTS, .mode = 0755), "", NULL));
    assert_done(client_upload(helper, ASK(WRITE, .flags = FILES_CREATE, .mode = 0600), "a", "b", 1));
    assert_true(exists("home/box/a"));
    assert_done(client_do(helper, ASK(MKDIR, .flags = FILES_PARENTS, .mode = 0755), "/", NULL));
}

static void test_nothing_outside_of_the_root_is_reached(void **state)
{
    (void)state;
    char path[200];
    snprintf(path, sizeof path, "/../../../..%s", top_path);
    assert_int_equal(client_do(helper, ASK(STAT), path, NULL).code, ENOENT);
    assert_return_code(symlinkat("/etc/passwd", top, "out"), errno);
    assert_int_equal(client_do(helper, ASK(READ), "/out", NULL).code, ENOENT);
    assert_return_code(symlinkat("../../../../../../../etc", top, "up"), errno);
    assert_int_equal(client_do(helper, ASK(LIST), "/up", NULL).code, ENOENT);
}

static void test_write_then_read_gives_the_same_bytes(void **state)
{
    (void)state;
    static const size_t sizes[] = {
        0, 1, 4095, 4096, 65537, FILES_DATA_MAX, FILES_DATA_MAX + 1, 5 * FILES_DATA_MAX + 77
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char *data = malloc(sizes[i] + 1);
        for (size_t k = 0; k < sizes[i]; k++)
            data[k] = (char)(k * 31 + i);
        struct files_done done = client_upload(helper, ASK(WRITE, .flags = FILES_CREATE | FILES_TRUNCATE, .mode = 0640),
                                               "/f", data, sizes[i]);
        assert_done(done);
        assert_int_equal(done.bytes, sizes[i]);
        client_ask(helper, ASK(READ), "/f", NULL);
        struct answer answer = client_answer(helper, false);
        assert_done(answer.done);
        assert_int_equal(answer.size, sizes[i]);
        assert_int_equal(answer.done.bytes, sizes[i]);
        assert_int_equal(only_entry(&answer).entry.size, sizes[i]);
        assert_int_equal(only_entry(&answer).entry.mode, S_IFREG | 0640);
        if (sizes[i])
            assert_memory_equal(answer.data, data, sizes[i]);
        answer_free(&answer);
        free(data);
    }
}

static void read_part(uint64_t offset, uint64_t length, const char *expected)
{
    client_ask(helper, (struct files_request){ .op = FILES_READ, .offset = offset, .length = length }, "/f", NULL);
    struct answer answer = client_answer(helper, false);
    assert_done(answer.done);
    assert_int_equal(answer.size, strlen(expected));
    if (answer.size)
        assert_memory_equal(answer.data, expected, answer.size);
    answer_free(&answer);
}

static void test_read_gives_a_part(void **state)
{
    (void)state;
    make_file("f", "0123456789", 10);
    read_part(0, 4, "0123");
    read_part(7, UINT64_MAX, "789");
    read_part(10, 5, "");
    read_part(1u << 30, UINT64_MAX, "");
    read_part(3, 0, "");
    assert_int_equal(client_do(helper, ASK(READ, .offset = UINT64_MAX), "/f", NULL).code, EINVAL);
}

static void test_write_at_offset_append_and_exclusive(void **state)
{
    (void)state;
    char *text;
    make_file("f", "0123456789", 10);
    assert_done(client_upload(helper, ASK(WRITE, .offset = 3), "/f", "xyz", 3));
    assert_string_equal(text = contents("f", NULL), "012xyz6789");
    free(text);
    assert_done(client_upload(helper, ASK(WRITE, .flags = FILES_APPEND), "/f", "!", 1));
    assert_string_equal(text = contents("f", NULL), "012xyz6789!");
    free(text);
    assert_int_equal(client_upload(helper, ASK(WRITE, .flags = FILES_CREATE | FILES_EXCLUSIVE), "/f", "x", 1).code,
                     EEXIST);
    assert_done(client_upload(helper, ASK(WRITE, .flags = FILES_TRUNCATE), "/f", "short", 5));
    assert_string_equal(text = contents("f", NULL), "short");
    free(text);
    assert_done(
        client_upload(helper, ASK(WRITE, .flags = FILES_CREATE | FILES_PARENTS, .mode = 0644), "/a/b//c/f", "deep", 4));
    assert_string_equal(text = contents("a/b/c/f", NULL), "deep");
    free(text);
}

static void test_atomic_write_is_all_or_nothing(void **state)
{
    (void)state;
    struct files_request ask = ASK(WRITE, .flags = FILES_ATOMIC | FILES_CREATE, .mode = 0600);
    char *text;
    struct stat st;
    make_file("f", "old", 3);
    fchmodat(top, "f", 0751, 0);

    client_ask(helper, ask, "/f", NULL);
    client_frame(helper, FILES_DATA, "new contents", 12);
    client_frame(helper, FILES_ABORT, NULL, 0);
    assert_int_equal(client_answer(helper, true).done.code, ECANCELED);
    assert_string_equal(text = contents("f", NULL), "old");
    free(text);
    assert_int_equal(count_names("."), 1);

    assert_done(client_upload(helper, ask, "/f", "new", 3));
    assert_string_equal(text = contents("f", NULL), "new");
    free(text);
    assert_int_equal(fstatat(top, "f", &st, 0), 0);
    assert_int_equal(st.st_mode & 07777, 0751);
    assert_int_equal(count_names("."), 1);
    mkdirat(top, "d", 0755);
    assert_int_equal(client_upload(helper, ask, "/d", "x", 1).code, EISDIR);
    ask.flags |= FILES_EXCLUSIVE;
    assert_int_equal(client_upload(helper, ask, "/f", "x", 1).code, EEXIST);
    assert_int_equal(count_names("."), 2);
}

static void test_fifos_and_devices_are_never_waited_for(void **state)
{
    (void)state;
    assert_return_code(mkfifoat(top, "fifo", 0666), errno);
    assert_int_equal(client_do(helper, ASK(READ), "/fifo", NULL).code, EINVAL);
    assert_int_equal(client_upload(helper, ASK(WRITE, .flags = FILES_CREATE), "/fifo", "x", 1).code, EINVAL);
    assert_int_equal(client_upload(helper, ASK(WRITE, .flags = FILES_ATOMIC), "/fifo", "x", 1).code, EINVAL);
    assert_done(client_do(helper, ASK(CHMOD, .mode = 0600), "/fifo", NULL));
    assert_done(client_do(helper, ASK(STAT), "/fifo", NULL));
    assert_done(client_do(helper, ASK(REMOVE), "/fifo", NULL));
}

static void test_a_lease_does_not_block_us(void **state)
{
    (void)state;
    make_file("f", "x", 1);
    int fd = openat(top, "f", O_RDONLY);
    if (fcntl(fd, F_SETLEASE, F_RDLCK) < 0)
        skip();
    fcntl(fd, F_SETSIG, SIGURG);    /* ignored by default */
    assert_int_equal(client_upload(helper, ASK(WRITE), "/f", "y", 1).code, EAGAIN);
    close(fd);
}

static void test_a_file_that_shrinks_keeps_the_stream_in_step(void **state)
{
    (void)state;
    enum { SIZE = 64 << 20 };
    int fd = openat(top, "f", O_RDWR | O_CREAT, 0644);
    assert_return_code(ftruncate(fd, SIZE), errno);
    client_ask(helper, ASK(READ), "/f", NULL);
    /* The socket holds far less, so the helper is in the middle of it. */
    struct files_head head;
    assert_int_equal(recv(helper, &head, sizeof head, MSG_PEEK | MSG_WAITALL), sizeof head);
    assert_return_code(ftruncate(fd, 10), errno);
    close(fd);
    struct answer answer = client_answer(helper, true);
    assert_int_equal(answer.done.code, ESTALE);
    answer_free(&answer);
    assert_done(client_do(helper, ASK(STAT), "/f", NULL));
}

static void test_mkdir_and_move(void **state)
{
    (void)state;
    assert_int_equal(client_do(helper, ASK(MKDIR, .mode = 0700), "/a/b", NULL).code, ENOENT);
    assert_done(client_do(helper, ASK(MKDIR, .flags = FILES_PARENTS, .mode = 0700), "/a/b/c/", NULL));
    assert_done(client_do(helper, ASK(MKDIR, .flags = FILES_PARENTS, .mode = 0700), "/a/b/c", NULL));
    make_file("f", "1", 1);
    make_file("g", "22", 2);
    assert_int_equal(client_do(helper, ASK(MOVE, .flags = FILES_EXCLUSIVE), "/f", "/g").code, EEXIST);
    assert_done(client_do(helper, ASK(MOVE), "/f", "/g"));
    assert_false(exists("f"));
    assert_done(client_do(helper, ASK(MOVE, .flags = FILES_PARENTS), "/g", "/x/y/z"));
    assert_true(exists("x/y/z"));
    assert_int_equal(client_do(helper, ASK(MOVE), "/a", "/a/b/d").code, EINVAL);
    assert_int_equal(client_do(helper, ASK(MOVE), "/none", "/a/n").code, ENOENT);
    assert_done(client_do(helper, ASK(CHMOD, .mode = 0), "/x/y/z", NULL));
    assert_done(client_do(helper, ASK(CHMOD, .mode = 04755), "/x/y/z", NULL));
}

static void test_frames_that_break_the_rules_end_the_conversation(void **state)
{
    (void)state;
    static const struct {
        struct files_head    head;
        struct files_request request;
        size_t               size;
    } bad[] = {
        { { .type = 0, .size = 0 }, { 0 }, 0 },
        { { .type = FILES_DATA, .size = 4 }, { 0 }, 4 },
        { { .type = FILES_END }, { 0 }, 0 },
        { { .type = FILES_REQUEST, .size = 3 }, { .op = FILES_STAT }, 3 },
        { { .type = FILES_REQUEST, .size = UINT32_MAX }, { .op = FILES_STAT }, 0 },
        { { .type = FILES_REQUEST, .size = sizeof(struct files_request), .reserved = 1 },
          { .op = FILES_STAT },
          sizeof bad[0].request },
        { { .type = FILES_REQUEST, .size = sizeof(struct files_request) }, { .op = 0 }, sizeof bad[0].request },
        { { .type = FILES_REQUEST, .size = sizeof(struct files_request) }, { .op = 99 }, sizeof bad[0].request },
        { { .type = FILES_REQUEST, .size = sizeof(struct files_request) },
          { .op = FILES_STAT, .path_size = 1 },
          sizeof bad[0].request },
        { { .type = FILES_REQUEST, .size = sizeof(struct files_request) + 5000 },
          { .op = FILES_STAT, .path_size = 5000 },
          sizeof bad[0].request },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        client_send(helper, &bad[i].head, &bad[i].request, bad[i].size);
        assert_true(client_is_over(helper));
        assert_int_equal(scene_teardown(state), 0);
        assert_int_equal(scene_setup(state), 0);
    }
    client_ask(helper, ASK(WRITE, .flags = FILES_CREATE), "/f", NULL);
    client_ask(helper, ASK(STAT), "/f", NULL);      /* instead of DATA */
    assert_true(client_is_over(helper));
}

static void test_a_nul_in_a_path_is_refused(void **state)
{
    (void)state;
    struct files_request request = ASK(STAT, .path_size = 4);
    char frame[sizeof request + 4];
    memcpy(frame, &request, sizeof request);
    memcpy(frame + sizeof request, "/a\0b", 4);
    client_frame(helper, FILES_REQUEST, frame, sizeof frame);
    assert_int_equal(client_answer(helper, true).done.code, EINVAL);
    assert_done(client_do(helper, ASK(STAT), "/", NULL));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scene_setup, scene_teardown)
const struct CMUnitTest basic_tests[] = {
    TEST(test_stat_tells_all_of_a_file),
    TEST(test_stat_follows_links_unless_told_not_to),
    TEST(test_errors_are_told_and_the_conversation_goes_on),
    TEST(test_an_error_names_the_file_in_printable_text),
    TEST(test_relative_paths_start_at_home),
    TEST(test_nothing_outside_of_the_root_is_reached),
    TEST(test_write_then_read_gives_the_same_bytes),
    TEST(test_read_gives_a_part),
    TEST(test_write_at_offset_append_and_exclusive),
    TEST(test_atomic_write_is_all_or_nothing),
    TEST(test_fifos_and_devices_are_never_waited_for),
    TEST(test_a_lease_does_not_block_us),
    TEST(test_a_file_that_shrinks_keeps_the_stream_in_step),
    TEST(test_mkdir_and_move),
    TEST(test_frames_that_break_the_rules_end_the_conversation),
    TEST(test_a_nul_in_a_path_is_refused),
};
const size_t n_basic_tests = sizeof basic_tests / sizeof *basic_tests;
