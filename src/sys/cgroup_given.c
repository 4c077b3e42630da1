/* A service's own part of the v2 tree. systemd marks the cgroup of a unit with Delegate= by an attribute: the service
 * may arrange everything below it, and nothing else. A cgroup that holds processes cannot give controllers to its
 * children, so the service moves into a leaf and makes its cgroups beside that leaf. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/xattr.h>

#include "base/fd.h"
#include "sys/cgroup_impl.h"

static bool is_given(const char *path)
{
    static const char *const names[] = { "trusted.delegate", "user.delegate" };
    char value[2];

    for (size_t i = 0; i < 2; i++)
        if (getxattr(path, names[i], value, sizeof value) == 1 && value[0] == '1')
            return true;
    return false;
}

int cgroup_own_path(const char *tree, char *path, size_t size)
{
    char own[PATH_MAX], *line, *end;

    if (fd_read_file(AT_FDCWD, "/proc/self/cgroup", own, sizeof own) < 0)
        return -ENOENT;
    line = strncmp(own, "0::", 3) == 0 ? own : strstr(own, "\n0::");
    line = line ? strchr(line, '/') : NULL;
    if (!line || strncmp(line, "/..", 3) == 0)  /* outside of this cgroup namespace */
        return -ENOENT;
    line[strcspn(line, "\n")] = 0;
    if ((end = strstr(line, " (deleted)")))
        *end = 0;
    int n = snprintf(path, size, "%s%s", tree, line[1] ? line : "");
    return n < 0 || (size_t)n >= size ? -ENAMETOOLONG : n;
}

int cgroup_open_given(const char *tree)
{
    char path[2 * PATH_MAX], *slash;

    int r = cgroup_own_path(tree, path, sizeof path);
    if (r < 0)
        return r;
    slash = strrchr(path + strlen(tree), '/');
    if (!slash)
        return -ENOENT;
    *slash = 0;
    if (!is_given(path))
        return -ENOENT;
    int dir = openat(AT_FDCWD, path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return dir < 0 ? -errno : dir;
}

void cgroup_settle(void)
{
    static const char *const trees[] = { "/sys/fs/cgroup", "/sys/fs/cgroup/unified" };
    char path[2 * PATH_MAX];
    struct statfs fs;

    for (size_t i = 0; i < 2; i++) {
        if (statfs(trees[i], &fs) < 0 || (long)fs.f_type != CGROUP2_SUPER_MAGIC ||
            cgroup_own_path(trees[i], path, sizeof path) < 0 || !is_given(path))
            continue;
        FD dir = openat(AT_FDCWD, path, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (dir >= 0 && (mkdirat(dir, "keeper", 0755) == 0 || errno == EEXIST))
            (void)!fd_write_file(dir, "keeper/cgroup.procs", "0");
        return;
    }
}
