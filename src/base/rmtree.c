/* Enters folders up to DEPTH levels. A deeper folder is first moved up to the top under a new name and is met again
 * there, so a tree of any depth needs a bounded number of descriptors. */
#define _GNU_SOURCE
#include "base/rmtree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"

enum { DEPTH = 64 };

struct tree_removal {
    int      top;               /* borrowed: the folder to empty */
    unsigned moved;
};

static int open_folder(int dir, const char *name)
{
    int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    /* Our own folder without read permission is made readable: it will be removed anyway. */
    if (fd < 0 && errno == EACCES && fchmodat(dir, name, 0700, 0) == 0)
        fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

static bool is_dots(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

static int move_up(struct tree_removal *removal, int dir, const char *name)
{
    char unique[32];

    for (;;) {
        snprintf(unique, sizeof unique, ".deep-%u", removal->moved++);
        if (renameat(dir, name, removal->top, unique) == 0)
            return 0;
        if (errno != EEXIST && errno != ENOTEMPTY && errno != ENOTDIR)
            return -errno;
    }
}

static int empty(struct tree_removal *removal, int dir, int depth);

static int remove_one(struct tree_removal *removal, int dir, const char *name, int depth)
{
    if (unlinkat(dir, name, 0) == 0 || errno == ENOENT)
        return 0;
    /* unlink() of a folder gives EISDIR or, on some file systems, EPERM. */
    if (unlinkat(dir, name, AT_REMOVEDIR) == 0)
        return 0;
    if (errno != ENOTEMPTY && errno != EEXIST && errno != EACCES)
        return -errno;
    if (depth == DEPTH)
        return move_up(removal, dir, name);
    FD inner = open_folder(dir, name);
    int r = inner < 0 ? inner : empty(removal, inner, depth + 1);
    if (r == 0 && unlinkat(dir, name, AT_REMOVEDIR) < 0 && errno != ENOENT)
        r = -errno;
    return r;
}

static int empty(struct tree_removal *removal, int dir, int depth)
{
    bool again = true;
    int r = 0;

    if (fchmod(dir, 0700) < 0 && errno != EPERM)
        return -errno;
    /* A folder that was moved up may stand before the position of the open listing: list again. */
    while (again && r == 0) {
        FD copy = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR *list = copy < 0 ? NULL : fdopendir(copy);
        if (!list)
            return -errno;
        copy = -1;
        again = false;
        for (struct dirent *d; r == 0 && (d = readdir(list));)
            if (!is_dots(d->d_name)) {
                again |= depth == 0;
                r = remove_one(removal, dir, d->d_name, depth);
            }
        closedir(list);
    }
    return r;
}

int rmtree(int dir, const char *name)
{
    struct tree_removal removal = { 0 };

    if (unlinkat(dir, name, 0) == 0 || errno == ENOENT)
        return 0;
    FD top = open_folder(dir, name);
    if (top < 0)
        return top;
    removal.top = top;
    int r = empty(&removal, top, 0);
    return r == 0 && unlinkat(dir, name, AT_REMOVEDIR) < 0 ? -errno : r;
}

/* ---- counting ---- */

static void count(int dir, int depth, uint64_t most, uint64_t *bytes)
{
    FD copy = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = copy < 0 ? NULL : fdopendir(copy);
    struct stat status;

    if (!list)
        return;
    copy = -1;
    for (struct dirent *d; *bytes <= most && (d = readdir(list));) {
        if (is_dots(d->d_name) || fstatat(dirfd(list), d->d_name, &status, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        /* A file with several names counts once. */
        *bytes += (uint64_t)status.st_blocks * 512 / (S_ISDIR(status.st_mode) ? 1 : status.st_nlink);
        FD inner = S_ISDIR(status.st_mode) && depth < DEPTH
                       ? openat(dirfd(list), d->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;
        if (inner >= 0)
            count(inner, depth + 1, most, bytes);
    }
    closedir(list);
}

uint64_t rmtree_bytes(int dir, const char *name, uint64_t most)
{
    uint64_t bytes = 0;
    FD top = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (top >= 0)
        count(top, 0, most, &bytes);
    return bytes;
}
