/* Resource abuse through files, descriptors and other kernel objects. */
#define _GNU_SOURCE
#include "probe.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <mqueue.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

static void say_end(unsigned long long count)
{
    int error = errno;
    say("{\"count\":%llu,\"errno\":\"%s\"}", count, errno_name(error));
}

/* Writes one file until it cannot. */
static int disk_fill(int argc, char **argv)
{
    signal(SIGXFSZ, SIG_IGN);
    char path[300];
    snprintf(path, sizeof(path), "%s/fill", argc > 0 ? argv[0] : "/tmp");
    int fd = open(path, O_CREAT | O_WRONLY, 0600);
    static char block[65536];
    memset(block, 'd', sizeof(block));
    unsigned long long total = 0;
    ssize_t n = -1;
    while (fd >= 0 && total < (1ull << 30) && (n = write(fd, block, sizeof(block))) > 0)
        total += (unsigned long long)n;
    say_end(total);
    return 0;
}

static int disk_allocate(int argc, char **argv)
{
    char path[300];
    snprintf(path, sizeof(path), "%s/fill", argc > 0 ? argv[0] : "/tmp");
    int fd = open(path, O_CREAT | O_WRONLY, 0600);
    unsigned long long total = 0;
    while (total < (1ull << 30) && syscall(SYS_fallocate, fd, 0, total, 1 << 20) == 0)
        total += 1 << 20;
    say_end(total);
    return 0;
}

static int disk_many(int argc, char **argv)
{
    char path[300];
    unsigned long long total = 0;
    static char block[8192];
    for (int i = 0; i < 100000; i++) {
        snprintf(path, sizeof(path), "%s/fill-%d", argc > 0 ? argv[0] : "/tmp", i);
        int fd = open(path, O_CREAT | O_WRONLY, 0600);
        ssize_t n = fd < 0 ? -1 : write(fd, block, sizeof(block));
        if (n <= 0)
            break;
        close(fd);
        total += (unsigned long long)n;
    }
    say_end(total);
    return 0;
}

static int inode_fill(int argc, char **argv)
{
    char path[300];
    unsigned long long count = 0;
    for (; count < 2000000; count++) {
        snprintf(path, sizeof(path), "%s/inode-%llu", argc > 0 ? argv[0] : "/tmp", count);
        int fd = open(path, O_CREAT | O_WRONLY, 0600);
        if (fd < 0)
            break;
        close(fd);
    }
    say_end(count);
    return 0;
}

static int sparse_file(int argc, char **argv)
{
    (void)argc, (void)argv;
    signal(SIGXFSZ, SIG_IGN);
    int fd = open("/tmp/sparse", O_CREAT | O_RDWR, 0600);
    if (ftruncate(fd, 1l << 60) < 0) {
        say_end(0);
        return 0;
    }
    if (pwrite(fd, "x", 1, (1l << 60) - 1) < 0)
        note("%s", errno_name(errno));
    say("{\"count\":1,\"errno\":\"none\"}");
    return 0;
}

static int deep_directories(int argc, char **argv)
{
    long want = argc > 0 ? strtol(argv[0], NULL, 10) : 100000, depth = 0;
    char name[256];
    memset(name, 'd', 200);
    name[200] = 0;
    int fd = open("/tmp", O_RDONLY | O_DIRECTORY);
    for (; depth < want; depth++) {
        if (mkdirat(fd, name, 0700) < 0)
            break;
        int next = openat(fd, name, O_RDONLY | O_DIRECTORY);
        if (next < 0)
            break;
        close(fd);
        fd = next;
    }
    say_end((unsigned long long)depth);
    return 0;
}

static int file_limit(int argc, char **argv)
{
    (void)argc, (void)argv;
    unsigned long long count = 0;
    while (count < 3000000 && open("/dev/null", O_RDONLY) >= 0)
        count++;
    say_end(count);
    return 0;
}

/* Many processes hold as many files each as they may. */
static int file_limit_all(int argc, char **argv)
{
    (void)argc, (void)argv;
    int pipes[2];
    if (pipe(pipes) < 0)
        return 9;
    int children = 0;
    for (; children < 40; children++) {
        pid_t pid = fork();
        if (pid < 0)
            break;
        if (pid == 0) {
            unsigned long long count = 0;
            while (count < 3000000 && open("/dev/null", O_RDONLY) >= 0)
                count++;
            ssize_t ignored = write(pipes[1], &count, sizeof(count));
            (void)ignored;
            for (;;)
                pause();
        }
    }
    unsigned long long total = 0, one;
    for (int i = 0; i < children; i++)
        if (read(pipes[0], &one, sizeof(one)) == sizeof(one))
            total += one;
    say("{\"count\":%llu,\"children\":%d}", total, children);
    return 0;
}

static int xattr_fill(int argc, char **argv)
{
    (void)argc, (void)argv;
    static char value[4000];
    memset(value, 'x', sizeof(value));
    char path[64], name[64];
    unsigned long long total = 0;
    for (int file = 0; file < 2000; file++) {
        snprintf(path, sizeof(path), "/tmp/attr-%d", file);
        close(open(path, O_CREAT | O_WRONLY, 0600));
        for (int i = 0; i < 30; i++) {
            snprintf(name, sizeof(name), "user.attribute-%d", i);
            if (setxattr(path, name, value, sizeof(value), 0) < 0) {
                if (file > 0 || i > 0)
                    goto end;
                say_end(total);
                return 0;
            }
            total += sizeof(value);
        }
    }
end:
    say_end(total);
    return 0;
}

