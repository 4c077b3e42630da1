/* The guest may change any name at any moment, so a name is opened once and then only used by descriptor. Magic links
 * (/proc/PID/fd, exe, root) are never followed: they lead to objects, not to files of the box. O_NONBLOCK keeps the
 * open of a FIFO, or of a file with a lease, from blocking. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "files/conversation.h"

int path_open_at(int dir, const char *path, int flags, mode_t mode, uint64_t resolve)
{
    struct open_how how = {
        .flags = (uint64_t)(flags | O_CLOEXEC | (flags & O_PATH ? 0 : O_NONBLOCK | O_NOCTTY)),
        /* No set-id bits: the system call filter cannot see the mode here. */
        .mode = flags & O_CREAT ? mode & 01777 : 0,
        .resolve = resolve | RESOLVE_NO_MAGICLINKS,
    };

    for (int tries = 0;; tries++) {
        long fd = syscall(SYS_openat2, dir, path, &how, sizeof how);
        if (fd >= 0)
            return (int)fd;
        /* EAGAIN: a rename happened while ".." was resolved. (A lease that is being broken gives it, too.) */
        if (errno != EINTR && (errno != EAGAIN || tries == 8))
            return -errno;
    }
}

int path_open(const struct conversation *c, const char *path, int flags, mode_t mode)
{
    return path_open_at(c->root, path, flags, mode, RESOLVE_IN_ROOT);
}

int path_open_parent(const struct conversation *c, const char *path, const char **ret_leaf)
{
    char folder[FILES_PATH_MAX + 1];
    const char *leaf = strrchr(path, '/') + 1;      /* all paths are absolute */
    size_t length = (size_t)(leaf - path);

    if (*leaf == 0 || strcmp(leaf, ".") == 0 || strcmp(leaf, "..") == 0)
        return -EINVAL;
    memcpy(folder, path, length);
    folder[length] = 0;
    *ret_leaf = leaf;
    return path_open(c, folder, O_PATH | O_DIRECTORY, 0);
}

int path_make_parents(const struct conversation *c, const char *path)
{
    char folder[FILES_PATH_MAX + 1];

    /* Almost always they exist. */
    const char *leaf;
    int fd = path_open_parent(c, path, &leaf);
    if (fd != -ENOENT) {
        fd_close(fd);
        return fd < 0 ? fd : 0;
    }
    for (const char *end = strchr(path + 1, '/'); end; end = strchr(end + 1, '/')) {
        size_t length = (size_t)(end - path);
        memcpy(folder, path, length);
        folder[length] = 0;
        FD there = path_open(c, folder, O_PATH | O_DIRECTORY, 0);
        if (there >= 0 || end[-1] == '/')
            continue;
        if (there != -ENOENT)
            return there;
        FD above = path_open_parent(c, folder, &leaf);
        if (above < 0)
            return above;
        if (mkdirat(above, leaf, 0755) < 0 && errno != EEXIST)
            return -errno;
    }
    return 0;
}

int path_open_temporary(int dir, mode_t mode, char *ret_name)
{
    for (int tries = 0; tries < 16; tries++) {
        uint64_t random = 0;
        if (getrandom(&random, sizeof random, 0) != sizeof random)
            return -EIO;
        snprintf(ret_name, PATH_TEMPORARY, ".carrel-%016llx", (unsigned long long)random);
        int fd = path_open_at(dir, ret_name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, mode, 0);
        if (fd != -EEXIST)
            return fd;
    }
    return -EEXIST;
}
