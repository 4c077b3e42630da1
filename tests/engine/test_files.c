/* The file helper in a box: with the box's rights, charged to the box, sealed. */
#define _GNU_SOURCE
#include "support.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client.h"

#define ASK(operation, ...) ((struct files_request){ .op = FILES_##operation, __VA_ARGS__ })
enum { WRITE_NEW = FILES_CREATE | FILES_TRUNCATE };

static int open_files(uint32_t box, unsigned payload)
{
    int pair[2];
    struct request_head q = { .type = REQUEST_FILES, .box = box, .payload = (uint16_t)payload };

    assert_return_code(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), errno);
    struct told told = front_answer(front_send(&q, sizeof q, &pair[1], 1));
    assert_int_equal(told.event.head.result, 0);
    close(pair[1]);
    client_init(pair[0]);
    return pair[0];
}

static void close_files(int fd, uint32_t box, int payload)
{
    close(fd);
    struct frame_end end = front_expect(EVENT_ENDED, box, payload).event.ended.end;
    assert_int_equal(end.code, 0);
    assert_int_equal(box_ask(REQUEST_FORGET, box, (unsigned)payload).event.head.result, 0);
}

static void test_files_go_in_and_out(void **state)
{
    (void)state;
    char out[256];
    box_make(0, NULL);
    int fd = open_files(0, 5);
    assert_done(client_upload(fd, ASK(WRITE, .flags = WRITE_NEW, .mode = 0640), "hello.txt", "from outside\n", 13));
    assert_done(client_upload(fd, ASK(WRITE, .flags = WRITE_NEW | FILES_ATOMIC | FILES_PARENTS, .mode = 0755),
                              "/tmp/a/b/c", "#!/bin/sh\necho ran\n", 19));
    box_sh(0, 0, "cat ~/hello.txt; stat -c '%U %a' ~/hello.txt; /tmp/a/b/c; echo from inside >/tmp/in", out,
           sizeof out);
    assert_string_equal(out, "from outside\nbox 640\nran\n");
    client_ask(fd, ASK(READ, .length = UINT64_MAX), "/tmp/in", NULL);
    struct answer answer = client_answer(fd, false);
    assert_done(answer.done);
    assert_int_equal(answer.size, 12);
    assert_memory_equal(answer.data, "from inside\n", 12);
    answer_free(&answer);
    client_ask(fd, ASK(LIST), "", NULL);
    answer = client_answer(fd, false);
    assert_int_equal(answer.done.entries, 1);
    struct listed f;
    size_t at = 0;
    assert_true(answer_next(&answer, &at, &f));
    assert_string_equal(f.name, "hello.txt");
    assert_int_equal(f.entry.uid, 1000);
    answer_free(&answer);
    /* /proc has files without a size. */
    client_ask(fd, ASK(READ, .length = UINT64_MAX), "/proc/meminfo", NULL);
    answer = client_answer(fd, false);
    assert_done(answer.done);
    assert_true(answer.size > 20);
    answer_free(&answer);
    close_files(fd, 0, 5);
    box_end(0);
}

static void test_the_helper_has_only_the_rights_of_the_box(void **state)
{
    (void)state;
    box_make(0, NULL);
    int fd = open_files(0, 1);
    static const char *const places[] = { "/evil",      "/etc/evil", "/usr/evil", "/usr/bin/evil",
                                          "/proc/evil", "/dev/evil", "/home/evil" };
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        int code = client_upload(fd, ASK(WRITE, .flags = WRITE_NEW, .mode = 0644), places[i], "x", 1).code;
        if (code != EROFS && code != EACCES && code != ENOENT && code != EPERM)
            fail_msg("%s: %d", places[i], code);
        assert_int_not_equal(client_do(fd, ASK(MKDIR, .mode = 0755), places[i], NULL).code, 0);
    }
    assert_int_not_equal(client_do(fd, ASK(REMOVE, .flags = FILES_RECURSIVE), "/usr/share", NULL).code, 0);
    assert_int_not_equal(client_do(fd, ASK(CHMOD, .mode = 0777), "/usr", NULL).code, 0);
    assert_int_equal(client_do(fd, ASK(REMOVE, .flags = FILES_RECURSIVE), "/home/box", NULL).code, EBUSY);
    assert_done(client_do(fd, ASK(STAT), "/home/box", NULL));
    /* What the guest plants leads only to what the guest has. */
    box_sh(0, 0,
           "ln -s /proc/1/root/etc/shadow ~/a; ln -s /proc/self/fd/3 ~/b; ln -s /proc/self/environ ~/c; mkfifo ~/f; ln "
           "-s /dev/zero ~/z;"
           "ln -s /proc/1/environ ~/d; ln -s /proc/1/mem ~/e",
           NULL, 0);
    static const char *const traps[] = { "a", "b",           "c",           "d",          "e",       "f",
                                         "z", "/etc/shadow", "/proc/kcore", "/proc/kmsg", "/dev/tty" };
    for (size_t i = 0; i < sizeof traps / sizeof *traps; i++) {
        client_ask(fd, ASK(READ, .length = 1 << 20), traps[i], NULL);
        struct answer answer = client_answer(fd, true);
        if (answer.done.code == 0 || answer.size > 0)
            fail_msg("%s: %zu bytes", traps[i], answer.size);
        answer_free(&answer);
    }
    close_files(fd, 0, 1);
    box_end(0);
}

