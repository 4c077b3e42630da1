/* Volumes as files of a folder. What must not be half-done is one rename: a volume is there when N.img is, and gone
 * when N.old is. The size of an image is that of its file: if a child was killed after it had made the file larger, the
 * next mount makes the file system fill it. */
#define _GNU_SOURCE
#include "box/volume.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/rmtree.h"
#include "base/title.h"
#include "box/init.h"
#include "box/payload.h"
#include "box/store_private.h"
#include "sys/mountfd.h"
#include "sys/rights.h"

enum { IMAGE_OWNER = 65536 /* owns the root of a new image (store_image.c) */, POLL_MS = 5 };

struct volume_note {
    int        kind;            /* NOTE_READY, NOTE_FAILED */
    struct err err;
    uint32_t   device[KEEPER_VOLUMES];
};

static void remove_tree(int dir, const char *name, uint64_t number, void *arg)
{
    (void)number;
    (void)arg;
    (void)!rmtree(dir, name);
}

int volumes_open(const char *path, bool rootless, struct stores *stores, struct volumes *ret, struct err *e)
{
    char place[4096];

    *ret = (struct volumes){ .stores = stores, .dir = -1, .are_folders = rootless };
    if (!path || (!rootless && !stores->driver)) {
        ret->why = stores->why;
        return 0;
    }
    if (snprintf(place, sizeof place, "%s/volumes", path) >= (int)sizeof place)
        return err_set(e, ENAMETOOLONG, STEP_USAGE, "--stores %s", path);
    if (rootless)
        (void)!mkdir(path, 0700);
    int r = store_open_directory(place, &ret->dir, rootless ? &ret->why : e);
    if (r < 0 && rootless)
        return 0;
    if (r == 0 && (r = store_each(ret->dir, "new", remove_tree, NULL)) == 0)
        r = store_each(ret->dir, "old", remove_tree, NULL);
    if (r < 0 && !e->code)
        (void)err_set(e, -r, STEP_HOST, "reading the directory %s", place);
    stores->beside = ret->dir;
    return r;
}

void volumes_close(struct volumes *volumes)
{
    volumes->dir = fd_close(volumes->dir);
}

static int missing(const struct volumes *volumes, struct err *e)
{
    *e = volumes->why;
    return -e->code;
}

static void name_it(const struct volumes *volumes, uint64_t number, char name[STORE_NAME_SIZE])
{
    store_name_of(number, volumes->are_folders ? "dir" : "img", name);
}

/* ---- facts ---- */

int volume_look(const struct volumes *volumes, uint64_t number, struct volume_facts *ret, struct err *e)
{
    char name[STORE_NAME_SIZE];
    struct stat status;

    if (volumes->dir < 0)
        return missing(volumes, e);
    name_it(volumes, number, name);
    if (fstatat(volumes->dir, name, &status, AT_SYMLINK_NOFOLLOW) < 0)
        return err_set(e, errno, STEP_HOST, "the files of the volume");
    *ret = (struct volume_facts){ .number = number };
    if (S_ISREG(status.st_mode)) {
        ret->bytes = (uint64_t)status.st_size;
        ret->used_bytes = (uint64_t)status.st_blocks * 512;
    }
    return 0;
}

struct folder_listing {
    const struct volumes *volumes;
    void (*call)(const struct volume_facts *facts, void *arg);
    void *arg;
};

static void look_at(int dir, const char *name, uint64_t number, void *arg)
{
    const struct folder_listing *listing = arg;
    struct volume_facts facts;
    struct err ignored;

    (void)dir;
    (void)name;
    if (volume_look(listing->volumes, number, &facts, &ignored) == 0)
        listing->call(&facts, listing->arg);
}

void volumes_each(const struct volumes *volumes, void (*call)(const struct volume_facts *facts, void *arg), void *arg)
{
    if (volumes->dir >= 0)
        (void)!store_each(volumes->dir, volumes->are_folders ? "dir" : "img", look_at,
                         &(struct folder_listing){ volumes, call, arg });
}

