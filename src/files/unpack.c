/* Unpacks a tar into a folder. The archive is hostile: names may not have "..", no entry is made through a symbolic
 * link (RESOLVE_NO_SYMLINKS, so a link from the archive itself cannot lead a later entry out of the folder), no special
 * files are made, hard links may only lead to files in the folder, and sizes and counts are bounded. Existing files are
 * replaced, but an existing folder stays. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "files/conversation.h"
#include "files/tar.h"

static const uint64_t inside = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS;

struct unpacking {
    struct conversation *c;
    int                  folder;            /* borrowed */
    struct tar_entry     entry;
    struct tar_notes     notes;
    char                 path[FILES_PATH_MAX + 1], link[FILES_PATH_MAX + 1];    /* cleaned */
};

static int take_block(struct unpacking *u, void *block)
{
    int r = upload_read_all(u->c, block, TAR_BLOCK);
    if (r == -ENODATA)
        return files_fail(u->c, EBADMSG, NULL, "the archive ends too early");
    return r < 0 ? files_fail(u->c, -r, NULL, NULL) : 0;
}

static int skip_padding(struct unpacking *u, uint64_t size)
{
    char rest[TAR_BLOCK];
    int r = upload_read_all(u->c, rest, (size_t)(-size % TAR_BLOCK));
    if (r == -ENODATA)
        return files_fail(u->c, EBADMSG, NULL, "the archive ends too early");
    return r < 0 ? files_fail(u->c, -r, NULL, NULL) : 0;
}

/* The body of an entry that describes the next one. */
static int take_notes(struct unpacking *u)
{
    char *text = u->c->buffer;
    size_t size = (size_t)u->entry.size;
    char type = u->entry.type;

    if (u->entry.size > TAR_RECORDS_MAX)
        return files_fail(u->c, EFBIG, NULL, "a header of the archive is too large");
    int r = upload_read_all(u->c, text, size);
    if (r < 0)
        return files_fail(u->c, r == -ENODATA ? EBADMSG : -r, NULL, "the archive ends too early");
    switch (type) {
    case 'x':
        r = tar_read_records(text, size, &u->notes);
        break;
    case 'g':
        r = tar_read_records(text, size, NULL);
        break;
    case 'L':
        r = tar_read_long_name(text, size, u->notes.path);
        u->notes.has_path = true;
        break;
    default:
        r = tar_read_long_name(text, size, u->notes.link);
        u->notes.has_link = true;
        break;
    }
    if (r < 0)
        return files_fail(u->c, -r, NULL,
                          r == -ENOTSUP ? "sparse files in archives are not supported" : "not a tar archive");
    return skip_padding(u, u->entry.size);
}

/* The folder of the (clean) path's last name, made if it is missing. An fd or -errno. */
static int open_place(int folder, char *path, const char **ret_leaf)
{
    char *slash = strrchr(path, '/');

    *ret_leaf = slash ? slash + 1 : path;
    if (!slash)
        return fcntl(folder, F_DUPFD_CLOEXEC, 3);
    *slash = 0;
    int fd = path_open_at(folder, path, O_PATH | O_DIRECTORY, 0, inside);
    *slash = '/';
    if (fd != -ENOENT)
        return fd;
    /* Name by name, each made by descriptor in the one before: no component can be a link. */
    FD at = fcntl(folder, F_DUPFD_CLOEXEC, 3);
    for (char *name = path, *end; at >= 0 && name <= slash; name = end + 1) {
        end = strchr(name, '/');
        *end = 0;
        int r = mkdirat(at, name, 0755) < 0 && errno != EEXIST ? -errno : 0;
        int next = r < 0 ? r : path_open_at(at, name, O_PATH | O_DIRECTORY, 0, inside);
        *end = '/';
        fd_close(at);
        at = next;
    }
    return TAKE_FD(at);
}

static int make_folder(int dir, const char *leaf, mode_t mode)
{
    /* Our folders must be writable for us: more entries may follow. */
    mode = (mode & 0777) | 0700;
    if (mkdirat(dir, leaf, mode) == 0)
        return 0;
    if (errno != EEXIST)
        return -errno;
    FD there = path_open_at(dir, leaf, O_RDONLY | O_DIRECTORY, 0, inside);
    return there < 0 ? there : 0;
}

static int make_link(int dir, const char *leaf, const char *target)
{
    if (symlinkat(target, dir, leaf) == 0)
        return 0;
    if (errno != EEXIST)
        return -errno;
    return unlinkat(dir, leaf, 0) < 0 || symlinkat(target, dir, leaf) < 0 ? -errno : 0;
}

static int make_hard_link(struct unpacking *u, int dir, const char *leaf)
{
    const char *from;
    struct stat st;

    int r = tar_clean_path(u->entry.link, u->link);
    if (r < 0 || !u->link[0])
        return -EPERM;
    FD source = open_place(u->folder, u->link, &from);
    if (source < 0)
        return source;
    if (fstatat(source, from, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode))
        return -EPERM;
    if (linkat(source, from, dir, leaf, 0) == 0)
        return 0;
    if (errno != EEXIST)
        return -errno;
    struct stat there;
    if (fstatat(dir, leaf, &there, AT_SYMLINK_NOFOLLOW) == 0 && there.st_dev == st.st_dev && there.st_ino == st.st_ino)
        return 0;       /* to itself */
    return unlinkat(dir, leaf, 0) < 0 || linkat(source, from, dir, leaf, 0) < 0 ? -errno : 0;
}

