/* Runs a command and everything that it starts under ptrace, counts system calls, and at one of them makes the call
 * fail or sends the command a signal.
 *
 *   inject [--uid N --gid N] FD list -- COMMAND               only counts
 *   inject [--uid N --gid N] FD fail ROLE N ERRNO -- COMMAND  the N-th call of that process fails
 *   inject [--uid N --gid N] FD signal ROLE N SIG -- COMMAND  at that call the command gets SIG; a process of another
 *                                                             role stays there until the command is dead, or 20 ms
 *
 * Processes interleave differently each time, so a point is named by the role of a process and how many calls it has
 * made. A role follows from how a process was born: carrel (the command itself), janitor (its first plain clone),
 * holder (a clone with only a user namespace), init (with a pid namespace), payload (the plain clone after init),
 * midwife (a vfork; its child is the payload), mapper (a fork). A second one of a kind is called kind#2.
 *
 * FD is a socket on which lines are reported:
 *   carrel PID                  the command
 *   call ROLE N NUMBER AFTER    an entry into system call NUMBER; AFTER: the payload has called exec already
 *   hit ROLE N NUMBER           this is where it happened
 *   exec PID                    the payload has become its program and stands still until a byte comes back
 *   end ROLE CODE|-SIGNAL       a process has ended
 *   left ROLE PID               a process was still alive 30 s after the command's end; it has been killed
 *   hang ROLE PID NUMBER        the command did not end within 60 s; where each process was
 *   done                        no process is left */
#define _GNU_SOURCE
#include <errno.h>
#include <grp.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { TASKS = 64, HANG_MS = 60000, LEFT_MS = 30000, HOLD_MS = 20, NOT_YET = -1 };
enum mode { LIST, FAIL, SIGNAL };

struct task {
    pid_t    pid;
    char     kind[16], role[24];
    unsigned calls;             /* entries so far */
    int      number;            /* the call that it is in */
    uint64_t clone_flags;       /* of the clone that it is in */
    int      fail_with;         /* at the exit of this call */
    bool     is_known, is_ended, has_first_stop, is_program;
};

static struct task tasks[TASKS];
static size_t      n_tasks;
static enum mode   mode;
static const char *aim_role = "";
static unsigned    aim_n;
static int         aim_value;       /* errno or signal */
static int         out;
static bool        is_after, was_hit;
static struct task *held;           /* stands at its entry until the command is dead */
static int64_t     held_since, ended_at = NOT_YET;

static __attribute__((format(printf, 1, 2))) void say(const char *format, ...)
{
    char line[160];
    va_list args;

    va_start(args, format);
    int n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (write(out, line, (size_t)n) != n)
        _exit(99);
}

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static struct task *find(pid_t pid)
{
    for (size_t i = 0; i < n_tasks; i++)
        if (tasks[i].pid == pid && !tasks[i].is_ended)
            return &tasks[i];
    if (n_tasks == TASKS)
        _exit(98);
    tasks[n_tasks] = (struct task){ .pid = pid, .number = -1 };
    return &tasks[n_tasks++];
}

static void name(struct task *task, const char *kind)
{
    int same = 1;
    for (size_t i = 0; i < n_tasks; i++)
        same += &tasks[i] != task && tasks[i].is_known && strcmp(tasks[i].kind, kind) == 0;
    snprintf(task->kind, sizeof task->kind, "%s", kind);
    if (same > 1)
        snprintf(task->role, sizeof task->role, "%s#%d", kind, same);
    else
        snprintf(task->role, sizeof task->role, "%s", kind);
    task->is_known = true;
}

static bool has_init(void)
{
    for (size_t i = 0; i < n_tasks; i++)
        if (strcmp(tasks[i].kind, "init") == 0)
            return true;
    return false;
}

static const char *kind_of_child(const struct task *parent, int event)
{
    uint64_t flags = parent->clone_flags;

    if (strcmp(parent->kind, "midwife") == 0)
        return "payload";
    if (strcmp(parent->kind, "carrel") != 0)
        return "other";
    if (event == PTRACE_EVENT_VFORK)
        return "midwife";
    if (parent->number != SYS_clone3)
        return "mapper";
    if (flags & CLONE_NEWPID)
        return "init";
    if (flags & CLONE_NEWUSER)
        return "holder";
    return has_init() ? "payload" : "janitor";
}

