/* Attempts to reach host files, to write where the box may not, to make device nodes, and to keep descriptors from
 * outside. */
#define _GNU_SOURCE
#include "probe.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/xattr.h>
#include <unistd.h>

static const char *host_file(void)
{
    const char *path = arg_get("host_file");
    if (!path)
        skipped("no host_file");
    return path;
}

static void aliases(void)
{
    static const char *const prefixes[] = { "",
                                            "/proc/1/root",
                                            "/proc/self/root",
                                            "/proc/self/root/..",
                                            "/proc/self/root/../..",
                                            "/proc/self/cwd/../../../../../../../..",
                                            "/proc/self/fd/0/..",
                                            "/proc/self/fd/1/../..",
                                            "/dev/fd/0/..",
                                            "/proc/self/task/1/root",
                                            "/proc/thread-self/root/..",
                                            "/proc/1/cwd",
                                            "/proc/1/task/1/root",
                                            "/..",
                                            "/../../../../../../../../../../../../../../../../..",
                                            "/proc/self/fd/3",
                                            "/proc/self/fd/4",
                                            "/proc/1/fd/3",
                                            "/proc/1/fd/4",
                                            "/proc/1/fd/5",
                                            "/proc/2/root",
                                            "/proc/self/map_files/../root/..",
                                            "/tmp/..",
                                            "/probe/..",
                                            "/probe/../..",
                                            "/dev/shm/..",
                                            "/home/box/../..",
                                            "/proc/self/ns/../root/..",
                                            "/newroot",
                                            "/oldroot",
                                            "/.old",
                                            "/run/carrel" };
    char path[4096];
    for (size_t i = 0; i < COUNT(prefixes); i++) {
        snprintf(path, sizeof(path), "%s%s", prefixes[i], host_file());
        MUST_FAIL_AS(path, open(path, O_RDONLY), ENOENT, EACCES, EPERM, ENOTDIR, ELOOP);
    }
}

static void inherited(void)
{
    DIR *dir = opendir("/proc/self/fd");
    if (!dir)
        skipped("no /proc/self/fd");
    struct dirent *entry;
    int extra = 0;
    while ((entry = readdir(dir))) {
        int fd = (int)strtol(entry->d_name, NULL, 10);
        char path[300], target[256];
        snprintf(path, sizeof(path), "/proc/self/fd/%s", entry->d_name);
        ssize_t n = readlink(path, target, sizeof(target) - 1);
        target[n > 0 ? n : 0] = 0;
        if (fd > 2 && fd != dirfd(dir) && strncmp(target, "pipe:", 5) != 0)
            broken("descriptor %d is %s", fd, target);
        extra += fd > 2 && fd != dirfd(dir);
    }
    closedir(dir);
    if (extra > 1) /* one is the pipe for this verdict */
        broken("%d descriptors more than 0, 1, 2", extra);
}

static void dot_dot(void)
{
    int fd = open(".", O_RDONLY | O_DIRECTORY);
    for (int i = 0; i < 100 && fd >= 0; i++) {
        int up = openat(fd, "..", O_RDONLY | O_DIRECTORY);
        close(fd);
        fd = up;
    }
    if (fd < 0)
        held("%s", errno_name(errno));
    MUST_FAIL(openat(fd, host_file() + 1, O_RDONLY), ENOENT, EACCES, EPERM, ENOTDIR);
    struct stat up, root;
    if (fstat(fd, &up) == 0 && stat("/", &root) == 0 && (up.st_dev != root.st_dev || up.st_ino != root.st_ino))
        broken("the top is not /");
    char cwd[4096];
    if (syscall(SYS_getcwd, cwd, sizeof(cwd)) < 0 || cwd[0] != '/')
        broken("cwd is %s", cwd);
}

static void chroot_escape(void)
{
    mkdir("/tmp/jail", 0700);
    int fd = open("/", O_RDONLY | O_DIRECTORY);
    MUST_FAIL(chroot("/tmp/jail"), EPERM, ENOSYS);
    if (fd >= 0 && fchdir(fd) == 0)
        MUST_FAIL(chroot("."), EPERM, ENOSYS);
    MUST_FAIL(syscall(SYS_pivot_root, ".", "/tmp/jail"), EPERM, ENOSYS);
}