static void test_the_guest_cannot_see_the_helper(void **state)
{
    (void)state;
    char out[256];
    box_make(0, NULL);
    int fd = open_files(0, 1);
    assert_done(client_do(fd, ASK(STAT), "/", NULL));
    box_sh(0, 0, "cd /proc; for p in [0-9]*; do test $p = 1 || test $p = $$ || echo $p; done; kill -9 -1 2>/dev/null",
           out, sizeof out);
    assert_string_equal(out, "");
    assert_done(client_do(fd, ASK(STAT), "/", NULL));
    close_files(fd, 0, 1);
    box_end(0);
}

static void test_what_is_written_is_charged_to_the_box(void **state)
{
    (void)state;
    char *data = calloc(1, 32 << 20);
    box_make(0, NULL);
    int fd = open_files(0, 1);
    struct files_done done = client_upload(fd, ASK(WRITE, .flags = WRITE_NEW, .mode = 0644), "big", data, 32 << 20);
    assert_int_equal(done.code, ENOSPC);
    assert_in_range(done.bytes, 8 << 20, 16 << 20);
    struct frame_usage usage = box_ask(REQUEST_USAGE, 0, 0).event.usage.usage;
    assert_true(usage.disk_full);
    assert_in_range(usage.memory_bytes, 8 << 20, 96 << 20);
    assert_done(client_do(fd, ASK(REMOVE), "big", NULL));
    done = client_upload(fd, ASK(WRITE, .flags = WRITE_NEW | FILES_ATOMIC, .mode = 0644), "big", data, 32 << 20);
    assert_int_equal(done.code, ENOSPC);
    client_ask(fd, ASK(LIST), "", NULL);
    struct answer answer = client_answer(fd, true);
    assert_int_equal(answer.done.entries, 0);       /* no half file, no temporary one */
    answer_free(&answer);
    assert_done(client_upload(fd, ASK(WRITE, .flags = WRITE_NEW, .mode = 0644), "small", data, 1 << 20));
    free(data);
    close_files(fd, 0, 1);
    box_end(0);
}

static void test_trees_travel_in_every_profile(void **state)
{
    (void)state;
    for (uint32_t profile = 0; profile < PROFILE_COUNT; profile++) {
        struct request_create q = create_frame(profile);
        q.profile = profile;
        q.limits.disk_bytes = 64 << 20;
        q.limits.memory_bytes = 256 << 20;
        assert_int_equal(front_answer(front_send(&q, sizeof q, NULL, 0)).event.head.result, 0);
        int fd = open_files(profile, 1);
        box_sh(profile, 0,
               "mkdir -p a/b a/closed; head -c 3000000 /dev/urandom >a/b/big; ln -s b/big a/l; echo x >a/closed/x; "
               "chmod 555 a/closed",
               NULL, 0);
        client_ask(fd, ASK(PACK), "a", NULL);
        struct answer tar = client_answer(fd, false);
        assert_done(tar.done);
        assert_done(client_upload(fd, ASK(UNPACK, .flags = FILES_PARENTS, .mode = 0755), "copy", tar.data, tar.size));
        answer_free(&tar);
        assert_int_equal(
            box_sh(profile, 0, "cmp a/b/big copy/b/big && cmp copy/l a/b/big && cmp copy/closed/x a/closed/x", NULL, 0)
                .code,
            0);
        /* As the box's user a closed folder is closed; it is removed all the same. */
        assert_done(client_do(fd, ASK(REMOVE, .flags = FILES_RECURSIVE), "a", NULL));
        client_ask(fd, ASK(READ, .length = UINT64_MAX), "copy/b/big", NULL);
        struct answer answer = client_answer(fd, true);
        assert_done(answer.done);
        assert_int_equal(answer.size, 3000000);
        answer_free(&answer);
        close_files(fd, profile, 1);
        box_end(profile);
    }
}