static void go_on(const struct task *task, int signal)
{
    ptrace(PTRACE_SYSCALL, task->pid, NULL, (void *)(long)signal);
}

/* What has its effect even if it reports a failure. */
static bool takes_effect(int number)
{
    return number == SYS_close || number == SYS_munmap;
}

static void hit(struct task *task)
{
    struct user_regs_struct regs;

    was_hit = true;
    say("hit %s %u %d\n", task->role, task->calls, task->number);
    if (mode == SIGNAL) {
        kill(tasks[0].pid, aim_value);
        if (task != &tasks[0] && ended_at == NOT_YET) {
            held = task;
            held_since = now_ms();
        }
        return;
    }
    task->fail_with = aim_value;
    if (takes_effect(task->number))
        return;
    ptrace(PTRACE_GETREGS, task->pid, NULL, &regs);
    regs.orig_rax = SYS_restart_syscall;    /* does nothing, and every filter allows it */
    ptrace(PTRACE_SETREGS, task->pid, NULL, &regs);
}

static void enter_call(struct task *task, const struct __ptrace_syscall_info *info)
{
    task->number = (int)info->entry.nr;
    task->fail_with = 0;
    if (task->number == SYS_clone3) {
        struct iovec here = { &task->clone_flags, sizeof task->clone_flags };
        struct iovec there = { (void *)(uintptr_t)info->entry.args[0], sizeof task->clone_flags };
        if (process_vm_readv(task->pid, &here, 1, &there, 1, 0) != sizeof(uint64_t))
            task->clone_flags = 0;
    }
    if (task->is_program)
        return;
    task->calls++;
    if (mode == LIST)
        say("call %s %u %d %d\n", task->role, task->calls, task->number, is_after);
    else if (!was_hit && task->calls == aim_n && strcmp(task->role, aim_role) == 0)
        hit(task);
}

static void leave_call(struct task *task)
{
    struct user_regs_struct regs;

    if (task->fail_with) {
        ptrace(PTRACE_GETREGS, task->pid, NULL, &regs);
        regs.rax = (unsigned long long)-(long long)task->fail_with;
        ptrace(PTRACE_SETREGS, task->pid, NULL, &regs);
        task->fail_with = 0;
    }
    task->number = -1;
}

static void take_event(struct task *task, int event)
{
    unsigned long message = 0;
    char          byte;

    if (event == PTRACE_EVENT_CLONE || event == PTRACE_EVENT_FORK || event == PTRACE_EVENT_VFORK) {
        ptrace(PTRACE_GETEVENTMSG, task->pid, NULL, &message);
        struct task *child = find((pid_t)message);
        name(child, kind_of_child(task, event));
        if (child->has_first_stop)
            go_on(child, 0);
    } else if (event == PTRACE_EVENT_EXEC && strcmp(task->kind, "payload") == 0) {
        is_after = task->is_program = true;
        say("exec %d\n", (int)task->pid);
        ssize_t got;
        while ((got = read(out, &byte, 1)) < 0 && errno == EINTR)
            ;
        if (got != 1)
            _exit(97);
    } else if (event == PTRACE_EVENT_EXEC) {
        /* The command itself is counted from its exec on, a mapper until then. */
        task->is_program = task != &tasks[0];
    }
}

static void take_stop(struct task *task, int status)
{
    int signal = WSTOPSIG(status), event = status >> 16;
    struct __ptrace_syscall_info info;

    if (!task->is_known) {
        task->has_first_stop = true;    /* its parent has not reported it yet */
        return;
    }
    if (signal == (SIGTRAP | 0x80)) {
        if (ptrace(PTRACE_GET_SYSCALL_INFO, task->pid, (void *)sizeof info, &info) > 0) {
            if (info.op == PTRACE_SYSCALL_INFO_ENTRY)
                enter_call(task, &info);
            else if (info.op == PTRACE_SYSCALL_INFO_EXIT)
                leave_call(task);
        }
        if (task != held)
            go_on(task, 0);
        return;
    }
    if (event)
        signal = 0;
    take_event(task, event);
    go_on(task, signal);
}

