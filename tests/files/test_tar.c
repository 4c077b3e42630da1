/* Archives: ours read by the system's tar, the system's read by us, and hostile ones. */
#include "scene.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define ASK(operation, ...) ((struct files_request){ .op = FILES_##operation, .mode = 0755, __VA_ARGS__ })

/* Runs tar in a folder of the scene, with the archive as its standard input or output. */
static void run_tar(const char *folder, int archive, bool extract, const char *format)
{
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        if (fchdir(top) < 0 || chdir(folder) < 0 || dup2(archive, extract ? 0 : 1) < 0)
            _exit(1);
        if (extract)
            execlp("tar", "tar", "-xf", "-", (char *)NULL);
        else
            execlp("tar", "tar", format, "--sort=name", "-cf", "-", ".", (char *)NULL);
        _exit(2);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void make_tree(const char *folder)
{
    char path[400], longer[200];

    memset(longer, 'n', sizeof longer);
    longer[sizeof longer - 1] = 0;
    assert_return_code(mkdirat(top, folder, 0755), errno);
    snprintf(path, sizeof path, "%s/sub", folder);
    assert_return_code(mkdirat(top, path, 0750), errno);
    snprintf(path, sizeof path, "%s/sub/file", folder);
    make_file(path, "contents", 8);
    assert_return_code(fchmodat(top, path, 0754, 0), errno);
    struct timespec times[2] = { { .tv_sec = 1 }, { .tv_sec = 1234567890 } };
    assert_return_code(utimensat(top, path, times, 0), errno);
    snprintf(path, sizeof path, "%s/sub/%s", folder, longer);
    make_file(path, "long", 4);
    snprintf(path, sizeof path, "%s/\xff\xfe", folder);
    make_file(path, "", 0);
    snprintf(path, sizeof path, "%s/link", folder);
    assert_return_code(symlinkat("sub/file", top, path), errno);
    snprintf(path, sizeof path, "%s/far", folder);
    assert_return_code(symlinkat(longer, top, path), errno);
    snprintf(path, sizeof path, "%s/fifo", folder);
    assert_return_code(mkfifoat(top, path, 0600), errno);
    char *big = malloc(3000001);
    for (int i = 0; i < 3000001; i++)
        big[i] = (char)(i * 7);
    snprintf(path, sizeof path, "%s/big", folder);
    make_file(path, big, 3000001);
    free(big);
}

static void assert_same(const char *a, const char *b, const char *name, bool is_link)
{
    char pa[400], pb[400], la[300] = "", lb[300] = "";
    struct stat sa, sb;

    snprintf(pa, sizeof pa, "%s/%s", a, name);
    snprintf(pb, sizeof pb, "%s/%s", b, name);
    assert_int_equal(fstatat(top, pa, &sa, AT_SYMLINK_NOFOLLOW), 0);
    assert_int_equal(fstatat(top, pb, &sb, AT_SYMLINK_NOFOLLOW), 0);
    assert_int_equal(sa.st_mode, sb.st_mode);
    if (is_link) {
        assert_true(readlinkat(top, pa, la, sizeof la) > 0 && readlinkat(top, pb, lb, sizeof lb) > 0);
        assert_string_equal(la, lb);
        return;
    }
    assert_int_equal(sa.st_size, sb.st_size);
    assert_int_equal(sa.st_mtim.tv_sec, sb.st_mtim.tv_sec);
    char *ca = contents(pa, NULL), *cb = contents(pb, NULL);
    assert_memory_equal(ca, cb, (size_t)sa.st_size);
    free(ca);
    free(cb);
}

static void assert_same_tree(const char *a, const char *b)
{
    char longer[204] = "sub/";
    memset(longer + 4, 'n', 199);
    longer[203] = 0;
    assert_same(a, b, "sub/file", false);
    assert_same(a, b, "\xff\xfe", false);
    assert_same(a, b, "big", false);
    assert_same(a, b, longer, false);
    assert_same(a, b, "link", true);
    assert_same(a, b, "far", true);
}

static struct answer pack(const char *path)
{
    client_ask(helper, ASK(PACK), path, NULL);
    struct answer answer = client_answer(helper, false);
    assert_done(answer.done);
    assert_int_equal(answer.size % 512, 0);
    return answer;
}

static void test_tar_unpacks_what_we_pack(void **state)
{
    (void)state;
    make_tree("a");
    struct answer answer = pack("/a");
    assert_int_equal(answer.done.entries, 7);
    make_file("archive", answer.data, answer.size);
    answer_free(&answer);
    assert_return_code(mkdirat(top, "b", 0755), errno);
    int fd = openat(top, "archive", O_RDONLY | O_CLOEXEC);
    run_tar("b", fd, true, NULL);
    close(fd);
    assert_same_tree("a", "b");
    assert_false(exists("b/fifo"));
}

static void test_we_unpack_what_tar_packs(void **state)
{
    (void)state;
    static const char *const formats[] = { "--format=gnu", "--format=pax", "--format=ustar" };
    make_tree("a");
    assert_return_code(unlinkat(top, "a/fifo", 0), errno);
    for (size_t i = 0; i < 3; i++) {
        if (i == 2) {   /* which has no room for a long target of a link */
            assert_return_code(unlinkat(top, "a/far", 0), errno);
            assert_return_code(symlinkat("near", top, "a/far"), errno);
            assert_done(client_do(helper, ASK(REMOVE, .flags = FILES_RECURSIVE), "/a/sub", NULL));
            assert_return_code(mkdirat(top, "a/sub", 0755), errno);
            make_file("a/sub/file", "x", 1);
        }
        int fd = openat(top, "archive", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
        run_tar("a", fd, false, formats[i]);
        close(fd);
        size_t size;
        char *data = contents("archive", &size);
        struct files_done done = client_upload(helper, ASK(UNPACK, .flags = FILES_PARENTS), "/b", data, size);
        assert_done(done);
        free(data);
        if (i == 2)
            assert_same("a", "b", "sub/file", false);
        else
            assert_same_tree("a", "b");
        /* A second time over what is there. */
        assert_done(client_do(helper, ASK(REMOVE, .flags = FILES_RECURSIVE), "/b/big", NULL));
    }
}

static void test_what_we_pack_we_unpack(void **state)
{
    (void)state;
    make_tree("a");
    struct answer answer = pack("/a");
    for (int i = 0; i < 2; i++) {
        struct files_done done =
            client_upload(helper, ASK(UNPACK, .flags = FILES_PARENTS), "/b", answer.data, answer.size);
        assert_done(done);
        assert_int_equal(done.entries, 7);
        assert_same_tree("a", "b");
    }
    answer_free(&answer);
    answer = pack("/a/sub/file");
    assert_done(client_upload(helper, ASK(UNPACK, .flags = FILES_PARENTS), "/c", answer.data, answer.size));
    assert_same("a/sub", "c", "file", false);
    answer_free(&answer);
    assert_int_equal(client_do(helper, ASK(PACK), "/a/fifo", NULL).code, EINVAL);
}

static void test_a_sparse_exbibyte_is_refused_before_the_first_byte(void **state)
{
    (void)state;
    mkdirat(top, "d", 0755);
    make_file("d/a", "1", 1);
    int fd = openat(top, "d/z", O_RDWR | O_CREAT, 0644);
    if (ftruncate(fd, INT64_C(1) << 60) < 0 && ftruncate(fd, INT64_C(1) << 42) < 0)
        skip();
    close(fd);
    client_ask(helper, ASK(PACK, .length = 1 << 20), "/d", NULL);
    struct answer answer = client_answer(helper, true);
    assert_int_equal(answer.done.code, EFBIG);
    assert_int_equal(answer.n_frames, 0);
    answer_free(&answer);
}

static int unpack(struct archive *a, struct files_request ask)
{
    archive_end(a);
    struct files_done done = client_upload(helper, ask, "/in", a->data, a->size);
    free(a->data);
    *a = (struct archive){ 0 };
    return done.code;
}

static void test_paths_out_of_the_folder_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = { "/abs", "../up", "a/../../up", "..", "a/..", "/" };
    mkdirat(top, "in", 0755);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct archive a = { 0 };
        archive_add(&a, '0', bad[i], "", "evil", 4);
        assert_int_equal(unpack(&a, ASK(UNPACK)), EPERM);
        archive_add(&a, '5', bad[i], "", NULL, 0);
        assert_int_equal(unpack(&a, ASK(UNPACK)), EPERM);
        archive_add(&a, '0', "file", "", "x", 1);
        archive_add(&a, '1', "hard", bad[i], NULL, 0);
        assert_int_equal(unpack(&a, ASK(UNPACK)), EPERM);
    }
    struct archive a = { 0 };
    archive_add_records(&a, 'x', "14 path=../up\n");
    archive_add(&a, '0', "harmless", "", "evil", 4);
    assert_int_equal(unpack(&a, ASK(UNPACK)), EPERM);
    archive_add(&a, 'L', "././@LongLink", "", "../up", 6);
    archive_add(&a, '0', "harmless", "", "evil", 4);
    assert_int_equal(unpack(&a, ASK(UNPACK)), EPERM);
    assert_int_equal(count_names("."), 1);
    assert_int_equal(count_names("in"), 1);     /* "file" */
}

