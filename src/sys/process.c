/* A payload's parent is the keeper, but its pid namespace is the box's. A keeper with rights over its own pid namespace
 * enters the box's for one clone and returns (setns only changes where children are born). An ordinary user's keeper
 * could enter but not return, so a short-lived child that shares our memory (the midwife) enters and clones with
 * CLONE_PARENT. */
#define _GNU_SOURCE
#include "sys/process.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <linux/securebits.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"

static bool spared;      /* this process has a negative oom_score_adj */

void process_spare_only_self(void)
{
    char text[16];

    spared = fd_read_file(AT_FDCWD, "/proc/self/oom_score_adj", text, sizeof text) > 0 && text[0] == '-';
}

static int clone_plain(uint64_t flags, int cgroup, struct process *ret)
{
    int pidfd = -1;
    struct clone_args args = {
        .flags = flags | CLONE_PIDFD | CLONE_CLEAR_SIGHAND | (cgroup >= 0 ? CLONE_INTO_CGROUP : 0),
        .pidfd = (uint64_t)(uintptr_t)&pidfd,
        .exit_signal = flags & CLONE_PARENT ? 0 : SIGCHLD,
        .cgroup = cgroup >= 0 ? (uint64_t)cgroup : 0,
    };
    long pid = syscall(SYS_clone3, &args, sizeof args);
    if (pid < 0)
        return -errno;
    if (pid == 0) {
        /* While it still has our rights: only they can also raise the minimum that it may write later. */
        if (spared && !(flags & CLONE_NEWUSER))
            (void)!fd_write_file(AT_FDCWD, "/proc/self/oom_score_adj", "0");
        return 0;
    }
    *ret = (struct process){ .pid = (pid_t)pid, .pidfd = pidfd };
    return 1;
}

/* The midwife shares our memory, so we can read its results when it has exited. Its child has a copy of everything and
 * continues as if we had cloned it directly. The pid is one of the keeper's own pid namespace, which the midwife is
 * still in. */
static int clone_by_midwife(uint64_t flags, int cgroup, int pid_namespace, struct process *ret)
{
    static volatile int  result;
    static volatile long child;

    result = -EIO;
    pid_t midwife = vfork();
    if (midwife < 0)
        return -errno;
    if (midwife == 0) {
        struct process born = { .pidfd = -1 };
        int r = setns(pid_namespace, CLONE_NEWPID) < 0 ? -errno : clone_plain(flags | CLONE_PARENT, cgroup, &born);
        if (r == 0)
            return 0;
        result = r;
        child = born.pid;
        _exit(0);
    }
    while (waitpid(midwife, NULL, 0) < 0 && errno == EINTR)
        ;
    if (result < 0)
        return result;
    /* It is our unreaped child, so its pid cannot have been reused. */
    int pidfd = (int)syscall(SYS_pidfd_open, (pid_t)child, 0);
    if (pidfd < 0) {
        int code = errno;
        kill((pid_t)child, SIGKILL);
        while (waitpid((pid_t)child, NULL, __WALL) < 0 && errno == EINTR)
            ;
        return -code;
    }
    *ret = (struct process){ .pid = (pid_t)child, .pidfd = pidfd };
    return 1;
}

int process_clone(uint64_t flags, int cgroup, int pid_namespace, struct process *ret)
{
    if (pid_namespace < 0)
        return clone_plain(flags, cgroup, ret);

    FD own = open("/proc/self/ns/pid", O_RDONLY | O_CLOEXEC);
    if (own < 0)
        return -errno;
    /* Entering our own namespace changes nothing and shows whether we may return. */
    if (setns(own, CLONE_NEWPID) < 0)
        return errno == EPERM ? clone_by_midwife(flags, cgroup, pid_namespace, ret) : -errno;
    if (setns(pid_namespace, CLONE_NEWPID) < 0)
        return -errno;
    int r = clone_plain(flags, cgroup, ret);
    if (r != 0 && setns(own, CLONE_NEWPID) < 0)
        _exit(125);     /* later children would be born in the wrong namespace */
    return r;
}

/* The effective id decides who owns the new namespace. The file system id stays, so that the child can still work on
 * our files, and so do the capabilities: if we are killed just then, the kernel sends the death signals of all our
 * children with our rights of that moment. A change of ids also disarms our own death signal, which is armed again
 * below, and makes us undumpable, which is welcome. The child's new user namespace resets the bits. */
