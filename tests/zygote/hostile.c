/* Zygotes that a keeper must survive. They speak the protocol themselves and leave out, add or twist one thing each. */
#define _GNU_SOURCE
#include "tests/zygote/hostile.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "proto/zygote.h"
#include "box/init.h"
#include "box/payload.h"
#include "sys/rights.h"

enum { STACK_BYTES = 256 << 10, CROWD = 1000 };

static const char           *habit;
static struct zygote_request request;
static int                   fds[ZYGOTE_FDS];
static char                 *stack, *thread_stack;
static struct engine_box     box;
static struct err            ignored;
static int                   twin[2] = { -1, -1 };      /* to the child that is to be two */
static int                   n_served;

static bool is(const char *name)
{
    return strcmp(habit, name) == 0;
}

static _Noreturn void wait_for_ever(void)
{
    for (;;)
        pause();
}

static int idle(void *unused)
{
    (void)unused;
    wait_for_ever();
}

static void say(int kind)
{
    struct note note = { .kind = kind };
    (void)!send(fds[ZYGOTE_LINK], &note, sizeof note, MSG_NOSIGNAL);
}

/* Children of the keeper that it did not ask for: dead ones and living ones, in its own group and in sessions of their
 * own. */
static void make_strangers(void)
{
    for (int i = 0; i < 20; i++)
        if (syscall(SYS_clone, CLONE_PARENT, NULL, NULL, NULL, 0) == 0) {
            if (i % 2)
                setsid();
            if (i % 4 < 2)
                _exit(0);
            wait_for_ever();
        }
}

/* As many processes as it gets by moving each of them into the box's cgroup, where its own limit does not count them.
 * Returns how many there were; none of them is left. */
static int make_crowd(void)
{
    static pid_t pid[CROWD];
    char text[16];
    int n = 0;

    /* They share one stack: all of them only wait, in the same place. */
    for (; n < CROWD && (pid[n] = clone(idle, thread_stack + STACK_BYTES, CLONE_VM | SIGCHLD, NULL)) > 0; n++) {
        snprintf(text, sizeof text, "%d", (int)pid[n]);
        for (size_t i = 0; i < request.n_tasks; i++)
            (void)!write(fds[ZYGOTE_TASKS + i], text, strlen(text));
    }
    for (int i = 0; i < n; i++) {
        (void)!kill(pid[i], SIGKILL);
        (void)!waitpid(pid[i], NULL, 0);
    }
    return n;
}

/* Each leaves one step of sealing out, in the child that it hands over. */
static void seal_badly(void)
{
    const struct policy_filter *filter = policy_payload_filter(box.profile, box.shares);

    if (is("unsealed"))
        return;
    if (is("threads")) {
        /* Before the rights go: the second thread keeps them. */
        unsigned long flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM;
        (void)!clone(idle, thread_stack + STACK_BYTES, (int)flags, NULL);
    }
    if (!is("session"))
        setsid();
    (void)!rights_limit_resources((struct file_limit){ 1024, 4096 });
    if (!is("user"))
        (void)!rights_become(box.uid, box.gid, box.can_setgroups);
    (void)!rights_keep_capabilities(is("capabilities") ? 1 << 21 : policy_capabilities(box.profile));
    (void)!rights_new_keyring();
    (void)!rights_no_new_privileges();
    if (!is("unfiltered"))
        (void)!rights_filter_calls(filter->code, filter->length);
}

/* Looks for boxes that it was not asked about, and settles in each that it can enter, with processes that are
 * children of the keeper. */
static void prowl(void)
{
    enum { PIDS = 4096, MOST = 64 };
    const int all = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWNET;
    int found[MOST], n = 0;

    for (pid_t pid = 1; pid < PIDS && n < MOST; pid++)
        if ((found[n] = (int)syscall(SYS_pidfd_open, pid, 0)) >= 0)
            n++;
    for (int i = 0; i < n; i++) {
        if (syscall(SYS_clone, CLONE_PARENT, NULL, NULL, NULL, 0) == 0) {
            if (setns(found[i], all) < 0)
                _exit(0);
            make_strangers();
            wait_for_ever();
        }
        fd_close(found[i]);
    }
}

