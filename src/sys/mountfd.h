/* Mounts by descriptor: nothing here resolves a path in a tree that a guest can write. All return 0 or -errno. */
#ifndef CARREL_SYS_MOUNTFD_H
#define CARREL_SYS_MOUNTFD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* Flags of an attached tree; the values are the kernel's MOUNT_ATTR_*. */
enum {
    TREE_READONLY = 0x01,
    TREE_NOSUID = 0x02,
    TREE_NODEV = 0x04,
    TREE_NOEXEC = 0x08,
};

/* A detached private copy of the mount tree at path below dir (AT_EMPTY_PATH if path is ""), with flags set before it
 * is visible anywhere. */
MUST_CHECK int mountfd_clone(int dir, const char *path, bool recursive, unsigned flags, int *ret);

/* A new detached filesystem of this type; options is a NULL-terminated list "key", "value", ... where value NULL makes
 * a flag. */
MUST_CHECK int mountfd_new(const char *type, const char *const *options, unsigned flags, int *ret);

/* Attaches a detached tree at path below dir; symbolic links at the end are not followed. */
MUST_CHECK int mountfd_attach(int tree, int dir, const char *path);

/* Adds flags to a mount, and to all below it if recursive. */
MUST_CHECK int mountfd_restrict(int tree, bool recursive, unsigned flags);

/* Maps the ids of a detached tree as the user namespace does: id 0 on the disk becomes id 0 of the box's user
 * namespace. */
MUST_CHECK int mountfd_map_ids(int tree, int user_namespace);

/* Makes an attached tree the root of the calling process's mount namespace and drops the old root. */
MUST_CHECK int mountfd_pivot(int tree);

/* Opens a path without following any symbolic link, as O_PATH. Returns the fd or -errno. */
MUST_CHECK int mountfd_open_plain(int dir, const char *path);

#endif
