/* Attacks that fit nowhere else: state handed over at start, terminals, locks, timers, names. */
#define _GNU_SOURCE
#include "probe.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void clean_signals(void)
{
    char text[64];
    static const char *const keys[] = { "SigBlk:", "SigIgn:", "SigCgt:", "SigPnd:", "ShdPnd:" };
    for (size_t i = 0; i < COUNT(keys); i++) {
        read_status(keys[i], text, sizeof(text));
        if (strtoull(text, NULL, 16) != 0)
            broken("%s %s", keys[i], text);
    }
}

static void clean_umask(void)
{
    mode_t old = umask(022);
    if (old != 022 && old != 077 && old != 027)
        broken("umask %o", old);
    errno = 0;
    int priority = getpriority(PRIO_PROCESS, 0);
    if (priority < 0 && errno == 0)
        broken("nice value %d was inherited", priority);
}

static void ptmx(void)
{
    int fd = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        held("%s", errno_name(errno));
    int number = -1, unlock = 0;
    ioctl(fd, 0x80045430 /* TIOCGPTN */, &number);
    ioctl(fd, 0x40045431 /* TIOCSPTLCK */, &unlock);
    if (number != 0)
        broken("the first terminal has number %d: a shared instance", number);
    DIR *dir = opendir("/dev/pts");
    struct dirent *entry;
    int count = 0;
    while (dir && (entry = readdir(dir)))
        count += entry->d_name[0] != '.' && strcmp(entry->d_name, "ptmx") != 0;
    if (count > 1)
        broken("%d terminals in /dev/pts", count);
}

static void steal_terminal(void)
{
    setsid();
    for (int fd = 0; fd <= 2; fd++)
        if (isatty(fd))
            MUST_FAIL(ioctl(fd, 0x540e /* TIOCSCTTY, steal */, 1), EPERM, EACCES, EIO);
    MUST_FAIL(open("/dev/tty", O_RDWR), ENXIO, ENOENT, EACCES, EPERM);
}

static void line_disciplines(void)
{
    int fd = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
    for (int target = 0; target < 4; target++) {
        int on = target < 3 ? target : fd;
        if (on < 0 || !isatty(on))
            continue;
        for (int discipline = 1; discipline < 32; discipline++) {
            char what[40];
            snprintf(what, sizeof(what), "discipline %d", discipline);
            if (discipline == 27 /* N_NULL, harmless */)
                continue;
            MUST_FAIL_AS(what, ioctl(on, 0x5423 /* TIOCSETD */, &discipline), EPERM, EINVAL, EACCES, ENOTTY, EIO);
        }
    }
}

static void watches(void)
{
    /* The limits belong to the box's user namespace: other users of the machine keep theirs. */
    int made = 0;
    while (made < 4096 && inotify_init1(IN_CLOEXEC) >= 0)
        made++;
    note("%d inotify instances, then %s", made, errno_name(errno));
    if (made == 4096)
        broken("no end of inotify instances");
}

static void posix_timers(void)
{
    struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1 };
    timer_t timer;
    int made = 0;
    while (made < 200000 && timer_create(CLOCK_MONOTONIC, &event, &timer) == 0)
        made++;
    note("%d timers, then %s", made, errno_name(errno));
    if (made == 200000)
        broken("no end of timers");
}

static void queued_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN);
    sigprocmask(SIG_BLOCK, &set, NULL);
    int made = 0;
    union sigval value = { .sival_int = 1 };
    while (made < 200000 && sigqueue(getpid(), SIGRTMIN, value) == 0)
        made++;
    note("%d signals, then %s", made, errno_name(errno));
    if (made == 200000)
        broken("no end of queued signals");
}

static void aio_contexts(void)
{
    unsigned long context = 0;
    if (syscall(SYS_io_setup, 1 << 20, &context) == 0)
        broken("a million aio events");
    held("%s", errno_name(errno));
}

static void host_locks(void)
{
    /* A lock on a shared read-only file is visible to all processes that have it: a covert channel, and a way to block
     * programs. */
    int fd = open("/usr/bin/env", O_RDONLY | O_CLOEXEC);
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0)
        note("flock on /usr/bin/env works");
    MUST_FAIL(fcntl(fd, F_SETLEASE, F_WRLCK), EACCES, EPERM, EAGAIN, EINVAL, ENOSYS, EBADF);
    MUST_FAIL(fcntl(fd, F_SETLEASE, F_RDLCK), EACCES, EPERM, EAGAIN, EINVAL, ENOSYS, EBADF);
}

