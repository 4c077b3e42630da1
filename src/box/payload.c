/* What happens between the birth of a payload and the exec of the command, in this order and for this reason:
 *
 *   join namespaces     user first: it gives the capabilities for the others
 *   network             the first payload makes it, while init builds the file system on the other processor
 *   cgroup              before anything that the command could influence; then a cgroup namespace that starts there
 *   rights              session, rlimits, ids, capabilities, keyring, no_new_privs
 *   seccomp             as soon as only harmless calls are left; the box's files are not even there yet
 *   ------------------  a waiting payload stops here, and has nothing left to lose
 *   files               Landlock, terminal, working directory, stdio
 *   exec
 *
 * Until exec it is not dumpable: a hostile neighbour in the box cannot trace it or open its descriptors (CVE-2016-9962). */
#define _GNU_SOURCE
#include "box/payload.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/title.h"
#include "box/command.h"
#include "box/init.h"
#include "sys/landlock.h"
#include "sys/network.h"
#include "sys/rights.h"

/* With make_net, *ret_net is an fd of the new network namespace for the keeper, who will put later payloads into it. */
static int join(const struct payload_job *job, int *ret_net, struct err *e)
{
    const struct box_namespaces *ns = &job->box->ns;
    const struct {
        int         fd, type;
        const char *name;
    } joins[] = { { ns->user, CLONE_NEWUSER, "user" }, { ns->mount, CLONE_NEWNS, "mount" },
                  { ns->ipc, CLONE_NEWIPC, "ipc" },    { ns->uts, CLONE_NEWUTS, "uts" } };

    for (size_t i = 0; i < sizeof joins / sizeof *joins; i++)
        if (setns(joins[i].fd, joins[i].type) < 0)
            return err_at(e, errno, STEP_JOIN, i, joins[i].name);
    if (!job->make_net)
        return setns(ns->net, CLONE_NEWNET) < 0 ? err_at(e, errno, STEP_JOIN, 0, "network") : 0;
    if (unshare(CLONE_NEWNET) < 0)
        return err_at(e, errno, STEP_NETWORK, 0, "network namespace");
    int r = network_loopback_up();
    if (r < 0)
        return err_at(e, -r, STEP_NETWORK, 0, "loopback");
    if (!job->start && (*ret_net = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC)) < 0)
        return err_at(e, errno, STEP_NETWORK, 0, "/proc/self/ns/net");
    return 0;
}

static int join_cgroup(const struct payload_job *job, struct err *e)
{
    struct cgroup leaf = job->box->leaf;
    int fds[CG_CONTROLLERS] = { -1, -1, -1, -1 };

    if (job->wait_join) {
        struct order order;
        int r = link_receive(job->link, &order, sizeof order, fds, CG_CONTROLLERS, true);
        if (r < 0 || order.kind != ORDER_JOIN)
            return err_at(e, r < 0 ? -r : EPROTO, STEP_CGROUP, 0, "waiting for the cgroup");
        for (size_t i = 0; i < CG_CONTROLLERS; i++)
            leaf.tasks[i] = fds[i];
    }
    if (job->wait_join || job->box->has_leaf) {
        int r = cgroup_join_self(&leaf);
        if (r < 0)
            return err_at(e, -r, STEP_CGROUP, 0, "joining");
    }
    return unshare(CLONE_NEWCGROUP) < 0 ? err_at(e, errno, STEP_CGROUP, 0, "cgroup namespace") : 0;
}

int payload_keep_only(const int *keep, size_t n, struct err *e)
{
    for (int next = 3;;) {
        int least = -1;
        for (size_t i = 0; i < n; i++)
            if (keep[i] >= next && (least < 0 || keep[i] < least))
                least = keep[i];
        unsigned end = least < 0 ? ~0u : (unsigned)least - 1;
        if ((unsigned)next <= end && syscall(SYS_close_range, next, end, 0) < 0)
            return err_at(e, errno, STEP_STDIO, (size_t)next, "closing descriptors");
        if (least < 0)
            return 0;
        next = least + 1;
    }
}

