/* The zygote until its program is exec'd. It is sealed before a single byte of that program runs, because the program
 * imports modules of the tenant's choice:
 *
 *   join the family's namespaces and cgroup; own network, cgroup and mount namespaces, the last without /proc
 *   rights: session, rlimits, ids, no capability, keyring, no_new_privs
 *   seccomp: its children's profile, plus the calls for joining and sealing (policy_zygote_filter)
 *
 * It has no Landlock. A child would inherit the domain, whose rules could only name files of the family, not those of
 * later boxes; and a domain without rules still forbids renaming and linking between directories. The filter and the
 * locked mounts of a box already forbid mounting, which is what Landlock would add. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "box/family/family_impl.h"
#include "box/payload.h"
#include "policy/policy.h"
#include "proto/command.h"
#include "proto/defaults.h"
#include "sys/rights.h"

static int join(const struct engine_box *family, struct err *e)
{
    const struct box_namespaces *ns = &family->ns;
    int r;

    if (setns(ns->user, CLONE_NEWUSER) < 0 || setns(ns->mount, CLONE_NEWNS) < 0 || setns(ns->ipc, CLONE_NEWIPC) < 0
        || setns(ns->uts, CLONE_NEWUTS) < 0)
        return err_at(e, errno, STEP_JOIN, 0, "the family");
    if (family->has_leaf && (r = cgroup_join_self(&family->leaf)) < 0)
        return err_at(e, -r, STEP_CGROUP, 0, "joining");
    if (unshare(CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWCGROUP) < 0)
        return err_at(e, errno, STEP_JOIN, 0, "namespaces of the zygote");
    if (umount2("/proc", MNT_DETACH) < 0)
        return err_at(e, errno, STEP_MOUNT, 0, "removing /proc");
    return 0;
}

static int give_up_rights(const struct engine_box *family, int keeper, struct err *e)
{
    const struct policy_filter *filter = policy_zygote_filter(family->profile);
    int r;

    if (setsid() < 0)
        return err_at(e, errno, STEP_RIGHTS, 0, "session");
    if ((r = rights_limit_resources(family->files)) < 0)
        return err_at(e, -r, STEP_RIGHTS, 0, "resource limits");
    if ((r = rights_become(family->uid, family->gid, family->can_setgroups)) < 0)
        return err_at(e, -r, STEP_RIGHTS, 0, "ids");
    if ((r = rights_keep_capabilities(0)) < 0)
        return err_at(e, -r, STEP_RIGHTS, 0, "capabilities");
    if ((r = rights_new_keyring()) < 0)
        return err_at(e, -r, STEP_RIGHTS, 0, "session keyring");
    if ((r = rights_no_new_privileges()) < 0)
        return err_at(e, -r, STEP_RIGHTS, 0, "no_new_privs");
    if ((r = rights_hide()) < 0 || (r = rights_die_with(keeper)) < 0)
        return err_at(e, -r, STEP_RIGHTS, 0, "hiding");
    if ((r = rights_filter_calls(filter->code, filter->length)) < 0)
        return err_at(e, -r, STEP_SECCOMP, 0, "zygote");
    return 0;
}

/* 0, 1, 2 and the control socket as 3. The link stays open until exec, and so does a packed command. */
static int place_fds(const struct zygote_job *job, int *link, int *ret_keeper, int *ret_packed, struct err *e)
{
    FD null = open("/dev/null", O_RDWR | O_CLOEXEC);
    const int *stdio = job->start->stdio;
    int high[7] = { stdio[0],
                    stdio[1],
                    stdio[2],
                    job->control,
                    *link,
                    job->family->keeper,
                    job->start->command ? -1 : job->start->packed };

    if (null < 0)
        return err_at(e, errno, STEP_STDIO, 0, "/dev/null");
    /* First moved away from the target numbers. */
    for (size_t i = 0; i < 7; i++)
        if ((high[i] = fcntl(high[i] >= 0 ? high[i] : null, F_DUPFD_CLOEXEC, ZYGOTE_CONTROL + 1)) < 0)
            return err_at(e, errno, STEP_STDIO, i, "descriptors");
    for (int i = 0; i <= ZYGOTE_CONTROL; i++)
        if (dup2(high[i], i) < 0)
            return err_at(e, errno, STEP_STDIO, (size_t)i, "descriptors");
    null = -1;      /* it is closed with the others */
    *link = high[4];
    *ret_keeper = high[5];
    *ret_packed = high[6];
    return payload_keep_only((int[]){ ZYGOTE_CONTROL, high[4], high[5], high[6] }, 4, e);
}

static int run(const struct zygote_job *job, int *link, struct err *e)
{
    struct command_spec unpacked;
    int keeper = -1, packed = -1, r = rights_hide();

    if (r < 0)
        return err_at(e, -r, STEP_RIGHTS, 0, "hiding");
    if ((r = join(job->family, e)) < 0)
        return r;
    if ((r = place_fds(job, link, &keeper, &packed, e)) < 0)
        return r;
    if (chdir(BOX_HOME) < 0)
        return err_at(e, errno, STEP_WORKDIR, 0, BOX_HOME);
    umask(022);
    if ((r = give_up_rights(job->family, keeper, e)) < 0)
        return r;
    if (!job->start->command && (r = command_unpack(packed, &unpacked)) < 0)
        return err_at(e, -r, STEP_PROTOCOL, 0, "the zygote's command");
    fd_close(keeper);
    fd_close(packed);
    payload_reset_signals();
    return payload_exec(job->start->command ? job->start->command : &unpacked, e);
}

_Noreturn void zygote_run(const struct zygote_job *job)
{
    struct note note = { .kind = NOTE_FAILED };
    int link = job->link;

    (void)run(job, &link, &note.err);
    (void)!send(link, &note, sizeof note, MSG_NOSIGNAL);
    _exit(125);
}