static void make_devices(void)
{
    static const struct {
        const char *name;
        mode_t type;
        unsigned major, minor;
    } nodes[] = { { "mem", S_IFCHR, 1, 1 },     { "null", S_IFCHR, 1, 3 },   { "kmsg", S_IFCHR, 1, 11 },
                  { "vda", S_IFBLK, 254, 0 },   { "sda", S_IFBLK, 8, 0 },    { "loop", S_IFBLK, 7, 0 },
                  { "fuse", S_IFCHR, 10, 229 }, { "tun", S_IFCHR, 10, 200 }, { "kvm", S_IFCHR, 10, 232 },
                  { "tty", S_IFCHR, 5, 0 } };
    char path[64];
    for (size_t i = 0; i < COUNT(nodes); i++) {
        snprintf(path, sizeof(path), "/tmp/node-%s", nodes[i].name);
        MUST_FAIL_AS(path, mknod(path, nodes[i].type | 0666, makedev(nodes[i].major, nodes[i].minor)), EPERM, ENOSYS,
                     EACCES);
    }
    /* 0:0 is a whiteout, which any user may make, and none can open. */
    if (mknod("/tmp/node-whiteout", S_IFCHR | 0666, makedev(0, 0)) == 0)
        MUST_FAIL(open("/tmp/node-whiteout", O_RDWR), ENXIO, EACCES, EPERM, ENODEV);
}

static void open_devices(void)
{
    static const char *const names[] = {
        "mem",          "kmem",        "port",        "kmsg",           "fuse",           "kvm",
        "vhost-net",    "vhost-vsock", "vsock",       "loop0",          "loop-control",   "vda",
        "sda",          "nvme0",       "net/tun",     "mapper/control", "btrfs-control",  "uinput",
        "input/event0", "console",     "tty0",        "tty1",           "ttyS0",          "vcs",
        "vcsa",         "hpet",        "rtc0",        "nvram",          "cpu/0/msr",      "cpu/0/cpuid",
        "mcelog",       "snapshot",    "userfaultfd", "autofs",         "udmabuf",        "dri/card0",
        "snd/seq",      "ppp",         "watchdog",    "cachefiles",     "hwrng",          "dma_heap/system",
        "iommu",        "vfio/vfio",   "fb0",         "ptp0",           "virtio-ports/x", "bus/usb/001/001"
    };
    char path[64];
    for (size_t i = 0; i < COUNT(names); i++) {
        snprintf(path, sizeof(path), "/dev/%s", names[i]);
        MUST_FAIL_AS(path, open(path, O_RDWR | O_NONBLOCK | O_NOCTTY), ENOENT, EPERM, EACCES, ENXIO, ENODEV);
        MUST_FAIL_AS(path, open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY), ENOENT, EPERM, EACCES, ENXIO, ENODEV);
    }
    MUST_FAIL(open("/dev/tty", O_RDWR | O_NOCTTY), ENXIO, ENOENT, EACCES, EPERM);
}

static void only_harmless_devices(void)
{
    static const char *const known[] = { "null", "zero", "full", "random", "urandom", "tty", "ptmx" };
    DIR *dir = opendir("/dev");
    if (!dir)
        held("no /dev");
    struct dirent *entry;
    while ((entry = readdir(dir))) {
        struct stat info;
        if (fstatat(dirfd(dir), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) < 0 ||
            (!S_ISCHR(info.st_mode) && !S_ISBLK(info.st_mode)))
            continue;
        size_t i = 0;
        while (i < COUNT(known) && strcmp(known[i], entry->d_name) != 0)
            i++;
        if (i == COUNT(known))
            broken("/dev/%s", entry->d_name);
    }
    closedir(dir);
}

static void write_system(void)
{
    static const char *const dirs[] = {
        "/",        "/usr",     "/usr/bin",   "/usr/lib",   "/usr/local",
        "/lib",     "/lib64",   "/bin",       "/sbin",      "/etc",
        "/dev",     "/dev/pts", "/proc",      "/proc/self", "/sys",
        "/run",     "/var",     "/opt",       "/srv",       "/mnt",
        "/root",    "/home",    "/boot",      "/probe",     "/usr/lib/python3/dist-packages",
        "/var/lib", "/var/log", "/etc/cron.d"
    };
    char path[256];
    for (size_t i = 0; i < COUNT(dirs); i++) {
        snprintf(path, sizeof(path), "%s/carrel-was-here", dirs[i]);
        MUST_FAIL_AS(path, open(path, O_CREAT | O_WRONLY, 0600), EROFS, EACCES, EPERM, ENOENT, EOVERFLOW);
        MUST_FAIL_AS(path, mkdir(path, 0700), EROFS, EACCES, EPERM, ENOENT, EOVERFLOW);
        MUST_FAIL_AS(path, symlink("/etc/passwd", path), EROFS, EACCES, EPERM, ENOENT, EOVERFLOW);
        MUST_FAIL_AS(path, mkfifo(path, 0600), EROFS, EACCES, EPERM, ENOENT, EOVERFLOW);
        MUST_FAIL_AS(dirs[i], open(dirs[i], O_TMPFILE | O_RDWR, 0600), EROFS, EACCES, EPERM, ENOENT, EOPNOTSUPP,
                     EISDIR, EOVERFLOW);
        /* /dev/pts is an instance of the box's own (see ptmx), whose root may be the box's root. */
        if (strncmp(dirs[i], "/proc", 5) != 0 && strcmp(dirs[i], "/dev/pts") != 0)
            MUST_FAIL_AS(dirs[i], chmod(dirs[i], 0777), EROFS, EPERM, EACCES, ENOENT, EOVERFLOW);
    }
}

