/* Attacks on processes outside the box and on the box's init: signals, tracing, namespaces, scheduling, limits. */
#include "probe.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define NS_FLAGS_COUNT 8
static const struct {
    const char *name;
    long flag;
} ns_flags[NS_FLAGS_COUNT] = {
    { "user", 0x10000000 }, { "mnt", 0x00020000 }, { "pid", 0x20000000 },    { "net", 0x40000000 },
    { "ipc", 0x08000000 },  { "uts", 0x04000000 }, { "cgroup", 0x02000000 }, { "time", 0x80 },
};

static pid_t host_pid(void)
{
    const char *text = arg_get("host_pid");
    if (!text)
        skipped("no host_pid given");
    return (pid_t)strtol(text, NULL, 10);
}

static void init_lives(void)
{
    char text[64];
    if (kill(1, 0) < 0 && errno == ESRCH)
        broken("init is gone");
    if (read_text("/proc/1/stat", text, sizeof(text)) < 0)
        note("/proc/1 is hidden");
}

static void signals_to_init(void)
{
    for (int signal = 1; signal <= 64; signal++)
        if (kill(1, signal) < 0 && errno != EPERM && errno != EINVAL && errno != ESRCH)
            broken("kill(1, %d): %s", signal, errno_name(errno));
    union sigval value = { .sival_int = 7 };
    if (sigqueue(1, SIGKILL, value) < 0)
        note("sigqueue: %s", errno_name(errno));
    syscall(SYS_tgkill, 1, 1, SIGKILL);
    syscall(SYS_tkill, 1, SIGSTOP);
    init_lives();
}

static void signal_to_host_pid(void)
{
    MUST_FAIL(kill(host_pid(), SIGKILL), ESRCH);
    MUST_FAIL(syscall(SYS_tkill, host_pid(), SIGKILL), ESRCH);
    MUST_FAIL(syscall(SYS_tgkill, host_pid(), host_pid(), SIGKILL), ESRCH);
    MUST_FAIL(kill(-host_pid(), SIGKILL), ESRCH);
    MUST_FAIL(syscall(SYS_pidfd_open, host_pid(), 0), ESRCH, EINVAL, EPERM, ENOSYS);
    MUST_FAIL(syscall(SYS_rt_sigqueueinfo, host_pid(), SIGKILL, (char[128]){ 0 }), ESRCH, EPERM);
}

/* kill(0) goes to the process group whatever its namespace: the group must not be the caller's. */
static void own_group_and_session(void)
{
    if (getsid(0) == 0)
        broken("the session leader is outside the box");
    pid_t parent = getppid();
    if (parent == 0)
        broken("the probe's parent should be in the box");
    if (getpgid(parent) == 0)
        broken("the process group of the command is outside the box");
}

static void sigio_to_host(void)
{
    int pipes[2];
    if (pipe(pipes) < 0)
        broken("pipe");
    MUST_FAIL(fcntl(pipes[0], F_SETOWN, host_pid()), ESRCH, EPERM, EINVAL);
    MUST_FAIL(fcntl(pipes[0], F_SETOWN, -host_pid()), ESRCH, EPERM, EINVAL);
    struct {
        int type;
        pid_t pid;
    } owner = { 1, host_pid() };
    MUST_FAIL(fcntl(pipes[0], 15 /* F_SETOWN_EX */, &owner), ESRCH, EPERM, EINVAL);
}

static void ptrace_init(void)
{
    MUST_FAIL(ptrace(PTRACE_ATTACH, 1, 0, 0), EPERM, ENOSYS, ESRCH);
    MUST_FAIL(ptrace(PTRACE_SEIZE, 1, 0, 0), EPERM, ENOSYS, ESRCH);
}

static void ptrace_host(void)
{
    MUST_FAIL(ptrace(PTRACE_SEIZE, host_pid(), 0, 0), EPERM, ENOSYS, ESRCH);
}