/* A good child that gets the link of the next fork too, reports itself ready there, and ends on request. */
static _Noreturn void be_twice(void)
{
    struct command_spec command;
    int stdio[3], next;
    char byte;

    (void)!payload_receive(fds[ZYGOTE_LINK], &command, stdio, &ignored);
    if (link_receive(twin[1], &byte, 1, &next, 1, true) == 1) {
        struct note note = { .kind = NOTE_READY };
        (void)!send(next, &note, sizeof note, MSG_NOSIGNAL);
    }
    wait_for_ever();
}

/* Hands over one descriptor after the other, as terminals. */
static _Noreturn void give_terminals(void)
{
    struct note note = { .kind = NOTE_TERMINAL };
    struct command_spec command;
    int stdio[3];

    (void)!payload_receive(fds[ZYGOTE_LINK], &command, stdio, &ignored);
    for (int i = 0; i < 3000; i++)
        if (link_send(fds[ZYGOTE_LINK], &note, sizeof note, &fds[ZYGOTE_LINK], 1) < 0)
            break;
    (void)!write(stdio[1], "gave\n", 5);
    wait_for_ever();
}

/* Sends to init's door what is no listener, and the listener of a filter of its own for all calls of one number. */
static void send_to_door(void)
{
    const struct sock_filter asks[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getcpu, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    int pair[2], listener = -1, door = fds[ZYGOTE_TASKS + request.n_tasks];

    (void)!rights_no_new_privileges();
    (void)!rights_filter_listening(asks, sizeof asks / sizeof *asks, &listener);
    (void)!socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    (void)!write(pair[0], "x", 1);
    for (int i = 0; i < 50; i++) {
        int junk[] = { pair[1], fds[ZYGOTE_NET], fds[ZYGOTE_LINK] };
        (void)!link_send(door, "l", 1, &junk[i % 3], 1);
        (void)!send(door, "many bytes and no descriptor", 28, MSG_NOSIGNAL);
    }
    (void)!link_send(door, "l", 1, &listener, 1);
    /* Init refuses it; if it let the kernel go on, the call would succeed. */
    if (syscall(SYS_getcpu, NULL, NULL, NULL) == 0 || errno != ENOSYS)
        _exit(9);
}

/* Loads a filter with a listener of its own and tries to let a call for a netlink socket pass uncounted. */
static void answer_itself(void)
{
    const struct sock_filter asks[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct seccomp_notif call = { 0 };
    int listener = -1;

    (void)!rights_no_new_privileges();
    if (rights_filter_listening(asks, sizeof asks / sizeof *asks, &listener) < 0 || listener < 0)
        _exit(8);
    pid_t asker = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, 0);
    if (asker == 0)
        _exit(socket(AF_NETLINK, SOCK_RAW, 0) < 0);
    if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &call) == 0 || errno != ENOTTY)
        _exit(9);
    (void)!kill(asker, SIGKILL);
    (void)!waitpid(asker, NULL, 0);
}