static void test_a_link_of_the_archive_leads_nowhere(void **state)
{
    (void)state;
    mkdirat(top, "in", 0755);
    mkdirat(top, "out", 0755);
    make_file("out/victim", "safe", 4);
    static const char *const links[] = { "/out", "../out", "." };
    for (size_t i = 0; i < 3; i++) {
        struct archive a = { 0 };
        archive_add(&a, '2', "l", links[i], NULL, 0);
        archive_add(&a, '0', "l/victim", "", "evil", 4);
        assert_int_equal(unpack(&a, ASK(UNPACK)), ELOOP);
        archive_add(&a, '2', "l", links[i], NULL, 0);
        archive_add(&a, '5', "l/new/folder", "", NULL, 0);
        assert_int_equal(unpack(&a, ASK(UNPACK)), ELOOP);
        archive_add(&a, '2', "l", links[i], NULL, 0);
        archive_add(&a, '1', "h", "l/victim", NULL, 0);
        assert_int_equal(unpack(&a, ASK(UNPACK)), ELOOP);
    }
    /* A file over a link replaces the link. */
    struct archive a = { 0 };
    archive_add(&a, '2', "v", "../out/victim", NULL, 0);
    archive_add(&a, '0', "v", "", "evil", 4);
    archive_add(&a, '2', "w", "../out/victim", NULL, 0);
    archive_add(&a, '1', "w2", "w", NULL, 0); /* a hard link to a link would be one to its target on some systems */
    assert_int_equal(unpack(&a, ASK(UNPACK)), EPERM);
    char *text = contents("out/victim", NULL);
    assert_string_equal(text, "safe");
    free(text);
    text = contents("in/v", NULL);
    assert_string_equal(text, "evil");
    free(text);
    assert_int_equal(count_names("out"), 1);
}