/* ---- children ---- */

struct work {
    const struct volumes    *volumes;
    enum volume_task         task;
    uint64_t                 number, bytes;
    const struct volume_use *use;
    size_t                   n;
    uid_t                    uid;
    gid_t                    gid;
};

/* A file that no mount holds, locked; or another mount of the file system in it, if one does. A mount that is being
 * taken down is waited for. */
static int lock_or_share(const struct store_driver *driver, int file, uint32_t device, int *ret_tree)
{
    uint64_t end = clock_monotonic_us() + STORE_PATIENCE_MS * UINT64_C(1000);
    const struct timespec pause = { .tv_nsec = POLL_MS * 1000000L };

    for (;;) {
        if (flock(file, LOCK_EX | LOCK_NB) == 0)
            return 0;
        if (errno != EWOULDBLOCK && errno != EINTR)
            return -errno;
        if (device && driver->share(file, device - 1, ret_tree) == 0)
            return 1;
        if (clock_monotonic_us() > end)
            return -EBUSY;
        nanosleep(&pause, NULL);
    }
}

/* The root of a new image belongs to an id that no box has. Every user of a box may write to it: walls are around
 * boxes. The owner comes last, as the mark that it is done. */
static int welcome(int tree, uid_t uid, gid_t gid, struct err *e)
{
    struct stat status;

    FD root = openat(tree, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (root < 0 || fstat(root, &status) < 0)
        return err_at(e, errno, STEP_HOST, 0, "the volume's root");
    if (status.st_uid != IMAGE_OWNER)
        return 0;
    (void)unlinkat(root, "lost+found", AT_REMOVEDIR);
    if (fchmod(root, 0777) < 0 || fchown(root, uid, gid) < 0)
        return err_at(e, errno, STEP_HOST, 0, "the volume's root");
    return 0;
}

static int mount_one(const struct work *w, size_t i, int *ret_tree, uint32_t *ret_device, struct err *e)
{
    const struct store_driver *driver = w->volumes->stores->driver;
    char name[STORE_NAME_SIZE];
    int shared = -1;

    name_it(w->volumes, w->use[i].number, name);
    FD file = openat(w->volumes->dir, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (file < 0)
        return err_set(e, errno, STEP_HOST, "opening the volume");
    *ret_device = w->use[i].device;
    for (size_t k = 0; k < i; k++)
        if (w->use[k].number == w->use[i].number)
            return err_set(e, EINVAL, STEP_PROTOCOL, "a volume is named twice");
    int r = lock_or_share(driver, file, *ret_device, &shared);
    FD tree = shared;
    if (r < 0)
        return err_set(e, -r, STEP_HOST, "the volume is still in use");
    if (r == 0) {
        r = driver->mend(file, e);
        if (r == 0)
            r = driver->grow(file, e);
        if (r == 0)
            r = driver->attach(file, &tree, ret_device, e);
        *ret_device += 1;
    }
    if (r >= 0)
        r = welcome(tree, w->uid, w->gid, e);
    if (r == 0)
        *ret_tree = TAKE_FD(tree);
    return r;
}

int volume_open_folder(const struct volumes *volumes, uint64_t number, int *ret, struct err *e)
{
    char name[STORE_NAME_SIZE];

    name_it(volumes, number, name);
    int fd = openat(volumes->dir, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return err_set(e, errno, STEP_HOST, "opening the volume");
    *ret = fd;
    return 0;
}

/* The lock keeps boxes away, also if the keeper is killed and its successor mounts the volume. */
static int grow(const struct work *w, struct err *e)
{
    const struct store_driver *driver = w->volumes->stores->driver;
    char name[STORE_NAME_SIZE];

    name_it(w->volumes, w->number, name);
    FD file = openat(w->volumes->dir, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (file < 0)
        return err_set(e, errno, STEP_HOST, "opening the volume");
    int r = store_lock_patiently(file, STORE_PATIENCE_MS);
    if (r < 0)
        return err_set(e, -r, STEP_HOST, "the volume is still in use");
    r = driver->mend(file, e);
    if (r == 0 && ftruncate(file, (off_t)w->bytes) < 0)
        r = err_set(e, errno, STEP_HOST, "growing the volume");
    return r < 0 ? r : driver->grow(file, e);
}

static int make(const struct work *w, struct err *e)
{
    char name[STORE_NAME_SIZE];

    store_name_of(w->number, "new", name);
    FD file = openat(w->volumes->dir, name, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (file < 0)
        return err_set(e, errno, STEP_HOST, "making the volume");
    return w->volumes->stores->driver->format(file, w->bytes, true, e);
}

static _Noreturn void run_work(const struct work *w, int keeper, int link)
{
    struct volume_note note = { .kind = NOTE_READY };
    int tree[KEEPER_VOLUMES];
    size_t n = 0;
    int r = 0;

    title_set("volume");
    payload_reset_signals();
    /* A file system that is half grown costs a check, so growing is not cut short with the keeper. */
    if (w->task != VOLUME_GROW && rights_die_with(keeper) < 0)
        _exit(1);
    r = payload_keep_only((int[]){ link, w->volumes->dir, keeper }, 3, &note.err);
    if (r == 0 && w->task == VOLUME_MAKE)
        r = make(w, &note.err);
    else if (r == 0 && w->task == VOLUME_GROW)
        r = grow(w, &note.err);
    for (; r == 0 && w->task == VOLUME_MOUNT && n < w->n; n++)
        r = mount_one(w, n, &tree[n], &note.device[n], &note.err);
    if (r < 0)
        note.kind = NOTE_FAILED;
    _exit(link_send(link, &note, sizeof note, tree, r < 0 ? 0 : n) < 0);
}

/* The child gets copies of everything that w points to. */
static int start(const struct work *w, int keeper, struct process *ret_process, int *ret_link, struct err *e)
{
    struct process child = { .pidfd = -1 };
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_at(e, errno, STEP_CLONE, 0, "volume link");
    int r = process_clone(0, -1, -1, &child);
    if (r == 0) {
        fd_close(pair[0]);
        run_work(w, keeper, pair[1]);
    }
    fd_close(pair[1]);
    if (r < 0) {
        fd_close(pair[0]);
        return err_at(e, -r, STEP_CLONE, 0, "volume");
    }
    *ret_process = child;
    *ret_link = pair[0];
    return 0;
}

static int take_note(int *link, struct volume_note *note, int *trees, size_t n, struct err *e)
{
    int r = link_receive(*link, note, sizeof *note, trees, n, false);

    *link = fd_close(*link);
    if (r == 1 && note->kind == NOTE_READY)
        return 0;
    for (size_t i = 0; i < n; i++)
        trees[i] = fd_close(trees[i]);
    if (r == 1 && note->kind == NOTE_FAILED && note->err.code) {
        *e = note->err;
        return -e->code;
    }
    return err_set(e, ECANCELED, STEP_HOST, "the work on the volume was interrupted");
}

/* ---- changes ---- */

static int make_folder(const struct volumes *volumes, uint64_t number, struct err *e)
{
    char name[STORE_NAME_SIZE];

    store_name_of(number, "new", name);
    return mkdirat(volumes->dir, name, 0777) < 0 ? err_set(e, errno, STEP_HOST, "making the volume") : 0;
}

int volume_change(const struct volumes *volumes, int keeper, enum volume_task task, uint64_t number, uint64_t bytes,
                  struct volume_job *ret, struct err *e)
{
    const struct work w = { .volumes = volumes, .task = task, .number = number, .bytes = bytes };
    struct volume_facts facts = { 0 };

    *ret = (struct volume_job){ .process.pidfd = -1, .link = -1, .task = task, .number = number, .bytes = bytes };
    if (volumes->dir < 0)
        return missing(volumes, e);
    if (number == 0 || bytes < VOLUME_STEP_BYTES || bytes % VOLUME_STEP_BYTES || bytes > VOLUME_MOST_BYTES)
        return err_at(e, EINVAL, STEP_PROTOCOL, 0, "volume");
    int r = volume_look(volumes, number, &facts, e);
    if (task == VOLUME_MAKE && r == 0)
        return err_set(e, EEXIST, STEP_PROTOCOL, "there is a volume of this number");
    if (task == VOLUME_GROW && r < 0)
        return r;
    if (task == VOLUME_GROW && bytes < facts.bytes)
        return err_set(e, EINVAL, STEP_USAGE, "the volume has %" PRIu64 " bytes, and a volume only grows", facts.bytes);
    if (volumes->are_folders)
        return task == VOLUME_MAKE ? make_folder(volumes, number, e) : 0;
    uint64_t more = task == VOLUME_MAKE ? bytes : bytes - facts.bytes;
    r = more ? store_check_room(volumes->dir, volumes->stores->dir, more, "volume", e) : 0;
    if (r == 0 && task == VOLUME_MAKE)
        r = store_make_file(volumes->dir, number, bytes, e);
    return r < 0 ? r : start(&w, keeper, &ret->process, &ret->link, e);
}

int volume_changed(const struct volumes *volumes, struct volume_job *job, bool is_wanted, struct err *e)
{
    char from[STORE_NAME_SIZE], name[STORE_NAME_SIZE];
    struct volume_note note;
    int r = job->link < 0 ? 0 : take_note(&job->link, &note, NULL, 0, e);

    if (job->task != VOLUME_MAKE)
        return r;
    store_name_of(job->number, "new", from);
    name_it(volumes, job->number, name);
    if (r == 0 && !is_wanted)
        r = -ECANCELED;
    else if (r == 0 && renameat(volumes->dir, from, volumes->dir, name) < 0)
        r = err_set(e, errno, STEP_HOST, "naming the volume");
    if (r < 0)
        (void)!rmtree(volumes->dir, from);
    return r;
}

int volume_remove(const struct volumes *volumes, uint64_t number, struct process *ret, struct err *e)
{
    char name[STORE_NAME_SIZE], old[STORE_NAME_SIZE];

    *ret = (struct process){ .pidfd = -1 };
    if (volumes->dir < 0)
        return missing(volumes, e);
    name_it(volumes, number, name);
    store_name_of(number, "old", old);
    if (renameat(volumes->dir, name, volumes->dir, old) < 0)
        return errno == ENOENT ? 0 : err_set(e, errno, STEP_HOST, "removing the volume");
    int r = process_clone(0, -1, -1, ret);
    if (r == 0) {
        struct err ignored;
        title_set("volume");
        payload_reset_signals();
        if (payload_keep_only(&volumes->dir, 1, &ignored) == 0)
            (void)!rmtree(volumes->dir, old);
        _exit(0);
    }
    return 0;       /* without a child it goes with the keeper's next start */
}

/* ---- mounts ---- */

int volumes_mount(const struct volumes *volumes, int keeper, const struct volume_use *use, size_t n, uid_t uid,
                  gid_t gid, struct store_job *ret, struct err *e)
{
    const struct work w = { .volumes = volumes, .task = VOLUME_MOUNT, .use = use, .n = n, .uid = uid, .gid = gid };

    if (volumes->dir < 0)
        return missing(volumes, e);
    return start(&w, keeper, &ret->process, &ret->link, e);
}

int volumes_mounted(struct store_job *job, struct volume_use *use, size_t n, struct err *e)
{
    struct volume_note note;
    int tree[KEEPER_VOLUMES];

    int r = take_note(&job->link, &note, tree, n, e);
    for (size_t i = 0; i < n && r == 0; i++) {
        use[i].tree = tree[i];
        use[i].device = note.device[i];
    }
    for (size_t i = 0; i < n && r == 0; i++)
        if (use[i].tree < 0)
            r = err_at(e, EPROTO, STEP_HOST, 0, "volume");
    return r;
}
