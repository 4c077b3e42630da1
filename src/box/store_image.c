/* ext4 in a file.
 *
 * No guest controls the image: mkfs.ext4 makes it, and afterwards only the kernel writes its structure. A killed keeper
 * leaves it clean, because the kernel unmounts it when the box's last process is gone; only a crash of the host does
 * not. For that there is a small journal; e2fsck replays it before the next mount, and repairs marked errors. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "box/store.h"
#include "sys/loopdev.h"
#include "sys/mountfd.h"

static const char *const mkfs_places[] = { "/usr/sbin/mkfs.ext4", "/sbin/mkfs.ext4", NULL };
static const char *const fsck_places[] = { "/usr/sbin/e2fsck", "/sbin/e2fsck", NULL };
static const char *const grow_places[] = { "/usr/sbin/resize2fs", "/sbin/resize2fs", NULL };

enum { TOOL_FD = 3 };
#define TOOL_FILE "/proc/self/fd/3"

static const char *find(const char *const *places)
{
    for (; *places; places++)
        if (access(*places, X_OK) == 0)
            return *places;
    return NULL;
}

static int image_probe(struct err *e)
{
    int r = loop_probe();

    if (r < 0)
        return err_set(e, ENOTSUP, STEP_HOST,
                       "this host has no loop devices (/dev/loop-control: %s), so a box's files cannot be kept on disk",
                       strerror(-r));
    /* Opening the file system loads its module. */
    FD context = (int)syscall(SYS_fsopen, "ext4", 1 /* FSOPEN_CLOEXEC */);
    if (context < 0)
        return err_set(e, ENOTSUP, STEP_HOST, "this kernel has no ext4 (%s), so a box's files cannot be kept on disk",
                       strerror(errno));
    if (!find(mkfs_places) || !find(fsck_places))
        return err_set(
            e, ENOTSUP, STEP_HOST,
            "mkfs.ext4 and e2fsck are not installed (package e2fsprogs), so a box's files cannot be kept on disk");
    return 0;
}

static _Noreturn void tool_run(int file, pid_t parent, char *const *argv)
{
    /* The host's e2fsprogs configuration must not affect a store. */
    static char *const env[] = { "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", "MKE2FS_CONFIG=/dev/null",
                                 "E2FSCK_CONFIG=/dev/null", NULL };
    int null = open("/dev/null", O_RDWR);

    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent)
        _exit(125);
    if (null < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0 || dup2(null, 2) < 0)
        _exit(125);
    if (file == TOOL_FD ? fcntl(file, F_SETFD, 0) < 0 : dup2(file, TOOL_FD) < 0)
        _exit(125);
    if (syscall(SYS_close_range, TOOL_FD + 1, ~0u, 0) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        _exit(125);
    execve(argv[0], argv, env);
    _exit(125);
}

/* Runs it with the file as TOOL_FILE. The exit status, or -errno. */
static int run_tool(int file, char *const *argv)
{
    pid_t self = getpid(), pid = fork();
    int status;

    if (pid < 0)
        return -errno;
    if (pid == 0)
        tool_run(file, self, argv);
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return -errno;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -EINTR;
}

#define FEATURES                                                                                                \
    "none,has_journal,ext_attr,dir_index,filetype,extent,flex_bg,sparse_super,large_file,huge_file,dir_nlink,"  \
    "extra_isize,metadata_csum,64bit"

static int image_format(int file, uint64_t bytes, bool grows, struct err *e)
{
    const uint64_t gigabyte = 1 << 30;
    char journal[32], per_inode[16];

    snprintf(journal, sizeof journal, "size=%d", bytes < gigabyte ? 4 : bytes < 8 * gigabyte ? 16 : 64);
    snprintf(per_inode, sizeof per_inode, "%d", bytes < gigabyte ? 8192 : 16384);
    /* resize_inode reserves room for more group descriptors, so that growing moves no block of a file: a crash in the
     * middle leaves nothing that e2fsck cannot repair.
     * Features with ioctls that a guest could use (encrypt, verity, casefold, quota) are off. The file is known to be
     * all zero, which discard tells mkfs, so it writes no inode tables. The root of the image belongs to an id that no
     * box has. */
    const char *argv[] = {
        find(mkfs_places),
        "-q",
        "-F",
        "-b",
        "4096",
        "-I",
        "256",
        "-i",
        per_inode,
        "-m",
        "0",
        "-J",
        journal,
        "-e",
        "remount-ro",
        "-O",
        grows ? FEATURES ",resize_inode" : FEATURES,
        "-E",
        "discard,lazy_itable_init=1,lazy_journal_init=1,root_owner=65536:65536",
        TOOL_FILE,
        NULL
    };
    int r = argv[0] ? run_tool(file, (char *const *)(uintptr_t)argv) : -ENOENT;

    if (r == 0)
        return 0;
    return r < 0 ? err_at(e, -r, STEP_HOST, 0, "mkfs.ext4")
                 : err_set(e, EIO, STEP_HOST, "mkfs.ext4 has failed with status %d", r);
}

