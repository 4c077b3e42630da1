/* A database with problems: full, read-only, damaged, foreign, killed in the middle. Small filesystems are mounted in a
 * mount namespace of this program's own. */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "front/db/db_private.h"
#include "front/scratch.h"

static struct err e;
static bool can_mount, is_root;

static const char *dir(void **state)
{
    return ((struct scratch *)*state)->path;
}

static int insert(struct db *s, int i, size_t body_size)
{
    char id[32];
    char *body = calloc(1, body_size + 1);
    struct db_box box = { .id = id, .owner = "o", .phase = "running", .body = body, .created_ms = 1, .alive = true };

    assert_non_null(body);
    memset(body, 'x', body_size);
    snprintf(id, sizeof id, "b%d", i);
    int r = db_box_insert(s, &box, &e);
    free(body);
    return r;
}

static int count_box(const struct db_box *box, void *arg)
{
    (void)box;
    (*(int *)arg)++;
    return 0;
}

static int count(struct db *s)
{
    int n = 0;

    assert_int_equal(db_boxes(s, false, count_box, &n, &e), 0);
    return n;
}

static int is_ok(void *arg, int n, char **value, char **name)
{
    (void)n;
    (void)name;
    *(bool *)arg = !strcmp(value[0], "ok");
    return 0;
}

static void assert_sound(struct db *s)
{
    bool sound = false, keys = true;

    assert_int_equal(sqlite3_exec(s->sqlite, "PRAGMA integrity_check", is_ok, &sound, NULL), SQLITE_OK);
    assert_true(sound);
    assert_int_equal(sqlite3_exec(s->sqlite, "PRAGMA foreign_key_check", is_ok, &keys, NULL), SQLITE_OK);
    assert_true(keys);
}

static void need_mount(void)
{
    if (!can_mount) {
        print_message("no mounts here\n");
        skip();
    }
}

static void test_full_disk(void **state)
{
    struct db *s;
    int n = 0, r = 0;

    need_mount();
    assert_int_equal(mount("none", dir(state), "tmpfs", 0, "size=600k"), 0);
    assert_int_equal(db_open(dir(state), &s, &e), 0);
    while (r == 0 && n < 1000)
        r = insert(s, n++, 3000);
    n--;
    assert_int_equal(r, -ENOSPC);
    assert_says(&e, "cannot write to the database");
    assert_says(&e, "No space left on device");
    assert_true(n > 10);
    assert_int_equal(insert(s, n, 3000), -ENOSPC);      /* still answers */
    assert_int_equal(count(s), n);
    assert_int_equal(mount(NULL, dir(state), NULL, MS_REMOUNT, "size=2m"), 0);
    assert_int_equal(insert(s, n++, 3000), 0);          /* and goes on when there is room again */
    assert_sound(s);
    db_close(s);
    assert_int_equal(db_open(dir(state), &s, &e), 0);
    assert_int_equal(count(s), n);
    db_close(s);
    assert_int_equal(umount(dir(state)), 0);
}

/* At every size from nothing to enough, making a database fails with a sentence or succeeds; nothing between. */
static void test_full_disk_at_birth(void **state)
{
    struct db *s;
    char size[32];
    int opened = 0, failed = 0;

    need_mount();
    for (int pages = 1; pages < 64; pages++) {
        snprintf(size, sizeof size, "size=%dk", pages * 4);
        assert_int_equal(mount("none", dir(state), "tmpfs", 0, size), 0);
        int r = db_open(dir(state), &s, &e);
        if (r == 0) {
            opened++;
            assert_sound(s);
            db_close(s);
        } else {
            failed++;
            assert_int_equal(r, -ENOSPC);
            assert_int_equal(mount(NULL, dir(state), NULL, MS_REMOUNT, "size=2m"), 0);
            assert_int_equal(db_open(dir(state), &s, &e), 0);    /* what was half made is no obstacle */
            assert_int_equal(insert(s, 1, 100), 0);
            db_close(s);
        }
        assert_int_equal(umount(dir(state)), 0);
    }
    assert_true(opened > 0 && failed > 0);
}

