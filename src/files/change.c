/* Operations that change files, except remove and unpack. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "files/conversation.h"

#ifndef SYS_fchmodat2
#define SYS_fchmodat2 452
#endif

/* Writes the upload into the file, from its present position. */
static int take_contents(struct conversation *c, int fd)
{
    ssize_t n;

    while ((n = upload_read(c, c->buffer, FILES_BUFFER)) > 0)
        for (ssize_t at = 0; at < n;) {
            ssize_t written = write(fd, c->buffer + at, (size_t)(n - at));
            if (written < 0 && errno == EINTR)
                continue;
            if (written <= 0)
                return files_fail(c, written < 0 ? errno : EIO, NULL, NULL);
            at += written;
            c->done.bytes += (uint64_t)written;
        }
    return n < 0 ? files_fail(c, (int)-n, NULL, NULL) : 0;
}

static int write_beside(struct conversation *c, int dir, const char *leaf)
{
    const struct files_request *q = &c->request;
    char temporary[PATH_TEMPORARY];
    mode_t mode = q->mode;
    struct stat st;

    /* A link is replaced, not followed: rename always does so. */
    bool is_there = fstatat(dir, leaf, &st, AT_SYMLINK_NOFOLLOW) == 0;
    if (is_there && S_ISDIR(st.st_mode))
        return files_fail(c, EISDIR, NULL, NULL);
    if (is_there && !S_ISREG(st.st_mode) && !S_ISLNK(st.st_mode))
        return files_fail(c, EINVAL, NULL, "not a regular file");
    if (is_there && (q->flags & FILES_EXCLUSIVE))
        return files_fail(c, EEXIST, NULL, NULL);
    if (is_there && S_ISREG(st.st_mode)) {
        /* rename() checks rights on the directory only: the file's own mode would not protect it. */
        if (faccessat(dir, leaf, W_OK, 0) < 0)
            return files_fail(c, errno, NULL, NULL);
        mode = st.st_mode & 07777;
    }
    FD fd = path_open_temporary(dir, mode, temporary);
    if (fd < 0)
        return files_fail(c, -fd, NULL, NULL);
    int r = take_contents(c, fd);
    if (r == 0
        && syscall(SYS_renameat2, dir, temporary, dir, leaf, q->flags & FILES_EXCLUSIVE ? RENAME_NOREPLACE : 0) < 0)
        r = files_fail(c, errno, NULL, NULL);
    if (r < 0)
        (void)unlinkat(dir, temporary, 0);
    return r;
}

static int write_in_place(struct conversation *c)
{
    const struct files_request *q = &c->request;
    int flags = O_WRONLY | (q->flags & FILES_CREATE ? O_CREAT : 0) | (q->flags & FILES_APPEND ? O_APPEND : 0)
              | ((q->flags & FILES_CREATE) && (q->flags & FILES_EXCLUSIVE) ? O_EXCL : 0);
    struct stat st;

    FD fd = path_open(c, c->path, flags, q->mode);
    if (fd == -ENXIO)
        return files_fail(c, EINVAL, NULL, "not a regular file");
    if (fd < 0 || fstat(fd, &st) < 0)
        return files_fail(c, fd < 0 ? -fd : errno, NULL, NULL);
    if (!S_ISREG(st.st_mode))
        return files_fail(c, EINVAL, NULL, "not a regular file");
    /* Not earlier: O_TRUNC would come before the check. */
    if ((q->flags & FILES_TRUNCATE) && ftruncate(fd, 0) < 0)
        return files_fail(c, errno, NULL, NULL);
    if (q->offset && lseek(fd, (off_t)q->offset, SEEK_SET) < 0)
        return files_fail(c, errno, NULL, NULL);
    return take_contents(c, fd);
}

int op_write(struct conversation *c)
{
    const char *leaf;
    int r = c->request.flags & FILES_PARENTS ? path_make_parents(c, c->path) : 0;

    if (r < 0)
        return files_fail(c, -r, NULL, NULL);
    if (!(c->request.flags & FILES_ATOMIC))
        return write_in_place(c);
    FD dir = path_open_parent(c, c->path, &leaf);
    return dir < 0 ? files_fail(c, -dir, NULL, NULL) : write_beside(c, dir, leaf);
}

int op_mkdir(struct conversation *c)
{
    bool parents = c->request.flags & FILES_PARENTS;
    const char *leaf;

    if (parents) {
        FD there = path_open(c, c->path, O_PATH | O_DIRECTORY, 0);
        if (there >= 0)
            return 0;
        int r = path_make_parents(c, c->path);
        if (r < 0)
            return files_fail(c, -r, NULL, NULL);
    }
    FD dir = path_open_parent(c, c->path, &leaf);
    if (dir < 0)
        return files_fail(c, dir == -EINVAL ? EEXIST : -dir, NULL, NULL);
    if (mkdirat(dir, leaf, c->request.mode) < 0)
        return files_fail(c, errno, NULL, NULL);
    return 0;
}

int op_move(struct conversation *c)
{
    unsigned flags = c->request.flags & FILES_EXCLUSIVE ? RENAME_NOREPLACE : 0;
    const char *from, *to;

    if (c->request.flags & FILES_PARENTS) {
        int r = path_make_parents(c, c->other);
        if (r < 0)
            return files_fail(c, -r, c->other, NULL);
    }
    FD source = path_open_parent(c, c->path, &from);
    if (source < 0)
        return files_fail(c, -source, NULL, NULL);
    FD target = path_open_parent(c, c->other, &to);
    if (target < 0)
        return files_fail(c, -target, c->other, NULL);
    if (syscall(SYS_renameat2, source, from, target, to, flags) < 0)
        return files_fail(c, errno, errno == ENOENT || errno == EACCES ? c->path : c->other,
                          errno == EXDEV ? "on another mount; copy it and remove the old one" : NULL);
    return 0;
}

int op_chmod(struct conversation *c)
{
    mode_t mode = c->request.mode;

    FD fd = path_open(c, c->path, O_PATH, 0);
    if (fd < 0)
        return files_fail(c, -fd, NULL, NULL);
    if (syscall(SYS_fchmodat2, fd, "", mode, AT_EMPTY_PATH) == 0)
        return 0;
    if (errno != ENOSYS && errno != EINVAL)
        return files_fail(c, errno, NULL, NULL);
    /* Before Linux 6.6 only an open file can be changed without following a path again. */
    struct stat st;
    FD open = path_open(c, c->path, O_RDONLY, 0);
    if (open < 0 || fstat(open, &st) < 0)
        return files_fail(c, open < 0 ? -open : errno, NULL, NULL);
    if (fchmod(open, mode) < 0)
        return files_fail(c, errno, NULL, NULL);
    return 0;
}