static void test_devices_and_unknown_kinds_are_refused(void **state)
{
    (void)state;
    static const char types[] = "346SMDVNAQ\x80";
    mkdirat(top, "in", 0755);
    for (const char *t = types; *t; t++) {
        struct archive a = { 0 };
        archive_add(&a, *t, "x", "", NULL, 0);
        int code = unpack(&a, ASK(UNPACK));
        assert_int_equal(code, strchr("346", *t) ? EPERM : ENOTSUP);
    }
    struct archive a = { 0 };
    archive_add_records(&a, 'x', "22 GNU.sparse.major=1\n");
    archive_add(&a, '0', "x", "", NULL, 0);
    assert_int_equal(unpack(&a, ASK(UNPACK)), ENOTSUP);
    assert_int_equal(count_names("in"), 0);
}

static void test_broken_archives_are_refused(void **state)
{
    (void)state;
    static const char *const records[] = { "x",          "5 a=\n",       "99 path=x\n", "8 path=x\n",
                                           "10 path=xy", "10 size=-1\n", "3 \n",        "0000010 a=b\n",
                                           "7 path=\n",  "8 =path\n",    "8 path a\n" };
    mkdirat(top, "in", 0755);
    for (size_t i = 0; i < sizeof records / sizeof *records; i++) {
        struct archive a = { 0 };
        archive_add_records(&a, 'x', records[i]);
        archive_add(&a, '0', "x", "", NULL, 0);
        int code = unpack(&a, ASK(UNPACK));
        if (strcmp(records[i], "5 a=\n") == 0 ? code != 0 : code != EBADMSG)
            fail_msg("record %zu: %d", i, code);
    }
    struct archive a = { 0 };
    archive_add_records(&a, 'g', "17 comment=abcdef\n");
    archive_add(&a, '0', "x", "", NULL, 0);
    assert_int_equal(unpack(&a, ASK(UNPACK)), EBADMSG);     /* its length is one too small */
    archive_add_records(&a, 'g', "18 comment=abcdef\n");
    archive_add(&a, '0', "x", "", NULL, 0);
    assert_int_equal(unpack(&a, ASK(UNPACK)), 0);
    archive_add_records(&a, 'g', "10 path=xy\n");
    assert_int_equal(unpack(&a, ASK(UNPACK)), EBADMSG);

    archive_add(&a, '0', "y", "", "abc", 3);
    a.data[3] ^= 1;     /* the sum is wrong */
    assert_int_equal(unpack(&a, ASK(UNPACK)), EBADMSG);
    archive_add(&a, '0', "y", "", "abc", 3);
    for (size_t cut = 1; cut < a.size; cut += 127)
        assert_int_equal(client_upload(helper, ASK(UNPACK), "/in", a.data, cut).code, EBADMSG);
    /* Complete but without its end. */
    assert_int_equal(client_upload(helper, ASK(UNPACK), "/in", a.data, a.size).code, EBADMSG);
    free(a.data);
    char *noise = malloc(100000);
    memset(noise, 'n', 100000);
    assert_int_equal(client_upload(helper, ASK(UNPACK), "/in", noise, 100000).code, EBADMSG);
    free(noise);
    assert_done(client_do(helper, ASK(STAT), "/in", NULL));
}

