/* Single scenes for tests that look from outside: who am I, kill everybody, forge a status, leave something behind, try
 * every system call. */
#define _GNU_SOURCE
#include "probe.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <mqueue.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int nothing(int argc, char **argv)
{
    (void)argc, (void)argv;
    return 0;
}

static int whoami(int argc, char **argv)
{
    (void)argc, (void)argv;
    char caps[64], nnp[16], seccomp[16];
    read_status("CapEff:", caps, sizeof(caps));
    read_status("NoNewPrivs:", nnp, sizeof(nnp));
    read_status("Seccomp:", seccomp, sizeof(seccomp));
    int fds = 0;
    for (int fd = 0; fd < 1024; fd++)
        fds += fcntl(fd, F_GETFD) >= 0;
    say("uid %d %d gid %d %d caps %llx nnp %s seccomp %s fds %d", getuid(), geteuid(), getgid(), getegid(),
        strtoull(caps, NULL, 16), nnp, seccomp, fds);
    return 0;
}

static int leave(int argc, char **argv)
{
    return argc > 0 ? (int)strtol(argv[0], NULL, 10) : 0;
}

static int die_by(int argc, char **argv)
{
    int number = argc > 0 ? (int)strtol(argv[0], NULL, 10) : SIGKILL;
    kill(getpid(), number);
    raise(number);
    for (;;)
        pause();
    return 0;
}

/* Children that would live for ever, then kill(-1). The command itself is spared by the kernel. */
static int kill_all(int argc, char **argv)
{
    (void)argc, (void)argv;
    pid_t pid = fork();
    if (pid == 0)
        for (;;)
            pause();
    int r = kill(-1, SIGKILL), error = errno, status = 0;
    waitpid(pid, &status, 0);
    say("{\"kill\":%d,\"errno\":\"%s\",\"child\":%d}", r, errno_name(r < 0 ? error : 0), WTERMSIG(status));
    return 0;
}

static int kill_group(int argc, char **argv)
{
    (void)argc, (void)argv;
    say("{\"event\":\"killing the group\"}");
    kill(0, SIGKILL);
    return 9;
}

static int kill_group_gently(int argc, char **argv)
{
    (void)argc, (void)argv;
    static const int numbers[] = { SIGHUP,  SIGINT,  SIGQUIT, SIGTERM,  SIGTSTP,
                                   SIGUSR1, SIGUSR2, SIGALRM, SIGWINCH, SIGCONT };
    for (size_t i = 0; i < COUNT(numbers); i++) {
        signal(numbers[i], SIG_IGN);
        kill(0, numbers[i]);
        kill(-getpgrp(), numbers[i]);
    }
    say("{\"event\":\"lived\"}");
    return 0;
}

/* Claims success in every way there is, then ends with 7. */
static int forge(int argc, char **argv)
{
    (void)argc, (void)argv;
    static const char lie[] = "{\"outcome\":\"ok\",\"exit_code\":0,\"status\":0}\n";
    int written = 0;
    for (int fd = 3; fd < 1024; fd++)
        written += write(fd, lie, sizeof(lie) - 1) > 0;
    ssize_t ignored = write(1, lie, sizeof(lie) - 1);
    ignored = write(2, lie, sizeof(lie) - 1);
    (void)ignored;
    say("{\"written\":%d}", written);
    return 7;
}

static int echo_arguments(int argc, char **argv)
{
    for (int i = 0; i < argc; i++) {
        char hex[4000];
        size_t n = 0;
        hex[0] = 0;
        for (const unsigned char *p = (const unsigned char *)argv[i]; *p && n + 3 < sizeof(hex); p++)
            n += (size_t)snprintf(hex + n, sizeof(hex) - n, "%02x", *p);
        say("arg %s", hex);
    }
    return 0;
}

static int listen_on(int argc, char **argv)
{
    struct sockaddr_in address = { .sin_family = AF_INET,
                                   .sin_port = htons((uint16_t)strtol(argc > 0 ? argv[0] : "0", NULL, 10)) };
    int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(fd, (void *)&address, sizeof(address)) < 0 || listen(fd, 8) < 0) {
        say("{\"event\":\"%s\"}", errno_name(errno));
        return 9;
    }
    say("{\"event\":\"listening\"}");
    char byte;
    ssize_t ignored = read(0, &byte, 1);
    (void)ignored;
    struct pollfd ready = { .fd = fd, .events = POLLIN };
    say("{\"connections\":%d}", poll(&ready, 1, 0));
    return 0;
}

static int wait_for_end(int argc, char **argv)
{
    (void)argc, (void)argv;
    say("{\"event\":\"waiting\"}");
    for (;;)
        pause();
    return 0;
}

static const char *const places[] = { "/tmp/left",     "/dev/shm/left", "/home/box/left",
                                      "/var/tmp/left", "/run/left",     "/dev/mqueue/left" };