static void test_a_helper_freezes_and_ends_with_its_box(void **state)
{
    (void)state;
    char byte;
    box_make(0, NULL);
    int fd = open_files(0, 1);
    assert_done(client_do(fd, ASK(STAT), "/", NULL));
    assert_int_equal(box_ask(REQUEST_FREEZE, 0, 0).event.head.result, 0);
    client_ask(fd, ASK(STAT), "/", NULL);
    assert_int_equal(read_some(fd, &byte, 1, 60), 0);
    assert_int_equal(box_ask(REQUEST_THAW, 0, 0).event.head.result, 0);
    struct answer answer = client_answer(fd, true);
    assert_done(answer.done);
    answer_free(&answer);
    assert_int_equal(box_ask(REQUEST_FREEZE, 0, 0).event.head.result, 0);
    box_end(0);
    assert_int_equal(front_expect(EVENT_ENDED, 0, 1).event.ended.end.signal, SIGKILL);
    assert_true(client_is_over(fd));
    close(fd);
}

static void test_a_helper_can_be_ended(void **state)
{
    (void)state;
    box_make(0, NULL);
    int fd = open_files(0, 1);
    struct request_signal q = { .head = { .type = REQUEST_SIGNAL, .payload = 1 }, .signal = SIGTERM };
    assert_done(client_do(fd, ASK(STAT), "/", NULL));
    assert_int_equal(front_answer(front_send(&q, sizeof q, NULL, 0)).event.head.result, 0);
    assert_int_equal(front_expect(EVENT_ENDED, 0, 1).event.ended.end.signal, SIGTERM);
    close(fd);
    box_end(0);
}

static void test_a_large_file_is_read_whole_in_every_profile(void **state)
{
    (void)state;
    static const char *const names[] = {
        [PROFILE_STRICT] = "strict", [PROFILE_STANDARD] = "standard", [PROFILE_SYSTEM] = "system"
    };
    enum { SIZE = 128 << 20 };
    struct limits limits = { .memory_bytes = 512 << 20, .disk_bytes = 256 << 20, .pids = 32 };
    for (uint32_t profile = 0; profile <= PROFILE_STANDARD; profile++) {
        struct request_create q = create_frame(0);
        q.profile = profile;
        q.limits = limits;
        assert_int_equal(front_answer(front_send(&q, sizeof q, NULL, 0)).event.head.result, 0);
        int fd = open_files(0, 1);
        box_sh(0, 0, "head -c 128M /dev/zero >big", NULL, 0);
        uint64_t best = UINT64_MAX;
        for (int i = 0; i < 5; i++) {
            uint64_t start = clock_monotonic_us();
            assert_int_equal(client_do(fd, ASK(READ, .length = UINT64_MAX), "big", NULL).bytes, SIZE);
            uint64_t took = clock_monotonic_us() - start;
            best = took < best ? took : best;
        }
        printf("engine: files are read with %.2f GB/s (%s)\n", SIZE / 1e3 / (double)best, names[profile]);
        close_files(fd, 0, 1);
        box_end(0);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup_private, teardown)
const struct CMUnitTest files_tests[] = {
    TEST(test_files_go_in_and_out),
    TEST(test_the_helper_has_only_the_rights_of_the_box),
    TEST(test_the_guest_cannot_see_the_helper),
    TEST(test_what_is_written_is_charged_to_the_box),
    TEST(test_trees_travel_in_every_profile),
    TEST(test_a_helper_freezes_and_ends_with_its_box),
    TEST(test_a_helper_can_be_ended),
    TEST(test_a_large_file_is_read_whole_in_every_profile),
};
const size_t n_files_tests = sizeof files_tests / sizeof *files_tests;
