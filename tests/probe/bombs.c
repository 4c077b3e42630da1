/* Resource abuse by processes, memory and time. Each is the command of a box of its own; what it reached it says as one
 * JSON line. */
#define _GNU_SOURCE
#include "probe.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void say_end(unsigned long long count)
{
    int error = errno;
    say("{\"count\":%llu,\"errno\":\"%s\"}", count, errno_name(error));
}

static long number(int argc, char **argv, int index, long otherwise)
{
    return index < argc ? strtol(argv[index], NULL, 10) : otherwise;
}

/* Forks children that stay, until the limit; ends while they live. */
static int fork_bomb(int argc, char **argv)
{
    long count = 0, most = number(argc, argv, 0, 10000);
    for (; count < most; count++) {
        pid_t pid = fork();
        if (pid < 0)
            break;
        if (pid == 0)
            for (;;)
                pause();
    }
    say_end((unsigned long long)count);
    return 0;
}

/* Every process forks for ever. */
static int fork_storm(int argc, char **argv)
{
    (void)argc, (void)argv;
    say("{\"event\":\"started\"}");
    signal(SIGTERM, SIG_IGN);
    for (;;)
        if (fork() < 0)
            sched_yield();
    return 0;
}

static int thread_main(void *data)
{
    (void)data;
    for (;;)
        syscall(SYS_pause);
    return 0;
}

static int thread_bomb(int argc, char **argv)
{
    (void)argc, (void)argv;
    unsigned long long count = 0;
    for (; count < 10000; count++) {
        char *stack = mmap(NULL, 16384, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (clone(thread_main, stack + 16384,
                  CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM, NULL) < 0)
            break;
    }
    say_end(count);
    return 0;
}

static _Noreturn void eat_memory(void)
{
    for (unsigned long long total = 0;; total += 4 << 20) {
        char *p = mmap(NULL, 4 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED || total > (1ull << 30)) {
            say_end(total);
            _exit(9);
        }
        memset(p, 1, 4 << 20);
    }
}

static int memory_bomb(int argc, char **argv)
{
    (void)argc, (void)argv;
    eat_memory();
}

static int memory_bomb_child(int argc, char **argv)
{
    (void)argc, (void)argv;
    pid_t pid = fork();
    if (pid == 0)
        eat_memory();
    int status = 0;
    waitpid(pid, &status, 0);
    say("{\"child\":%d}", status);
    for (;;)
        pause();
    return 0;
}

static int populate_bomb(int argc, char **argv)
{
    (void)argc, (void)argv;
    for (int i = 0; i < 16; i++)
        if (mmap(NULL, 64 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0) ==
            MAP_FAILED) {
            say_end((unsigned long long)i * (64 << 20));
            return 0;
        }
    say("{\"event\":\"all\"}");
    return 9;
}

static int memfd_fill(int argc, char **argv)
{
    (void)argc, (void)argv;
    int fd = (int)syscall(SYS_memfd_create, "fill", 1);
    static char block[1 << 20];
    memset(block, 1, sizeof(block));
    unsigned long long total = 0;
    while (total < (1ull << 30)) {
        ssize_t n = write(fd, block, sizeof(block));
        if (n <= 0)
            break;
        total += (unsigned long long)n;
    }
    say_end(total);
    return total >= (1ull << 30) ? 9 : 0;
}

static int pipe_fill(int argc, char **argv)
{
    (void)argc, (void)argv;
    static char block[65536];
    unsigned long long total = 0;
    for (int pipes[2]; total < (1ull << 30) && pipe2(pipes, O_NONBLOCK) == 0;) {
        fcntl(pipes[1], F_SETPIPE_SZ, 1 << 20);
        ssize_t n;
        while ((n = write(pipes[1], block, sizeof(block))) > 0)
            total += (unsigned long long)n;
    }
    say_end(total);
    return total >= (1ull << 30) ? 9 : 0;
}

static int socket_fill(int argc, char **argv)
{
    (void)argc, (void)argv;
    static char block[32768];
    unsigned long long total = 0;
    int pair[2], most = 8 << 20;
    while (total < (1ull << 30) && socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, pair) == 0) {
        setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &most, sizeof(most));
        ssize_t n;
        while ((n = send(pair[0], block, sizeof(block), 0)) > 0)
            total += (unsigned long long)n;
    }
    say_end(total);
    return total >= (1ull << 30) ? 9 : 0;
}

