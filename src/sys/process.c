/* A payload's parent is the keeper, but its pid namespace is the box's. A keeper with rights over its own pid namespace
 * steps into the box's for one clone and back (setns only changes where children are born). An ordinary user may step
 * in but not back, so there a short-lived child that shares our memory steps in and gives birth with CLONE_PARENT. */
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
        /* As long as it has our rights, because only they raise the least that it may write later, too. */
        if (spared && !(flags & CLONE_NEWUSER))
            (void)!fd_write_file(AT_FDCWD, "/proc/self/oom_score_adj", "0");
        return 0;
    }
    *ret = (struct process){ .pid = (pid_t)pid, .pidfd = pidfd };
    return 1;
}

/* The midwife shares our memory, so what it writes here we can read when it has ended. The child that is born has a
 * copy of everything and goes on from here as if it were ours by the plain way. Its pid is that of the keeper's own pid
 * namespace, where the midwife still is. */
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
    /* It is our child and not reaped, so the number cannot have become another's. */
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
    /* Stepping to where we are already changes nothing and tells whether we may step back. */
    if (setns(own, CLONE_NEWPID) < 0)
        return errno == EPERM ? clone_by_midwife(flags, cgroup, pid_namespace, ret) : -errno;
    if (setns(pid_namespace, CLONE_NEWPID) < 0)
        return -errno;
    int r = clone_plain(flags, cgroup, ret);
    if (r != 0 && setns(own, CLONE_NEWPID) < 0)
        _exit(125);     /* every later child would be born in the wrong place */
    return r;
}

/* The effective id decides whose the namespace is. The file system id stays, so that the child can still work on our
 * files, and so do the capabilities: if we are killed just then, the death signals of all our children are sent with
 * our rights of that moment. Changing ids also disarms our own death signal and makes us undumpable; the first is put
 * right again, the second is welcome. The child's new user namespace resets the bits. */
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
            _exit(125);     /* every later step would be taken as somebody else */
        if (death_signal && getppid() != parent)
            raise(death_signal);        /* it came while it was disarmed */
    }
    if (prctl(PR_SET_SECUREBITS, bits, 0, 0, 0) < 0)
        _exit(125);
    return r;
}

int process_clone_for(uid_t owner, uint64_t flags, struct process *ret, struct err *e)
{
    char path[48];
    int r = clone_for(owner, flags, ret, e);

    /* In its new user namespace it has not the rights for that itself. */
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
    /* Whoever writes it first decides, and anybody inside may: so it is us. Where we have no such ids ourselves (EPERM)
     * nobody has. */
    if (r == 0 && (r = fd_write_file(dir, "projid_map", uid_map)) == -EPERM)
        r = 0;
    return r;
}