static int leave_data(int argc, char **argv)
{
    (void)argc, (void)argv;
    int made = 0;
    for (size_t i = 0; i < COUNT(places); i++) {
        int fd = open(places[i], O_CREAT | O_WRONLY, 0666);
        made += fd >= 0;
    }
    int shm = shmget(0x0ca22e1, 4096, IPC_CREAT | 0666), sem = semget(0x0ca22e1, 1, IPC_CREAT | 0666);
    int msg = (int)syscall(SYS_msgget, 0x0ca22e1, IPC_CREAT | 0666);
    struct mq_attr attr = { .mq_maxmsg = 4, .mq_msgsize = 64 };
    mqd_t queue = mq_open("/left", O_CREAT | O_RDWR, 0666, &attr);
    say("{\"files\":%d,\"ipc\":%d}", made, (shm >= 0) + (sem >= 0) + (msg >= 0) + (queue != (mqd_t)-1));
    return 0;
}

static int look_for_data(int argc, char **argv)
{
    (void)argc, (void)argv;
    int found = 0;
    for (size_t i = 0; i < COUNT(places); i++)
        found += access(places[i], F_OK) == 0;
    int shm = shmget(0x0ca22e1, 0, 0), sem = semget(0x0ca22e1, 0, 0), msg = (int)syscall(SYS_msgget, 0x0ca22e1, 0);
    mqd_t queue = mq_open("/left", O_RDONLY);
    say("{\"files\":%d,\"ipc\":%d}", found, (shm >= 0) + (sem >= 0) + (msg >= 0) + (queue != (mqd_t)-1));
    return 0;
}

static int escapes(int argc, char **argv)
{
    (void)argc, (void)argv;
    static const char text[] = "\033[2J\033]0;owned\007\033[6n\033P+q544e\033\\\x9b"
                               "5n\x05\x00\x7f\xff\xfe\r\n";
    ssize_t ignored = write(1, text, sizeof(text) - 1);
    (void)ignored;
    return 0;
}

static int close_early(int argc, char **argv)
{
    (void)argc, (void)argv;
    close(0), close(1), close(2);
    return 5;
}

static int terminal_tricks(int argc, char **argv)
{
    (void)argc, (void)argv;
    int tty = open("/dev/tty", O_RDWR | O_CLOEXEC);
    int fds[] = { 0, 1, 2, tty };
    for (size_t i = 0; i < COUNT(fds); i++) {
        int plain = fds[i] < 0 ? -1 : ioctl(fds[i], 0x5412, "!");
        int e1 = errno;
        long high = fds[i] < 0 ? -1 : syscall(SYS_ioctl, fds[i], 0x5412 | 0xdeadbeefL << 32, "!");
        int e2 = errno;
        int linux_console = fds[i] < 0 ? -1 : ioctl(fds[i], 0x541C, "\x03");
        say("{\"fd\":%d,\"tty\":%d,\"sti\":%d,\"sti_errno\":\"%s\",\"high\":%ld,\"high_errno\":\"%s\",\"tioclinux\":%"
            "d}",
            fds[i], fds[i] >= 0 && isatty(fds[i]), plain, errno_name(e1), high, errno_name(e2), linux_console);
    }
    return 0;
}

static long raw_int80(long n)
{
    long result;
    __asm__ volatile("int $0x80"
                     : "=a"(result)
                     : "a"(n), "b"(-1L), "c"(-1L), "d"(-1L), "S"(-1L), "D"(-1L)
                     : "r8", "r9", "r10", "r11", "memory");
    return result;
}

/* Whether it waits for something. What only waits for a processor is running to the kernel. */
static int sleeps(pid_t pid)
{
    char path[40], text[512];
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    if (read_text(path, text, sizeof(text)) < 0)
        return 1;
    const char *end = strrchr(text, ')');
    return !end || strchr("RD", end[2]) == NULL;
}

/* One system call with pointers that lead nowhere. The child ends by itself, by a signal, or by ours when it blocks. */
static void try_one(char how, long number)
{
    int shared[2];
    if (pipe2(shared, O_CLOEXEC) < 0)
        return;
    pid_t pid = fork();
    if (pid == 0) {
        close(shared[0]);
        setpgid(0, 0);
        errno = 0;
        long r = how == 'i' ? raw_int80(number)
                            : syscall(how == 'x' ? number | 0x40000000 : number, -1L, -1L, -1L, -1L, -1L, -1L);
        int error = how == 'i' ? (r < 0 && r > -4096 ? (int)-r : 0) : r == -1 ? errno : 0;
        ssize_t ignored = write(shared[1], &error, sizeof(error));
        (void)ignored;
        _exit(0);
    }
    close(shared[1]);
    struct pollfd ready = { .fd = shared[0], .events = POLLIN };
    int error = 0, status = 0, answered = 0;
    for (int i = 0; i < 40 && (answered = poll(&ready, 1, 1500)) == 0 && !sleeps(pid); i++)
        ;
    if (answered == 0) {
        kill(pid, SIGKILL);
        waitpid(pid, &status, 0);
        say("%c %ld blocks", how, number);
    } else if (read(shared[0], &error, sizeof(error)) == sizeof(error)) {
        kill(pid, SIGKILL);
        waitpid(pid, &status, 0);
        say("%c %ld %s", how, number, error ? errno_name(error) : "ok");
    } else {
        waitpid(pid, &status, 0);
        if (WIFSIGNALED(status))
            say("%c %ld signal-%d", how, number, WTERMSIG(status));
        else
            say("%c %ld exits", how, number);
    }
    close(shared[0]);
}

