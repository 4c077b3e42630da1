/* An attacker who takes over the front can talk to the keeper and to its clients, write its own state, and nothing
 * else: Landlock closes the file system except for the state, an empty network namespace leaves root's server only the
 * listeners that it inherited, and seccomp removes the system calls that a server does not need (filter `front` of
 * src/policy/syscalls.tbl). Others make connections for it: dial.c to the keeper, the keeper into boxes. */
#define _GNU_SOURCE
#include "server/confine.h"

#include <errno.h>
#include <grp.h>
#include <limits.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "sys/landlock.h"

static int close_files(const char *state, struct err *e)
{
    char self[32], real[PATH_MAX];
    int abi = landlock_abi();

    if (abi < 1)
        return 0;       /* this kernel has no Landlock; only the user's own rights limit the process */
    FD rules = landlock_open(abi, LANDLOCK_TCP | LANDLOCK_OTHERS);
    if (rules < 0)
        return err_at(e, -rules, STEP_LANDLOCK, 0, "ruleset");
    if (!realpath(state, real))
        return err_set(e, errno, STEP_LANDLOCK, "%s", state);
    int r = landlock_allow(rules, abi, real, LANDLOCK_DATA);
    if (r < 0)
        return err_set(e, -r, STEP_LANDLOCK, "%s", state);
    snprintf(self, sizeof self, "/proc/%d", (int)getpid());
    r = landlock_allow(rules, abi, self, LANDLOCK_LOOK);        /* statm for the metrics */
    if (r < 0)
        return err_set(e, -r, STEP_LANDLOCK, "%s", self);
    r = landlock_enter(rules);
    return r < 0 ? err_at(e, -r, STEP_LANDLOCK, 0, "entering") : 0;
}

static int close_calls(const char *who, const struct policy_filter *filter, struct err *e)
{
    /* The kernel only reads it. */
    struct sock_fprog program = { .len = filter->length, .filter = (struct sock_filter *)(uintptr_t)filter->code };

    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) < 0 ? err_at(e, errno, STEP_SECCOMP, 0, who) : 0;
}

int confine_network(const char *who, struct err *e)
{
    /* An ordinary user would need a user namespace for this, in which all peers of a socket appear as the overflow id;
     * there the filter alone must do. */
    if (geteuid() == 0 && unshare(CLONE_NEWNET) < 0)
        return err_at(e, errno, STEP_NETWORK, 0, who);
    return 0;
}

int confine_user(uid_t uid, gid_t gid, struct err *e)
{
    if (geteuid() == uid)
        return 0;
    pid_t parent = getppid();
    int death_signal = 0;
    if (prctl(PR_GET_PDEATHSIG, &death_signal, 0, 0, 0) < 0)
        return err_set(e, errno, STEP_RIGHTS, "the death signal");
    if (setgroups(0, NULL) < 0 || setresgid(gid, gid, gid) < 0 || setresuid(uid, uid, uid) < 0)
        return err_set(e, errno, STEP_RIGHTS, "becoming uid %u", uid);
    /* The kernel disarms the death signal when the user changes. If the parent died meanwhile, no signal was sent. */
    if (prctl(PR_SET_PDEATHSIG, death_signal, 0, 0, 0) < 0)
        return err_set(e, errno, STEP_RIGHTS, "the death signal");
    return death_signal && getppid() != parent ? err_set(e, ESRCH, STEP_RIGHTS, "the supervisor is gone") : 0;
}

int confine_process(const char *who, const char *state, const struct policy_filter *filter, struct err *e)
{
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
        return err_at(e, errno, STEP_RIGHTS, 0, who);
    int r = close_files(state, e);
    return r < 0 ? r : close_calls(who, filter, e);
}