static void change_system_files(void)
{
    static const char *const files[] = { "/usr/bin/env",     "/etc/passwd",         "/etc/hosts",
                                         "/etc/resolv.conf", "/usr/lib/os-release", "/probe/probe",
                                         "/etc/ld.so.cache", "/etc/group",          "/etc/nsswitch.conf" };
    struct timespec times[2] = { { 1, 0 }, { 1, 0 } };
    for (size_t i = 0; i < COUNT(files); i++) {
        const char *f = files[i];
        MUST_FAIL_AS(f, open(f, O_WRONLY), EROFS, EACCES, EPERM, ENOENT, ETXTBSY);
        MUST_FAIL_AS(f, open(f, O_RDONLY | O_TRUNC), EROFS, EACCES, EPERM, ENOENT, ETXTBSY);
        MUST_FAIL_AS(f, truncate(f, 0), EROFS, EACCES, EPERM, ENOENT, ETXTBSY);
        MUST_FAIL_AS(f, unlink(f), EROFS, EACCES, EPERM, ENOENT, EBUSY);
        MUST_FAIL_AS(f, rename(f, "/tmp/stolen"), EROFS, EACCES, EPERM, ENOENT, EXDEV, EBUSY);
        MUST_FAIL_AS(f, link(f, "/tmp/linked"), EROFS, EACCES, EPERM, ENOENT, EXDEV);
        MUST_FAIL_AS(f, chmod(f, 0777), EROFS, EACCES, EPERM, ENOENT);
        MUST_FAIL_AS(f, utimensat(AT_FDCWD, f, times, 0), EROFS, EACCES, EPERM, ENOENT);
        MUST_FAIL_AS(f, setxattr(f, "user.x", "x", 1, 0), EROFS, EACCES, EPERM, ENOENT, EOPNOTSUPP);
    }
}

static void path_descriptors(void)
{
    char path[64];
    int fd = open("/usr/bin/env", O_PATH | O_CLOEXEC);
    if (fd < 0)
        skipped("no /usr/bin/env");
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    MUST_FAIL(open(path, O_RDWR), EROFS, EACCES, EPERM, ETXTBSY);
    MUST_FAIL(open(path, O_WRONLY | O_TRUNC), EROFS, EACCES, EPERM, ETXTBSY);
    MUST_FAIL(linkat(fd, "", AT_FDCWD, "/tmp/by-fd", AT_EMPTY_PATH), EXDEV, EPERM, ENOENT, EACCES, EROFS);
    MUST_FAIL(linkat(AT_FDCWD, path, AT_FDCWD, "/tmp/by-link", AT_SYMLINK_FOLLOW), EXDEV, EPERM, ENOENT, EACCES, EROFS);
    MUST_FAIL(fchmodat(AT_FDCWD, path, 0777, 0), EROFS, EACCES, EPERM);
    MUST_FAIL(syscall(452 /* fchmodat2 */, fd, "", 0777, AT_EMPTY_PATH), EROFS, EACCES, EPERM, ENOSYS, EBADF);
    MUST_FAIL(fchownat(fd, "", getuid(), getgid(), AT_EMPTY_PATH), EROFS, EACCES, EPERM, ENOSYS, EINVAL);
    int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    MUST_FAIL(openat(root, "../../../../../../x-carrel", O_CREAT | O_WRONLY, 0600), EROFS, EACCES, EPERM, ENOENT);
}