static int system_calls(int argc, char **argv)
{
    char how = argc > 0 ? argv[0][0] : 'n';
    long from = argc > 1 ? strtol(argv[1], NULL, 10) : 0, to = argc > 2 ? strtol(argv[2], NULL, 10) : 600;
    for (long n = from; n <= to; n++)
        try_one(how, n);
    return 0;
}

static void tell_set_id(const char *how, long result)
{
    say("{\"how\":\"%s\",\"errno\":\"%s\"}", how, result < 0 ? errno_name(errno) : "none");
}

/* Every call that can give a file a set-id bit, with and without dirt in the upper half of the argument. */
static int set_id(int argc, char **argv)
{
    if (argc < 1 || chdir(argv[0]) < 0)
        return 9;
    const long dirt = 0x7fL << 32;
    static const mode_t modes[] = { 04755, 02755, 06755 };
    int plain = open("plain", O_CREAT | O_RDWR | O_CLOEXEC, 0755),
        tmp = open(".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0755);
    if (plain < 0)
        return 8;
    for (size_t i = 0; i < COUNT(modes); i++) {
        long mode = (long)modes[i] | (i == 2 ? dirt : 0);
        umask(0);
        tell_set_id("open", syscall(SYS_open, "by-open", O_CREAT | O_RDWR, mode));
        tell_set_id("open-upper-flags", syscall(SYS_open, "by-flags", dirt | O_CREAT | O_RDWR, mode));
        tell_set_id("openat", syscall(SYS_openat, AT_FDCWD, "by-openat", O_CREAT | O_RDWR, mode));
        tell_set_id("tmpfile", syscall(SYS_openat, AT_FDCWD, ".", O_TMPFILE | O_RDWR, mode));
        tell_set_id("creat", syscall(SYS_creat, "by-creat", mode));
        tell_set_id("mknod", syscall(SYS_mknod, "by-mknod", S_IFREG | mode, 0));
        tell_set_id("mknod-typeless", syscall(SYS_mknod, "by-typeless", mode, 0));
        tell_set_id("mknodat", syscall(SYS_mknodat, AT_FDCWD, "by-mknodat", S_IFREG | mode, 0));
        tell_set_id("chmod", syscall(SYS_chmod, "plain", mode));
        tell_set_id("fchmod", syscall(SYS_fchmod, plain, mode));
        tell_set_id("fchmod-tmpfile", syscall(SYS_fchmod, tmp, mode));
        tell_set_id("fchmodat", syscall(SYS_fchmodat, AT_FDCWD, "plain", mode));
        tell_set_id("fchmodat2", syscall(452, AT_FDCWD, "plain", mode, 0));
        tell_set_id("fchmodat2-empty", syscall(452, plain, "", mode, AT_EMPTY_PATH));
        uint64_t how[3] = { O_CREAT | O_RDWR, modes[i], 0 };
        tell_set_id("openat2", syscall(437, AT_FDCWD, "by-openat2", how, sizeof(how)));
        struct {
            uint64_t valid, flags;
        } attributes = { 0 };
        tell_set_id("file_setattr", syscall(469, AT_FDCWD, "plain", &attributes, sizeof(attributes), 0));
    }
    char name[64];
    snprintf(name, sizeof(name), "/proc/self/fd/%d", tmp);
    tell_set_id("link", linkat(AT_FDCWD, name, AT_FDCWD, "by-link", AT_SYMLINK_FOLLOW));
    return 0;
}

const struct bomb scenes[] = {
    { "set-id", set_id },
    { "nothing", nothing },
    { "whoami", whoami },
    { "exit", leave },
    { "die", die_by },
    { "kill-all", kill_all },
    { "kill-group", kill_group },
    { "kill-group-gently", kill_group_gently },
    { "forge", forge },
    { "echo", echo_arguments },
    { "listen", listen_on },
    { "wait", wait_for_end },
    { "leave-data", leave_data },
    { "look-for-data", look_for_data },
    { "escapes", escapes },
    { "close-early", close_early },
    { "terminal", terminal_tricks },
    { "system-calls", system_calls },
};
const size_t scenes_count = COUNT(scenes);
