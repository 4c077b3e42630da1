/* Only a trial shows what works: a kernel option says nothing about a security module, a container's mask or an
 * exhausted limit.
 *
 * The caller forks one child per question; the child makes what a box would need, notes the errno in a page that it
 * shares with the caller, and exits. Everything that it made dies with it. There are two settings: the keeper's (for an
 * ordinary user: inside a first user namespace) and the box's (user, mount, pid, ipc, uts and net namespaces at once,
 * with a process 1). An alarm kills a child that hangs; whatever it had not noted by then counts as failed. */
#include "sys/features.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pwd.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/fd.h"
#include "sys/landlock.h"
#include "sys/mountfd.h"
#include "sys/network.h"
#include "sys/process.h"
#include "sys/rights.h"

enum { PROBE_SECONDS = 10 };

static const char *const feature_names[FEATURE_COUNT] = {
    [FEATURE_USER_NAMESPACE] = "user namespace",
    [FEATURE_MOUNT_NAMESPACE] = "mount namespace",
    [FEATURE_PID_NAMESPACE] = "pid namespace",
    [FEATURE_IPC_NAMESPACE] = "ipc namespace",
    [FEATURE_UTS_NAMESPACE] = "uts namespace",
    [FEATURE_NET_NAMESPACE] = "net namespace",
    [FEATURE_MOUNT_API] = "mount by descriptor",
    [FEATURE_TMPFS_SIZE] = "tmpfs with a size",
    [FEATURE_ID_MAPPED] = "idmapped mounts",
    [FEATURE_PROC] = "fresh /proc",
    [FEATURE_DEVPTS] = "own terminals",
    [FEATURE_OVERLAY] = "overlayfs",
    [FEATURE_LOOPBACK] = "loopback",
    [FEATURE_NO_NESTING] = "no nested namespaces",
    [FEATURE_SECCOMP] = "seccomp filter",
    [FEATURE_CLONE3] = "clone3 and pidfd",
};

static const struct {
    const char *name, *path;
} settings[SETTING_COUNT] = {
    [SETTING_MAX_USER_NAMESPACES] = { "user.max_user_namespaces", "/proc/sys/user/max_user_namespaces" },
    [SETTING_USERNS_CLONE] = { "kernel.unprivileged_userns_clone", "/proc/sys/kernel/unprivileged_userns_clone" },
    [SETTING_LEGACY_TIOCSTI] = { "dev.tty.legacy_tiocsti", "/proc/sys/dev/tty/legacy_tiocsti" },
    [SETTING_DMESG_RESTRICT] = { "kernel.dmesg_restrict", "/proc/sys/kernel/dmesg_restrict" },
    [SETTING_KPTR_RESTRICT] = { "kernel.kptr_restrict", "/proc/sys/kernel/kptr_restrict" },
    [SETTING_BPF_DISABLED] = { "kernel.unprivileged_bpf_disabled", "/proc/sys/kernel/unprivileged_bpf_disabled" },
    [SETTING_PERF_PARANOID] = { "kernel.perf_event_paranoid", "/proc/sys/kernel/perf_event_paranoid" },
    [SETTING_PROTECTED_SYMLINKS] = { "fs.protected_symlinks", "/proc/sys/fs/protected_symlinks" },
    [SETTING_PROTECTED_HARDLINKS] = { "fs.protected_hardlinks", "/proc/sys/fs/protected_hardlinks" },
    [SETTING_KSM] = { "/sys/kernel/mm/ksm/run", "/sys/kernel/mm/ksm/run" },
};

const char *feature_name(enum feature feature)
{
    return feature < FEATURE_COUNT ? feature_names[feature] : "?";
}

const char *setting_name(enum setting setting)
{
    return setting < SETTING_COUNT ? settings[setting].name : "?";
}

/* The page that the children share with the caller. */
struct notes {
    int  error[FEATURE_COUNT];
    bool keeper_root;
    uid_t uid;
    gid_t gid;
};

static void note(struct notes *notes, enum feature feature, int result)
{
    notes->error[feature] = result < 0 ? -result : 0;
}

/* Runs probe in a child and waits for it. */
static void in_child(void (*probe)(struct notes *), struct notes *notes)
{
    pid_t pid = fork();

    if (pid == 0) {
        alarm(PROBE_SECONDS);
        probe(notes);
        _exit(0);
    }
    while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
}

static int unshare_or_errno(int flags)
{
    return unshare(flags) < 0 ? -errno : 0;
}

