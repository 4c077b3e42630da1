/* Every way to change the mount tree. All calls have arguments that would work for a process with the right. */
#define _GNU_SOURCE
#include "probe.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    N_OPEN_TREE = 428,
    N_MOVE_MOUNT,
    N_FSOPEN,
    N_FSCONFIG,
    N_FSMOUNT,
    N_FSPICK,
    N_MOUNT_SETATTR = 442,
    N_STATMOUNT = 457,
    N_LISTMOUNT,
    N_OPEN_TREE_ATTR = 467
};

static void new_filesystems(void)
{
    static const char *const types[] = { "tmpfs",      "proc",   "sysfs",  "devpts",   "mqueue",      "overlay",
                                         "fuse",       "ramfs",  "cgroup", "cgroup2",  "bpf",         "debugfs",
                                         "tracefs",    "ext4",   "nfs",    "devtmpfs", "binfmt_misc", "configfs",
                                         "securityfs", "binder", "9p" };
    mkdir("/tmp/mnt", 0700);
    for (size_t i = 0; i < COUNT(types); i++)
        MUST_FAIL_AS(types[i], mount("none", "/tmp/mnt", types[i], 0, NULL), EPERM, ENOSYS);
    MUST_FAIL(mount("cgroup", "/tmp/mnt", "cgroup", 0, "memory"), EPERM, ENOSYS);
    MUST_FAIL(mount("overlay", "/tmp/mnt", "overlay", 0, "lowerdir=/usr,upperdir=/tmp,workdir=/tmp/w"), EPERM, ENOSYS);
}

static void bind_mounts(void)
{
    mkdir("/tmp/mnt", 0700);
    MUST_FAIL(mount("/usr", "/tmp/mnt", NULL, MS_BIND, NULL), EPERM, ENOSYS);
    MUST_FAIL(mount("/", "/tmp/mnt", NULL, MS_BIND | MS_REC, NULL), EPERM, ENOSYS);
    MUST_FAIL(mount("/tmp/mnt", "/usr", NULL, MS_BIND, NULL), EPERM, ENOSYS);
    MUST_FAIL(mount("/tmp", "/tmp/mnt", NULL, MS_MOVE, NULL), EPERM, ENOSYS);
    MUST_FAIL(mount(NULL, "/", NULL, MS_SHARED | MS_REC, NULL), EPERM, ENOSYS);
}

static void remounts(void)
{
    static const char *const points[] = { "/", "/usr", "/probe", "/proc", "/dev", "/tmp", "/etc" };
    for (size_t i = 0; i < COUNT(points); i++) {
        MUST_FAIL_AS(points[i], mount(NULL, points[i], NULL, MS_REMOUNT | MS_BIND, NULL), EPERM, ENOSYS);
        MUST_FAIL_AS(points[i], mount(NULL, points[i], NULL, MS_REMOUNT, "size=1g"), EPERM, ENOSYS);
        uint64_t attr[4] = { 0, 1 /* MOUNT_ATTR_RDONLY cleared */, 0, 0 };
        MUST_FAIL_AS(points[i], syscall(N_MOUNT_SETATTR, AT_FDCWD, points[i], 0x8000, attr, 32), EPERM, ENOSYS);
    }
}

static void unmounts(void)
{
    static const char *const points[] = { "/",         "/usr",       "/probe", "/proc", "/proc/kcore",
                                          "/proc/sys", "/proc/keys", "/dev",   "/tmp" };
    for (size_t i = 0; i < COUNT(points); i++) {
        MUST_FAIL_AS(points[i], umount2(points[i], MNT_DETACH), EPERM, ENOSYS);
        MUST_FAIL_AS(points[i], umount2(points[i], MNT_FORCE), EPERM, ENOSYS);
        MUST_FAIL_AS(points[i], umount2(points[i], 4 /* MNT_EXPIRE */), EPERM, ENOSYS);
    }
}

static void mount_descriptors(void)
{
    MUST_BE_REFUSED(syscall(N_FSOPEN, "tmpfs", 0));
    MUST_BE_REFUSED(syscall(N_FSPICK, AT_FDCWD, "/", 0));
    MUST_BE_REFUSED(syscall(N_OPEN_TREE, AT_FDCWD, "/", 1 /* OPEN_TREE_CLONE */));
    MUST_BE_REFUSED(syscall(N_OPEN_TREE_ATTR, AT_FDCWD, "/", 1, NULL, 0));
    int fd = open("/usr", O_PATH | O_CLOEXEC);
    MUST_BE_REFUSED(syscall(N_MOVE_MOUNT, fd, "", AT_FDCWD, "/tmp", 4));
    MUST_BE_REFUSED(syscall(N_FSMOUNT, fd, 0, 0));
    MUST_BE_REFUSED(syscall(N_FSCONFIG, fd, 6, NULL, NULL, 0));
}

static void foreign_mount_tables(void)
{
    /* listmount with the id of another mount namespace would show the host's mounts. */
    uint64_t request[4] = { 32, ~0ull /* LSMT_ROOT */, 0, 1 /* the first namespace's id, a guess */ }, ids[64];
    MUST_FAIL(syscall(N_LISTMOUNT, request, ids, COUNT(ids), 0), EPERM, ENOSYS, ENOENT, EINVAL);
    for (uint64_t id = 2; id < 12; id++) {
        request[3] = id;
        MUST_FAIL(syscall(N_LISTMOUNT, request, ids, COUNT(ids), 0), EPERM, ENOSYS, ENOENT, EINVAL);
    }
}

static void swap_and_accounting(void)
{
    MUST_BE_REFUSED(syscall(SYS_swapon, "/tmp/swap", 0));
    MUST_BE_REFUSED(syscall(SYS_swapoff, "/tmp/swap"));
    MUST_BE_REFUSED(syscall(SYS_acct, "/tmp/acct"));
}

static void notifications(void)
{
    MUST_BE_REFUSED(syscall(SYS_fanotify_init, 0, O_RDONLY));
    MUST_BE_REFUSED(syscall(SYS_fanotify_init, 0x200 /* FAN_REPORT_FID */, O_RDONLY));
    MUST_FAIL(syscall(SYS_lookup_dcookie, 0, NULL, 0), EPERM, ENOSYS);
}

static const struct attack attacks[] = {
    { "no_filesystem_can_be_mounted", new_filesystems },
    { "nothing_can_be_bound_moved_or_shared", bind_mounts },
    { "nothing_can_be_remounted_writable_or_larger", remounts },
    { "nothing_can_be_unmounted", unmounts },
    { "mount_descriptors_are_refused", mount_descriptors },
    { "mounts_of_other_namespaces_cannot_be_listed", foreign_mount_tables },
    { "swap_and_accounting_are_refused", swap_and_accounting },
    { "fanotify_is_refused", notifications },
};
const struct topic topic_mounts = { "mounts", attacks, COUNT(attacks) };