static void take_end(struct task *task, int status)
{
    task->is_ended = true;
    if (held == task)
        held = NULL;
    int end = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    say("end %s %d\n", task->is_known ? task->role : "unknown", end);
    if (task == &tasks[0])
        ended_at = now_ms();
}

static void tick(int signal)
{
    (void)signal;
}

/* Kills what is left and tells of it. */
static void finish(const char *word)
{
    for (size_t i = 0; i < n_tasks; i++)
        if (!tasks[i].is_ended && (*word == 'h' || kill(tasks[i].pid, 0) == 0)) {
            if (*word == 'h')
                say("hang %s %d %d\n", tasks[i].role, (int)tasks[i].pid, tasks[i].number);
            else
                say("left %s %d\n", tasks[i].role, (int)tasks[i].pid);
            kill(tasks[i].pid, SIGKILL);
        }
}

static void trace(void)
{
    int64_t start = now_ms();

    for (;;) {
        int   status;
        pid_t pid = waitpid(-1, &status, __WALL);

        if (pid < 0 && errno == ECHILD)
            break;
        int64_t now = now_ms();
        if (held && (ended_at != NOT_YET || now - held_since > HOLD_MS)) {
            struct task *task = held;
            held = NULL;
            go_on(task, 0);
        }
        if (pid > 0) {
            struct task *task = find(pid);
            if (WIFSTOPPED(status))
                take_stop(task, status);
            else
                take_end(task, status);
        }
        if (ended_at != NOT_YET && now - ended_at > LEFT_MS) {
            finish("left");
            ended_at = now + 100000;
        } else if (ended_at == NOT_YET && now - start > HANG_MS) {
            finish("hang");
            start = now + 100000;
        }
    }
    say("done\n");
}

static _Noreturn void run_command(int gate, long uid, long gid, char **argv)
{
    char byte;

    if (read(gate, &byte, 1) != 1)
        _exit(96);
    close(gate);
    close(out);
    setsid();
    if (uid >= 0 && (initgroups("carreltest", (gid_t)gid) < 0 || setresgid((gid_t)gid, (gid_t)gid, (gid_t)gid) < 0
                     || setresuid((uid_t)uid, (uid_t)uid, (uid_t)uid) < 0))
        _exit(95);
    execv(argv[0], argv);
    _exit(94);
}

int main(int argc, char **argv)
{
    long uid = -1, gid = -1;
    int  at = 1, gate[2];

    (void)argc;
    for (; argv[at] && strncmp(argv[at], "--", 2) == 0 && argv[at + 1]; at += 2) {
        long value = strtol(argv[at + 1], NULL, 10);
        if (strcmp(argv[at], "--uid") == 0)
            uid = value;
        else
            gid = value;
    }
    out = (int)strtol(argv[at++], NULL, 10);
    mode = strcmp(argv[at], "list") == 0 ? LIST : strcmp(argv[at], "fail") == 0 ? FAIL : SIGNAL;
    at++;
    if (mode != LIST) {
        aim_role = argv[at++];
        aim_n = (unsigned)strtoul(argv[at++], NULL, 10);
        aim_value = (int)strtol(argv[at++], NULL, 10);
    }
    at++;   /* -- */

    /* Orphans come to us: the machine's own PID 1 may reap them late, and a box's init cannot end before that. */
    if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0 || pipe(gate) < 0)
        return 93;
    pid_t pid = fork();
    if (pid == 0) {
        close(gate[1]);
        run_command(gate[0], uid, gid, argv + at);
    }
    close(gate[0]);
    long options = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK
                 | PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL;
    if (ptrace(PTRACE_SEIZE, pid, NULL, (void *)options) < 0)
        return 92;
    struct task *first = find(pid);
    name(first, "carrel");
    first->is_program = true;   /* until its own exec */
    say("carrel %d\n", (int)pid);

    struct sigaction action = { .sa_handler = tick };
    sigaction(SIGALRM, &action, NULL);
    struct itimerval every = { { 0, 10000 }, { 0, 10000 } };
    setitimer(ITIMER_REAL, &every, NULL);
    ptrace(PTRACE_INTERRUPT, pid, NULL, NULL);
    if (write(gate[1], "g", 1) != 1)
        return 91;
    trace();
    return 0;
}