#define BOX_RANGE "0 1879048192 65536"

/* Root's boxes have a range of ids, which a process outside of the namespace must write. */
static int become_root_of_range(void)
{
    pid_t self = getpid();
    int gate[2], status;
    char word;

    if (pipe2(gate, O_CLOEXEC) < 0)
        return -errno;
    pid_t helper = fork();
    if (helper == 0) {
        (void)close(gate[1]);
        _exit(read(gate[0], &word, 1) == 1 ? -process_map_ids(self, BOX_RANGE, BOX_RANGE, false) : EIO);
    }
    (void)close(gate[0]);
    int r = helper < 0 ? -errno : unshare_or_errno(CLONE_NEWUSER);
    if (r == 0 && write(gate[1], "", 1) != 1)
        r = -EIO;
    (void)close(gate[1]);
    if (helper > 0 && waitpid(helper, &status, 0) == helper && r == 0 && status)
        r = WIFEXITED(status) ? -WEXITSTATUS(status) : -EIO;
    if (r == 0 && (setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0))
        r = -errno;
    return r;
}

/* In a new user namespace, as its root. */
static int become_namespace_root(const struct notes *notes)
{
    char map[32];

    if (notes->keeper_root)
        return become_root_of_range();
    int r = unshare_or_errno(CLONE_NEWUSER);
    if (r < 0)
        return r;
    (void)fd_write_file(AT_FDCWD, "/proc/self/setgroups", "deny");
    snprintf(map, sizeof map, "0 %u 1", (unsigned)notes->uid);
    r = fd_write_file(AT_FDCWD, "/proc/self/uid_map", map);
    if (r < 0)
        return r;
    snprintf(map, sizeof map, "0 %u 1", (unsigned)notes->gid);
    return fd_write_file(AT_FDCWD, "/proc/self/gid_map", map);
}

static void probe_user_namespace(struct notes *notes)
{
    note(notes, FEATURE_USER_NAMESPACE, become_namespace_root(notes));
}

/* The other kinds are tried inside a user namespace, where a box has them. */
static void probe_namespaces(struct notes *notes)
{
    static const struct {
        enum feature feature;
        int          flag;
    } kinds[] = {
        { FEATURE_MOUNT_NAMESPACE, CLONE_NEWNS }, { FEATURE_PID_NAMESPACE, CLONE_NEWPID },
        { FEATURE_IPC_NAMESPACE, CLONE_NEWIPC },  { FEATURE_UTS_NAMESPACE, CLONE_NEWUTS },
        { FEATURE_NET_NAMESPACE, CLONE_NEWNET },
    };

    int r = become_namespace_root(notes);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        note(notes, kinds[i].feature, r < 0 ? r : unshare_or_errno(kinds[i].flag));
}

/* A tmpfs of 64 KiB must take a byte and refuse 128 KiB. */
static int try_tmpfs_size(void)
{
    static const char *const options[] = { "size", "65536", NULL, NULL };
    char data[8192] = { 0 };
    FD tree = -1;

    int r = mountfd_new("tmpfs", options, TREE_NOSUID | TREE_NODEV, &tree);
    if (r < 0)
        return r;
    FD file = openat(tree, "file", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0)
        return -errno;
    for (int i = 0; i < 16; i++)
        if (write(file, data, sizeof data) != (ssize_t)sizeof data)
            return i > 0 ? 0 : -EIO;
    return -ENOTSUP;
}

/* A user namespace to map with: that of a child that lives as long as this function. */
static int try_id_mapped(int tree, const struct notes *notes)
{
    struct process holder = { .pidfd = -1 };
    struct process_end end;
    char map[48], path[48];

    int r = process_clone(CLONE_NEWUSER, -1, -1, &holder);
    if (r == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;)
            pause();
    }
    if (r < 0)
        return r;
    if (notes->keeper_root)
        snprintf(map, sizeof map, BOX_RANGE);
    else
        snprintf(map, sizeof map, "0 0 1");
    r = process_map_ids(holder.pid, map, map, !notes->keeper_root);
    snprintf(path, sizeof path, "/proc/%d/ns/user", (int)holder.pid);
    FD user = r < 0 ? -1 : openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
    if (r == 0)
        r = user < 0 ? -errno : mountfd_map_ids(tree, user);
    if (process_signal(&holder, SIGKILL) < 0 || process_reap(&holder, 1, &end) < 0)
        return r < 0 ? r : -EIO;
    return r;
}