static void test_the_bounds_of_the_request_hold(void **state)
{
    (void)state;
    struct archive a = { 0 };
    mkdirat(top, "in", 0755);
    archive_add(&a, '0', "1", "", "abc", 3);
    archive_add(&a, '0', "2", "", "abc", 3);
    archive_add(&a, '0', "3", "", "abc", 3);
    archive_end(&a);
    assert_done(client_upload(helper, ASK(UNPACK, .length = 9, .limit = 3), "/in", a.data, a.size));
    assert_int_equal(client_upload(helper, ASK(UNPACK, .length = 8), "/in", a.data, a.size).code, EFBIG);
    assert_int_equal(client_upload(helper, ASK(UNPACK, .limit = 2), "/in", a.data, a.size).code, EFBIG);
    free(a.data);
    /* A size near 2^64 in a pax record, and in GNU's binary form. */
    a = (struct archive){ 0 };
    archive_add_records(&a, 'x', "28 size=18446744073709551615\n");
    archive_add(&a, '0', "big", "", "abc", 3);
    assert_int_equal(unpack(&a, ASK(UNPACK, .length = 100)), EBADMSG);
    archive_add_records(&a, 'x', "28 size=4000000000000000000\n");
    archive_add(&a, '0', "big", "", "abc", 3);
    assert_int_equal(unpack(&a, ASK(UNPACK, .length = 100)), EFBIG);
    char *records = calloc(1, 70000);
    memset(records, 'a', 69999);
    archive_add(&a, 'x', "PaxHeader", "", records, 69999);
    assert_int_equal(unpack(&a, ASK(UNPACK)), EFBIG);
    free(records);
}

static void test_an_aborted_upload_leaves_no_half_file(void **state)
{
    (void)state;
    struct archive a = { 0 };
    mkdirat(top, "in", 0755);
    archive_add(&a, '0', "whole", "", "abc", 3);
    char *big = calloc(1, 100000);
    archive_add(&a, '0', "half", "", big, 100000);
    client_ask(helper, ASK(UNPACK), "/in", NULL);
    client_frame(helper, FILES_DATA, a.data, a.size - 50000);
    client_frame(helper, FILES_ABORT, NULL, 0);
    assert_int_equal(client_answer(helper, true).done.code, ECANCELED);
    assert_true(exists("in/whole"));
    assert_false(exists("in/half"));
    free(big);
    free(a.data);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, scene_setup, scene_teardown)
const struct CMUnitTest tar_tests[] = {
    TEST(test_tar_unpacks_what_we_pack),
    TEST(test_we_unpack_what_tar_packs),
    TEST(test_what_we_pack_we_unpack),
    TEST(test_a_sparse_exbibyte_is_refused_before_the_first_byte),
    TEST(test_paths_out_of_the_folder_are_refused),
    TEST(test_a_link_of_the_archive_leads_nowhere),
    TEST(test_devices_and_unknown_kinds_are_refused),
    TEST(test_broken_archives_are_refused),
    TEST(test_the_bounds_of_the_request_hold),
    TEST(test_an_aborted_upload_leaves_no_half_file),
};
const size_t n_tar_tests = sizeof tar_tests / sizeof *tar_tests;
