/* What the kernel makes of the generated filters. tests/seccomp/check.py calls it and judges; this program only tells.
 *
 *   probe dump                 every filter's instructions: "filter NAME", then "code jt jf k" per line
 *   probe verdicts FILTER      per number: the errno that the kernel gives if ALLOW is replaced by an errno of its own.
 *                              Nothing is executed, so that it is exact for every call, also if it would not return
 *   probe arguments FILTER     likewise, for calls with arguments read from stdin: "nr arg0 ... arg5"
 *   probe calls FILTER         the real filter and real calls with bad pointers, one process per call. A call whose
 *                              verdict (stdin: "nr allow" or "nr -") is allow is also made without filter, to compare
 *   probe foreign FILTER       x32, i386 and impossible numbers: how the process ends
 *   probe load [FILE...]       median load time in microseconds of each filter and of files of raw instructions
 *   probe run FILTER COMMAND   runs the command under the filter */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "policy/filters.h"

enum {
    NUMBERS  = 601,
    ALLOWED  = 4000, /* an errno that no call gives; the kernel's limit is 4095 */
    ROUNDS   = 301,
    DEADLINE = 5000,
    CALLS    = 4096,
};

/* As a pointer beyond user space, as an int negative: no descriptor, no process group that exists. */
#define BAD 0x00007ffffffff000

static const struct {
    const char                 *name;
    const struct policy_filter *filter;
} filters[] = {
    {"strict", &policy_filter_strict},
    {"standard", &policy_filter_standard},
    {"system", &policy_filter_system},
    {"init", &policy_filter_init},
    {"init_desk", &policy_filter_init_desk},
    {"helper", &policy_filter_helper},
    {"front", &policy_filter_front},
    {"dialer", &policy_filter_dialer},
    {"egress", &policy_filter_egress},
    {"broker", &policy_filter_broker},
    {"system_sharing", &policy_filter_system_sharing},
    {"zygote_strict", &policy_filter_zygote_strict},
    {"zygote_standard", &policy_filter_zygote_standard},
    {"zygote_system", &policy_filter_zygote_system},
};

struct call {
    long nr, argument[6];
};

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static const struct policy_filter *find(const char *name)
{
    for (size_t i = 0; i < sizeof filters / sizeof filters[0]; i++)
        if (strcmp(filters[i].name, name) == 0)
            return filters[i].filter;
    fprintf(stderr, "no filter %s\n", name);
    exit(2);
}

/* Inlined, since vfork's child must not return from a function. */
static inline __attribute__((always_inline)) long raw(const struct call *c)
{
    long result;
    register long r10 __asm__("r10") = c->argument[3];
    register long r8 __asm__("r8")   = c->argument[4];
    register long r9 __asm__("r9")   = c->argument[5];
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(c->nr), "D"(c->argument[0]), "S"(c->argument[1]), "d"(c->argument[2]), "r"(r10), "r"(r8),
                       "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}

static int load(const struct sock_filter *code, unsigned short length)
{
    struct sock_fprog program = {.len = length, .filter = (struct sock_filter *)code};
    return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program);
}

static void *share(size_t size)
{
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        die("mmap");
    return p;
}

/* Waits for the child, but not for ever. */
static int reap(pid_t child)
{
    int status, fd = (int)syscall(SYS_pidfd_open, child, 0);
    if (fd < 0)
        die("pidfd_open");
    if (poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, DEADLINE) != 1)
        kill(child, SIGKILL);
    close(fd);
    if (waitpid(child, &status, 0) != child)
        die("waitpid");
    return status;
}

/* uretprobe and uprobe: since Linux 6.14 they bypass filters, and end every caller that is no trampoline. */
static bool unseen(long nr)
{
    return nr == 335 || nr == 336;
}