/* Puts the descriptors of sockets into the queues of other sockets and closes them: they live in flight only. */
static int flight_fill(int argc, char **argv)
{
    (void)argc, (void)argv;
    unsigned long long total = 0;
    int keep[2];
    if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, keep) < 0)
        return 9;
    for (; total < 100000; total++) {
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, pair) < 0)
            break;
        union {
            struct cmsghdr header;
            char space[CMSG_SPACE(sizeof(int))];
        } control = { 0 };
        struct iovec data = { (char *)"x", 1 };
        struct msghdr message = {
            .msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)
        };
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(header), &keep[1], sizeof(int));
        if (sendmsg(pair[0], &message, 0) < 0)
            break;
        close(keep[0]);
        close(keep[1]);
        keep[0] = pair[0];
        keep[1] = pair[1];
    }
    say_end(total);
    return total >= 100000 ? 9 : 0;
}

/* As many descriptors on their way as there may be; they stay there. */
static int flight_hold(int argc, char **argv)
{
    (void)argc, (void)argv;
    enum { AT_ONCE = 253 };
    unsigned long long total = 0;
    for (int pair[2]; total < 100000; total += AT_ONCE) {
        union {
            struct cmsghdr header;
            char space[CMSG_SPACE(AT_ONCE * sizeof(int))];
        } control = { .header = { .cmsg_len = CMSG_LEN(AT_ONCE * sizeof(int)),
                                  .cmsg_level = SOL_SOCKET,
                                  .cmsg_type = SCM_RIGHTS } };
        struct iovec data = { (char *)"x", 1 };
        struct msghdr message = {
            .msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)
        };
        for (int i = 0; i < AT_ONCE; i++)
            ((int *)(void *)CMSG_DATA(&control.header))[i] = 0;
        /* The raw call: a libc's may take less at once. */
        if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, pair) < 0 ||
            syscall(SYS_sendmsg, pair[0], &message, 0) < 0)
            break;
    }
    say_end(total);
    for (;;)
        pause();
    return 0;
}

static int page_table_fill(int argc, char **argv)
{
    (void)argc, (void)argv;
    size_t size = (size_t)1 << 40;
    char *p = mmap(NULL, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) {
        say_end(0);
        return 0;
    }
    /* A read maps the shared zero page: only the table costs memory. */
    for (size_t at = 0; at < size; at += 2 << 20)
        (void)*(volatile char *)(p + at);
    say("{\"event\":\"all\"}");
    return 9;
}

static int sysv_fill(int argc, char **argv)
{
    (void)argc, (void)argv;
    unsigned long long total = 0;
    for (; total < (1ull << 30); total += 4 << 20) {
        int id = shmget(IPC_PRIVATE, 4 << 20, 0600);
        if (id < 0)
            break;
        char *p = shmat(id, NULL, 0);
        if (p == (void *)-1)
            break;
        memset(p, 1, 4 << 20);
        shmdt(p);
    }
    say_end(total);
    return total >= (1ull << 30) ? 9 : 0;
}