/* Standard input is a host file opened for reading only, whose mode would let any user write it. */
static void reopen_standard(void)
{
    struct stat info;
    if (fstat(0, &info) == 0 && !S_ISREG(info.st_mode))
        held("standard input is no host file"); /* a pipe of its own, or /dev/null; the harness compares the file */
    MUST_FAIL(open("/proc/self/fd/0", O_WRONLY), EACCES, EPERM, EROFS, ENOENT, ENXIO, ELOOP);
    MUST_FAIL(open("/dev/stdin", O_RDWR), EACCES, EPERM, EROFS, ENOENT, ENXIO, ELOOP);
    MUST_FAIL(open("/proc/self/fd/0", O_RDONLY | O_TRUNC), EACCES, EPERM, EROFS, ENOENT, ENXIO, ELOOP);
    MUST_FAIL(fchmod(0, 0777), EPERM, EACCES, EROFS);
    MUST_FAIL(ftruncate(0, 0), EINVAL, EPERM, EBADF);
    MUST_FAIL(mmap(NULL, 4096, PROT_WRITE, MAP_SHARED, 0, 0), EACCES, EPERM, ENODEV);
    MUST_FAIL(fsetxattr(0, "user.x", "y", 1, 0), EPERM, EACCES, EOPNOTSUPP, EROFS);
    MUST_FAIL(write(0, "owned", 5), EBADF);
}

static void directory_escape_through_stdin(void)
{
    /* A directory as standard input would be a way out: ".." of a foreign mount is not checked against the root. */
    struct stat info;
    if (fstat(0, &info) < 0 || !S_ISDIR(info.st_mode))
        held("standard input is no directory");
    MUST_FAIL(openat(0, "..", O_RDONLY), EACCES, EPERM, ENOENT);
    MUST_FAIL(openat(0, "secret", O_RDONLY), EACCES, EPERM, ENOENT);
    MUST_FAIL(fstatat(0, "..", &info, 0), EACCES, EPERM, ENOENT);
    MUST_FAIL(fchdir(0), EACCES, EPERM);
}

static void flags_and_quota_ids(void)
{
    int fd = open("/tmp/flags", O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    int flags = 0x10; /* FS_IMMUTABLE_FL */
    MUST_FAIL(ioctl(fd, 0x40086602 /* FS_IOC_SETFLAGS */, &flags), EPERM, ENOTTY, EOPNOTSUPP, EACCES, ENOSYS);
    uint32_t xattr[7] = { 0, 0, 0, 12345 };
    MUST_FAIL(ioctl(fd, 0x401c5820 /* FS_IOC_FSSETXATTR */, xattr), EPERM, ENOTTY, EOPNOTSUPP, EACCES, ENOSYS, EINVAL);
    MUST_FAIL(syscall(469 /* file_setattr */, AT_FDCWD, "/tmp/flags", xattr, 24, 0), EPERM, ENOSYS, EOPNOTSUPP, EINVAL);
    MUST_FAIL(ioctl(fd, 0xc0045877 /* FIFREEZE */, 0), EPERM, ENOTTY, EOPNOTSUPP, EACCES, ENOSYS);
    MUST_FAIL(syscall(SYS_quotactl, 0x80000700, "/dev/vda", 0, 0), EPERM, ENOSYS);
    MUST_FAIL(syscall(443 /* quotactl_fd */, fd, 0x80000700, 0, 0), EPERM, ENOSYS);
    unlink("/tmp/flags");
}

static void handles(void)
{
    struct {
        unsigned bytes;
        int type;
        unsigned char handle[128];
    } handle = { .bytes = 8, .type = 1, .handle = { 2 } };
    int mount_id = 0, root = open("/", O_RDONLY | O_DIRECTORY);
    MUST_BE_REFUSED(syscall(SYS_open_by_handle_at, root, &handle, O_RDONLY));
    MUST_BE_REFUSED(syscall(SYS_open_by_handle_at, AT_FDCWD, &handle, O_RDONLY));
    MUST_BE_REFUSED(syscall(SYS_name_to_handle_at, AT_FDCWD, "/", &handle, &mount_id, 0));
}

static void page_cache_splice(void)
{
    /* Dirty Pipe's shape: a page of a read-only file in a pipe, then a write into the pipe. The harness compares the
     * file afterwards. */
    int file = open("/probe/victim", O_RDONLY | O_CLOEXEC), pipes[2];
    if (file < 0 || pipe(pipes) < 0)
        skipped("no victim");
    char page[4096];
    for (int i = 0; i < 16; i++)
        if (write(pipes[1], page, sizeof(page)) < 0)
            break;
    for (int i = 0; i < 16; i++)
        if (read(pipes[0], page, sizeof(page)) < 0)
            break;
    off_t offset = 3;
    if (syscall(SYS_splice, file, &offset, pipes[1], NULL, 1, 0) < 0)
        held("splice %s", errno_name(errno));
    if (write(pipes[1], "OWNED", 5) != 5)
        broken("write to the pipe");
    char text[64];
    read_text("/probe/victim", text, sizeof(text));
    if (strstr(text, "OWNED"))
        broken("the read-only file was written");
}

static void private_mapping(void)
{
    int file = open("/probe/victim", O_RDONLY | O_CLOEXEC);
    if (file < 0)
        skipped("no victim");
    MUST_FAIL(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0), EACCES, EPERM);
    char *p = mmap(NULL, 4096, PROT_READ, MAP_SHARED, file, 0);
    if (p != MAP_FAILED)
        MUST_FAIL(mprotect(p, 4096, PROT_READ | PROT_WRITE), EACCES, EPERM);
    char *q = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    if (q == MAP_FAILED)
        broken("mmap %s", errno_name(errno));
    int mem = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
    q[0] = 'X';
    /* Dirty COW's shape. */
    for (int i = 0; mem >= 0 && i < 200; i++) {
        madvise(q, 4096, MADV_DONTNEED);
        ssize_t ignored = pwrite(mem, "OWNED", 5, (off_t)(uintptr_t)q);
        (void)ignored;
    }
    char text[64];
    read_text("/probe/victim", text, sizeof(text));
    if (strstr(text, "OWNED") || text[0] == 'X')
        broken("the read-only file was written");
}