static int help(void *unused)
{
    static const int types[] = { CLONE_NEWUSER, CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWIPC, CLONE_NEWUTS, CLONE_NEWNET };
    (void)unused;

    for (size_t i = 0; i < request.n_tasks && !is("unlimited"); i++)
        (void)!write(fds[ZYGOTE_TASKS + i], "0", 1);
    if (request.wait_join && !is("unlimited")) {
        struct order order;
        say(NOTE_BORN);
        if (link_receive(fds[ZYGOTE_LINK], &order, sizeof order, NULL, 0, true) != 1 || order.kind != ORDER_JOIN)
            _exit(1);
    }
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (!(is("network") && types[i] == CLONE_NEWNET) && setns(fds[ZYGOTE_USER + i], types[i]) < 0)
            _exit(1);
    if (is("inside") || is("hidden"))
        make_strangers();
    unsigned long flags = is("orphan") ? 0 : CLONE_PARENT;
    if (syscall(SYS_clone, flags, NULL, NULL, NULL, 0) == 0) {
        if (is("junk"))
            send_to_door();
        if (is("answers"))
            answer_itself();
        seal_badly();
        say(NOTE_READY);
        if (is("twice"))
            be_twice();
        if (is("terminals"))
            give_terminals();
        if (is("inside") || is("strangers") || is("early") || is("hidden") || is("crowd") || is("junk")
            || is("answers") || is("prowl")) {
            struct command_spec command;
            int stdio[3] = { -1, -1, -1 };
            if (payload_receive(fds[ZYGOTE_LINK], &command, stdio, &ignored) == 0
                && payload_settle(&box, fds[ZYGOTE_LINK], &command, stdio, &ignored) == 0)
                (void)!payload_exec(&command, &ignored);
        }
        wait_for_ever();
    }
    _exit(0);
}

static void serve_once(void)
{
    box = (struct engine_box){ .profile = (enum profile)request.profile, .uid = request.uid, .gid = request.gid,
                        .can_setgroups = request.can_setgroups != 0, .keeper = fds[ZYGOTE_LINK] };
    if (is("refuse"))
        say(NOTE_FAILED);
    else if (is("liar"))
        say(NOTE_READY);            /* itself, not a child in the box */
    else if (is("born"))
        for (int i = 0; i < 100000; i++)
            say(NOTE_BORN);         /* and never reads */
    else if (is("twice") && twin[0] >= 0 && n_served++ > 0)
        (void)!link_send(twin[0], "l", 1, &fds[ZYGOTE_LINK], 1);
    else if (is("crowd") && make_crowd() == CROWD)
        say(NOTE_FAILED);           /* nothing has stopped it */
    else if (is("die"))
        _exit(3);
    else if (is("hang"))
        return;                     /* and keeps the link open */
    else if (is("flood"))
        for (int i = 0; i < 100000; i++) {
            struct { struct note note; char more[64]; } wrong = { .note.kind = 77 };
            if (send(fds[ZYGOTE_LINK], &wrong, sizeof wrong, MSG_NOSIGNAL | MSG_DONTWAIT) < 0
                && send(ZYGOTE_CONTROL, &wrong, sizeof wrong, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
                break;
        }
    else {
        if (is("strangers"))
            make_strangers();
        if (is("prowl"))
            prowl();
        if (is("squat"))
            for (size_t i = 0; i < request.n_tasks; i++)
                (void)!write(fds[ZYGOTE_TASKS + i], "0", 1);
        (void)!clone(help, stack + STACK_BYTES, CLONE_VM | CLONE_VFORK | CLONE_PARENT, NULL);
    }
    for (size_t i = 0; i < ZYGOTE_FDS; i++)
        fd_close(fds[i]);
}

int hostile_serve(const char *which)
{
    struct zygote_hello hello = { .version = ZYGOTE_VERSION };

    habit = which;
    stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    thread_stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (is("twice"))
        (void)!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, twin);
    if (is("mute"))
        _exit(2);
    /* Of a process that hides, an ordinary user's keeper cannot see the namespaces once it has ended. */
    if (is("hidden"))
        (void)!rights_hide();
    if (is("early") || is("hidden"))
        make_strangers();
    if (send(ZYGOTE_CONTROL, &hello, is("garbled") ? 1 : sizeof hello, MSG_NOSIGNAL) < 0)
        return 1;
    while (link_receive(ZYGOTE_CONTROL, &request, sizeof request, fds, ZYGOTE_FDS, true) == 1)
        serve_once();
    return 0;
}
