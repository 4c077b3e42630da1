/* The directory of stores, independent of the file format.
 *
 *   N.new   being made; removed at the keeper's start and when the job has failed
 *   N.img   a store
 *
 * The keeper makes the file, in its final size but sparse, before a child fills it: so the next request for room sees
 * what is reserved. The child does the slow work (mkfs, replaying a journal, waiting for an unmount) and passes the
 * mounted tree back. If it is killed at any moment only N.new is left. */
#define _GNU_SOURCE
#include "box/store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/parse.h"
#include "base/title.h"
#include "box/init.h"
#include "box/payload.h"
#include "box/store_private.h"
#include "sys/rights.h"

enum {
    BLOCK_BYTES = 4096,
    ROOM_BYTES = 64 << 20,      /* reserved for the host */
    START_PATIENCE_MS = 10000,  /* for the last keeper's processes to end */
    POLL_MS = 5,
};

void store_name_of(uint64_t number, const char *kind, char name[STORE_NAME_SIZE])
{
    snprintf(name, STORE_NAME_SIZE, "%" PRIu64 ".%s", number, kind);
}

/* False if the name is not one of ours. */
bool store_number_of(const char *name, const char *kind, uint64_t *ret)
{
    char *end, again[STORE_NAME_SIZE];

    errno = 0;
    *ret = strtoull(name, &end, 10);
    store_name_of(*ret, kind, again);
    return errno == 0 && strcmp(name, again) == 0;
}

/* No other way waits with a deadline for a lock that the kernel drops with its last holder. */
int store_lock_patiently(int fd, uint64_t patience_ms)
{
    uint64_t end = clock_monotonic_us() + patience_ms * 1000;
    const struct timespec pause = { .tv_nsec = POLL_MS * 1000000L };

    while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return -errno;
        if (clock_monotonic_us() > end)
            return -EBUSY;
        nanosleep(&pause, NULL);
    }
    return 0;
}

/* ---- the directory ---- */

int store_each(int dir, const char *kind, void (*call)(int dir, const char *name, uint64_t number, void *arg),
                void *arg)
{
    FD copy = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = copy < 0 ? NULL : fdopendir(copy);
    uint64_t number;

    if (!list)
        return -errno;
    copy = -1;
    for (struct dirent *d; (d = readdir(list));)
        if (store_number_of(d->d_name, kind, &number))
            call(dir, d->d_name, number, arg);
    closedir(list);
    return 0;
}

void store_remove_one(int dir, const char *name, uint64_t number, void *arg)
{
    (void)number;
    (void)arg;
    (void)unlinkat(dir, name, 0);
}

int store_open_directory(const char *path, int *ret, struct err *e)
{
    struct stat status;

    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return err_set(e, errno, STEP_HOST, "making the store directory %s", path);
    FD dir = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (dir < 0 || fstat(dir, &status) < 0)
        return err_set(e, errno, STEP_HOST, "the store directory %s", path);
    if (status.st_uid != geteuid() || (status.st_mode & 077))
        return err_set(e, EPERM, STEP_HOST,
                       "the store directory %s must belong to root and be closed to others: chown root, chmod 700",
                       path);
    int r = store_lock_patiently(dir, START_PATIENCE_MS);
    if (r < 0)
        return err_set(e, -r, STEP_HOST, "the store directory %s is used by another keeper", path);
    *ret = TAKE_FD(dir);
    return 0;
}

int stores_open(const char *path, bool rootless, struct stores *ret, struct err *e)
{
    *ret = (struct stores){ .dir = -1, .beside = -1 };
    if (!path || rootless) {
        (void)err_set(&ret->why, ENOTSUP, STEP_USAGE,
                      rootless ? "a box's files can be kept on disk only by a server that root has started: an "
                                 "ordinary user cannot mount them"
                               : "this keeper has no store directory (--stores)");
        return 0;
    }
    int r = store_open_directory(path, &ret->dir, e);
    if (r < 0)
        return r;
    if (store_each(ret->dir, "new", store_remove_one, NULL) < 0)
        return err_set(e, errno, STEP_HOST, "reading the store directory %s", path);
    if (store_image.probe(&ret->why) == 0)
        ret->driver = &store_image;
    return 0;
}

