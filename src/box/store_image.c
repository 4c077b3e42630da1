/* ext4 in a file.
 *
 * Nothing in the image is a guest's word: it is made by mkfs.ext4 and from then on only the kernel writes its
 * structure. A killed keeper leaves it in order, because the kernel unmounts it when the box's last process is gone;
 * only a crash of the host does not. For that there is a small journal, and e2fsck replays it before the next mount, as
 * it repairs what an error has marked. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "box/store.h"
#include "sys/loopdev.h"
#include "sys/mountfd.h"

static const char *const mkfs_places[] = { "/usr/sbin/mkfs.ext4", "/sbin/mkfs.ext4", NULL };
static const char *const fsck_places[] = { "/usr/sbin/e2fsck", "/sbin/e2fsck", NULL };

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
    /* Asking for the file system loads its module. */
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
    /* e2fsprogs' own configuration is the host's, and a store must not depend on it. */
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

static int image_format(int file, uint64_t bytes, struct err *e)
{
    const uint64_t gigabyte = 1 << 30;
    char journal[32], per_inode[16];

    snprintf(journal, sizeof journal, "size=%d", bytes < gigabyte ? 4 : bytes < 8 * gigabyte ? 16 : 64);
    snprintf(per_inode, sizeof per_inode, "%d", bytes < gigabyte ? 8192 : 16384);
    /* What a guest could use an ioctl for (encrypt, verity, casefold, quota) is not among the features. The file is
     * known to be all zero, which discard tells mkfs, so it writes no inode tables. The root of the image belongs to an
     * id that no box has. */
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
        "none,has_journal,ext_attr,dir_index,filetype,extent,flex_bg,sparse_super,large_file,huge_file,dir_nlink,"
        "extra_isize,metadata_csum,64bit",
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

static int image_mend(int file, struct err *e)
{
    enum {
        AT = 1024,
        SIZE = 256,
        MAGIC = 0x38,
        STATE = 0x3a,
        INCOMPATIBLE = 0x60,
        STATE_CLEAN = 1,
        STATE_ERROR = 2,
        NEEDS_REPLAY = 4
    };
    uint8_t super[SIZE];

    if (pread(file, super, sizeof super, AT) != sizeof super || little(super + MAGIC, 2) != 0xef53)
        return err_at(e, EUCLEAN, STEP_HOST, 0, "the box's files: there is no file system in the store");
    uint32_t state = little(super + STATE, 2);
    if ((state & (STATE_CLEAN | STATE_ERROR)) == STATE_CLEAN && !(little(super + INCOMPATIBLE, 4) & NEEDS_REPLAY))
        return 0;
    const char *argv[] = { find(fsck_places), "-p", TOOL_FILE, NULL };
    int r = argv[0] ? run_tool(file, (char *const *)(uintptr_t)argv) : -ENOENT;
    /* 1: repaired. */
    if (r == 0 || r == 1)
        return 0;
    return r < 0 ? err_at(e, -r, STEP_HOST, 0, "e2fsck")
                 : err_set(e, EUCLEAN, STEP_HOST,
                           "the box's files are damaged and e2fsck cannot repair them on its own (status %d)", r);
}

static int image_attach(int file, int *ret_tree, struct err *e)
{
    char path[LOOP_PATH];
    FD device = -1;
    int r = loop_attach(file, path, &device);

    if (r < 0)
        return err_at(e, -r, STEP_HOST, 0, "attaching a loop device");
    /* discard: what the box deletes goes back to the host. */
    const char *options[] = { "source", path, "errors", "remount-ro", "discard", NULL, NULL };
    r = mountfd_new("ext4", options, TREE_NOSUID | TREE_NODEV, ret_tree);
    return r < 0 ? err_at(e, -r, STEP_HOST, 0, "mounting the box's files") : 0;
}

const struct store_driver store_image = {
    .name = "image", .probe = image_probe, .format = image_format, .mend = image_mend, .attach = image_attach,
};