static void test_read_only_filesystem(void **state)
{
    struct db *s;

    need_mount();
    assert_int_equal(mount("none", dir(state), "tmpfs", 0, "size=4m"), 0);
    assert_int_equal(mount(NULL, dir(state), NULL, MS_REMOUNT | MS_RDONLY, NULL), 0);
    assert_int_equal(db_open(dir(state), &s, &e), -EROFS);
    assert_says(&e, "state.db: Read-only file system");
    assert_int_equal(mount(NULL, dir(state), NULL, MS_REMOUNT, NULL), 0);
    assert_int_equal(db_open(dir(state), &s, &e), 0);
    assert_int_equal(insert(s, 1, 10), 0);
    db_close(s);
    assert_int_equal(mount(NULL, dir(state), NULL, MS_REMOUNT | MS_RDONLY, NULL), 0);
    assert_int_equal(db_open(dir(state), &s, &e), -EROFS);
    assert_int_equal(umount(dir(state)), 0);
}

static void test_directory_of_another(void **state)
{
    struct db *s;
    int status;
    pid_t pid;

    assert_int_equal(db_open("/proc/self/nonexistent/a", &s, &e), -ENOENT);
    assert_says(&e, "/proc/self/nonexistent/a");
    assert_int_equal(db_open("/proc/version", &s, &e), -ENOTDIR);
    if (!is_root)
        return;
    pid = fork();
    if (pid == 0) {
        int r = setgid(65534) || setuid(65534) ? 0 : db_open(dir(state), &s, &e);
        _exit(r == -EACCES && strstr(e.what, "state.db") ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void overwrite(const char *path, off_t at, size_t size)
{
    FD fd = open(path, O_RDWR | O_CLOEXEC);

    assert_true(fd >= 0);
    for (size_t i = 0; i < size; i++)
        assert_int_equal(pwrite(fd, "\x5a", 1, at + (off_t)i), 1);
}

static void test_damaged_database(void **state)
{
    struct db *s;
    int n = 0;

    assert_int_equal(db_open(dir(state), &s, &e), 0);
    for (int i = 0; i < 200; i++)
        assert_int_equal(insert(s, i, 2000), 0);
    db_close(s);
    overwrite(scratch_file(state, "state.db"), 60 * 4096, 100 * 4096);
    assert_int_equal(db_open(dir(state), &s, &e), 0);
    assert_int_equal(db_boxes(s, false, count_box, &n, &e), -EIO);
    assert_says(&e, "is damaged");
    db_close(s);
    overwrite(scratch_file(state, "state.db"), 0, 4096);
    assert_int_equal(db_open(dir(state), &s, &e), -EIO);
    assert_says(&e, "is damaged");
}

static void test_database_of_another_program(void **state)
{
    struct db *s;
    sqlite3 *db;

    assert_int_equal(sqlite3_open(scratch_file(state, "state.db"), &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "CREATE TABLE contacts (name)", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
    assert_int_equal(db_open(dir(state), &s, &e), -EINVAL);
    assert_says(&e, "another program");
}

static void test_newer_version_is_refused_and_left_alone(void **state)
{
    struct db *s;
    sqlite3 *db;

    assert_int_equal(db_open(dir(state), &s, &e), 0);
    assert_int_equal(insert(s, 1, 10), 0);
    db_close(s);
    assert_int_equal(sqlite3_open(scratch_file(state, "state.db"), &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "PRAGMA user_version = 99", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(db_open(dir(state), &s, &e), -ENOTSUP);
    assert_says(&e, "newer carrel");
    assert_int_equal(sqlite3_exec(db, "PRAGMA user_version = 5", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
    assert_int_equal(db_open(dir(state), &s, &e), 0);
    assert_int_equal(count(s), 1);
    db_close(s);
}

static void test_another_writer_gives_busy(void **state)
{
    struct db *s;
    sqlite3 *db;

    assert_int_equal(db_open(dir(state), &s, &e), 0);
    assert_int_equal(sqlite3_open(scratch_file(state, "state.db"), &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_busy_timeout(s->sqlite, 50);
    assert_int_equal(insert(s, 1, 10), -EBUSY);
    assert_says(&e, "another process");
    assert_int_equal(sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(insert(s, 1, 10), 0);
    sqlite3_close(db);
    db_close(s);
}

/* Inserts until it is killed, and tells of each box whose insert has returned. */
static void insert_forever(const char *path, int out)
{
    struct db *s;
    bool is_open = db_open(path, &s, &e) == 0;

    for (int i = is_open ? count(s) : 0; is_open; i++) {
        if (insert(s, i, 5000) < 0 || write(out, &i, sizeof i) != (ssize_t)sizeof i)
            break;
        if (i % 7 == 0)
            (void)!db_maintain(s, &e);
    }
    _exit(1);
}

static void kill_child(pid_t pid)
{
    int status;

    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
}

static void test_kill_9_loses_nothing_that_was_told(void **state)
{
    struct db *s;
    int told = -1, ends[2];

    for (int round = 0; round < 25; round++) {
        assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
        pid_t pid = fork();
        if (pid == 0)
            insert_forever(dir(state), ends[1]);
        fd_close(ends[1]);
        for (int i = 0; i < 1 + round * 3; i++) {
            struct pollfd p = { .fd = ends[0], .events = POLLIN };
            assert_int_equal(poll(&p, 1, 60000), 1);
            assert_int_equal(read(ends[0], &told, sizeof told), sizeof told);
        }
        kill_child(pid);
        while (read(ends[0], &told, sizeof told) == (ssize_t)sizeof told)
            ;
        fd_close(ends[0]);
        assert_int_equal(db_open(dir(state), &s, &e), 0);
        assert_sound(s);
        int n = count(s);
        assert_true(n == told + 1 || n == told + 2);    /* the last one may have been written but not reported */
        db_close(s);
    }
}

static void test_kill_9_inside_a_transaction_undoes_it(void **state)
{
    struct db *s;
    int ends[2];
    char c;

    assert_int_equal(db_open(dir(state), &s, &e), 0);
    assert_int_equal(insert(s, 0, 10), 0);
    db_close(s);
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    pid_t pid = fork();
    if (pid == 0) {
        bool is_good = db_open(dir(state), &s, &e) == 0 &&
                       sqlite3_exec(s->sqlite, "PRAGMA cache_size = 5; BEGIN", NULL, NULL, NULL) == SQLITE_OK;
        for (int i = 1; is_good && i < 500; i++) /* more than the cache holds, so that pages are in the log already */
            is_good = insert(s, i, 5000) == 0;
        if (is_good && write(ends[1], "x", 1) == 1)
            for (;;)
                pause();
        _exit(1);
    }
    fd_close(ends[1]);
    assert_int_equal(read(ends[0], &c, 1), 1);
    fd_close(ends[0]);
    kill_child(pid);
    assert_int_equal(db_open(dir(state), &s, &e), 0);
    assert_sound(s);
    assert_int_equal(count(s), 1);
    assert_int_equal(insert(s, 1, 10), 0);
    db_close(s);
}

static void write_map(const char *path, unsigned id)
{
    char text[32];

    snprintf(text, sizeof text, "0 %u 1", id);
    (void)!fd_write_file(AT_FDCWD, path, text);
}

/* A mount namespace of our own; with a user namespace around it if we are not root. */
static bool enter_namespace(void)
{
    unsigned uid = getuid(), gid = getgid();

    if (uid != 0) {
        if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0)
            return false;
        (void)!fd_write_file(AT_FDCWD, "/proc/self/setgroups", "deny");
        write_map("/proc/self/uid_map", uid);
        write_map("/proc/self/gid_map", gid);
    } else if (unshare(CLONE_NEWNS) < 0) {
        return false;
    }
    return mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, scratch_make, scratch_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_full_disk),
        TEST(test_full_disk_at_birth),
        TEST(test_read_only_filesystem),
        TEST(test_directory_of_another),
        TEST(test_damaged_database),
        TEST(test_database_of_another_program),
        TEST(test_newer_version_is_refused_and_left_alone),
        TEST(test_another_writer_gives_busy),
        TEST(test_kill_9_loses_nothing_that_was_told),
        TEST(test_kill_9_inside_a_transaction_undoes_it),
    };

    is_root = getuid() == 0;
    can_mount = enter_namespace();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