static uint32_t little(const uint8_t *at, int bytes)
{
    uint32_t value = 0;

    while (bytes--)
        value = value << 8 | at[bytes];
    return value;
}

enum {
    SUPER_AT = 1024,
    SUPER_SIZE = 0x200,
    SUPER_BLOCKS = 0x04,
    SUPER_MAGIC = 0x38,
    SUPER_STATE = 0x3a,
    SUPER_INCOMPATIBLE = 0x60,
    SUPER_BLOCKS_HIGH = 0x150,
    STATE_CLEAN = 1,
    STATE_ERROR = 2,
    NEEDS_REPLAY = 4,
    BLOCK_BYTES = 4096
};

static int read_super(int file, uint8_t super[SUPER_SIZE], struct err *e)
{
    if (pread(file, super, SUPER_SIZE, SUPER_AT) != SUPER_SIZE || little(super + SUPER_MAGIC, 2) != 0xef53)
        return err_at(e, EUCLEAN, STEP_HOST, 0, "the files: there is no file system in the image");
    return 0;
}

/* force: also if the file system says that it is clean. */
static int run_fsck(int file, bool force, struct err *e)
{
    const char *argv[] = { find(fsck_places), "-p", force ? "-f" : TOOL_FILE, force ? TOOL_FILE : NULL, NULL };
    int r = argv[0] ? run_tool(file, (char *const *)(uintptr_t)argv) : -ENOENT;

    /* 1: repaired. */
    if (r == 0 || r == 1)
        return 0;
    return r < 0 ? err_at(e, -r, STEP_HOST, 0, "e2fsck")
                 : err_set(e, EUCLEAN, STEP_HOST,
                           "the files are damaged and e2fsck cannot repair them on its own (status %d)", r);
}

static int image_mend(int file, struct err *e)
{
    uint8_t super[SUPER_SIZE];
    int r = read_super(file, super, e);

    if (r < 0)
        return r;
    uint32_t state = little(super + SUPER_STATE, 2);
    if ((state & (STATE_CLEAN | STATE_ERROR)) == STATE_CLEAN
        && !(little(super + SUPER_INCOMPATIBLE, 4) & NEEDS_REPLAY))
        return 0;
    return run_fsck(file, false, e);
}

static int image_grow(int file, struct err *e)
{
    const char *argv[] = { find(grow_places), TOOL_FILE, NULL };
    uint8_t super[SUPER_SIZE];
    struct stat status;
    int r = read_super(file, super, e);

    if (r == 0 && fstat(file, &status) < 0)
        r = err_at(e, errno, STEP_HOST, 0, "growing");
    if (r < 0)
        return r;
    uint64_t blocks = little(super + SUPER_BLOCKS, 4) | (uint64_t)little(super + SUPER_BLOCKS_HIGH, 4) << 32;
    if (blocks >= (uint64_t)status.st_size / BLOCK_BYTES)
        return 0;
    /* resize2fs insists on it. */
    r = run_fsck(file, true, e);
    if (r < 0)
        return r;
    r = argv[0] ? run_tool(file, (char *const *)(uintptr_t)argv) : -ENOENT;
    if (r == 0)
        return 0;
    return r < 0 ? err_at(e, -r, STEP_HOST, 0, "resize2fs (package e2fsprogs)")
                 : err_set(e, EIO, STEP_HOST, "resize2fs has failed with status %d", r);
}

static int mount_device(const char *path, int *ret_tree)
{
    /* discard: deleted blocks go back to the host. */
    const char *options[] = { "source", path, "errors", "remount-ro", "discard", NULL, NULL };

    return mountfd_new("ext4", options, TREE_NOSUID | TREE_NODEV, ret_tree);
}

static int image_attach(int file, int *ret_tree, uint32_t *ret_device, struct err *e)
{
    char path[LOOP_PATH];
    FD device = -1;
    int r = loop_attach(file, path, &device);

    if (r < 0)
        return err_at(e, -r, STEP_HOST, 0, "attaching a loop device");
    r = mount_device(path, ret_tree);
    if (r < 0)
        return err_at(e, -r, STEP_HOST, 0, "mounting the files");
    *ret_device = (uint32_t)strtoul(path + strcspn(path, "0123456789"), NULL, 10);
    return 0;
}

/* The kernel gives a second mount of a mounted device the same file system. */
static int image_share(int file, uint32_t number, int *ret_tree)
{
    char path[LOOP_PATH];
    FD device = -1;
    int r = loop_reopen(number, file, path, &device);

    return r < 0 ? r : mount_device(path, ret_tree);
}

const struct store_driver store_image = {
    .name = "image", .probe = image_probe, .format = image_format, .mend = image_mend, .grow = image_grow,
    .attach = image_attach, .share = image_share,
};