static void epoll_nests(void)
{
    int inner = (int)syscall(SYS_epoll_create1, 0), first = inner;
    char event[12] = { 1 };
    int depth = 0;
    for (; depth < 64; depth++) {
        int outer = (int)syscall(SYS_epoll_create1, 0);
        if (outer < 0 || syscall(SYS_epoll_ctl, outer, 1, inner, event) < 0)
            break;
        inner = outer;
    }
    if (depth == 64)
        broken("64 nested epolls");
    if (syscall(SYS_epoll_ctl, first, 1, inner, event) == 0)
        broken("a cycle of epolls");
}

static void fork_server(void)
{
    /* A half-million system calls that fail must not disturb anything: the filter is stateless. */
    for (int i = 0; i < 100000; i++)
        syscall(SYS_unshare, 0x10000000);
    syscall(1000, 0);
    syscall(-1, 0);
    syscall(0x7fffffffffffffff, 0);
}

static void time_namespace(void)
{
    struct timespec boot;
    clock_gettime(CLOCK_BOOTTIME, &boot);
    MUST_FAIL(write_text("/proc/self/timens_offsets", "boottime 100000 0"), EACCES, EPERM, ENOENT, EROFS, EINVAL);
    MUST_FAIL(syscall(SYS_unshare, 0x80), EPERM, ENOSYS);
}

static void alarm_self(void *data)
{
    (void)data;
    raise(SIGABRT);
}

static void core_dump(void)
{
    if (chdir("/tmp") < 0)
        broken("chdir");
    int status = in_child(alarm_self, NULL);
    if (WCOREDUMP(status))
        broken("a core was dumped");
    DIR *dir = opendir(".");
    struct dirent *entry;
    while (dir && (entry = readdir(dir)))
        if (strncmp(entry->d_name, "core", 4) == 0)
            broken("%s", entry->d_name);
}

static void closed_standard(void *data)
{
    (void)data;
    close(0), close(1), close(2);
    int fd = open("/tmp/zero", O_CREAT | O_RDWR, 0600);
    _exit(fd == 0 ? 0 : 1);
}

static void no_standard(void)
{
    if (in_child(closed_standard, NULL) != 0)
        broken("descriptor 0 was not free");
}

static void hostile_names(void)
{
    static const char *const names[] = { "\n", "-rf",  "a\033[2Jb", "\xff\xfe", "..a",  "...",
                                         " ",  "%s%n", "$(reboot)", "'\"`",     "a\tb", "\xe2\x80\xae" };
    if (mkdir("/tmp/names", 0700) < 0 && errno != EEXIST)
        broken("mkdir");
    int dir = open("/tmp/names", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (size_t i = 0; i < COUNT(names); i++)
        if (openat(dir, names[i], O_CREAT | O_WRONLY, 0600) < 0)
            broken("name %zu: %s", i, errno_name(errno));
    char long_name[256];
    memset(long_name, 0xC3, 255);
    long_name[255] = 0;
    if (mkdirat(dir, long_name, 0700) < 0)
        broken("255 bytes: %s", errno_name(errno));
}

static void comm_games(void)
{
    if (syscall(SYS_prctl, 15 /* PR_SET_NAME */, "carrel\n\033[2J") < 0)
        note("PR_SET_NAME: %s", errno_name(errno));
}

static const struct attack attacks[] = {
    { "the_command_starts_with_clean_signals", clean_signals },
    { "the_command_starts_with_a_sane_umask_and_priority", clean_umask },
    { "terminals_of_the_host_are_not_in_dev_pts", ptmx },
    { "the_callers_terminal_cannot_be_stolen", steal_terminal },
    { "line_disciplines_cannot_be_loaded", line_disciplines },
    { "inotify_instances_are_bounded", watches },
    { "posix_timers_are_bounded", posix_timers },
    { "queued_signals_are_bounded", queued_signals },
    { "aio_contexts_are_bounded", aio_contexts },
    { "leases_on_shared_files_are_refused", host_locks },
    { "epoll_nests_are_bounded", epoll_nests },
    { "refused_calls_in_a_row_change_nothing", fork_server },
    { "time_namespaces_are_refused", time_namespace },
    { "no_core_is_dumped", core_dump },
    { "standard_descriptors_may_be_closed", no_standard },
    { "hostile_file_names_are_only_names", hostile_names },
    { "a_hostile_process_name_is_only_a_name", comm_games },
};
const struct topic topic_misc = { "misc", attacks, COUNT(attacks) };