/* Makes the calls with ALLOW replaced. The child cannot even exit: it ends by an illegal instruction. */
static void ask(const struct policy_filter *filter, const struct call *call, size_t n)
{
    static struct sock_filter code[BPF_MAXINSNS];
    memcpy(code, filter->code, filter->length * sizeof *code);
    for (size_t i = 0; i < filter->length; i++)
        if (code[i].code == (BPF_RET | BPF_K)) {
            if (code[i].k == SECCOMP_RET_ALLOW)
                code[i].k = SECCOMP_RET_ERRNO | ALLOWED;
            else if (code[i].k == SECCOMP_RET_KILL_PROCESS)
                code[i].k = SECCOMP_RET_ERRNO | (ALLOWED + 1);
        }
    long *answer = share((n + 1) * sizeof *answer);
    pid_t child  = fork();
    if (child == 0) {
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || load(code, filter->length))
            _exit(1);
        for (size_t i = 0; i < n; i++)
            if (!unseen(call[i].nr))
                answer[i] = raw(&call[i]);
        answer[n] = 1;
        __builtin_trap();
    }
    int status = reap(child);
    if (!answer[n] || !WIFSIGNALED(status)) {
        fprintf(stderr, "the asking process ended with status %#x\n", status);
        exit(1);
    }
    for (size_t i = 0; i < n; i++) {
        if (unseen(call[i].nr))
            puts("-");
        else if (answer[i] == -ALLOWED)
            puts("allow");
        else if (answer[i] == -(ALLOWED + 1))
            puts("kill");
        else
            printf("%ld\n", -answer[i]);
    }
}

static void verdicts(const struct policy_filter *filter)
{
    static struct call call[NUMBERS];
    for (long i = 0; i < NUMBERS; i++)
        call[i] = (struct call){i, {BAD, BAD, BAD, BAD, BAD, BAD}};
    ask(filter, call, NUMBERS);
}

static void arguments(const struct policy_filter *filter)
{
    static struct call call[CALLS];
    size_t n = 0;
    unsigned long v[7];
    while (n < CALLS &&
           scanf("%lu %lu %lu %lu %lu %lu %lu", &v[0], &v[1], &v[2], &v[3], &v[4], &v[5], &v[6]) == 7)
        call[n++] = (struct call){(long)v[0], {(long)v[1], (long)v[2], (long)v[3], (long)v[4], (long)v[5], (long)v[6]}};
    ask(filter, call, n);
}

/* One call in one process. Prints nothing; the result is "returned value" or "signal" or "exited". */
static void one(const struct policy_filter *filter, long nr, char *ret, size_t size)
{
    const struct call call = {nr, {BAD, BAD, BAD, BAD, BAD, BAD}}, leave = {SYS_exit_group, {0}};
    volatile long *answer  = share(2 * sizeof *answer);
    pid_t child = fork();
    if (child == 0) {
        pid_t self = getpid();
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || (filter && load(filter->code, filter->length)))
            _exit(99);
        long result = raw(&call);
        if (syscall(SYS_getpid) == self) { /* not the child of a fork that worked */
            answer[0] = result;
            answer[1] = 1;
        }
        raw(&leave);
    }
    int status = reap(child);
    if (answer[1])
        snprintf(ret, size, "%ld", answer[0] < 0 ? answer[0] : 0L);
    else if (WIFSIGNALED(status))
        snprintf(ret, size, "signal-%d", WTERMSIG(status));
    else
        snprintf(ret, size, "exited-%d", WEXITSTATUS(status));
    munmap((void *)answer, 2 * sizeof *answer);
}

static void calls(const struct policy_filter *filter)
{
    long nr;
    char verdict[32], with[32], without[32];
    /* As nobody: a filter with a hole must not harm the machine that finds it. */
    if (geteuid() == 0 && (setgroups(0, NULL) || setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534)))
        die("becoming nobody");
    while (scanf("%ld %31s", &nr, verdict) == 2) {
        one(filter, nr, with, sizeof with);
        snprintf(without, sizeof without, "-");
        if (strcmp(verdict, "allow") == 0)
            one(NULL, nr, without, sizeof without);
        printf("%ld %s %s\n", nr, with, without);
        fflush(stdout);
    }
}

static int via_int80(long nr)
{
    long result;
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(nr), "b"(0), "c"(0), "d"(0) : "memory");
    return (int)result;
}