static void memory_of_init(void)
{
    char buffer[16];
    struct iovec local = { buffer, sizeof(buffer) }, remote = { (void *)0x400000, sizeof(buffer) };
    MUST_FAIL(syscall(SYS_process_vm_readv, 1, &local, 1, &remote, 1, 0), EPERM, ENOSYS, ESRCH);
    MUST_FAIL(syscall(SYS_process_vm_writev, 1, &local, 1, &remote, 1, 0), EPERM, ENOSYS, ESRCH);
    MUST_FAIL(syscall(SYS_kcmp, 1, getpid(), 0, 0, 0), EPERM, ENOSYS, ESRCH);
    MUST_FAIL(open("/proc/1/mem", O_RDWR), EACCES, EPERM, ENOENT);
    MUST_FAIL(open("/proc/1/mem", O_RDONLY), EACCES, EPERM, ENOENT);
}

static void descriptors_of_init(void)
{
    int pidfd = (int)syscall(SYS_pidfd_open, 1, 0);
    if (pidfd < 0) {
        note("pidfd_open(1): %s", errno_name(errno));
    } else {
        for (int fd = 0; fd < 16; fd++)
            MUST_FAIL(syscall(SYS_pidfd_getfd, pidfd, fd, 0), EPERM, ENOSYS, EBADF);
        MUST_FAIL(syscall(SYS_setns, pidfd, 0x00020000), EPERM, ENOSYS);
        MUST_FAIL(syscall(SYS_setns, pidfd, 0x10000000 | 0x00020000), EPERM, ENOSYS, EINVAL);
        MUST_FAIL(syscall(440 /* process_madvise */, pidfd, NULL, 0, 21, 0), EPERM, ENOSYS, EINVAL, ESRCH, EACCES,
                  EFAULT);
        MUST_FAIL(syscall(448 /* process_mrelease */, pidfd, 0), EPERM, ENOSYS, EINVAL, ESRCH);
        /* PIDFD_GET_*_NAMESPACE ioctls hand out namespace fds without /proc. */
        for (unsigned request = 1; request <= 10; request++)
            MUST_FAIL(syscall(SYS_ioctl, pidfd, 0xFF00u | request, 0), EPERM, EACCES, ENOSYS, EINVAL, ENOTTY, ESRCH,
                      EOPNOTSUPP);
        /* A signal by pidfd has the same limits as kill. */
        if (syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, NULL, 0) < 0)
            note("pidfd_send_signal: %s", errno_name(errno));
    }
    MUST_FAIL(opendir("/proc/1/fd") ? 0 : -1, EACCES, EPERM, ENOENT);
    MUST_FAIL(open("/proc/1/fd/0", O_RDONLY), EACCES, EPERM, ENOENT);
    init_lives();
}

static void setns_init(void)
{
    char path[64];
    for (size_t i = 0; i < NS_FLAGS_COUNT; i++) {
        snprintf(path, sizeof(path), "/proc/1/ns/%s", ns_flags[i].name);
        int fd = open(path, O_RDONLY);
        if (fd < 0)
            continue;
        MUST_FAIL_AS(path, syscall(SYS_setns, fd, 0), EPERM, ENOSYS, EINVAL);
        close(fd);
    }
}

static void setns_self(void)
{
    char path[64];
    for (size_t i = 0; i < NS_FLAGS_COUNT; i++) {
        snprintf(path, sizeof(path), "/proc/self/ns/%s", ns_flags[i].name);
        int fd = open(path, O_RDONLY);
        if (fd < 0)
            continue;
        MUST_FAIL_AS(path, syscall(SYS_setns, fd, 0), EPERM, ENOSYS, EINVAL);
        /* NS_GET_USERNS, NS_GET_PARENT, NS_GET_OWNER_UID, NS_GET_*_FROM_PIDNS: the parent namespace must stay out of
         * reach. */
        MUST_FAIL_AS("NS_GET_PARENT", ioctl(fd, 0xB702, 0), EPERM, EINVAL, ENOTTY, ENOSYS, EACCES);
        close(fd);
    }
}

static void unshare_each(void)
{
    for (size_t i = 0; i < NS_FLAGS_COUNT; i++)
        MUST_FAIL_AS(ns_flags[i].name, syscall(SYS_unshare, ns_flags[i].flag), EPERM, ENOSYS);
    MUST_FAIL(syscall(SYS_unshare, 0x7E020080), EPERM, ENOSYS);
}