static int clone_for(uid_t owner, uint64_t flags, struct process *ret, struct err *e)
{
    int r, death_signal = 0;
    pid_t parent = getppid();

    if (owner == 0) {
        r = clone_plain(flags, -1, ret);
        return r < 0 ? err_at(e, -r, STEP_CLONE, 0, "namespaces") : r;
    }
    int bits = prctl(PR_GET_SECUREBITS, 0, 0, 0, 0);
    if (bits < 0 || prctl(PR_GET_PDEATHSIG, &death_signal) < 0)
        return err_at(e, errno, STEP_CLONE, 0, "own rights");
    if (prctl(PR_SET_SECUREBITS, bits | SECBIT_NO_SETUID_FIXUP, 0, 0, 0) < 0)
        return err_at(e, errno, STEP_CLONE, 0, "keeping the capabilities under another id (CAP_SETPCAP)");
    if (syscall(SYS_setresuid, -1, owner, -1) < 0) {
        r = err_at(e, errno, STEP_CLONE, 0, "the id that is to own the namespaces (CAP_SETUID)");
    } else {
        (void)syscall(SYS_setfsuid, 0);
        r = clone_plain(flags, -1, ret);
        if (r == 0)
            return 0;
        if (r < 0)
            (void)err_at(e, -r, STEP_CLONE, 0, "namespaces");
        if (syscall(SYS_setresuid, -1, 0, -1) < 0 || prctl(PR_SET_PDEATHSIG, death_signal) < 0)
            _exit(125);     /* later steps would run with the wrong id */
        if (death_signal && getppid() != parent)
            raise(death_signal);        /* it was sent while disarmed */
    }
    if (prctl(PR_SET_SECUREBITS, bits, 0, 0, 0) < 0)
        _exit(125);
    return r;
}

int process_clone_for(uid_t owner, uint64_t flags, struct process *ret, struct err *e)
{
    char path[48];
    int r = clone_for(owner, flags, ret, e);

    /* Inside its new user namespace the child lacks the right to do this itself. */
    if (r > 0 && spared) {
        snprintf(path, sizeof path, "/proc/%d/oom_score_adj", (int)ret->pid);
        (void)!fd_write_file(AT_FDCWD, path, "0");
    }
    return r;
}

int process_reap(struct process *process, int block, struct process_end *ret)
{
    struct rusage usage;
    siginfo_t info = { 0 };

    for (;;) {
        /* The raw call, because only it gives the rusage together with a pidfd. */
        long r = syscall(SYS_waitid, P_PIDFD, process->pidfd, &info, WEXITED | __WALL | (block ? 0 : WNOHANG), &usage);
        if (r == 0)
            break;
        if (errno != EINTR)
            return -errno;
    }
    if (info.si_pid == 0)
        return 0;

    *ret = (struct process_end){
        .code = info.si_code == CLD_EXITED ? info.si_status : -1,
        .signal = info.si_code == CLD_EXITED ? 0 : info.si_status,
        .cpu_us = (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000u
                + (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec),
        .peak_bytes = (uint64_t)usage.ru_maxrss * 1024u,
    };
    process->pidfd = fd_close(process->pidfd);
    process->pid = 0;
    return 1;
}

int process_signal(const struct process *process, int signal)
{
    if (process->pidfd < 0)
        return -ESRCH;
    return syscall(SYS_pidfd_send_signal, process->pidfd, signal, NULL, 0) < 0 ? -errno : 0;
}

int process_signal_group(const struct process *process, int signal)
{
    if (process->pid <= 0)
        return -ESRCH;
    return kill(-process->pid, signal) < 0 ? -errno : 0;
}

int process_map_ids(pid_t pid, const char *uid_map, const char *gid_map, int deny_setgroups)
{
    char path[48];

    snprintf(path, sizeof path, "/proc/%d", (int)pid);
    FD dir = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return -errno;
    int r = deny_setgroups ? fd_write_file(dir, "setgroups", "deny") : 0;
    if (r == 0)
        r = fd_write_file(dir, "gid_map", gid_map);
    if (r == 0)
        r = fd_write_file(dir, "uid_map", uid_map);
    /* The first writer decides, and any process inside may write: so we do. If we have no such ids ourselves (EPERM),
     * no process in there has them either. */
    if (r == 0 && (r = fd_write_file(dir, "projid_map", uid_map)) == -EPERM)
        r = 0;
    return r;
}
