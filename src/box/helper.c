/* A helper is code of ours that works on the box's files with the box's rights: its writes are charged to the box, and
 * a symbolic link that the guest planted leads it only to the guest's own files. It stays outside of the box's pid
 * namespace, where the guest could signal it. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/sched.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/title.h"
#include "box/box.h"
#include "box/init.h"
#include "box/payload.h"

static int become_helper(const struct engine_box *box, int link, int socket, struct err *e)
{
    int r;

    if (setns(box->ns.user, CLONE_NEWUSER) < 0 || setns(box->ns.mount, CLONE_NEWNS) < 0)
        return err_at(e, errno, STEP_JOIN, 0, "user and mount");
    if (box->has_leaf && (r = cgroup_join_self(&box->leaf)) < 0)
        return err_at(e, -r, STEP_CGROUP, 0, "joining");
    if ((r = payload_keep_only((int[]){ link, socket, box->keeper }, 3, e)) < 0)
        return r;
    if ((r = payload_give_up_rights(box, policy_helper_filter(), -1, e)) < 0)
        return r;
    r = payload_check_root(box->root_device, e);
    return r < 0 ? r : payload_seal_files(box, e);
}

int box_help(struct engine_box *box, int socket, void (*serve)(int socket), struct payload *ret, struct err *e)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_at(e, errno, STEP_CLONE, 0, "helper link");
    FD ours = pair[0], theirs = pair[1];

    struct process child = { .pidfd = -1 };
    int r = process_clone(0, box->leaf.v2, -1, &child);
    if (r < 0)
        return err_at(e, -r, STEP_CLONE, 0, "helper");
    if (r == 0) {
        struct note note = { .kind = NOTE_FAILED };
        title_set("files");
        if (become_helper(box, theirs, socket, &note.err) < 0) {
            (void)!send(theirs, &note, sizeof note, MSG_NOSIGNAL);
            _exit(125);
        }
        theirs = fd_close(theirs);
        serve(socket);
        _exit(0);
    }
    *ret = (struct payload){ .process = child, .link = TAKE_FD(ours), .terminal = -1 };
    return 0;
}