static void probe_keeper(struct notes *notes)
{
    FD tree = -1;

    int r = notes->keeper_root ? 0 : become_namespace_root(notes);
    if (r == 0)
        r = unshare_or_errno(CLONE_NEWNS);
    note(notes, FEATURE_TMPFS_SIZE, r < 0 ? r : try_tmpfs_size());
    if (r == 0)
        r = mountfd_clone(AT_FDCWD, "/usr", true, TREE_READONLY | TREE_NOSUID | TREE_NODEV, &tree);
    note(notes, FEATURE_MOUNT_API, r);
    note(notes, FEATURE_ID_MAPPED, r < 0 ? r : try_id_mapped(tree, notes));
}

/* The old mount(2), because overlayfs takes its layers by path: everything lies on a tmpfs that hides some folder of
 * this mount namespace. */
static int try_overlay(void)
{
    static const char *const folders[] = { "/tmp", "/mnt", "/run", "/usr" };

    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        if (mount("tmpfs", folders[i], "tmpfs", MS_NOSUID | MS_NODEV, "size=1m") < 0 || chdir(folders[i]) < 0)
            continue;
        if (mkdir("lower", 0755) < 0 || mkdir("upper", 0755) < 0 || mkdir("work", 0755) < 0 || mkdir("all", 0755) < 0 ||
            mount("overlay", "all", "overlay", 0, "lowerdir=lower,upperdir=upper,workdir=work,userxattr") < 0)
            return -errno;
        return mkdir("all/new", 0755) < 0 ? -errno : 0;
    }
    return -errno;
}

static int try_no_nesting(void)
{
    int r = fd_write_file(AT_FDCWD, "/proc/sys/user/max_user_namespaces", "0");

    if (r < 0)
        return r;
    r = unshare_or_errno(CLONE_NEWUSER);
    return r == -ENOSPC ? 0 : r < 0 ? r : -ENOTSUP;
}

/* As process 1 of a pid namespace. */
static void probe_box_init(struct notes *notes)
{
    static const char *const terminals[] = { "newinstance", NULL, "ptmxmode", "0666", NULL, NULL };
    FD proc = -1, devpts = -1;

    note(notes, FEATURE_PROC, mountfd_new("proc", NULL, TREE_NOSUID | TREE_NODEV | TREE_NOEXEC, &proc));
    int r = mountfd_new("devpts", terminals, TREE_NOSUID | TREE_NOEXEC, &devpts);
    if (r == -EINVAL) /* since Linux 4.7 every devpts is a new instance and the option has no effect */
        r = mountfd_new("devpts", terminals + 2, TREE_NOSUID | TREE_NOEXEC, &devpts);
    note(notes, FEATURE_DEVPTS, r);
    note(notes, FEATURE_OVERLAY, try_overlay());
    note(notes, FEATURE_LOOPBACK, network_loopback_up());
    note(notes, FEATURE_NO_NESTING, try_no_nesting());
}

static void probe_box(struct notes *notes)
{
    int r = become_namespace_root(notes);

    if (r == 0)
        r = unshare_or_errno(CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWNET);
    if (r == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        r = -errno;
    for (enum feature f = FEATURE_PROC; f <= FEATURE_NO_NESTING; f++)
        note(notes, f, r < 0 ? r : -ECANCELED);
    if (r < 0)
        return;
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* process 1 would not notice an alarm */
        probe_box_init(notes);
        _exit(0);
    }
    while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
}

static void probe_seccomp(struct notes *notes)
{
    static const struct sock_filter allow[] = { BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW) };
    uint32_t action = SECCOMP_RET_KILL_PROCESS;

    int r = rights_no_new_privileges();
    if (r == 0)
        r = rights_filter_calls(allow, 1);
    if (r == 0 && syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) < 0)
        r = -errno;
    note(notes, FEATURE_SECCOMP, r);
}

static void probe_clone(struct notes *notes)
{
    struct process child = { .pidfd = -1 };
    struct process_end end;

    int r = process_clone(0, -1, -1, &child);
    if (r == 0)
        _exit(0);
    note(notes, FEATURE_CLONE3, r < 0 ? r : process_reap(&child, 1, &end) == 1 ? 0 : -ECHILD);
}

/* Facts that are read, not tried. */

static bool is_first_user_namespace(void)
{
    char text[256];
    unsigned long inside, outside, count;

    return fd_read_file(AT_FDCWD, "/proc/self/uid_map", text, sizeof text) > 0 &&
           sscanf(text, "%lu %lu %lu", &inside, &outside, &count) == 3 && inside == 0 && outside == 0 &&
           count == 4294967295UL;
}