void stores_close(struct stores *stores)
{
    stores->dir = fd_close(stores->dir);
    stores->driver = NULL;
}

struct store_listing {
    void (*call)(uint64_t number, uint64_t used_bytes, void *arg);
    void  *arg;
};

static void list_one(int dir, const char *name, uint64_t number, void *arg)
{
    const struct store_listing *listing = arg;
    struct stat status;

    if (fstatat(dir, name, &status, AT_SYMLINK_NOFOLLOW) == 0)
        listing->call(number, (uint64_t)status.st_blocks * 512, listing->arg);
}

void stores_each(const struct stores *stores, void (*call)(uint64_t number, uint64_t used_bytes, void *arg), void *arg)
{
    if (stores->driver)
        (void)!store_each(stores->dir, "img", list_one, &(struct store_listing){ call, arg });
}

int store_remove(const struct stores *stores, uint64_t number, struct err *e)
{
    char name[STORE_NAME_SIZE];

    if (!stores->driver) {
        *e = stores->why;
        return -e->code;
    }
    store_name_of(number, "img", name);
    if (unlinkat(stores->dir, name, 0) < 0 && errno != ENOENT)
        return err_set(e, errno, STEP_HOST, "removing the store %" PRIu64, number);
    return 0;
}

/* ---- room ---- */

static void add_promise(int dir, const char *name, uint64_t number, void *arg)
{
    uint64_t *promised = arg;
    struct stat status;

    (void)number;
    if (fstatat(dir, name, &status, AT_SYMLINK_NOFOLLOW) < 0)
        return;
    uint64_t size = (uint64_t)status.st_size, used = (uint64_t)status.st_blocks * 512;
    *promised += size > used ? size - used : 0;
}

int store_check_room(int dir, int beside, uint64_t bytes, const char *whose, struct err *e)
{
    const int dirs[] = { dir, beside };
    struct statvfs disk;
    uint64_t promised = ROOM_BYTES;
    int r = fstatvfs(dir, &disk) < 0 ? -errno : 0;

    for (size_t i = 0; i < 2 && r == 0; i++) {
        if (dirs[i] < 0)
            continue;
        r = store_each(dirs[i], "img", add_promise, &promised);
        if (r == 0)
            r = store_each(dirs[i], "new", add_promise, &promised);
    }
    if (r < 0)
        return err_at(e, -r, STEP_HOST, 0, "the room in the store directory");
    uint64_t room = (uint64_t)disk.f_bavail * disk.f_frsize;
    room = room > promised ? room - promised : 0;
    if (bytes <= room)
        return 0;
    room -= room % (1 << 20);
    return err_set(e, ENOSPC, STEP_USAGE,
                   "this host's disk cannot hold %s for the %s: %s are free and not reserved",
                   parse_show_size(bytes).text, whose, parse_show_size(room).text);
}

