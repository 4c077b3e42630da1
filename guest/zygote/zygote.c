/* The zygote's side of family_fork.c.
 *
 *   zygote --clone(VM|VFORK|PARENT)--> helper --clone(PARENT)--> child
 *
 * The helper exists because joining a pid namespace only affects children: it joins the box and clones there. It shares
 * the zygote's memory, so that nothing is copied for it, and the zygote stands still meanwhile. The child is the only
 * real copy. It wakes on the helper's stack, jumps back to the frame of zygote_serve() on the zygote's stack, of which
 * it has its own copy, and seals itself: for the program it is as if the call returned.
 *
 * Raw clone instead of fork(), because only it has CLONE_PARENT, by which the keeper is the parent of all. A libc's
 * fork also stores the child's tid in the thread's descriptor, for which the kernel is given the address that libc
 * registered; and it runs handlers and resets locks, which do not matter with one thread that holds none. */
#define _GNU_SOURCE
#include "zygote.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "box/init.h"
#include "box/payload.h"
#include "proto/zygote.h"
#include "sys/rights.h"

enum { STACK_BYTES = 256 << 10 };

/* The present request. Static, because the child finds its copy here. */
static struct zygote_request request;
static int                   fds[ZYGOTE_FDS];
static struct engine_box     box;           /* the part that sealing needs */
static struct command_spec   command;
static jmp_buf               home;
static int                   child_link = -1;

static int take_request(struct err *e)
{
    const char *path = request.paths, *end = request.paths + sizeof request.paths;

    if (request.version != ZYGOTE_VERSION || request.profile >= PROFILE_COUNT || request.n_rules > ZYGOTE_RULES
        || request.n_tasks > ZYGOTE_CONTROLLERS || fds[ZYGOTE_LINK] < 0)
        return err_at(e, EPROTO, STEP_PROTOCOL, 0, "request to the zygote");
    box = (struct engine_box){
        .profile = (enum profile)request.profile,
        .shares = request.shares != 0, .files = { request.files_usual, request.files_most },
        .uid = request.uid, .gid = request.gid, .n_rules = request.n_rules,
        .can_setgroups = request.can_setgroups != 0, .landlock_abi = request.landlock_abi, .keeper = fds[ZYGOTE_LINK],
        .door = request.has_door ? fds[ZYGOTE_TASKS + request.n_tasks] : -1,
    };
    for (size_t i = 0; i < request.n_rules; i++) {
        size_t length = strnlen(path, (size_t)(end - path));
        if (path + length == end)
            return err_at(e, EPROTO, STEP_PROTOCOL, 0, "request to the zygote");
        box.rule[i] = (struct plan_rule){ .path = path, .rights = (enum landlock_rights)request.rights[i] };
        path += length + 1;
    }
    return 0;
}

static int join(struct err *e)
{
    static const struct {
        int         fd, type;
        const char *name;
    } joins[] = { { ZYGOTE_USER, CLONE_NEWUSER, "user" }, { ZYGOTE_MOUNT, CLONE_NEWNS, "mount" },
                  { ZYGOTE_PID, CLONE_NEWPID, "pid" },    { ZYGOTE_IPC, CLONE_NEWIPC, "ipc" },
                  { ZYGOTE_UTS, CLONE_NEWUTS, "uts" },    { ZYGOTE_NET, CLONE_NEWNET, "network" } };

    for (size_t i = 0; i < request.n_tasks; i++)
        if (write(fds[ZYGOTE_TASKS + i], "0", 1) < 0)
            return err_at(e, errno, STEP_CGROUP, i, "joining");
    if (request.wait_join) {
        struct note born = { .kind = NOTE_BORN };
        struct order order;
        int r = link_send(fds[ZYGOTE_LINK], &born, sizeof born, NULL, 0);
        if (r == 0)
            r = link_receive(fds[ZYGOTE_LINK], &order, sizeof order, NULL, 0, true);
        if (r < 0 || order.kind != ORDER_JOIN)
            return err_at(e, r < 0 ? -r : EPROTO, STEP_CGROUP, 0, "waiting for the cgroup");
    }
    for (size_t i = 0; i < sizeof joins / sizeof *joins; i++)
        if (setns(fds[joins[i].fd], joins[i].type) < 0)
            return err_at(e, errno, STEP_JOIN, i, joins[i].name);
    return unshare(CLONE_NEWCGROUP) < 0 ? err_at(e, errno, STEP_CGROUP, 0, "cgroup namespace") : 0;
}

static _Noreturn void fail(const struct err *e)
{
    struct note note = { .kind = NOTE_FAILED, .err = *e };

    (void)!send(fds[ZYGOTE_LINK], &note, sizeof note, MSG_NOSIGNAL);
    _exit(125);
}