static void links_stay_inside(void)
{
    unlink("/tmp/link");
    if (symlink(host_file(), "/tmp/link") < 0)
        broken("symlink");
    MUST_FAIL(open("/tmp/link", O_RDONLY), ENOENT, EACCES);
    struct {
        uint64_t flags, mode, resolve;
    } how = { O_RDONLY, 0, 0 };
    MUST_FAIL(syscall(SYS_openat2, AT_FDCWD, "/tmp/link", &how, sizeof(how)), ENOENT, EACCES, ENOSYS, EPERM);
    MUST_FAIL(syscall(SYS_openat2, AT_FDCWD, host_file(), &how, sizeof(how)), ENOENT, EACCES, ENOSYS, EPERM);
    unlink("/tmp/link");
}

static void pathname_sockets(void)
{
    static const char *const paths[] = { "/run/docker.sock",
                                         "/var/run/docker.sock",
                                         "/run/containerd/containerd.sock",
                                         "/run/dbus/system_bus_socket",
                                         "/run/systemd/private",
                                         "/run/carrel/carrel.sock",
                                         "/run/podman/podman.sock",
                                         "/tmp/.X11-unix/X0" };
    for (size_t i = 0; i <= COUNT(paths); i++) {
        const char *path = i < COUNT(paths) ? paths[i] : arg_get("host_socket");
        if (!path)
            continue;
        struct sockaddr_un address = { .sun_family = AF_UNIX };
        snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        MUST_FAIL_AS(path, connect(fd, (void *)&address, sizeof(address)), ENOENT, EACCES, EPERM, ENOTDIR);
        close(fd);
    }
}

static const struct attack attacks[] = {
    { "a_host_file_has_no_alias_inside", aliases },
    { "only_descriptors_0_1_2_are_inherited", inherited },
    { "dot_dot_ends_at_the_boxs_root", dot_dot },
    { "chroot_and_pivot_root_are_refused", chroot_escape },
    { "device_nodes_cannot_be_made", make_devices },
    { "device_nodes_of_the_host_are_absent", open_devices },
    { "dev_holds_only_harmless_devices", only_harmless_devices },
    { "system_directories_cannot_be_written", write_system },
    { "system_files_cannot_be_changed", change_system_files },
    { "path_descriptors_do_not_lift_read_only", path_descriptors },
    { "standard_input_cannot_be_reopened_for_writing", reopen_standard },
    { "a_directory_as_standard_input_is_no_way_out", directory_escape_through_stdin },
    { "inode_flags_and_quota_ids_cannot_be_set", flags_and_quota_ids },
    { "file_handles_are_refused", handles },
    { "splice_does_not_write_read_only_files", page_cache_splice },
    { "private_mappings_do_not_write_read_only_files", private_mapping },
    { "symbolic_links_resolve_inside", links_stay_inside },
    { "pathname_sockets_of_the_host_are_absent", pathname_sockets },
};
const struct topic topic_files = { "files", attacks, COUNT(attacks) };
