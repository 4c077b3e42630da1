/* Large and deep trees. */
#include "scene.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

#define ASK(operation, ...) ((struct files_request){ .op = FILES_##operation, __VA_ARGS__ })

enum { MANY = 100000, DEEP = 100000 };

static void test_list_gives_every_name_once_in_pages(void **state)
{
    (void)state;
    enum { N = 5000 };
    unsigned char *seen = calloc(N, 1);
    char name[64];
    uint64_t cursor = 0;
    unsigned pages = 0;

    mkdirat(top, "d", 0755);
    for (int i = 0; i < N; i++) {
        snprintf(name, sizeof name, "d/\xff\xfe%05d", i);       /* not UTF-8 */
        make_file(name, name, (size_t)i % 7);
    }
    do {
        client_ask(helper, ASK(LIST, .offset = cursor, .limit = 333), "/d", NULL);
        struct answer answer = client_answer(helper, false);
        assert_done(answer.done);
        struct listed f;
        uint64_t n = 0;
        for (size_t at = 0; answer_next(&answer, &at, &f); n++) {
            assert_memory_equal(f.name, "\xff\xfe", 2);
            long i = strtol(f.name + 2, NULL, 10);
            assert_in_range(i, 0, N - 1);
            assert_int_equal(seen[i]++, 0);
            assert_int_equal(f.entry.size, (size_t)i % 7);
        }
        assert_int_equal(n, answer.done.entries);
        assert_true(n <= 333);
        cursor = answer.done.cursor;
        answer_free(&answer);
        assert_true(++pages < 100);
    } while (cursor);
    for (int i = 0; i < N; i++)
        assert_int_equal(seen[i], 1);
    free(seen);
}

static void test_list_of_links_tells_their_targets(void **state)
{
    (void)state;
    char target[4000];
    memset(target, 'x', sizeof target - 1);
    target[sizeof target - 1] = 0;
    for (int i = 0; i < 60; i++) {
        char name[16];
        snprintf(name, sizeof name, "l%d", i);
        assert_return_code(symlinkat(target, top, name), errno);
    }
    client_ask(helper, ASK(LIST), "/", NULL);
    struct answer answer = client_answer(helper, false);
    struct listed f;
    size_t n = 0;
    for (size_t at = 0; answer_next(&answer, &at, &f); n++)
        assert_string_equal(f.link, target);
    assert_int_equal(n, 60);
    answer_free(&answer);
}

static void test_a_huge_folder_is_listed_and_removed(void **state)
{
    (void)state;
    mkdirat(top, "d", 0755);
    int dir = openat(top, "d", O_RDONLY | O_DIRECTORY);
    for (int i = 0; i < MANY; i++) {
        char name[16];
        snprintf(name, sizeof name, "%d", i);
        assert_return_code(mknodat(dir, name, S_IFREG | 0644, 0), errno);
    }
    close(dir);
    client_ask(helper, ASK(LIST), "/d", NULL);
    struct answer answer = client_answer(helper, false);
    assert_int_equal(answer.done.entries, MANY);
    assert_int_equal(answer.done.cursor, 0);
    answer_free(&answer);
    struct files_done done = client_do(helper, ASK(REMOVE, .flags = FILES_RECURSIVE), "/d", NULL);
    assert_done(done);
    assert_int_equal(done.entries, MANY + 1);
    assert_false(exists("d"));
}

/* A chain of folders, each with a file and a link to the top beside the next one. */
static void make_chain(int depth)
{
    int dir = dup(top);
    for (int i = 0; i < depth; i++) {
        assert_return_code(mkdirat(dir, "d", 0755), errno);
        int next = openat(dir, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_return_code(next, errno);
        close(dir);
        dir = next;
        if (i % 1000 == 0) {
            assert_return_code(mknodat(dir, "file", S_IFREG | 0444, 0), errno);
            assert_return_code(symlinkat("/keep", dir, "link"), errno);
        }
    }
    close(dir);
}

static void test_a_tree_100000_deep_is_removed(void **state)
{
    (void)state;
    make_file("keep", "me", 2);
    make_chain(DEEP);
    struct files_done done = client_do(helper, ASK(REMOVE, .flags = FILES_RECURSIVE), "/d", NULL);
    assert_done(done);
    assert_int_equal(done.entries, DEEP + 2 * (DEEP / 1000));
    assert_false(exists("d"));
    assert_true(exists("keep"));
}

static void test_remove_follows_no_link_and_opens_closed_folders(void **state)
{
    (void)state;
    mkdirat(top, "outside", 0755);
    make_file("outside/keep", "", 0);
    mkdirat(top, "d", 0755);
    mkdirat(top, "d/closed", 0755);
    mkdirat(top, "d/closed/inner", 0755);
    make_file("d/closed/inner/f", "", 0);
    assert_return_code(symlinkat("../outside", top, "d/link"), errno);
    assert_return_code(fchmodat(top, "d/closed/inner", 0, 0), errno);
    assert_return_code(fchmodat(top, "d/closed", 0500, 0), errno);
    assert_done(client_do(helper, ASK(REMOVE, .flags = FILES_RECURSIVE), "/d", NULL));
    assert_false(exists("d"));
    assert_true(exists("outside/keep"));
    assert_return_code(symlinkat("outside", top, "l"), errno);
    assert_done(client_do(helper, ASK(REMOVE, .flags = FILES_RECURSIVE), "/l", NULL));
    assert_true(exists("outside/keep"));
}

static void test_packing_a_deep_tree_is_refused(void **state)
{
    (void)state;
    make_chain(2000);
    assert_int_equal(client_do(helper, ASK(PACK), "/", NULL).code, ENAMETOOLONG);
    assert_done(client_do(helper, ASK(REMOVE, .flags = FILES_RECURSIVE), "/d", NULL));
}

static void test_a_large_file_is_read_whole(void **state)
{
    (void)state;
    enum { SIZE = 512 << 20 };
    char *chunk = calloc(1, 1 << 20);
    int fd = openat(top, "f", O_WRONLY | O_CREAT, 0644);
    for (int i = 0; i < SIZE >> 20; i++)
        assert_int_equal(write(fd, chunk, 1 << 20), 1 << 20);
    close(fd);
    free(chunk);
    uint64_t best = UINT64_MAX;
    for (int i = 0; i < 3; i++) {
        uint64_t start = clock_monotonic_us();
        struct files_done done = client_do(helper, ASK(READ, .length = UINT64_MAX), "/f", NULL);
        uint64_t took = clock_monotonic_us() - start;
        assert_int_equal(done.bytes, SIZE);
        best = took < best ? took : best;
    }
    printf("files: read %.2f GB/s\n", SIZE / 1e3 / (double)best);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scene_setup, scene_teardown)
const struct CMUnitTest tree_tests[] = {
    TEST(test_list_gives_every_name_once_in_pages),
    TEST(test_list_of_links_tells_their_targets),
    TEST(test_a_huge_folder_is_listed_and_removed),
    TEST(test_a_tree_100000_deep_is_removed),
    TEST(test_remove_follows_no_link_and_opens_closed_folders),
    TEST(test_packing_a_deep_tree_is_refused),
    TEST(test_a_large_file_is_read_whole),
};
const size_t n_tree_tests = sizeof tree_tests / sizeof *tree_tests;