/* Byte-range locks on one file for some seconds. Each costs kernel memory, and a search through all before it. */
static int lock_fill(int argc, char **argv)
{
    (void)argc, (void)argv;
    int fd = open("/tmp/locks", O_CREAT | O_RDWR, 0600);
    unsigned long long count = 0;
    uint64_t end = now_ms() + 3000;
    for (; count < 1000000 && now_ms() < end; count++) {
        struct flock lock = { .l_type = count & 1 ? F_RDLCK : F_WRLCK,
                              .l_whence = SEEK_SET,
                              .l_start = (off_t)(4000000 - 2 * count),
                              .l_len = 1 };
        if (fcntl(fd, F_SETLK, &lock) < 0)
            break;
    }
    say_end(count);
    return 0;
}

static int terminal_fill(int argc, char **argv)
{
    (void)argc, (void)argv;
    unsigned long long count = 0;
    while (count < 100000 && open("/dev/ptmx", O_RDWR | O_NOCTTY) >= 0)
        count++;
    say_end(count);
    return 0;
}

static int queue_fill(int argc, char **argv)
{
    (void)argc, (void)argv;
    unsigned long long total = 0;
    static char block[8192];
    char name[64];
    for (int i = 0; i < 10000; i++) {
        snprintf(name, sizeof(name), "/fill-%d", i);
        struct mq_attr attr = { .mq_maxmsg = 10, .mq_msgsize = 8192 };
        mqd_t queue = mq_open(name, O_CREAT | O_RDWR | O_NONBLOCK, 0600, &attr);
        if (queue == (mqd_t)-1)
            break;
        while (mq_send(queue, block, sizeof(block), 0) == 0)
            total += sizeof(block);
    }
    say_end(total);
    return 0;
}

static int semaphore_fill(int argc, char **argv)
{
    (void)argc, (void)argv;
    unsigned long long total = 0;
    for (; total < 32000ull * 32000; total += 32000)
        if (semget(IPC_PRIVATE, 32000, 0600) < 0)
            break;
    say_end(total);
    return total >= 32000ull * 32000 ? 9 : 0;
}

static int watch_fill(int argc, char **argv)
{
    (void)argc, (void)argv;
    int fd = inotify_init1(0);
    char path[64];
    unsigned long long count = 0;
    mkdir("/tmp/watched", 0700);
    for (; count < 2000000; count++) {
        snprintf(path, sizeof(path), "/tmp/watched/%llu", count);
        if (mkdir(path, 0700) < 0 || inotify_add_watch(fd, path, IN_ALL_EVENTS) < 0)
            break;
    }
    say_end(count);
    return 0;
}

static int tcp_fill(int argc, char **argv)
{
    (void)argc, (void)argv;
    static char block[65536];
    unsigned long long total = 0;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t length = sizeof(address);
    if (bind(listener, (void *)&address, sizeof(address)) < 0 || listen(listener, 4096) < 0)
        return 9;
    getsockname(listener, (void *)&address, &length);
    for (int i = 0; i < 1500 && total < (1ull << 30); i++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        if (fd < 0 || connect(fd, (void *)&address, sizeof(address)) < 0)
            break;
        ssize_t n;
        while ((n = send(fd, block, sizeof(block), MSG_DONTWAIT | MSG_NOSIGNAL)) > 0)
            total += (unsigned long long)n;
    }
    say_end(total);
    return total >= (1ull << 30) ? 9 : 0;
}

/* stat of names that do not exist leaves negative entries in the kernel's cache. */
static int missing_names(int argc, char **argv)
{
    long want = argc > 0 ? strtol(argv[0], NULL, 10) : 100000;
    static const char *const dirs[] = { "/usr/lib", "/tmp", "/usr/share", "/proc", "/probe" };
    char path[300];
    struct stat info;
    for (long i = 0; i < want; i++) {
        snprintf(path, sizeof(path), "%s/%0200ld", dirs[i % 5], i);
        if (stat(path, &info) == 0)
            return 9;
    }
    say("{\"count\":%ld}", want);
    return 0;
}

static int sync_storm(int argc, char **argv)
{
    (void)argc, (void)argv;
    int fd = open("/tmp/sync", O_CREAT | O_RDWR | O_SYNC, 0600);
    unsigned long long count = 0;
    uint64_t end = now_ms() + 500;
    for (; now_ms() < end; count++) {
        ssize_t n = pwrite(fd, "x", 1, 0);
        (void)n;
        fsync(fd);
        fdatasync(fd);
        syscall(SYS_sync_file_range, fd, 0, 0, 7);
    }
    /* No box may sync every filesystem of the host: the call does nothing or is refused. */
    long r = syscall(SYS_syncfs, fd);
    say("{\"count\":%llu,\"syncfs\":%ld}", count, r);
    return 0;
}

const struct bomb more_bombs[] = {
    { "disk-fill", disk_fill },
    { "disk-allocate", disk_allocate },
    { "disk-many", disk_many },
    { "inode-fill", inode_fill },
    { "sparse-file", sparse_file },
    { "deep-directories", deep_directories },
    { "file-limit", file_limit },
    { "file-limit-all", file_limit_all },
    { "xattr-fill", xattr_fill },
    { "lock-fill", lock_fill },
    { "terminal-fill", terminal_fill },
    { "queue-fill", queue_fill },
    { "semaphore-fill", semaphore_fill },
    { "watch-fill", watch_fill },
    { "tcp-fill", tcp_fill },
    { "missing-names", missing_names },
    { "sync-storm", sync_storm },
};
const size_t more_bombs_count = COUNT(more_bombs);