static int mapping_fill(int argc, char **argv)
{
    (void)argc, (void)argv;
    unsigned long long total = 0;
    for (; total < 2000000; total++)
        if (mmap(NULL, 4096, total & 1 ? PROT_READ : PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED)
            break;
    say_end(total);
    return total >= 2000000 ? 9 : 0;
}

static int spin_main(void *data)
{
    (void)data;
    for (;;)
        ;
    return 0;
}

/* Spins on N threads for a while by the wall clock, then says the processor time used. */
static int spin(int argc, char **argv)
{
    long threads = number(argc, argv, 0, 4);
    uint64_t end = now_ms() + (uint64_t)number(argc, argv, 1, 2000);
    for (long i = 1; i < threads; i++) {
        char *stack = mmap(NULL, 16384, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        clone(spin_main, stack + 16384,
              CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM, NULL);
    }
    while (now_ms() < end)
        ;
    struct timespec used;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    say("{\"cpu_ms\":%lld}", (long long)used.tv_sec * 1000 + used.tv_nsec / 1000000);
    return 0;
}

static volatile unsigned long ticks;
static void tick(int signal)
{
    (void)signal;
    ticks++;
}

static int timer_storm(int argc, char **argv)
{
    (void)argc, (void)argv;
    struct sigaction action = { .sa_handler = tick, .sa_flags = SA_RESTART };
    for (int i = 1; i <= 64; i++)
        sigaction(i, &action, NULL);
    struct itimerval fast = { { 0, 1 }, { 0, 1 } };
    for (int which = 0; which < 3; which++)
        setitimer(which, &fast, NULL);
    uint64_t end = now_ms() + (uint64_t)number(argc, argv, 0, 700);
    while (now_ms() < end)
        kill(0, SIGRTMIN + 3);
    struct itimerval off = { 0 };
    for (int which = 0; which < 3; which++)
        setitimer(which, &off, NULL);
    say("{\"count\":%lu}", ticks);
    return 0;
}

static int flood(int argc, char **argv)
{
    (void)argc, (void)argv;
    static char block[65536];
    memset(block, 'y', sizeof(block));
    for (;;)
        if (write(1, block, sizeof(block)) < 0)
            return 3;
    return 0;
}

/* The command ends; a grandchild keeps its output. */
static int hold_output(int argc, char **argv)
{
    (void)argc, (void)argv;
    if (fork() == 0) {
        setsid();
        if (fork() == 0) {
            for (int i = 1; i < 64; i++)
                signal(i, SIG_IGN);
            for (;;)
                pause();
        }
        _exit(0);
    }
    wait(NULL);
    say("{\"event\":\"main ended\"}");
    return 0;
}

static int zombies(int argc, char **argv)
{
    (void)argc, (void)argv;
    unsigned long long count = 0;
    for (; count < 10000; count++) {
        pid_t pid = fork();
        if (pid < 0)
            break;
        if (pid == 0)
            _exit(0);
    }
    say_end(count);
    return 0;
}

/* Orphans that end at once: init reaps them, so that more of them can be made than processes are allowed. */
static int orphans(int argc, char **argv)
{
    long want = number(argc, argv, 0, 1000), made = 0, refused = 0;
    uint64_t end = now_ms() + 90000;
    while (made < want && now_ms() < end) {
        pid_t pid = fork();
        if (pid < 0) {
            refused++;
            sched_yield();
            continue;
        }
        if (pid == 0) {
            if (fork() == 0)
                _exit(0);
            _exit(0);
        }
        waitpid(pid, NULL, 0);
        made++;
    }
    say("{\"count\":%ld,\"refused\":%ld}", made, refused);
    return 0;
}

static int burn_pids(int argc, char **argv)
{
    long want = number(argc, argv, 0, 33000), made = 0, lowest = 1 << 30, highest = 0;
    uint64_t end = now_ms() + 90000;
    while (made < want && now_ms() < end) {
        pid_t pid = vfork();
        if (pid == 0)
            _exit(0);
        if (pid < 0)
            break;
        waitpid(pid, NULL, 0);
        lowest = pid < lowest ? pid : lowest;
        highest = pid > highest ? pid : highest;
        made++;
    }
    say("{\"count\":%ld,\"lowest\":%ld,\"highest\":%ld}", made, lowest, highest);
    return 0;
}

static int stop_self(int argc, char **argv)
{
    (void)argc, (void)argv;
    say("{\"event\":\"stopping\"}");
    raise(SIGSTOP);
    return 0;
}

static int ignore_all(int argc, char **argv)
{
    (void)argc, (void)argv;
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    say("{\"event\":\"deaf\"}");
    for (;;)
        poll(NULL, 0, -1);
    return 0;
}

/* Children of the command's own parent, which end at once. */
static int siblings(int argc, char **argv)
{
    (void)argc, (void)argv;
    int made = 0;
    for (; made < 4; made++) {
        long pid = syscall(SYS_clone, 0x8000 /* CLONE_PARENT */ | SIGCHLD, 0, 0, 0, 0);
        if (pid == 0)
            _exit(0);
        if (pid < 0)
            break;
    }
    say("{\"count\":%d,\"errno\":\"%s\"}", made, errno_name(errno));
    return 0;
}

const struct bomb bombs[] = {
    { "siblings", siblings },
    { "fork-bomb", fork_bomb },
    { "fork-storm", fork_storm },
    { "thread-bomb", thread_bomb },
    { "memory-bomb", memory_bomb },
    { "memory-bomb-child", memory_bomb_child },
    { "populate-bomb", populate_bomb },
    { "memfd-fill", memfd_fill },
    { "pipe-fill", pipe_fill },
    { "socket-fill", socket_fill },
    { "flight-fill", flight_fill },
    { "flight-hold", flight_hold },
    { "page-table-fill", page_table_fill },
    { "sysv-fill", sysv_fill },
    { "mapping-fill", mapping_fill },
    { "spin", spin },
    { "timer-storm", timer_storm },
    { "flood", flood },
    { "hold-output", hold_output },
    { "zombies", zombies },
    { "orphans", orphans },
    { "burn-pids", burn_pids },
    { "stop-self", stop_self },
    { "ignore-all", ignore_all },
};
const size_t bombs_count = COUNT(bombs);