/* The address that libc registered for the main thread: glibc keeps the thread's number there, musl a lock. */
static int *thread_address(void)
{
    int *address = NULL;
    return prctl(PR_GET_TID_ADDRESS, &address, 0, 0, 0) < 0 ? NULL : address;
}

/* Returns like fork(), but the child's parent is ours. */
static long clone_child(void)
{
    int *address = thread_address();
#ifdef __GLIBC__
    unsigned long flags = CLONE_PARENT | (address ? CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID : 0);
    return syscall(SYS_clone, flags, NULL, NULL, address, 0);
#else
    long pid = syscall(SYS_clone, CLONE_PARENT, NULL, NULL, NULL, 0);
    if (pid == 0 && address)
        (void)syscall(SYS_set_tid_address, address);
    return pid;
#endif
}

static int help(void *unused)
{
    struct err e = { 0 };
    (void)unused;

    if (join(&e) < 0)
        fail(&e);
    long pid = clone_child();
    if (pid < 0) {
        (void)err_at(&e, errno, STEP_CLONE, 0, "payload");
        fail(&e);
    }
    if (pid == 0)
        longjmp(home, 1);
    _exit(0);
}

/* As the child: sealed up to the command, then the command. */
static void become_payload(void (*warm)(void *data), void *data, struct zygote_child *ret)
{
    struct note ready = { .kind = NOTE_READY };
    struct err e = { 0 };
    int stdio[3] = { -1, -1, -1 }, link = fds[ZYGOTE_LINK];
    const int keep[] = { link, box.door };

    if (payload_keep_only(keep, sizeof keep / sizeof *keep, &e) < 0 ||
        payload_give_up_rights(&box, policy_payload_filter(box.profile, box.shares), box.door, &e) < 0)
        fail(&e);
    if (send(link, &ready, sizeof ready, MSG_NOSIGNAL) < 0)
        _exit(0);
    child_link = link;
    if (warm)
        warm(data);
    if (payload_receive(link, &command, stdio, &e) < 0 || payload_settle(&box, link, &command, stdio, &e) < 0)
        fail(&e);
    if (getrandom(ret->seed, sizeof ret->seed, 0) != (ssize_t)sizeof ret->seed) {
        (void)err_at(&e, EIO, STEP_MEMORY, 0, "random numbers");
        fail(&e);
    }
    unsigned seed;
    memcpy(&seed, ret->seed, sizeof seed);
    srand(seed);
    memcpy(&seed, ret->seed + sizeof seed, sizeof seed);
    srandom(seed);
    ret->argv = command.argv;
    ret->env = command.env;
    for (ret->argc = 0; ret->argv[ret->argc];)
        ret->argc++;
}

static void fork_one(char *stack)
{
    struct err e = { 0 };

    if (take_request(&e) == 0) {
        if (clone(help, stack + STACK_BYTES, CLONE_VM | CLONE_VFORK | CLONE_PARENT, NULL) < 0)
            (void)err_at(&e, errno, STEP_CLONE, 0, "helper");
    }
    if (e.code && fds[ZYGOTE_LINK] >= 0) {
        struct note note = { .kind = NOTE_FAILED, .err = e };
        (void)!send(fds[ZYGOTE_LINK], &note, sizeof note, MSG_NOSIGNAL);
    }
    for (size_t i = 0; i < ZYGOTE_FDS; i++)
        fds[i] = fd_close(fds[i]);
}

int zygote_serve(void (*warm)(void *data), void *data, struct zygote_child *ret)
{
    struct zygote_hello hello = { .version = ZYGOTE_VERSION };
    char *stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    int r = stack == MAP_FAILED ? -errno : rights_hide();

    if (r < 0)
        return r;
    if (setjmp(home) != 0) {
        become_payload(warm, data, ret);
        return 0;
    }
    if (send(ZYGOTE_CONTROL, &hello, sizeof hello, MSG_NOSIGNAL) < 0)
        return -errno;
    for (;;) {
        r = link_receive(ZYGOTE_CONTROL, &request, sizeof request, fds, ZYGOTE_FDS, true);
        if (r < 0)
            return r;
        fork_one(stack);
    }
}

int zygote_is_asked(int wait_ms)
{
    struct pollfd link = { .fd = child_link, .events = POLLIN };

    return poll(&link, 1, wait_ms) != 0;
}

void zygote_running(void)
{
    struct note note = { .kind = NOTE_STARTED };

    (void)prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
    (void)!send(child_link, &note, sizeof note, MSG_NOSIGNAL);
    child_link = fd_close(child_link);
}

void zygote_exec(char *const *argv, char *const *env)
{
    struct note note = { .kind = NOTE_FAILED };
    struct command_spec spec = { .argv = (char **)(uintptr_t)argv, .env = (char **)(uintptr_t)env };

    payload_reset_signals();
    (void)!payload_exec(&spec, &note.err);
    (void)!send(child_link, &note, sizeof note, MSG_NOSIGNAL);
}
