/* The sealing of a payload, from full rights in the box's namespaces down to the command's. Both ways into a box use
 * it: the keeper's own child before exec (payload.c), and a child that a zygote forked (guest/zygote), where it is
 * linked into a foreign program. So it only makes system calls that depend on its arguments. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "box/init.h"
#include "box/payload.h"
#include "proto/command.h"
#include "proto/defaults.h"
#include "sys/landlock.h"
#include "sys/rights.h"

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

/* Init serves the calls that the filter sends to the listener. */
static int filter_with_listener(const struct policy_filter *filter, int door)
{
    int listener = -1, r = rights_filter_listening(filter->code, filter->length, &listener);

    if (r == 0 && listener >= 0)
        r = link_send(door, "l", 1, &listener, 1);
    fd_close(listener);
    return r;
}

int payload_give_up_rights(const struct engine_box *box, const struct policy_filter *filter, int door, struct err *e)
{
    int r;

    if (setsid() < 0)
        return err_at(e, errno, STEP_RIGHTS, 0, "session");
    if ((r = rights_limit_resources(box->files)) < 0)
        return err_at(e, -r, STEP_RIGHTS, 0, "resource limits");
    if ((r = rights_become(box->uid, box->gid, box->can_setgroups)) < 0)
        return err_at(e, -r, STEP_RIGHTS, 0, "ids");
    if ((r = rights_keep_capabilities(policy_capabilities(box->profile))) < 0)
        return err_at(e, -r, STEP_RIGHTS, 0, "capabilities");
    if ((r = rights_new_keyring()) < 0)
        return err_at(e, -r, STEP_RIGHTS, 0, "session keyring");
    if ((r = rights_no_new_privileges()) < 0)
        return err_at(e, -r, STEP_RIGHTS, 0, "no_new_privs");
    /* The change of ids cleared both. */
    if ((r = rights_hide()) < 0 || (r = rights_die_with(box->keeper)) < 0)
        return err_at(e, -r, STEP_RIGHTS, 0, "hiding");
    r = door >= 0 ? filter_with_listener(filter, door) : rights_filter_calls(filter->code, filter->length);
    if (r < 0)
        return err_at(e, -r, STEP_SECCOMP, 0, profile_name(box->profile));
    return 0;
}

int payload_seal_files(const struct engine_box *box, struct err *e)
{
    if (box->landlock_abi == 0)
        return 0;
    FD rules = landlock_open(box->landlock_abi, 0);
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

/* A new PTY of the box's own devpts; the master goes to the keeper, the other side becomes stdio and controlling
 * terminal. */
static int open_terminal(int link, const struct command_spec *command, int stdio[3], struct err *e)
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
    /* Before the command begins, which would otherwise first see a terminal without a size. */
    struct winsize size = { .ws_row = command->rows, .ws_col = command->columns };
    if (size.ws_row && ioctl(master, TIOCSWINSZ, &size) < 0)
        return err_at(e, errno, STEP_STDIO, 0, "size of the terminal");
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
    /* Closed, not marked: none of the keeper's descriptors is left, even if exec fails. The link reports that, and
     * closes on exec. */
    null = -1;
    if ((link > 3 && syscall(SYS_close_range, 3, link - 1, 0) < 0) || syscall(SYS_close_range, link + 1, ~0u, 0) < 0)
        return err_at(e, errno, STEP_STDIO, 3, "closing descriptors");
    return 0;
}

int payload_receive(int link, struct command_spec *command, int stdio[3], struct err *e)
{
    struct order order;
    int fds[ORDER_FDS];

    int r = link_receive(link, &order, sizeof order, fds, ORDER_FDS, true);
    if (r == -EPIPE)
        _exit(0);       /* the box ends before it got a command */
    if (r < 0 || order.kind != ORDER_START || fds[0] < 0)
        return err_at(e, r < 0 ? -r : EPROTO, STEP_PROTOCOL, 0, "order to start");
    for (int i = 0, next = 1; i < 3; i++)
        stdio[i] = order.has_stdio[i] ? fds[next++] : -1;
    r = command_unpack(fds[0], command);
    return r < 0 ? err_at(e, -r, STEP_PROTOCOL, 0, "command") : 0;
}

/* Written beside its place and renamed, so that a process that reads the file of an earlier value gets all of it. The
 * folder is a mount of the box's own, in memory, and its user's alone. */
static int write_secret(int folder, const struct command_file *file)
{
    char temporary[32];

    snprintf(temporary, sizeof temporary, ".new-%d", (int)getpid());
    FD fd = openat(folder, temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0400);
    if (fd < 0)
        return -errno;
    int r = fchmod(fd, 0400) < 0 ? -errno : fd_write_all(fd, file->bytes, file->size);
    if (r == 0 && renameat(folder, temporary, folder, file->name) < 0)
        r = -errno;
    if (r < 0)
        (void)unlinkat(folder, temporary, 0);
    return r;
}

static int write_secrets(const struct command_spec *command, struct err *e)
{
    FD folder = command->n_files ? open(BOX_SECRETS, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;

    if (command->n_files && folder < 0)
        return err_at(e, errno, STEP_SECRET, 0, BOX_SECRETS);
    for (size_t i = 0; i < command->n_files; i++) {
        int r = write_secret(folder, &command->files[i]);
        if (r < 0)
            return err_set(e, -r, STEP_SECRET, "%s/%s", BOX_SECRETS, command->files[i].name);
    }
    return 0;
}

int payload_settle(const struct engine_box *box, int link, const struct command_spec *command, int stdio[3],
                   struct err *e)
{
    const char *workdir = command->workdir ? command->workdir : BOX_HOME;
    int r = payload_seal_files(box, e);

    if (r == 0)
        r = write_secrets(command, e);
    if (r == 0 && command->terminal)
        r = open_terminal(link, command, stdio, e);
    if (r == 0 && chdir(workdir) < 0)
        r = err_at(e, errno, STEP_WORKDIR, 0, workdir);
    if (r == 0)
        r = place_stdio(link, stdio, e);
    umask(022);
    return r;
}

void payload_reset_signals(void)
{
    sigset_t none;

    /* The raw call: a libc reserves some signal numbers. All zero is the default action. */
    static const struct {
        unsigned long handler, flags, restorer, mask;
    } by_default;
    for (int i = 1; i <= 64; i++)
        if (i != SIGKILL && i != SIGSTOP)
            (void)syscall(SYS_rt_sigaction, i, &by_default, NULL, sizeof by_default.mask);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

int payload_exec(const struct command_spec *command, struct err *e)
{
    const char *name = command->argv[0], *path = BOX_PATH;
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
