/* Removes a tree of any depth with one descriptor: it descends by name and returns by "..". If a folder was moved
 * meanwhile, ".." would lead elsewhere, so each level's identity is remembered (16 bytes) and compared on the way back.
 * Names are not remembered: an emptied folder is met again when its parent is listed again. Another mount is never
 * entered. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "files/conversation.h"

enum { DEPTH_MAX = 1 << 20, LOOK_EVERY = 1024 };

struct remove_level {
    dev_t device;
    ino_t inode;
};

struct descent {
    struct conversation *c;
    int                  fd;        /* owned: the current folder */
    struct remove_level *level;     /* owned */
    size_t               depth, room;
    uint64_t             descents;
};

static int identify(int fd, struct remove_level *ret)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return -errno;
    *ret = (struct remove_level){ .device = st.st_dev, .inode = st.st_ino };
    return 0;
}

/* Opens a folder for reading. Our own folder without read permission is made readable first: it will be removed
 * anyway. */
static int open_folder(int dir, const char *name)
{
    const uint64_t resolve = RESOLVE_NO_XDEV | RESOLVE_NO_SYMLINKS;
    int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW;
    int fd = path_open_at(dir, name, flags, 0, resolve);

    if (fd == -EACCES && fchmodat(dir, name, 0700, 0) == 0)
        fd = path_open_at(dir, name, flags, 0, resolve);
    return fd == -EXDEV ? -EBUSY : fd;
}

/* Removes one name: 1 if it is gone, 0 if it is a folder that is not empty, -errno. */
static int remove_name(int dir, const char *name, unsigned char type)
{
    for (bool tried = false;; tried = true) {
        int flags = type == DT_DIR ? AT_REMOVEDIR : 0;
        int r = unlinkat(dir, name, flags) == 0 ? 0 : -errno;
        if (r == -EISDIR || (r == -EPERM && type == DT_UNKNOWN))
            r = unlinkat(dir, name, AT_REMOVEDIR) == 0 ? 0 : -errno;
        if (r == 0 || r == -ENOENT)
            return 1;
        if (r == -ENOTEMPTY || r == -EEXIST)
            return 0;
        if (r != -EACCES || tried || fchmod(dir, 0700) < 0)
            return r;
    }
}

static int go_down(struct descent *d, const char *name)
{
    if (d->depth == d->room) {
        size_t room = d->room ? d->room * 2 : 64;
        struct remove_level *level = room <= DEPTH_MAX ? realloc(d->level, room * sizeof *level) : NULL;
        if (!level)
            return room <= DEPTH_MAX ? -ENOMEM : -ENAMETOOLONG;
        d->level = level;
        d->room = room;
    }
    struct remove_level here = { 0 };
    int r = identify(d->fd, &here);
    if (r < 0)
        return r;
    FD next = open_folder(d->fd, name);
    if (next < 0)
        return next;
    d->level[d->depth++] = here;
    fd_close(d->fd);
    d->fd = TAKE_FD(next);
    return 0;
}

static int go_up(struct descent *d)
{
    struct remove_level found = { 0 };

    FD above = path_open_at(d->fd, "..", O_RDONLY | O_DIRECTORY, 0, RESOLVE_NO_XDEV);
    int r = above < 0 ? above : identify(above, &found);
    if (r < 0)
        return r;
    const struct remove_level *expected = &d->level[d->depth - 1];
    if (found.device != expected->device || found.inode != expected->inode)
        return -ESTALE;
    d->depth--;
    fd_close(d->fd);
    d->fd = TAKE_FD(above);
    return 0;
}

/* Empties the folder that d is in. */
static int empty(struct descent *d)
{
    struct conversation *c = d->c;
    struct folder folder;
    struct folder_entry entry;

    folder_init(&folder, d->fd);
    for (;;) {
        int r = folder_next(&folder, &entry);
        if (r < 0)
            return files_fail(c, -r, NULL, NULL);
        if (r == 0) {
            if (d->depth == 0)
                return 0;
            if ((r = go_up(d)) < 0)
                return files_fail(c, -r, NULL, NULL);
            folder_init(&folder, d->fd);
            continue;
        }
        r = remove_name(d->fd, entry.name, entry.type);
        if (r < 0)
            return files_fail(c, -r, entry.name, NULL);
        if (r > 0) {
            if (++c->done.entries % LOOK_EVERY == 0 && stream_is_deserted(c))
                return files_fail(c, ECANCELED, NULL, NULL);
            continue;
        }
        if (++d->descents % LOOK_EVERY == 0 && stream_is_deserted(c))
            return files_fail(c, ECANCELED, NULL, NULL);
        if ((r = go_down(d, entry.name)) < 0)
            return files_fail(c, -r, entry.name, NULL);
        folder_init(&folder, d->fd);
    }
}

int op_remove(struct conversation *c)
{
    struct descent d = { .c = c, .fd = -1 };
    const char *leaf;
    struct stat st;

    FD dir = path_open_parent(c, c->path, &leaf);
    if (dir < 0)
        return files_fail(c, dir == -EINVAL ? EBUSY : -dir, NULL, NULL);
    if (fstatat(dir, leaf, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return files_fail(c, errno, NULL, NULL);
    int flags = S_ISDIR(st.st_mode) ? AT_REMOVEDIR : 0;
    if (S_ISDIR(st.st_mode) && (c->request.flags & FILES_RECURSIVE)) {
        d.fd = open_folder(dir, leaf);
        int r = d.fd < 0 ? files_fail(c, -d.fd, NULL, NULL) : empty(&d);
        fd_close(d.fd);
        free(d.level);
        if (r < 0)
            return r;
    }
    if (unlinkat(dir, leaf, flags) < 0)
        return files_fail(c, errno, NULL, NULL);
    c->done.entries++;
    return 0;
}
