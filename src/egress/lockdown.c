/* An egress that is taken over can speak to the network and to the boxes whose sockets it has. It reads the settings of
 * the resolver, and with them what every user may read in the directories that they are in: files are replaced by
 * renaming, so that a rule for the file itself would lose them. It writes nothing and starts nothing. */
#define _GNU_SOURCE
#include "egress/lockdown.h"

#include <errno.h>
#include <grp.h>
#include <limits.h>
#include <linux/capability.h>
#include <linux/seccomp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"
#include "policy/policy.h"
#include "sys/landlock.h"

int lockdown_user(uid_t uid, gid_t gid, struct err *e)
{
    pid_t parent = getppid();
    int death_signal = 0;

    if (prctl(PR_GET_PDEATHSIG, &death_signal, 0, 0, 0) < 0)
        return err_set(e, errno, STEP_RIGHTS, "the death signal");
    if (setgroups(0, NULL) < 0 || setresgid(gid, gid, gid) < 0 || setresuid(uid, uid, uid) < 0)
        return err_set(e, errno, STEP_RIGHTS, "becoming uid %u", uid);
    /* The kernel disarms the death signal when the user changes. If the parent died meanwhile, it was not sent. */
    if (prctl(PR_SET_PDEATHSIG, death_signal, 0, 0, 0) < 0)
        return err_set(e, errno, STEP_RIGHTS, "the death signal");
    return death_signal && getppid() != parent ? err_set(e, ESRCH, STEP_RIGHTS, "the supervisor is gone") : 0;
}

/* The directory in which the settings really are: resolv.conf may be a link, to below /run for example. */
static bool directory_of_settings(char ret[PATH_MAX])
{
    if (!realpath("/etc/resolv.conf", ret))
        return false;
    char *slash = strrchr(ret, '/');
    if (slash == ret)
        return false;
    *slash = '\0';
    return true;
}

static int close_files(struct err *e)
{
    char directory[PATH_MAX];
    const char *paths[] = { "/etc", "/dev/urandom", directory_of_settings(directory) ? directory : "/etc" };
    int abi = landlock_abi();

    if (abi < 1)
        return 0;       /* this kernel has none; the user's own rights are what is left */
    FD rules = landlock_open(abi, LANDLOCK_OTHERS);
    if (rules < 0)
        return err_at(e, -rules, STEP_LANDLOCK, 0, "ruleset");
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        int r = landlock_allow(rules, abi, paths[i], LANDLOCK_LOOK);
        if (r < 0 && r != -ENOENT)
            return err_set(e, -r, STEP_LANDLOCK, "%.100s", paths[i]);
    }
    int r = landlock_enter(rules);
    return r < 0 ? err_at(e, -r, STEP_LANDLOCK, 0, "entering") : 0;
}

static int drop_capabilities(struct err *e)
{
    struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
    struct __user_cap_data_struct none[2] = { 0 };

    return syscall(SYS_capset, &head, none) < 0 ? err_at(e, errno, STEP_RIGHTS, 0, "capabilities") : 0;
}

int lockdown_process(struct err *e)
{
    const struct policy_filter *filter = policy_egress_filter();
    /* The kernel only reads it. */
    struct sock_fprog program = { .len = filter->length, .filter = (struct sock_filter *)(uintptr_t)filter->code };

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
        return err_at(e, errno, STEP_RIGHTS, 0, "egress");
    int r = drop_capabilities(e);
    if (r == 0)
        r = close_files(e);
    if (r < 0)
        return r;
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) < 0)
        return err_at(e, errno, STEP_SECCOMP, 0, "egress");
    return 0;
}