int payload_give_up_rights(const struct box *box, struct err *e)
{
    const struct policy_filter *filter = policy_payload_filter(box->profile);
    int r;

    if (setsid() < 0)
        return err_at(e, errno, STEP_RIGHTS, 0, "session");
    if ((r = rights_limit_resources()) < 0)
        return err_at(e, -r, STEP_RIGHTS, 0, "resource limits");
    if ((r = rights_become(box->uid, box->gid, box->can_setgroups)) < 0)
        return err_at(e, -r, STEP_RIGHTS, 0, "ids");
    if ((r = rights_keep_capabilities(policy_capabilities(box->profile))) < 0)
        return err_at(e, -r, STEP_RIGHTS, 0, "capabilities");
    if ((r = rights_new_keyring()) < 0)
        return err_at(e, -r, STEP_RIGHTS, 0, "session keyring");
    if ((r = rights_no_new_privileges()) < 0)
        return err_at(e, -r, STEP_RIGHTS, 0, "no_new_privs");
    /* Changing ids cleared both. */
    if ((r = rights_hide()) < 0 || (r = rights_die_with(box->keeper)) < 0)
        return err_at(e, -r, STEP_RIGHTS, 0, "hiding");
    if ((r = rights_filter_calls(filter->code, filter->length)) < 0)
        return err_at(e, -r, STEP_SECCOMP, 0, profile_name(box->profile));
    return 0;
}

static int wait_root(int gate, struct err *e)
{
    char byte;
    ssize_t n;

    if (gate < 0)
        return 0;
    while ((n = read(gate, &byte, 1)) < 0 && errno == EINTR)
        ;
    return n == 1 ? 0 : err_at(e, n < 0 ? errno : ECHILD, STEP_WAIT, 0, "init");
}

int payload_seal_files(const struct box *box, struct err *e)
{
    if (box->landlock_abi == 0)
        return 0;
    FD rules = landlock_open(box->landlock_abi);
    if (rules < 0)
        return err_at(e, -rules, STEP_LANDLOCK, 0, "ruleset");
    for (size_t i = 0; i < box->n_rules; i++) {
        int r = landlock_allow(rules, box->landlock_abi, box->rule[i].path, box->rule[i].rights);
        if (r < 0)
            return err_at(e, -r, STEP_LANDLOCK, i, box->rule[i].path);
    }
    int r = landlock_enter(rules);
    return r < 0 ? err_at(e, -r, STEP_LANDLOCK, 0, "entering") : 0;
}