/* The child, if there is one, ends at once. */
static long clone_and_exit(unsigned long flags)
{
    long pid = syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0);
    if (pid == 0)
        _exit(0);
    return pid;
}

static long clone3_and_exit(const uint64_t *args)
{
    long pid = syscall(SYS_clone3, args, 88);
    if (pid == 0)
        _exit(0);
    return pid;
}

static void clone_each(void)
{
    for (size_t i = 0; i < NS_FLAGS_COUNT; i++)
        if (ns_flags[i].flag != 0x80) /* CLONE_NEWTIME is a part of the exit signal for clone(2) */
            MUST_FAIL_AS(ns_flags[i].name, clone_and_exit((unsigned long)ns_flags[i].flag), EPERM, ENOSYS);
    MUST_FAIL(clone_and_exit(0xFFFFFFFF00000000 | 0x10000000), EPERM, ENOSYS, EINVAL);
}

static void clone3_each(void)
{
    for (size_t i = 0; i < NS_FLAGS_COUNT; i++) {
        uint64_t args[11] = { (uint64_t)ns_flags[i].flag, 0, 0, 0, SIGCHLD };
        MUST_FAIL_AS(ns_flags[i].name, clone3_and_exit(args), EPERM, ENOSYS);
    }
    uint64_t set_tid[1] = { 1 }, args[11] = { 0, 0, 0, 0, SIGCHLD, 0, 0, 0, (uint64_t)(uintptr_t)set_tid, 1, 0 };
    MUST_FAIL(clone3_and_exit(args), EPERM, ENOSYS, EEXIST);
}

static void nested_sysctl(void)
{
    char text[32];
    if (read_text("/proc/sys/user/max_user_namespaces", text, sizeof(text)) > 0 && strtol(text, NULL, 10) != 0)
        broken("max_user_namespaces is %s", text);
    MUST_FAIL(write_text("/proc/sys/user/max_user_namespaces", "1000"), EACCES, EPERM, ENOENT, EROFS);
}

/* Init is root of the box. It is this user's equal if that is root as well, or if the caller owns a single id. Then to
 * slow it down harms only the box itself. */
static bool init_is_another_user(void)
{
    return getuid() != 0 && !arg_get("single");
}

static void scheduling(void)
{
    struct sched_param real = { .sched_priority = 1 };
    MUST_FAIL(syscall(SYS_sched_setscheduler, 0, 1 /* FIFO */, &real), EPERM, ENOSYS, EINVAL);
    MUST_FAIL(syscall(SYS_sched_setscheduler, 0, 2 /* RR */, &real), EPERM, ENOSYS, EINVAL);
    uint64_t deadline[6] = { 48 | (uint64_t)6 << 32, 0, 0, 10000000, 20000000, 20000000 };
    MUST_FAIL(syscall(SYS_sched_setattr, 0, deadline, 0), EPERM, ENOSYS, EINVAL);
    MUST_FAIL(setpriority(PRIO_PROCESS, 0, -20), EPERM, EACCES);
    MUST_FAIL(syscall(SYS_ioprio_set, 1, 0, 1 << 13 | 0), EPERM, ENOSYS, EINVAL);
    if (init_is_another_user()) {
        MUST_FAIL(setpriority(PRIO_PROCESS, 1, 19), EPERM, EACCES);
        MUST_FAIL(syscall(SYS_ioprio_set, 1, 1, 3 << 13), EPERM, ENOSYS);
        struct sched_param idle = { 0 };
        MUST_FAIL(syscall(SYS_sched_setscheduler, 1, 5 /* IDLE */, &idle), EPERM, ENOSYS);
    }
    MUST_FAIL(setpriority(PRIO_PROCESS, (id_t)host_pid(), 19), ESRCH, EPERM);
    MUST_FAIL(syscall(SYS_ioprio_set, 1, host_pid(), 3 << 13), ESRCH, EPERM, ENOSYS);
    MUST_FAIL(write_text("/proc/self/autogroup", "-20"), EPERM, EACCES, ENOENT, EROFS, EINVAL, EAGAIN);
}

