#define _GNU_SOURCE
#include "sys/mountfd.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <linux/openat2.h>
#include <stddef.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"

int mountfd_restrict(int tree, bool recursive, unsigned flags)
{
    struct mount_attr attr = { .attr_set = flags };
    unsigned how = AT_EMPTY_PATH | (recursive ? AT_RECURSIVE : 0);

    return syscall(SYS_mount_setattr, tree, "", how, &attr, sizeof attr) < 0 ? -errno : 0;
}

int mountfd_map_ids(int tree, int user_namespace)
{
    struct mount_attr attr = { .attr_set = MOUNT_ATTR_IDMAP, .userns_fd = (uint64_t)user_namespace };

    return syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH | AT_RECURSIVE, &attr, sizeof attr) < 0 ? -errno : 0;
}

int mountfd_clone(int dir, const char *path, bool recursive, unsigned flags, int *ret)
{
    unsigned how = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW;
    FD tree = (int)syscall(SYS_open_tree, dir, path, how | (recursive ? AT_RECURSIVE : 0));
    if (tree < 0)
        return -errno;

    struct mount_attr attr = { .attr_set = flags, .propagation = MS_PRIVATE };
    if (syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH | (recursive ? AT_RECURSIVE : 0), &attr, sizeof attr) < 0)
        return -errno;
    *ret = TAKE_FD(tree);
    return 0;
}

int mountfd_new(const char *type, const char *const *options, unsigned flags, int *ret)
{
    FD context = (int)syscall(SYS_fsopen, type, FSOPEN_CLOEXEC);
    if (context < 0)
        return -errno;

    for (; options && options[0]; options += 2) {
        unsigned command = options[1] ? FSCONFIG_SET_STRING : FSCONFIG_SET_FLAG;
        if (syscall(SYS_fsconfig, context, command, options[0], options[1], 0) < 0)
            return -errno;
    }
    if (syscall(SYS_fsconfig, context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
        return -errno;

    int tree = (int)syscall(SYS_fsmount, context, FSMOUNT_CLOEXEC, flags);
    if (tree < 0)
        return -errno;
    *ret = tree;
    return 0;
}

int mountfd_attach(int tree, int dir, const char *path)
{
    unsigned how = MOVE_MOUNT_F_EMPTY_PATH | (*path ? 0 : MOVE_MOUNT_T_EMPTY_PATH);

    return syscall(SYS_move_mount, tree, "", dir, path, how) < 0 ? -errno : 0;
}

int mountfd_pivot(int tree)
{
    /* The same directory for both: the old root ends up on top of the new one, where it can be detached without a
     * name. */
    if (fchdir(tree) < 0 || syscall(SYS_pivot_root, ".", ".") < 0)
        return -errno;
    if (umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)
        return -errno;
    return 0;
}

int mountfd_open_plain(int dir, const char *path)
{
    struct open_how how = {
        .flags = O_PATH | O_CLOEXEC,
        .resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
    };
    for (;;) {
        long fd = syscall(SYS_openat2, dir, path, &how, sizeof how);
        if (fd >= 0)
            return (int)fd;
        if (errno != EAGAIN && errno != EINTR)
            return -errno;
    }
}
