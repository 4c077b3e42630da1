/* A child, the opener, handles the descriptors that callers want mounted; the keeper itself never touches them.
 *
 * Such a descriptor is untrusted, and using it can take as long as its maker wants: fstat() asks a FUSE daemon, every
 * close() of one of its files waits for the daemon's answer (not even SIGKILL ends that), and the last close of a TCP
 * socket with SO_LINGER waits for its peer. So the opener takes them out of their envelopes, and gives the keeper
 * O_PATH descriptors of the same places: cloning a mount from one asks no daemon, and its close flushes nothing. The
 * last close can still block (of an envelope with its contents; of a mount that was detached meanwhile). The opener
 * makes it, because it keeps its own copies until the keeper has closed its link. An opener that does not answer in
 * time costs its caller the box, and is killed; if it still does not end, it keeps its place in the table, and a caller
 * has only few places there. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/title.h"
#include "box/init.h"
#include "box/payload.h"
#include "keeper/create.h"
#include "keeper/envelope.h"
#include "keeper/opener.h"
#include "sys/rights.h"

enum { PATIENCE_MS = 10000, STUCK_MS = 1000 };
enum { MOST_OF_CALLER = 128, MOST_OF_CALLER_IF_MANY = 4, MOST_STUCK_OF_CALLER = 8 };

/* The opener's answer, which carries the places. */
struct opened {
    struct err err;                     /* code 0: success */
    uint32_t   uid, gid;                /* the maker of the envelopes */
    uint8_t    is_file[KEEPER_MOUNTS];
};

/* ---- the child ---- */

/* The envelopes show whose the mounts are; all must be of one caller. The descriptors show their types. */
static int look(bool rootless, int *fds, size_t n, struct opened *ret, int *ret_place)
{
    struct stat status;
    struct err *e = &ret->err;

    for (size_t i = 0; i < n; i++) {
        uid_t uid;
        gid_t gid;
        int r = envelope_open(&fds[i], rootless, &uid, &gid, e);
        if (r < 0)
            return r;
        /* Without root the place is opened again and used with our own rights, which only cover our own user. */
        if (rootless && uid != geteuid())
            return err_at(e, EPERM, STEP_TREE, i, "a server without root mounts only what its own user has opened");
        if (i > 0 && uid != ret->uid)
            return err_at(e, EPERM, STEP_TREE, i, "mounts of two callers");
        if (fstat(fds[i], &status) < 0 || (!S_ISDIR(status.st_mode) && !S_ISREG(status.st_mode)))
            return err_at(e, EINVAL, STEP_TREE, i, "only directories and plain files can be mounted");
        ret_place[i] = (int)syscall(SYS_open_tree, fds[i], "", OPEN_TREE_CLOEXEC | AT_EMPTY_PATH);
        if (ret_place[i] < 0)
            return err_at(e, errno, STEP_TREE, i, "mount");
        ret->uid = uid;
        ret->gid = gid;
        ret->is_file[i] = S_ISREG(status.st_mode);
    }
    return 0;
}

static _Noreturn void run(int keeper, bool rootless, int link, int *fds, size_t n)
{
    struct opened opened = { 0 };
    int keep[2 + KEEPER_MOUNTS] = { link, keeper }, place[KEEPER_MOUNTS], n_places = 0;
    char nothing;

    title_set("opener");
    payload_reset_signals();
    if (rights_die_with(keeper) < 0)
        _exit(1);
    memcpy(keep + 2, fds, n * sizeof *fds);
    int r = payload_keep_only(keep, 2 + n, &opened.err);
    if (r == 0 && (r = look(rootless, fds, n, &opened, place)) == 0)
        n_places = (int)n;
    if (link_send(link, &opened, sizeof opened, place, (size_t)n_places) < 0)
        _exit(1);
    /* Nothing but the end comes: then the keeper has closed all its descriptors. */
    while (recv(link, &nothing, 1, 0) < 0 && errno == EINTR)
        ;
    _exit(0);
}

/* ---- the keeper's side ---- */

/* Finds the responsible caller, without touching anything that can block. */
static int find_caller(bool rootless, int fd, uid_t *ret, struct err *e)
{
    struct ucred maker = { .uid = geteuid() };
    socklen_t size = sizeof maker;

    if (!rootless && (!fd_is_socket_pair(fd) || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &maker, &size) < 0))
        return err_at(e, EPERM, STEP_TREE, 0, "a mount must come in the caller's own envelope, a socket pair");
    *ret = maker.uid;
    return 0;
}

/* A free place in the table for another child of this caller. */
static int find_place(struct keeper *keeper, uid_t uid, struct opener **ret, struct err *e)
{
    uint64_t now = clock_monotonic_us();
    unsigned n = 0, n_of_caller = 0, n_stuck = 0;

    *ret = NULL;
    for (size_t i = 0; i < KEEPER_OPENERS; i++) {
        struct opener *o = &keeper->opener[i];
        if (o->process.pid && !o->is_held)
            keeper_opener_ended(keeper, (unsigned)i);
        if (o->process.pid == 0 && !o->is_held) {
            *ret = o;
            continue;
        }
        n++;
        n_of_caller += o->uid == uid;
        n_stuck += o->uid == uid && o->since_us && now - o->since_us > STUCK_MS * UINT64_C(1000);
    }
    if (n_stuck >= MOST_STUCK_OF_CALLER)
        return err_set(e, EAGAIN, STEP_TREE, "%u mounts of user %u do not answer; end their servers", n_stuck, uid);
    if (!*ret || n_of_caller >= (n < KEEPER_OPENERS / 2 ? MOST_OF_CALLER : MOST_OF_CALLER_IF_MANY))
        return err_set(e, EAGAIN, STEP_TREE, "too many mounts are being opened; try again");
    return 0;
}

