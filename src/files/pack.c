/* Packs a folder as a tar. The tree is walked twice: first it is only measured, so that a tree that is too large or
 * unreadable is refused before the first byte; then it is written. A file that changes in between or while it is read
 * still gets the number of bytes in its header. Each level of folders holds one descriptor and one small buffer;
 * symbolic links are stored, never followed; sockets, FIFOs and devices are left out. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fd.h"
#include "files/conversation.h"
#include "files/tar.h"

enum { LEVELS = 128, SMALL_FILE = 64 << 10 };
_Static_assert(TAR_HEAD_MAX + SMALL_FILE + TAR_BLOCK < FILES_BUFFER, "a small file must fit into the buffer");

struct pack_level {
    size_t        name;         /* where its entries' names begin in the path */
    struct folder folder;       /* its fd is owned here */
};

struct packing {
    struct conversation *c;
    bool                 measuring;
    uint64_t             bytes, entries;
    size_t               used;              /* of the conversation's buffer */
    int                  depth;             /* level[depth - 1] is the current one */
    struct pack_level   *level[LEVELS];     /* owned; reused */
    struct tar_entry     entry;             /* its path is the current position */
};

static int flush(struct packing *p)
{
    int r = p->used ? stream_put(p->c, FILES_DATA, p->c->buffer, p->used) : 0;
    p->used = 0;
    return r;
}

static int count(struct packing *p, uint64_t bytes)
{
    uint64_t most = p->c->request.length;

    p->entries++;
    p->bytes += TAR_BLOCK + (bytes + TAR_BLOCK - 1) / TAR_BLOCK * TAR_BLOCK;
    if (bytes > INT64_MAX / 2 || p->bytes > INT64_MAX / 2 || (most && p->bytes > most))
        return files_fail(p->c, EFBIG, p->entry.path, most ? "more than the largest archive allowed" : NULL);
    return 0;
}

/* The entry's header, and room for `room` more bytes in the buffer. */
static int put_header(struct packing *p, size_t room)
{
    if (p->used + TAR_HEAD_MAX + room > FILES_BUFFER) {
        int r = flush(p);
        if (r < 0)
            return r;
    }
    p->used += tar_write_header(&p->entry, p->c->buffer + p->used);
    return 0;
}

static void put_padding(struct packing *p, uint64_t size)
{
    size_t padding = (size_t)(-size % TAR_BLOCK);
    memset(p->c->buffer + p->used, 0, padding);
    p->used += padding;
}

static int put_small(struct packing *p, int fd, size_t size)
{
    size_t got = 0;

    while (got < size) {
        ssize_t n = pread(fd, p->c->buffer + p->used + got, size - got, (off_t)got);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return files_fail(p->c, errno, p->entry.path, NULL);
        if (n == 0)
            break;
        got += (size_t)n;
    }
    memset(p->c->buffer + p->used + got, 0, size - got);
    p->used += size;
    put_padding(p, size);
    return got < size ? files_fail(p->c, ESTALE, p->entry.path, NULL) : 0;
}

static int pack_file(struct packing *p, int dir, const char *name)
{
    struct stat st;

    FD fd = path_open_at(dir, name, O_RDONLY | O_NOFOLLOW, 0, 0);
    if (fd == -ENOENT || fd == -ELOOP)
        return 0;       /* removed meanwhile */
    if (fd < 0 || fstat(fd, &st) < 0)
        return files_fail(p->c, fd < 0 ? -fd : errno, p->entry.path, NULL);
    if (!S_ISREG(st.st_mode))
        return 0;
    p->entry.size = (uint64_t)st.st_size;
    int r = count(p, p->entry.size);
    bool small = p->entry.size <= SMALL_FILE;
    if (r == 0)
        r = put_header(p, small ? (size_t)p->entry.size + TAR_BLOCK : TAR_BLOCK);
    if (r < 0 || small)
        return r < 0 ? r : put_small(p, fd, (size_t)p->entry.size);
    if ((r = flush(p)) < 0)
        return r;
    r = stream_put_file(p->c, fd, 0, p->entry.size);
    if (r < 0)
        return files_fail(p->c, -r, p->entry.path, NULL);
    put_padding(p, p->entry.size);
    return 0;
}

static int pack_link(struct packing *p, int dir, const char *name)
{
    ssize_t n = readlinkat(dir, name, p->entry.link, FILES_PATH_MAX);
    if (n < 0)
        return errno == ENOENT || errno == EINVAL ? 0 : files_fail(p->c, errno, p->entry.path, NULL);
    p->entry.link[n] = 0;
    int r = count(p, 0);
    if (r == 0)
        r = put_header(p, 0);
    p->entry.link[0] = 0;
    return r;
}

static int enter(struct packing *p, int fd, size_t name)
{
    if (p->depth == LEVELS)
        return files_fail(p->c, ENAMETOOLONG, p->entry.path, "too many folders in each other");
    struct pack_level *level = p->level[p->depth];
    if (!level && !(level = p->level[p->depth] = malloc(sizeof *level)))
        return files_fail(p->c, ENOMEM, p->entry.path, NULL);
    int own = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (own < 0)
        return files_fail(p->c, errno, p->entry.path, NULL);
    level->name = name;
    folder_init(&level->folder, own);
    p->depth++;
    return 0;
}