static void read_settings(struct features *f)
{
    char text[64], *end;

    for (enum setting s = 0; s < SETTING_COUNT; s++) {
        f->setting[s] = SETTING_ABSENT;
        if (fd_read_file(AT_FDCWD, settings[s].path, text, sizeof text) <= 0)
            continue;
        long value = strtol(text, &end, 10);
        if (end != text)
            f->setting[s] = value;
    }
    if (fd_read_file(AT_FDCWD, "/proc/sys/kernel/core_pattern", f->core_pattern, sizeof f->core_pattern) > 0)
        f->core_pattern[strcspn(f->core_pattern, "\n")] = 0;
}

/* The first line "owner:first:count" for one of two owners. */
static bool read_range(const char *path, const char *name, const char *number, uint64_t *ret_first, uint64_t *ret_count)
{
    char text[16384], *end;

    if (fd_read_file(AT_FDCWD, path, text, sizeof text) <= 0)
        return false;
    for (char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        size_t length = strcspn(line, ":\n");
        if (line[length] != ':' || !((length == strlen(name) && strncmp(line, name, length) == 0) ||
                                     (length == strlen(number) && strncmp(line, number, length) == 0)))
            continue;
        *ret_first = strtoull(line + length + 1, &end, 10);
        *ret_count = *end == ':' ? strtoull(end + 1, NULL, 10) : 0;
        return *ret_count > 0;
    }
    return false;
}

static bool has_mapper(const char *name)
{
    static const char *const folders[] = { "/usr/bin", "/bin", "/usr/local/bin", "/usr/sbin", "/run/wrappers/bin" };
    char path[64];
    struct stat st;

    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        snprintf(path, sizeof path, "%s/%s", folders[i], name);
        /* Without set-uid root or a file capability it can map no more than the user's own id. */
        if (stat(path, &st) == 0 && access(path, X_OK) == 0 &&
            (st.st_mode & S_ISUID || getxattr(path, "security.capability", NULL, 0) > 0))
            return true;
    }
    return false;
}

static void read_ids(struct features *f)
{
    struct passwd *user = getpwuid(f->uid);
    const char *name = f->is_keeper_root ? "carrel" : user ? user->pw_name : "";
    char number[16] = "";

    if (!f->is_keeper_root)
        snprintf(number, sizeof number, "%u", (unsigned)f->uid);
    bool found = read_range("/etc/subuid", name, number, &f->ids.uid_first, &f->ids.uid_count);
    found &= read_range("/etc/subgid", name, number, &f->ids.gid_first, &f->ids.gid_count);
    if (found)
        snprintf(f->ids.owner, sizeof f->ids.owner, "%s", *name ? name : number);
    f->ids.has_mappers = has_mapper("newuidmap") && has_mapper("newgidmap");
}

int features_probe(struct features *ret, struct err *e)
{
    static void (*const probes[])(struct notes *) = {
        probe_user_namespace, probe_namespaces, probe_keeper, probe_box, probe_seccomp, probe_clone,
    };
    struct utsname name;
    struct stat st;

    struct notes *notes = mmap(NULL, sizeof *notes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (notes == MAP_FAILED)
        return err_at(e, errno, STEP_MEMORY, 0, "a page for the probes");
    *ret = (struct features){ .uid = getuid(), .lacks = rights_lacking() };
    ret->is_keeper_root = geteuid() == 0 && !ret->lacks;
    notes->keeper_root = ret->is_keeper_root;
    notes->uid = geteuid();
    notes->gid = getegid();
    for (enum feature f = 0; f < FEATURE_COUNT; f++)
        notes->error[f] = ECANCELED;
    for (size_t i = 0; i < sizeof probes / sizeof *probes; i++)
        in_child(probes[i], notes);
    memcpy(ret->error, notes->error, sizeof ret->error);
    munmap(notes, sizeof *notes);

    if (uname(&name) == 0) {
        snprintf(ret->release, sizeof ret->release, "%s", name.release);
        if (sscanf(name.release, "%u.%u", &ret->major, &ret->minor) != 2)
            ret->major = ret->minor = 0;
    }
    ret->is_first_user_namespace = is_first_user_namespace();
    ret->has_dev_shm = stat("/dev/shm", &st) == 0 && S_ISDIR(st.st_mode);
    ret->landlock_abi = landlock_abi();
    read_settings(ret);
    read_ids(ret);
    return 0;
}
