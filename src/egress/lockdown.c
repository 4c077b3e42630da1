/* An attacker who takes over egress can use the network and the boxes' sockets. It can read the resolver's settings,
 * and all other world-readable files in their directories: the files are replaced by renaming, so a rule for a single
 * file would lose it. It can write nothing and start nothing. The broker confines itself by the same steps, without
 * files. */
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
#include "sys/landlock.h"

int lockdown_user(uid_t uid, gid_t gid, struct err *e)
{
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

/* The real directory of the settings: resolv.conf may be a link, to below /run for example. */
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

static int close_files(enum lockdown_files files, struct err *e)
{
    char directory[PATH_MAX];
    const char *paths[] = { "/etc", "/dev/urandom", directory_of_settings(directory) ? directory : "/etc" };
    int abi = landlock_abi();

    if (abi < 1)
        return 0;       /* this kernel has no Landlock; only the user's own rights limit the process */
    FD rules = landlock_open(abi, files == LOCKDOWN_NO_FILES ? LANDLOCK_TCP | LANDLOCK_OTHERS : LANDLOCK_OTHERS);
    if (rules < 0)
        return err_at(e, -rules, STEP_LANDLOCK, 0, "ruleset");
    for (size_t i = 0; files == LOCKDOWN_SETTINGS && i < sizeof paths / sizeof *paths; i++) {
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

int lockdown_process(const struct policy_filter *filter, enum lockdown_files files, struct err *e)
{
    /* The kernel only reads it. */
    struct sock_fprog program = { .len = filter->length, .filter = (struct sock_filter *)(uintptr_t)filter->code };

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
        return err_at(e, errno, STEP_RIGHTS, 0, "confining this process");
    int r = drop_capabilities(e);
    if (r == 0)
        r = close_files(files, e);
    if (r < 0)
        return r;
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) < 0)
        return err_at(e, errno, STEP_SECCOMP, 0, "confining this process");
    return 0;
}