static void foreign(const struct policy_filter *filter)
{
    static const struct {
        const char *name;
        long        nr;
        bool        int80;
    } cases[] = {
        {"x32-read", 0x40000000, false},
        {"x32-getpid", 0x40000027, false},
        {"x32-execve", 0x40000208, false},
        {"x32-unused", 0x400003e8, false},
        {"bit-31", 0x80000000, false},
        {"minus-1", -1, false},
        {"i386-getpid", 20, true},
        {"i386-socketcall", 102, true},
        {"i386-read", 3, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        pid_t child = fork();
        if (child == 0) {
            if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || load(filter->code, filter->length))
                _exit(99);
            struct call call = {cases[i].nr, {0}};
            long result = cases[i].int80 ? via_int80(cases[i].nr) : raw(&call);
            call = (struct call){SYS_exit_group, {result < 0 ? -result : 0}};
            raw(&call);
        }
        int status = reap(child);
        printf("%s %s %d\n", cases[i].name, WIFSIGNALED(status) ? "signal" : "errno",
               WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    }
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(const char *name, const struct sock_filter *code, unsigned short length)
{
    double *us = share((ROUNDS + 1) * sizeof *us);
    for (size_t i = 0; i < ROUNDS; i++) {
        pid_t child = fork(); /* a fresh process each time: filters add up */
        if (child == 0) {
            struct timespec from, to;
            struct sock_fprog program = {.len = length, .filter = (struct sock_filter *)code};
            prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
            clock_gettime(CLOCK_MONOTONIC, &from);
            long r = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program);
            clock_gettime(CLOCK_MONOTONIC, &to); /* in the vDSO: no filter sees it */
            us[i] = r ? -1 : (double)(to.tv_sec - from.tv_sec) * 1e6 + (double)(to.tv_nsec - from.tv_nsec) / 1e3;
            __builtin_trap();
        }
        reap(child);
    }
    qsort(us, ROUNDS, sizeof *us, compare);
    printf("%s %u %.1f %.1f\n", name, length, us[ROUNDS / 2], us[ROUNDS * 99 / 100]);
}

static int run(const struct policy_filter *filter, char **argv)
{
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || load(filter->code, filter->length))
        die("loading the filter");
    execvp(argv[0], argv);
    die(argv[0]);
    return 1;
}

static void load_times(int n, char **files)
{
    for (size_t i = 0; i < sizeof filters / sizeof filters[0]; i++)
        measure(filters[i].name, filters[i].filter->code, filters[i].filter->length);
    for (int i = 0; i < n; i++) {
        static struct sock_filter code[BPF_MAXINSNS];
        FILE *file = fopen(files[i], "re");
        if (!file)
            die(files[i]);
        size_t length = fread(code, sizeof *code, BPF_MAXINSNS, file);
        fclose(file);
        measure(files[i], code, (unsigned short)length);
    }
}

static void dump(void)
{
    for (size_t i = 0; i < sizeof filters / sizeof filters[0]; i++) {
        printf("filter %s\n", filters[i].name);
        for (size_t k = 0; k < filters[i].filter->length; k++) {
            const struct sock_filter *s = &filters[i].filter->code[k];
            printf("%u %u %u %u\n", s->code, s->jt, s->jf, s->k);
        }
    }
}

int main(int argc, char **argv)
{
    const char *verb = argc > 1 ? argv[1] : "";
    if (strcmp(verb, "dump") == 0)
        dump();
    else if (strcmp(verb, "load") == 0)
        load_times(argc - 2, argv + 2);
    else if (argc == 3 && strcmp(verb, "verdicts") == 0)
        verdicts(find(argv[2]));
    else if (argc == 3 && strcmp(verb, "arguments") == 0)
        arguments(find(argv[2]));
    else if (argc == 3 && strcmp(verb, "calls") == 0)
        calls(find(argv[2]));
    else if (argc == 3 && strcmp(verb, "foreign") == 0)
        foreign(find(argv[2]));
    else if (argc > 3 && strcmp(verb, "run") == 0)
        return run(find(argv[2]), argv + 3);
    else
        return 2;
    return 0;
}