int store_make_file(int dir, uint64_t number, uint64_t bytes, struct err *e)
{
    char name[STORE_NAME_SIZE];
    int r;

    store_name_of(number, "new", name);
    (void)unlinkat(dir, name, 0);
    FD file = openat(dir, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (file < 0)
        return err_at(e, errno, STEP_HOST, 0, "making a store");
    if (ftruncate(file, (off_t)bytes) == 0)
        return 0;
    r = err_at(e, errno, STEP_HOST, 0, "making a store");
    (void)unlinkat(dir, name, 0);
    return r;
}

/* ---- the job ---- */

static int prepare(const struct stores *stores, uint64_t number, bool fresh, uint64_t bytes, int *ret_tree,
                   struct err *e)
{
    char from[STORE_NAME_SIZE], name[STORE_NAME_SIZE];
    uint32_t device;

    store_name_of(number, "new", from);
    store_name_of(number, "img", name);
    FD file = openat(stores->dir, fresh ? from : name, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (file < 0)
        return err_at(e, errno, STEP_HOST, 0, "opening the store");
    int r = store_lock_patiently(file, STORE_PATIENCE_MS);
    if (r < 0)
        return err_at(e, -r, STEP_HOST, 0, "the box's files are still in use");
    r = fresh ? stores->driver->format(file, bytes, false, e) : stores->driver->mend(file, e);
    if (r < 0)
        return r;
    if (fresh && renameat(stores->dir, from, stores->dir, name) < 0)
        return err_at(e, errno, STEP_HOST, 0, "naming the store");
    return stores->driver->attach(file, ret_tree, &device, e);
}

static _Noreturn void job_run(const struct stores *stores, int keeper, int link, uint64_t number, bool fresh,
                              uint64_t bytes)
{
    struct note note = { .kind = NOTE_READY };
    int tree = -1;

    title_set("store");
    payload_reset_signals();
    int r = rights_die_with(keeper);
    if (r < 0)
        _exit(1);
    /* It must hold nothing of a box, or the box's end would wait for ours. */
    r = payload_keep_only((int[]){ link, stores->dir, keeper }, 3, &note.err);
    if (r == 0)
        r = prepare(stores, number, fresh, bytes, &tree, &note.err);
    if (r < 0)
        note.kind = NOTE_FAILED;
    _exit(link_send(link, &note, sizeof note, &tree, tree >= 0) < 0);
}

int store_prepare(const struct stores *stores, int keeper, uint64_t number, uint64_t bytes, struct store_job *ret,
                  struct err *e)
{
    char name[STORE_NAME_SIZE];
    struct stat status;
    int pair[2];

    if (!stores->driver) {
        *e = stores->why;
        return -e->code;
    }
    bytes -= bytes % BLOCK_BYTES;
    if (bytes < STORE_LEAST_BYTES || bytes > INT64_MAX)
        return err_set(e, EINVAL, STEP_USAGE, "a box whose files are on disk needs a disk limit of %d bytes or more",
                       STORE_LEAST_BYTES);
    store_name_of(number, "img", name);
    bool fresh = fstatat(stores->dir, name, &status, AT_SYMLINK_NOFOLLOW) < 0;
    if (fresh && errno != ENOENT)
        return err_at(e, errno, STEP_HOST, 0, "the store");
    if (!fresh && (!S_ISREG(status.st_mode) || (uint64_t)status.st_size != bytes))
        return err_set(e, EINVAL, STEP_USAGE,
                       "the box's files were made with a disk limit of %" PRIu64 " bytes, which cannot change",
                       (uint64_t)status.st_size);
    int r = fresh ? store_check_room(stores->dir, stores->beside, bytes, "box", e) : 0;
    if (r == 0 && fresh)
        r = store_make_file(stores->dir, number, bytes, e);
    if (r < 0)
        return r;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
        r = err_at(e, errno, STEP_CLONE, 0, "store link");
    } else {
        struct process child = { .pidfd = -1 };
        r = process_clone(0, -1, -1, &child);
        if (r == 0) {
            fd_close(pair[0]);
            job_run(stores, keeper, pair[1], number, fresh, bytes);
        }
        fd_close(pair[1]);
        *ret = (struct store_job){ .process = child, .link = pair[0], .number = number };
        r = r < 0 ? err_at(e, -r, STEP_CLONE, 0, "store") : 0;
        if (r < 0)
            ret->link = fd_close(ret->link);
    }
    if (r < 0 && fresh) {
        store_name_of(number, "new", name);
        (void)unlinkat(stores->dir, name, 0);
    }
    return r;
}

int store_ready(const struct stores *stores, struct store_job *job, int *ret_tree, struct err *e)
{
    char name[STORE_NAME_SIZE];
    struct note note;
    FD tree = -1;
    int r = link_receive(job->link, &note, sizeof note, &tree, 1, false);

    job->link = fd_close(job->link);
    store_name_of(job->number, "new", name);
    (void)unlinkat(stores->dir, name, 0);
    if (r == 1 && note.kind == NOTE_READY && tree >= 0) {
        *ret_tree = TAKE_FD(tree);
        return 0;
    }
    if (r == 1 && note.kind == NOTE_FAILED) {
        *e = note.err;
        return -note.err.code;
    }
    return err_at(e, ECANCELED, STEP_HOST, 0, "mounting the box's files");
}