/* The file's bytes from the upload. */
static int fill(struct unpacking *u, int fd)
{
    for (uint64_t left = u->entry.size; left > 0;) {
        ssize_t n = upload_read(u->c, u->c->buffer, left < FILES_BUFFER ? (size_t)left : FILES_BUFFER);
        if (n <= 0)
            return n < 0 ? files_fail(u->c, (int)-n, NULL, NULL)
                         : files_fail(u->c, EBADMSG, NULL, "the archive ends too early");
        int r = fd_write_all(fd, u->c->buffer, (size_t)n);
        if (r < 0)
            return r;
        left -= (uint64_t)n;
    }
    return 0;
}

static int make_file(struct unpacking *u, int dir, const char *leaf)
{
    const int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW;
    mode_t mode = u->entry.mode & 0777;

    FD fd = path_open_at(dir, leaf, flags, mode, 0);
    if (fd == -EEXIST) {
        if (unlinkat(dir, leaf, 0) < 0)
            return -errno;
        fd = path_open_at(dir, leaf, flags, mode, 0);
    }
    if (fd < 0)
        return fd;
    int r = fill(u, fd);
    if (r < 0) {
        (void)unlinkat(dir, leaf, 0);
        return r;
    }
    struct timespec times[2] = { { .tv_nsec = UTIME_OMIT }, { .tv_sec = (time_t)u->entry.mtime_s } };
    return futimens(fd, times) < 0 ? -errno : 0;
}

static int make_entry(struct unpacking *u)
{
    const char *leaf;
    char type = u->entry.type;

    if (type != TAR_FILE && type != TAR_FOLDER && type != TAR_LINK && type != TAR_HARD_LINK) {
        bool special = type == '3' || type == '4' || type == '6';
        return files_fail(u->c, special ? EPERM : ENOTSUP, u->entry.path,
                          special ? "a device or FIFO in the archive" : "a kind of entry that is not supported");
    }
    if (tar_clean_path(u->entry.path, u->path) < 0)
        return files_fail(u->c, EPERM, u->entry.path, "a path that leads out of the folder");
    if (!u->path[0])
        return type == TAR_FOLDER ? 0 : files_fail(u->c, EPERM, u->entry.path, "a name is missing");
    FD dir = open_place(u->folder, u->path, &leaf);
    if (dir < 0)
        return dir;
    switch (type) {
    case TAR_FOLDER:
        return make_folder(dir, leaf, u->entry.mode);
    case TAR_LINK:
        return u->entry.link[0] ? make_link(dir, leaf, u->entry.link) : -EBADMSG;
    case TAR_HARD_LINK:
        return make_hard_link(u, dir, leaf);
    default:
        return make_file(u, dir, leaf);
    }
}

/* Records before the header override its fields. */
static void apply_notes(struct unpacking *u)
{
    struct tar_notes *n = &u->notes;

    if (n->has_path)
        memcpy(u->entry.path, n->path, strlen(n->path) + 1);
    if (n->has_link)
        memcpy(u->entry.link, n->link, strlen(n->link) + 1);
    if (n->has_size)
        u->entry.size = n->size;
    if (n->has_mtime)
        u->entry.mtime_s = n->mtime_s;
    n->has_path = n->has_link = n->has_size = n->has_mtime = false;
    /* Old tars record the size of a hard link's file, but its bytes do not follow. */
    if (u->entry.type != TAR_FILE)
        u->entry.size = 0;
}

static int count(struct unpacking *u)
{
    const struct files_request *q = &u->c->request;
    struct files_done *done = &u->c->done;

    if (q->limit && done->entries == q->limit)
        return files_fail(u->c, EFBIG, NULL, "the archive has more entries than allowed");
    if (q->length && (u->entry.size > q->length || done->bytes > q->length - u->entry.size))
        return files_fail(u->c, EFBIG, u->entry.path, "the archive is larger than allowed");
    return 0;
}

static int unpack(struct unpacking *u)
{
    unsigned char block[TAR_BLOCK];

    for (;;) {
        int r = take_block(u, block);
        if (r < 0)
            return r;
        r = tar_read_header(block, &u->entry);
        if (r < 0)
            return files_fail(u->c, EBADMSG, NULL, "not a tar archive");
        if (r == 0)
            return 0;       /* ends with two blocks of zeros, or one; the rest is drained */
        if (u->entry.type && strchr("xgLK", u->entry.type)) {
            if ((r = take_notes(u)) < 0)
                return r;
            continue;
        }
        apply_notes(u);
        if ((r = count(u)) < 0)
            return r;
        r = make_entry(u);
        if (r < 0)
            return files_fail(u->c, -r, u->entry.path, NULL);
        if ((r = skip_padding(u, u->entry.size)) < 0)
            return r;
        u->c->done.entries++;
        u->c->done.bytes += u->entry.size;
    }
}

/* The folder that is unpacked into. An fd, or what files_fail returned. */
static int open_target(struct conversation *c)
{
    int flags = O_PATH | O_DIRECTORY | (c->request.flags & FILES_NOFOLLOW ? O_NOFOLLOW : 0);
    int folder = path_open(c, c->path, flags, 0);

    if (folder == -ENOENT && (c->request.flags & FILES_PARENTS)) {
        int r = op_mkdir(c); /* with the request's mode */
        if (r < 0)
            return r;
        folder = path_open(c, c->path, flags, 0);
    }
    return folder < 0 ? files_fail(c, -folder, NULL, NULL) : folder;
}

int op_unpack(struct conversation *c)
{
    FD folder = open_target(c);
    if (folder < 0)
        return folder;
    struct unpacking *u = calloc(1, sizeof *u);
    if (!u)
        return files_fail(c, ENOMEM, NULL, NULL);
    u->c = c;
    u->folder = folder;
    int r = unpack(u);
    free(u);
    /* The DONE of an unpacked archive comes after its END. */
    if (r == 0)
        upload_drain(c);
    return r;
}
