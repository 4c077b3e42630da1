#define _GNU_SOURCE
#include "sys/landlock.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"

/* Rights that the headers of our oldest build distribution lack; the values are the kernel's. */
enum {
    RIGHT_REFER = 1 << 13,          /* ABI 2 */
    RIGHT_TRUNCATE = 1 << 14,       /* ABI 3 */
    RIGHT_IOCTL_DEV = 1 << 15,      /* ABI 5 */
    RIGHT_RESOLVE_UNIX = 1 << 16,   /* ABI 9: connecting to a socket with a path that was made outside of the own
                                     * domain */
    RIGHTS_ABI_1 = (1 << 13) - 1,
    RIGHTS_DEVICE_NODES = LANDLOCK_ACCESS_FS_MAKE_CHAR | LANDLOCK_ACCESS_FS_MAKE_BLOCK,
    RIGHTS_READ = LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR,
    RIGHTS_TCP = 3,                 /* ABI 4 */
    SCOPES = 3,                     /* ABI 6 */
    RIGHTS_FILE = LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE
                | RIGHT_TRUNCATE | RIGHT_IOCTL_DEV,
};

static uint64_t known_rights(int abi)
{
    return (uint64_t)RIGHTS_ABI_1 | (abi >= 2 ? RIGHT_REFER : 0) | (abi >= 3 ? RIGHT_TRUNCATE : 0)
         | (abi >= 5 ? RIGHT_IOCTL_DEV : 0) | (abi >= 9 ? RIGHT_RESOLVE_UNIX : 0);
}

int landlock_abi(void)
{
    long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    if (abi < 0)
        return errno == ENOSYS || errno == EOPNOTSUPP ? 0 : -errno;
    return (int)abi;
}

int landlock_open(int abi, unsigned walls)
{
    /* Older headers know only the first member, and an older kernel accepts no more. */
    const struct {
        uint64_t files, tcp, scopes;
    } attr = { known_rights(abi), walls & LANDLOCK_TCP ? RIGHTS_TCP : 0, walls & LANDLOCK_OTHERS ? SCOPES : 0 };
    size_t size = abi >= 6 ? sizeof attr : abi >= 4 ? 2 * sizeof attr.files : sizeof attr.files;
    long fd = syscall(SYS_landlock_create_ruleset, &attr, size, 0);
    return fd < 0 ? -errno : (int)fd;
}

int landlock_allow(int ruleset, int abi, const char *path, enum landlock_rights rights)
{
    FD fd = open(path, O_PATH | O_CLOEXEC | O_NOFOLLOW);
    struct stat status;
    if (fd < 0 || fstat(fd, &status) < 0)
        return -errno;

    uint64_t allowed = RIGHTS_READ;
    if (rights == LANDLOCK_DEVICE)
        allowed |= LANDLOCK_ACCESS_FS_WRITE_FILE | RIGHT_TRUNCATE | RIGHT_IOCTL_DEV;
    else if (rights == LANDLOCK_WRITE)
        allowed = ~(uint64_t)RIGHTS_DEVICE_NODES;
    else if (rights == LANDLOCK_DATA)
        allowed = ~(uint64_t)(RIGHTS_DEVICE_NODES | LANDLOCK_ACCESS_FS_EXECUTE);
    else if (rights == LANDLOCK_LOOK)
        allowed = LANDLOCK_ACCESS_FS_READ_FILE;
    if (!S_ISDIR(status.st_mode))
        allowed &= RIGHTS_FILE;

    struct landlock_path_beneath_attr rule = { .allowed_access = allowed & known_rights(abi), .parent_fd = fd };
    return syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) < 0 ? -errno : 0;
}

int landlock_enter(int ruleset)
{
    return syscall(SYS_landlock_restrict_self, ruleset, 0) < 0 ? -errno : 0;
}
