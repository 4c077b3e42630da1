/* Operations that only read: stat, list, read. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "files/conversation.h"

enum { ENTRY_MOST = sizeof(struct files_entry) + 256 + FILES_PATH_MAX + 8 };

/* Entries that gather for an ENTRIES frame, in the conversation's buffer. */
struct batch {
    struct conversation *c;
    size_t               used;
};

static int batch_send(struct batch *batch)
{
    int r = batch->used ? stream_put(batch->c, FILES_ENTRIES, batch->c->buffer, batch->used) : 0;
    batch->used = 0;
    return r;
}

/* Adds an entry; dir and leaf locate it, to read a link's target. */
static int batch_add(struct batch *batch, const struct stat *st, const char *name, int dir, const char *leaf)
{
    struct files_entry entry = {
        .size = (uint64_t)st->st_size,
        .mtime_ns = (int64_t)st->st_mtim.tv_sec * 1000000000 + st->st_mtim.tv_nsec,
        .inode = st->st_ino,
        .mode = st->st_mode,
        .uid = st->st_uid,
        .gid = st->st_gid,
        .links = (uint32_t)st->st_nlink,
    };

    if (batch->used + ENTRY_MOST > FILES_ENTRIES_MAX) {
        int r = batch_send(batch);
        if (r < 0)
            return r;
    }
    char *at = batch->c->buffer + batch->used;
    size_t length = strnlen(name, 255), size = sizeof entry + length;
    memcpy(at + sizeof entry, name, length);
    entry.name_size = (uint16_t)length;
    if (S_ISLNK(st->st_mode) && leaf) {
        ssize_t n = readlinkat(dir, leaf, at + size, FILES_PATH_MAX);
        entry.link_size = n > 0 ? (uint16_t)n : 0;
        size += entry.link_size;
    }
    memcpy(at, &entry, sizeof entry);
    while (size % 8)
        at[size++] = 0;
    batch->used += size;
    return 0;
}

static const char *last_name(const char *path)
{
    const char *name = strrchr(path, '/');
    return name[1] ? name + 1 : "/";
}

int op_stat(struct conversation *c)
{
    struct batch batch = { .c = c };
    bool follow = !(c->request.flags & FILES_NOFOLLOW);
    const char *leaf = NULL;
    struct stat st;

    FD fd = path_open(c, c->path, O_PATH | (follow ? 0 : O_NOFOLLOW), 0);
    if (fd < 0 || fstat(fd, &st) < 0)
        return files_fail(c, fd < 0 ? -fd : errno, NULL, NULL);
    FD dir = S_ISLNK(st.st_mode) ? path_open_parent(c, c->path, &leaf) : -1;
    int r = batch_add(&batch, &st, last_name(c->path), dir, dir >= 0 ? leaf : NULL);
    return r < 0 ? r : batch_send(&batch);
}

static mode_t type_bits(unsigned char type)
{
    return type == DT_UNKNOWN ? 0 : (mode_t)DTTOIF(type);
}

int op_list(struct conversation *c)
{
    const struct files_request *q = &c->request;
    struct batch batch = { .c = c };
    struct folder folder;
    struct folder_entry entry;
    int r;

    FD fd = path_open(c, c->path, O_RDONLY | O_DIRECTORY, 0);
    if (fd < 0)
        return files_fail(c, -fd, NULL, NULL);
    if (q->offset && lseek(fd, (off_t)q->offset, SEEK_SET) < 0)
        return files_fail(c, errno, NULL, NULL);
    folder_init(&folder, fd);
    while ((r = folder_next(&folder, &entry)) > 0) {
        struct stat st = { 0 };
        if (fstatat(fd, entry.name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
            if (errno == ENOENT)
                continue;       /* removed meanwhile */
            st = (struct stat){ .st_mode = type_bits(entry.type) };
        }
        if ((r = batch_add(&batch, &st, entry.name, fd, entry.name)) < 0)
            return r;
        c->done.entries++;
        if (q->limit && c->done.entries == q->limit) {
            c->done.cursor = entry.cursor;
            break;
        }
    }
    if (r < 0)
        return files_fail(c, -r, NULL, NULL);
    return batch_send(&batch);
}

/* A file without a known size, as in /proc: read until the end. */
static int read_unsized(struct conversation *c, int fd, uint64_t offset, uint64_t length)
{
    if (offset && lseek(fd, (off_t)offset, SEEK_SET) < 0)
        return files_fail(c, errno, NULL, NULL);
    while (c->done.bytes < length) {
        uint64_t left = length - c->done.bytes;
        ssize_t n = read(fd, c->buffer, left < FILES_BUFFER ? (size_t)left : FILES_BUFFER);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return files_fail(c, errno, NULL, NULL);
        if (n == 0)
            return 0;
        int r = stream_put(c, FILES_DATA, c->buffer, (size_t)n);
        if (r < 0)
            return r;
        c->done.bytes += (uint64_t)n;
    }
    return 0;
}

int op_read(struct conversation *c)
{
    const struct files_request *q = &c->request;
    struct batch batch = { .c = c };
    struct stat st;

    FD fd = path_open(c, c->path, O_RDONLY, 0);
    if (fd < 0 || fstat(fd, &st) < 0)
        return files_fail(c, fd < 0 ? -fd : errno, NULL, NULL);
    if (S_ISDIR(st.st_mode))
        return files_fail(c, EISDIR, NULL, NULL);
    if (!S_ISREG(st.st_mode))
        return files_fail(c, EINVAL, NULL, "not a regular file");
    int r = batch_add(&batch, &st, last_name(c->path), -1, NULL);
    if (r == 0)
        r = batch_send(&batch);
    if (r < 0)
        return r;
    if (st.st_size == 0)
        return read_unsized(c, fd, q->offset, q->length);
    uint64_t size = (uint64_t)st.st_size > q->offset ? (uint64_t)st.st_size - q->offset : 0;
    if (size > q->length)
        size = q->length;
    r = stream_put_file(c, fd, q->offset, size);
    if (r < 0)
        return files_fail(c, -r, NULL, NULL);
    c->done.bytes = size;
    return 0;
}