static void leave(struct packing *p)
{
    p->depth--;
    fd_close(p->level[p->depth]->folder.fd);
}

static int pack_folder(struct packing *p, int dir, const char *name)
{
    size_t length = strlen(p->entry.path);

    FD fd = path_open_at(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0, 0);
    if (fd == -ENOENT || fd == -ENOTDIR || fd == -ELOOP)
        return 0;
    if (fd < 0)
        return files_fail(p->c, -fd, p->entry.path, NULL);
    if (length >= FILES_PATH_MAX)
        return files_fail(p->c, ENAMETOOLONG, p->entry.path, NULL);
    p->entry.path[length] = '/';
    p->entry.path[length + 1] = 0;
    int r = count(p, 0);
    if (r == 0 && !p->measuring)
        r = put_header(p, 0);
    return r < 0 ? r : enter(p, fd, length + 1);
}

/* One name in a folder; p->entry.path is its path in the archive. */
static int pack_name(struct packing *p, int dir, const char *name)
{
    struct stat st;

    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : files_fail(p->c, errno, p->entry.path, NULL);
    p->entry.mode = st.st_mode & 07777;
    p->entry.uid = st.st_uid;
    p->entry.gid = st.st_gid;
    p->entry.mtime_s = st.st_mtim.tv_sec;
    p->entry.size = 0;
    p->entry.type = S_ISREG(st.st_mode)   ? TAR_FILE
                    : S_ISDIR(st.st_mode) ? TAR_FOLDER
                    : S_ISLNK(st.st_mode) ? TAR_LINK
                                          : 0;
    if (p->entry.type == TAR_FOLDER)
        return pack_folder(p, dir, name);
    if (p->measuring && p->entry.type == TAR_FILE && faccessat(dir, name, R_OK, 0) < 0 && errno == EACCES)
        return files_fail(p->c, EACCES, p->entry.path, NULL);
    if (p->measuring && p->entry.type)
        return count(p, S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0);
    if (p->entry.type == TAR_LINK)
        return pack_link(p, dir, name);
    return p->entry.type == TAR_FILE ? pack_file(p, dir, name) : 0;
}

static int walk(struct packing *p)
{
    struct folder_entry entry;
    int r = 0;

    while (p->depth > 0 && r >= 0) {
        struct pack_level *level = p->level[p->depth - 1];
        r = folder_next(&level->folder, &entry);
        if (r < 0)
            return files_fail(p->c, -r, p->entry.path, NULL);
        if (r == 0) {
            leave(p);
            continue;
        }
        size_t length = strlen(entry.name);
        if (level->name + length > FILES_PATH_MAX)
            return files_fail(p->c, ENAMETOOLONG, entry.name, NULL);
        memcpy(p->entry.path + level->name, entry.name, length + 1);
        r = pack_name(p, level->folder.fd, entry.name);
        if (r >= 0 && p->measuring && p->entries % 1024 == 0 && stream_is_deserted(p->c))
            return files_fail(p->c, ECANCELED, NULL, NULL);
    }
    return r < 0 ? r : 0;
}

/* Walks the tree once. fd is the folder; or, with leaf, the folder of the one file. */
static int pass(struct packing *p, int fd, const char *leaf)
{
    int r;

    p->bytes = p->entries = 0;
    p->entry.path[0] = 0;
    if (leaf) {
        memcpy(p->entry.path, leaf, strlen(leaf) + 1);
        r = pack_name(p, fd, leaf);
    } else {
        if (lseek(fd, 0, SEEK_SET) < 0)
            return files_fail(p->c, errno, NULL, NULL);
        r = enter(p, fd, 0);
        if (r == 0)
            r = walk(p);
    }
    while (p->depth > 0)
        leave(p);
    return r;
}

static int pack(struct packing *p, int fd, const char *leaf)
{
    p->measuring = true;
    int r = pass(p, fd, leaf);
    if (r == 0 && p->entries == 0 && leaf)
        return files_fail(p->c, EINVAL, NULL, "not a file or folder");
    p->measuring = false;
    if (r == 0)
        r = pass(p, fd, leaf);
    if (r == 0 && p->used + 2 * TAR_BLOCK > FILES_BUFFER)
        r = flush(p);
    if (r < 0)
        return r;
    memset(p->c->buffer + p->used, 0, 2 * TAR_BLOCK);
    p->used += 2 * TAR_BLOCK;
    p->c->done.entries = p->entries;
    p->c->done.bytes = p->bytes;
    return flush(p);
}

int op_pack(struct conversation *c)
{
    AUTO_FREE struct packing *p = calloc(1, sizeof *p);
    const char *leaf = NULL;

    if (!p)
        return files_fail(c, ENOMEM, NULL, NULL);
    p->c = c;
    FD fd = path_open(c, c->path, O_RDONLY | O_DIRECTORY, 0);
    if (fd == -ENOTDIR)
        fd = path_open_parent(c, c->path, &leaf);
    int r = fd < 0 ? files_fail(c, -fd, NULL, NULL) : pack(p, fd, leaf);
    for (int i = 0; i < LEVELS; i++)
        free(p->level[i]);
    return r;
}