/* A new PTY of the box's own devpts; the master goes to the keeper, the other side becomes stdio and controlling terminal. */
static int open_terminal(int link, int stdio[3], struct err *e)
{
    FD master = open("/dev/pts/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
    int unlock = 0;
    if (master < 0 || ioctl(master, TIOCSPTLCK, &unlock) < 0)
        return err_at(e, errno, STEP_STDIO, 0, "/dev/pts/ptmx");
    int side = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (side < 0)
        return err_at(e, errno, STEP_STDIO, 0, "terminal");
    if (ioctl(side, TIOCSCTTY, 0) < 0)
        return err_at(e, errno, STEP_STDIO, 0, "controlling terminal");
    struct note note = { .kind = NOTE_TERMINAL };
    int r = link_send(link, &note, sizeof note, &master, 1);
    if (r < 0)
        return err_at(e, -r, STEP_STDIO, 0, "terminal");
    stdio[0] = stdio[1] = stdio[2] = side;
    return 0;
}

static int place_stdio(int link, const int stdio[3], struct err *e)
{
    FD null = -1;
    for (int i = 0; i < 3; i++)
        if (stdio[i] < 0 && null < 0 && (null = open("/dev/null", O_RDWR | O_CLOEXEC)) < 0)
            return err_at(e, errno, STEP_STDIO, (size_t)i, "/dev/null");
    /* All sources are above 2: the keeper filled 0, 1 and 2 before it opened anything. */
    for (int i = 0; i < 3; i++)
        if (dup2(stdio[i] >= 0 ? stdio[i] : null, i) < 0)
            return err_at(e, errno, STEP_STDIO, (size_t)i, "stdio");
    /* Closed, not marked: nothing of the keeper's is left, even if exec fails. The link reports that, and goes with exec. */
    null = -1;
    if ((link > 3 && syscall(SYS_close_range, 3, link - 1, 0) < 0) || syscall(SYS_close_range, link + 1, ~0u, 0) < 0)
        return err_at(e, errno, STEP_STDIO, 3, "closing descriptors");
    return 0;
}

/* What the keeper ignores or blocks is nothing to the command. */
static void reset_signals(void)
{
    sigset_t none;

    for (int i = 1; i < SIGRTMAX; i++)
        if (i != SIGKILL && i != SIGSTOP)
            (void)signal(i, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

/* As execvpe: a name without a slash is looked up in the command's own PATH. */
static int exec_command(const struct command_spec *command, struct err *e)
{
    const char *name = command->argv[0], *path = "/usr/local/bin:/usr/bin:/bin";
    char file[4096];
    int code = ENOENT;

    if (strchr(name, '/')) {
        execve(name, command->argv, command->env);
        return err_at(e, errno, STEP_EXEC, 0, name);
    }
    for (char **v = command->env; *v; v++)
        if (strncmp(*v, "PATH=", 5) == 0)
            path = *v + 5;
    for (const char *end; *path; path = *end ? end + 1 : end) {
        end = strchrnul(path, ':');
        int length = (int)(end - path);
        if (snprintf(file, sizeof file, "%.*s/%s", length, path, name) >= (int)sizeof file || length == 0)
            continue;
        execve(file, command->argv, command->env);
        if (errno != ENOENT && errno != ENOTDIR)
            code = errno;
    }
    return err_at(e, code, STEP_EXEC, 0, name);
}

static int receive_command(const struct payload_job *job, struct command_spec *command, int stdio[3], struct err *e)
{
    struct order order;
    int fds[ORDER_FDS];

    if (job->start) {
        *command = *job->start->command;
        memcpy(stdio, job->start->stdio, sizeof job->start->stdio);
        return 0;
    }
    int r = link_receive(job->link, &order, sizeof order, fds, ORDER_FDS, true);
    if (r == -EPIPE)
        _exit(0);       /* the box ends without ever having had a command */
    if (r < 0 || order.kind != ORDER_START || fds[0] < 0)
        return err_at(e, r < 0 ? -r : EPROTO, STEP_PROTOCOL, 0, "order to start");
    for (int i = 0, next = 1; i < 3; i++)
        stdio[i] = order.has_stdio[i] ? fds[next++] : -1;
    r = command_unpack(fds[0], command);
    return r < 0 ? err_at(e, -r, STEP_PROTOCOL, 0, "command") : 0;
}

static int prepare(const struct payload_job *job, int *ret_net, struct err *e)
{
    int r = rights_hide();
    if (r < 0)
        return err_at(e, -r, STEP_RIGHTS, 0, "hiding");
    r = join(job, ret_net, e);
    if (r == 0)
        r = join_cgroup(job, e);
    int keep[] = { job->link, job->gate, job->box->keeper, *ret_net, -1, -1, -1 };
    if (job->start)
        memcpy(keep + 4, job->start->stdio, sizeof job->start->stdio);
    if (r == 0)
        r = payload_keep_only(keep, sizeof keep / sizeof *keep, e);
    return r < 0 ? r : payload_give_up_rights(job->box, e);
}

/* Tells the keeper that it waits, and hands over the network namespace that it made. */
static int report_waiting(const struct payload_job *job, int net, struct err *e)
{
    struct note note = { .kind = NOTE_READY };
    int r = job->start ? 0 : link_send(job->link, &note, sizeof note, &net, net >= 0);
    return r < 0 ? err_at(e, -r, STEP_WAIT, 0, "reporting") : 0;
}

static int run(const struct payload_job *job, struct err *e)
{
    struct command_spec command;
    int stdio[3] = { -1, -1, -1 }, net = -1;
    int r = prepare(job, &net, e);

    if (r == 0)
        r = wait_root(job->gate, e);
    if (r == 0)
        r = report_waiting(job, net, e);
    if (r == 0)
        r = receive_command(job, &command, stdio, e);
    if (r == 0)
        r = payload_seal_files(job->box, e);
    if (r == 0 && command.terminal)
        r = open_terminal(job->link, stdio, e);
    if (r == 0 && chdir(command.workdir ? command.workdir : BOX_HOME) < 0)
        r = err_at(e, errno, STEP_WORKDIR, 0, command.workdir ? command.workdir : BOX_HOME);
    if (r == 0)
        r = place_stdio(job->link, stdio, e);
    if (r < 0)
        return r;
    umask(022);
    reset_signals();
    return exec_command(&command, e);
}

_Noreturn void payload_run(const struct payload_job *job)
{
    struct note note = { .kind = NOTE_FAILED };

    /* A command that is known from birth lies in the arguments themselves, and exec is near. */
    if (!job->start)
        title_set("payload");
    (void)run(job, &note.err);
    (void)!send(job->link, &note, sizeof note, MSG_NOSIGNAL);
    _exit(125);
}