/* setpriority by user would reach the processes of the same uid in other boxes, if the uid were shared. */
static void priority_by_user(void)
{
    if (setpriority(PRIO_USER, 0, 5) < 0 && errno != EPERM && errno != ESRCH && errno != EACCES)
        broken("setpriority by user: %s", errno_name(errno));
    MUST_FAIL(setpriority(PRIO_PGRP, (id_t)host_pid(), 19), ESRCH, EPERM, EACCES);
}

static void affinity(void)
{
    unsigned char before[128] = { 0 }, after[128] = { 0 }, all[128];
    memset(all, 0xff, sizeof(all));
    long length = syscall(SYS_sched_getaffinity, 0, sizeof(before), before);
    if (syscall(SYS_sched_setaffinity, 0, sizeof(all), all) < 0)
        held("%s", errno_name(errno));
    syscall(SYS_sched_getaffinity, 0, sizeof(after), after);
    for (long i = 0; i < length; i++)
        if (after[i] & ~before[i])
            broken("more processors than before");
    MUST_FAIL(syscall(SYS_sched_setaffinity, host_pid(), sizeof(all), all), ESRCH, EPERM);
    if (init_is_another_user())
        MUST_FAIL(syscall(SYS_sched_setaffinity, 1, sizeof(all), all), EPERM);
}

static void raise_limits(void)
{
    for (int resource = 0; resource < 16; resource++) {
        struct rlimit before, want = { RLIM_INFINITY, RLIM_INFINITY }, after;
        if (getrlimit(resource, &before) < 0)
            continue;
        setrlimit(resource, &want);
        getrlimit(resource, &after);
        if (after.rlim_max > before.rlim_max)
            broken("hard limit %d rose", resource);
    }
    struct rlimit nothing = { 0, 0 };
    if (init_is_another_user()) {
        MUST_FAIL(syscall(SYS_prlimit64, 1, RLIMIT_NOFILE, &nothing, NULL), EPERM);
        MUST_FAIL(syscall(SYS_prlimit64, 1, RLIMIT_CPU, &nothing, NULL), EPERM);
    }
    MUST_FAIL(syscall(SYS_prlimit64, host_pid(), RLIMIT_CPU, &nothing, NULL), EPERM, ESRCH, ENOSYS);
}

static void limits_are_low(void)
{
    static const struct {
        int resource;
        const char *name;
        rlim_t most;
    } limits[] = {
        { RLIMIT_CORE, "core", 0 },
        { RLIMIT_RTPRIO, "rtprio", 0 },
        { RLIMIT_NICE, "nice", 20 },
        { RLIMIT_NOFILE, "nofile", 1 << 20 },
        { RLIMIT_MEMLOCK, "memlock", 64 << 20 },
        { RLIMIT_MSGQUEUE, "msgqueue", 1 << 20 },
        { RLIMIT_SIGPENDING, "sigpending", 1 << 17 },
    };
    for (size_t i = 0; i < COUNT(limits); i++) {
        struct rlimit limit;
        getrlimit(limits[i].resource, &limit);
        if (limit.rlim_max > limits[i].most)
            broken("%s may be %llu", limits[i].name, (unsigned long long)limit.rlim_max);
    }
}

static void oom_score(void)
{
    MUST_FAIL(write_text("/proc/self/oom_score_adj", "-1000"), EACCES, EPERM, ENOENT, EROFS);
    MUST_FAIL(write_text("/proc/self/oom_adj", "-17"), EACCES, EPERM, ENOENT, EROFS);
    MUST_FAIL(write_text("/proc/1/oom_score_adj", "1000"), EACCES, EPERM, ENOENT, EROFS);
    char text[16];
    read_text("/proc/self/oom_score_adj", text, sizeof(text));
    if (strtol(text, NULL, 10) < 0)
        broken("oom_score_adj is %s", text);
}

static void robust_list(void)
{
    void *head = NULL;
    size_t length = 0;
    MUST_FAIL(syscall(SYS_get_robust_list, 1, &head, &length), EPERM, EACCES, ESRCH, ENOSYS);
    MUST_FAIL(syscall(SYS_get_robust_list, host_pid(), &head, &length), EPERM, EACCES, ESRCH, ENOSYS);
}