static int start(struct keeper *keeper, struct opener *o, int *fds, size_t n, struct err *e)
{
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_at(e, errno, STEP_CLONE, 0, "opener link");
    FD ours = pair[0], theirs = pair[1];
    struct process child = { .pidfd = -1 };
    int r = process_clone(0, -1, -1, &child);
    if (r < 0)
        return err_at(e, -r, STEP_CLONE, 0, "opener");
    if (r == 0) {
        ours = fd_close(ours);
        run(keeper->host.self, keeper->host.rootless, theirs, fds, n);
    }
    o->process = child;
    o->link = TAKE_FD(ours);
    return 0;
}

int keeper_open_mounts(struct keeper *keeper, struct kept_box *box, const struct request_create *q, int *fds,
                       struct err *e)
{
    struct opener *o = NULL;
    struct kept_create *w = NULL;
    size_t n = frame_mount_flagged(&q->mounts, MOUNT_HAS_FD);
    uid_t uid = 0;
    int r = 0;

    for (size_t i = 0; i < n && r == 0; i++)
        r = find_caller(keeper->host.rootless, fds[i], &uid, e);
    if (r == 0)
        r = find_place(keeper, uid, &o, e);
    if (r == 0 && !(w = keeper_new_create(q)))
        r = err_at(e, ENOMEM, STEP_MEMORY, 0, "box");
    if (r == 0 && (r = start(keeper, o, fds, n, e)) < 0)
        free(w);
    /* Before the front gets an answer: it still has its copies, or the opener has. */
    for (size_t i = 0; i < n; i++)
        fds[i] = fd_close(fds[i]);
    if (r < 0 || !w)
        return r;
    o->uid = uid;
    o->since_us = clock_monotonic_us();
    o->is_held = true;
    w->opener = o;
    w->deadline_us = clock_monotonic_us() + PATIENCE_MS * UINT64_C(1000);
    box->waiting = w;
    box->box.state = BOX_MAKING;
    keeper_note_deadline(keeper, w->deadline_us);
    if ((r = keeper_watch(keeper, o->process.pidfd, WATCH_OPENER, 0, (uint32_t)(o - keeper->opener))) < 0
        || (r = keeper_watch(keeper, o->link, WATCH_MOUNTS, box->slot, 0)) < 0)
        r = err_at(e, -r, STEP_MEMORY, 0, "watching the box");
    return r;
}

int keeper_take_mounts(struct keeper *keeper, struct kept_box *box, struct err *e)
{
    struct kept_create *w = box->waiting;
    struct opened opened;
    size_t n = frame_mount_flagged(&w->frame.mounts, MOUNT_HAS_FD);
    int r = link_receive(w->opener->link, &opened, sizeof opened, w->fds, n, false);

    if (r == 0)
        return 0;
    /* The opener stays, because our copy must not be the last one. */
    keeper_unwatch(keeper, w->opener->link);
    w->deadline_us = w->opener->since_us = 0;
    if (r < 0)
        return err_at(e, ECANCELED, STEP_TREE, 0, "opening the mounts");
    w->n_fds = n;
    if (opened.err.code) {
        *e = opened.err;
        return -opened.err.code;
    }
    if (w->fds[n - 1] < 0)
        return err_at(e, EPROTO, STEP_TREE, 0, "opening the mounts");
    w->frame.owner_uid = opened.uid;
    w->frame.owner_gid = opened.gid;
    struct frame_mounts *mounts = &w->frame.mounts;
    for (size_t i = 0, k = 0; i < mounts->n; i++)
        if (mount_table[mounts->at[i].kind].flags & MOUNT_HAS_FD)
            mounts->at[i].is_file = opened.is_file[k++];
    return 1;
}

void keeper_free_opener(struct keeper *keeper, struct opener *o)
{
    keeper_unwatch(keeper, o->link);
    o->link = fd_close(o->link);
    o->is_held = false;
    if (!o->since_us)
        o->since_us = clock_monotonic_us();
    /* With or without success, its work is done. */
    if (o->process.pidfd >= 0)
        (void)!process_signal(&o->process, SIGKILL);
}

void keeper_opener_ended(struct keeper *keeper, unsigned place)
{
    struct opener *o = &keeper->opener[place % KEEPER_OPENERS];
    struct process_end end;

    if (o->process.pid == 0)
        return;
    keeper_unwatch(keeper, o->process.pidfd);
    int r = process_reap(&o->process, 0, &end);
    if (r == 0) {
        (void)!keeper_watch(keeper, o->process.pidfd, WATCH_OPENER, 0, place);
        return;
    }
    if (r < 0)
        o->process.pidfd = fd_close(o->process.pidfd);
    o->process.pid = 0;
}
