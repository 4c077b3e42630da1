/* The steps between the birth of a payload and the exec of the command, in this order and for this reason:
 *
 *   join namespaces     user first: it gives the capabilities for the others
 *   network             the first payload makes it, while init builds the file system on the other processor
 *   cgroup              before anything that the command could influence; then a cgroup namespace that starts there
 *   rights              session, rlimits, ids, capabilities, keyring, no_new_privs
 *   seccomp             as soon as only harmless calls are left; the box's files do not even exist yet
 *   ------------------  a waiting payload stops here, fully sealed
 *   files               Landlock, files of secrets, terminal, working directory, stdio
 *   exec
 *
 * Until exec it is not dumpable: a hostile neighbour in the box cannot trace it or open its descriptors
 * (CVE-2016-9962). */
#define _GNU_SOURCE
#include "box/payload.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/title.h"
#include "box/init.h"
#include "sys/network.h"
#include "sys/rights.h"

/* With make_net, *ret_net is an fd of the new network namespace, for later payloads. */
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
    /* Until init exchanges the root, this is the keeper's; the box's may be empty. */
    FD proc_sys = job->make_net ? open("/proc/sys", O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
    FD own_ns = job->make_net ? open("/proc/self/ns", O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
    if (job->make_net && (proc_sys < 0 || own_ns < 0))
        return err_at(e, errno, STEP_NETWORK, 0, "/proc");
    if (job->gate >= 0 && send(job->gate, "j", 1, MSG_NOSIGNAL) < 0)
        return err_at(e, errno, STEP_JOIN, 1, "init");
    if (!job->make_net)
        return setns(ns->net, CLONE_NEWNET) < 0 ? err_at(e, errno, STEP_JOIN, 0, "network") : 0;
    if (unshare(CLONE_NEWNET) < 0)
        return err_at(e, errno, STEP_NETWORK, 0, "network namespace");
    int r = network_loopback_up();
    if (r < 0)
        return err_at(e, -r, STEP_NETWORK, 0, "loopback");
    if ((r = network_bound_buffers(proc_sys)) < 0)
        return err_at(e, -r, STEP_NETWORK, 0, "bounding the buffers of sockets (/proc/sys/net)");
    FD net = openat(own_ns, "net", O_RDONLY | O_CLOEXEC);
    if (net < 0)
        return err_at(e, errno, STEP_NETWORK, 0, "/proc/self/ns/net");
    if ((job->box->door >= 0 || job->box->has_network) && (r = link_send(job->gate, "n", 1, &net, 1)) < 0)
        return err_at(e, -r, STEP_NETWORK, 0, "init");
    if (!job->start)
        *ret_net = TAKE_FD(net);
    return 0;
}

static int join_cgroup(const struct payload_job *job, struct err *e)
{
    struct cgroup leaf = job->box->leaf;
    int fds[CG_CONTROLLERS] = CG_NONE;

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

/* The keeper makes the first payload before the root, whose device the keeper tells through init. */
static int wait_root(int gate, dev_t *ret_device, struct err *e)
{
    ssize_t n;

    if (gate < 0)
        return 0;
    while ((n = read(gate, ret_device, sizeof *ret_device)) < 0 && errno == EINTR)
        ;
    return n == sizeof *ret_device ? 0 : err_at(e, n < 0 ? errno : ECHILD, STEP_WAIT, 0, "init");
}

/* Never trust that joining worked: nothing may be executed on another root than the box's. */
int payload_check_root(dev_t device, struct err *e)
{
    struct stat status;

    if (stat("/", &status) < 0)
        return err_at(e, errno, STEP_JOIN, 1, "/");
    return status.st_dev == device ? 0 : err_at(e, EXDEV, STEP_JOIN, 1, "the box's root");
}

static int receive_command(const struct payload_job *job, struct command_spec *command, int stdio[3], struct err *e)
{
    if (!job->start)
        return payload_receive(job->link, command, stdio, e);
    *command = *job->start->command;
    memcpy(stdio, job->start->stdio, sizeof job->start->stdio);
    return 0;
}

static int prepare(const struct payload_job *job, int *ret_net, struct err *e)
{
    int r = rights_hide();
    if (r < 0)
        return err_at(e, -r, STEP_RIGHTS, 0, "hiding");
    r = join(job, ret_net, e);
    if (r == 0)
        r = join_cgroup(job, e);
    int keep[] = { job->link, job->gate, job->box->keeper, job->box->door, *ret_net, -1, -1, -1 };
    if (job->start)
        memcpy(keep + 5, job->start->stdio, sizeof job->start->stdio);
    if (r == 0)
        r = payload_keep_only(keep, sizeof keep / sizeof *keep, e);
    if (r == 0)
        r = payload_give_up_rights(job->box, policy_payload_filter(job->box->profile, job->box->shares),
                                   job->box->door, e);
    return r;
}

/* Reports to the keeper that it waits, and passes the network namespace that it made. */
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
    dev_t root_device = job->box->root_device;
    int r = prepare(job, &net, e);

    if (r == 0)
        r = wait_root(job->gate, &root_device, e);
    if (r == 0)
        r = payload_check_root(root_device, e);
    if (r == 0)
        r = report_waiting(job, net, e);
    if (r == 0)
        r = receive_command(job, &command, stdio, e);
    if (r == 0)
        r = payload_settle(job->box, job->link, &command, stdio, e);
    if (r < 0)
        return r;
    payload_reset_signals();
    return payload_exec(&command, e);
}

_Noreturn void payload_run(const struct payload_job *job)
{
    struct note note = { .kind = NOTE_FAILED };

    /* A command that is known from birth is in the arguments themselves, and exec is near. */
    if (!job->start)
        title_set("payload");
    (void)run(job, &note.err);
    (void)!send(job->link, &note, sizeof note, MSG_NOSIGNAL);
    _exit(125);
}