static void die_with_bad_robust_list(void *data)
{
    (void)data;
    syscall(SYS_set_robust_list, (void *)0xdead0000, 24);
    syscall(SYS_set_tid_address, (void *)-8L);
    syscall(SYS_rseq, (void *)0xffffffffffff0000, 32, 0, 0x53053053);
    _exit(3);
}

static void bad_robust_list(void)
{
    int status = in_child(die_with_bad_robust_list, NULL);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 3)
        note("status %x", status);
}

static void parent_hidden(void *data)
{
    (void)data;
    /* The command's own parent is the keeper, outside: pid 0, which no call can name. */
    char text[64];
    read_status("PPid:", text, sizeof(text));
    note("%s", text);
}

static void ancestors(void)
{
    parent_hidden(NULL);
    char path[64], text[4096];
    pid_t pid = getppid();
    for (int depth = 0; pid > 1 && depth < 8; depth++) {
        snprintf(path, sizeof(path), "/proc/%d/status", pid);
        if (read_text(path, text, sizeof(text)) < 0)
            break;
        char *line = strstr(text, "PPid:");
        pid = line ? (pid_t)strtol(line + 5, NULL, 10) : 0;
    }
    if (pid > 1)
        broken("an ancestor has pid %d", pid);
    char sid[32];
    snprintf(sid, sizeof(sid), "%d", getsid(0));
    note("session %s", sid);
}

static void two_hop_reparent(void)
{
    /* An orphan's new parent is the box's init, not a process outside. */
    int pipes[2];
    if (pipe(pipes) < 0)
        broken("pipe");
    pid_t middle = fork();
    if (middle == 0) {
        middle = getpid();
        if (fork() == 0) {
            while (getppid() == middle)
                sched_yield();
            pid_t parent = getppid();
            ssize_t ignored = write(pipes[1], &parent, sizeof(parent));
            (void)ignored;
        }
        _exit(0);
    }
    waitpid(middle, NULL, 0);
    pid_t parent = -1;
    if (read(pipes[0], &parent, sizeof(parent)) != sizeof(parent) || parent != 1)
        broken("the orphan's parent is %d", parent);
}

static const struct attack attacks[] = {
    { "no_signal_from_inside_ends_or_stops_init", signals_to_init },
    { "a_host_process_cannot_be_named_by_its_pid", signal_to_host_pid },
    { "the_command_has_its_own_session_and_process_group", own_group_and_session },
    { "sigio_cannot_be_aimed_at_a_host_process", sigio_to_host },
    { "ptrace_of_init_is_refused", ptrace_init },
    { "ptrace_of_a_host_process_is_refused", ptrace_host },
    { "memory_of_init_is_out_of_reach", memory_of_init },
    { "descriptors_and_pidfd_of_init_give_nothing", descriptors_of_init },
    { "setns_into_the_namespaces_of_init_is_refused", setns_init },
    { "own_namespaces_do_not_lead_to_their_parents", setns_self },
    { "unshare_of_every_namespace_is_refused", unshare_each },
    { "clone_with_every_namespace_flag_is_refused", clone_each },
    { "clone3_with_every_namespace_flag_is_refused", clone3_each },
    { "nested_user_namespaces_are_forbidden_by_sysctl_and_cannot_be_allowed", nested_sysctl },
    { "priorities_and_real_time_classes_are_refused", scheduling },
    { "priority_by_user_or_group_reaches_no_host_process", priority_by_user },
    { "affinity_cannot_leave_the_processors_given", affinity },
    { "hard_limits_cannot_be_raised_nor_other_processes_limited", raise_limits },
    { "hard_limits_are_finite_where_the_kernel_pays", limits_are_low },
    { "oom_score_cannot_be_lowered", oom_score },
    { "robust_futex_lists_of_others_are_hidden", robust_list },
    { "a_wild_robust_list_at_exit_hurts_only_its_owner", bad_robust_list },
    { "the_chain_of_parents_ends_in_the_box", ancestors },
    { "orphans_become_children_of_the_boxs_init", two_hop_reparent },
};
const struct topic topic_process = { "process", attacks, COUNT(attacks) };
