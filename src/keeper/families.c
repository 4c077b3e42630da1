/* Families in the keeper's loop. Nothing here blocks on a zygote: its hello, its end and the answers of its children
 * are descriptors in the epoll set, and each has a deadline.
 *
 *   MAKING ----> READY ----> ENDING ----> (out of its slot) ----> TREE -> gone
 *      imports     forks       its zygote    boxes live on, and     the last box has gone:
 *      |                       was killed    are only exec'd in     init is killed
 *      +---------------------> or has ended
 *
 * Families are few, so an event of one makes us check all. The payloads that their zygotes fork are in forks.c.
 *
 * A zygote can give birth to children of ours that we never requested. They can harm only their own box, but as zombies
 * they would keep its pid namespace, and so its end, waiting. So unknown zombie children are reaped now and then, and
 * while any box is dying. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/list.h"
#include "keeper/families.h"
#include "keeper/later.h"
#include "keeper/layers.h"
#include "keeper/mounts.h"
#include "keeper/opener.h"
#include "proto/checks.h"

enum { SWEEP_US = 1000000, SWEEP_SOON_US = 5000, END_STEP_MS = 5 };
enum { FAMILY_UID = 1000 };      /* of the zygote; boxes have ids of their own */

static struct err zygote_ended(const struct kept_family *f, bool was_ready)
{
    const struct process_end *end = &f->family.zygote_end;
    const char *when = was_ready ? "" : " before it was ready";
    struct err e = { 0 };

    if (end->signal)
        (void)err_set(&e, ECHILD, STEP_WAIT, "the zygote was ended by signal %d%s", end->signal, when);
    else
        (void)err_set(&e, ECHILD, STEP_WAIT, "the zygote ended with status %d%s", end->code, when);
    return e;
}

static void free_family(struct kept_family *f)
{
    LIST_REMOVE(f);
    keeper_release_layer(f->layer);
    free(f);
}

void keeper_stop_family(struct keeper *keeper, struct kept_family *f, const struct err *cause)
{
    if (f->state >= FAMILY_ENDING)
        return;
    if (cause)
        f->cause = *cause;
    f->was_ready = f->state == FAMILY_READY;
    f->state = FAMILY_ENDING;
    f->deadline_us = 0;
    family_stop(&f->family);
    keeper->look_at_line = true;
}

/* Its zygote has ended and was reaped. */
static void leave_slot(struct keeper *keeper, struct kept_family *f)
{
    /* The closed link is only a consequence. */
    if (!f->was_ready && f->cause.code == ECHILD)
        f->cause = zygote_ended(f, false);
    struct event_family_gone gone = { .head.type = EVENT_FAMILY_GONE,
                                      .token = f->token,
                                      .slot = f->slot,
                                      .code = f->family.zygote_end.code,
                                      .signal = f->family.zygote_end.signal,
                                      .cause = f->cause };
    struct err none = { 0 };

    f->state = FAMILY_ORPHANED;
    if (keeper->family[f->slot] != f)
        return;     /* the front has never heard of it */
    keeper->family[f->slot] = NULL;
    keeper_tell(keeper, &gone, sizeof gone, NULL, 0);
    if (!f->cause.code)
        (void)err_at(&f->cause, ECANCELED, STEP_WAIT, 0, "the family is being ended");
    if (f->make_serial)
        keeper_tell_done(keeper, 0, f->make_serial, &f->cause);
    if (f->end_serial)
        keeper_tell_done(keeper, 0, f->end_serial, &none);
}

static void tell_ready(struct keeper *keeper, struct kept_family *f)
{
    struct event_family ready = { .head = { .type = EVENT_FAMILY, .serial = f->make_serial },
                                  .token = f->token,
                                  .slot = f->slot };

    f->make_serial = 0;
    keeper_tell(keeper, &ready, sizeof ready, NULL, 0);
}

/* Checks whether the zygote has become ready. */
static void hear_first_word(struct keeper *keeper, struct kept_family *f)
{
    struct err e = { 0 };
    int r = family_ready(&f->family, 0, &e);

    if (r == 0 && f->deadline_us <= clock_monotonic_us())
        r = err_set(&e, ETIMEDOUT, STEP_WAIT, "the zygote was not ready within %d s", FAMILY_READY_MS / 1000);
    if (r < 0)
        keeper_stop_family(keeper, f, &e);
    if (r <= 0)
        return;
    /* It sends nothing more there, and its end is seen elsewhere. */
    (void)epoll_ctl(keeper->epoll, EPOLL_CTL_DEL, f->family.control, NULL);
    f->state = FAMILY_READY;
    f->deadline_us = 0;
    tell_ready(keeper, f);
}

void keeper_look_at_families(struct keeper *keeper)
{
    for (struct kept_family *f = keeper->families, *next; f; f = next) {
        next = f->next;
        /* In this order: after its end everything that it sent can be read, and may hold the reason. */
        family_reap(&f->family);
        if (f->state == FAMILY_MAKING)
            hear_first_word(keeper, f);
        if (f->state <= FAMILY_ENDING && f->family.zygote.pidfd < 0) {
            struct err e = zygote_ended(f, f->state == FAMILY_READY);
            keeper_stop_family(keeper, f, &e);
            leave_slot(keeper, f);
        }
        if (f->state == FAMILY_ORPHANED && f->n_boxes == 0) {
            family_kill(&f->family);
            f->state = FAMILY_TREE;
        }
        if (f->state == FAMILY_TREE && family_release(&keeper->host, &f->family) > 0)
            free_family(f);
    }
}

unsigned keeper_count_known(const struct keeper *keeper, pid_t pid)
{
    unsigned n = keeper->host.janitor_process.pid == pid;

    for (size_t i = 0; i < KEEPER_OPENERS; i++)
        n += keeper->opener[i].process.pid == pid;
    for (const struct kept_dying *d = keeper->dying; d; d = d->next)
        n += d->process.pid == pid;
    for (const struct kept_family *f = keeper->families; f; f = f->next)
        n += (f->family.zygote.pid == pid) + (f->family.box.init.pid == pid);
    for (uint32_t i = 0; i < KEEPER_BOXES; i++) {
        const struct kept_box *box = keeper->box[i];
        if (!box)
            continue;
        n += (box->box.init.pid == pid) + (box->box.midwife.pid == pid) + (box->box.first.process.pid == pid)
           + (box->waiting && box->waiting->job.process.pid == pid);
        for (unsigned k = 0; k < KEEPER_PAYLOADS; k++)
            n += box->payload[k] && box->payload[k]->payload.process.pid == pid;
    }
    return n;
}

static bool is_ours(const struct keeper *keeper, pid_t pid)
{
    return keeper_count_known(keeper, pid) > 0;
}

static bool is_known(pid_t pid, void *arg)
{
    return is_ours(arg, pid);
}

static void sweep(struct keeper *keeper)
{
    siginfo_t info;

    /* Almost always there is no zombie, and that costs one call. */
    for (;;) {
        info.si_pid = 0;
        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT | __WALL) < 0 || info.si_pid == 0)
            return;
        if (is_ours(keeper, info.si_pid))
            break;      /* its own event comes, but it hides the others */
        (void)waitid(P_PID, (id_t)info.si_pid, &info, WEXITED | WNOHANG | __WALL);
    }
    family_sweep_unknown(is_known, keeper);
}

int keeper_keep_families(struct keeper *keeper, int wait_ms)
{
    bool soon = keeper->n_dying > 0;

    if (!keeper->families && !soon) {
        keeper->sweep_us = 0;
        return wait_ms;
    }
    for (const struct kept_family *f = keeper->families; f; f = f->next)
        soon |= f->state >= FAMILY_ENDING && f->n_boxes == 0;
    uint64_t now = clock_monotonic_us(), next = now + (soon ? SWEEP_SOON_US : SWEEP_US);
    if (keeper->sweep_us == 0) {
        keeper->sweep_us = next;        /* most boxes have ended by then */
    } else if (keeper->sweep_us <= now) {
        sweep(keeper);
        keeper_look_at_families(keeper);
        keeper->sweep_us = next;
    } else if (keeper->sweep_us > next) {
        keeper->sweep_us = next;
    }
    int left_ms = (int)((keeper->sweep_us - now) / 1000) + 1;
    return wait_ms < 0 || left_ms < wait_ms ? left_ms : wait_ms;
}

/* ---- requests ---- */

int keeper_add_template(struct keeper *keeper, const char *text, struct err *e)
{
    struct kept_template *t = &keeper->template[keeper->n_templates];
    const char *equals = strchr(text, '=');

    if (!equals || equals == text)
        return err_set(e, EINVAL, STEP_USAGE, "keeper: --template wants NAME=DIR:DIR..., not %s", text);
    if (keeper->n_templates == KEEPER_TEMPLATES)
        return err_set(e, EINVAL, STEP_USAGE, "keeper: there are more than %d templates", KEEPER_TEMPLATES);
    /* Copies: a child overwrites the arguments when it sets its title. */
    t->text = strdup(text);
    if (!t->text)
        return err_at(e, ENOMEM, STEP_MEMORY, 0, "template");
    char *at = t->text + (equals - text);
    for (char *next = at + 1; (at = strsep(&next, ":"));) {
        if (!*at)
            continue;
        if (t->n == KEEPER_LAYERS || !target_is_plain(at, strlen(at) + 1))
            return err_set(e, EINVAL, STEP_USAGE, "keeper: --template: %s",
                           t->n == KEEPER_LAYERS ? "too many directories" : at);
        t->fd[t->n] = open(at, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (t->fd[t->n] < 0)
            return err_file(e, errno, "keeper: --template: %s", at);
        t->dir[t->n++] = at;
    }
    keeper->n_templates++;
    return 0;
}

static int make_family(struct keeper *keeper, const struct request_family *q, const int *fds, struct family *ret,
                       struct err *e)
{
    static struct box_spec spec;
    static struct plan plan;
    struct start start = { .packed = fds[0], .stdio = { -1, -1, q->has_stderr ? fds[1] : -1 } };

    spec = (struct box_spec){
        .profile = (enum profile)q->profile,
        .limits = q->limits,
        .hostname = "family",
        .uid = FAMILY_UID,
        .gid = FAMILY_UID,
    };
    int r = keeper_read_mounts(keeper, &q->mounts, NULL, -1, NULL, NULL, &spec, e);
    if (r == 0)
        r = box_check_limits(&keeper->host, &spec.limits, e);
    if (r == 0)
        r = facts_read_root(&keeper->host.facts, NULL, spec.has_network, e);
    if (r == 0)
        r = plan_make(&spec, &keeper->host.facts, &plan, e);
    if (r < 0)
        return r;
    family_plan(&plan);
    return family_create(&keeper->host, &plan, &start, ret, e);
}

static int watch_family(struct keeper *keeper, const struct family *family)
{
    int r = keeper_watch(keeper, family->zygote.pidfd, WATCH_FAMILY, 0, 0);

    if (r == 0)
        r = keeper_watch(keeper, family->zygote_link, WATCH_FAMILY, 0, 0);
    if (r == 0)
        r = keeper_watch(keeper, family->control, WATCH_FAMILY, 0, 0);
    return r < 0 ? r : keeper_watch(keeper, family->box.init.pidfd, WATCH_FAMILY, 0, 0);
}

int keeper_make_family(struct keeper *keeper, const struct request_family *q, const int *fds, size_t n_fds,
                       struct err *e)
{
    if (q->slot >= KEEPER_FAMILIES || q->profile >= PROFILE_COUNT || !frame_mounts_are_sane(&q->mounts)
        || frame_mount_flagged(&q->mounts, MOUNT_OF_FAMILY) != q->mounts.n || n_fds != 1 + !!q->has_stderr)
        return err_at(e, EINVAL, STEP_PROTOCOL, 0, "family");
    if (keeper->family[q->slot])
        return err_at(e, EBUSY, STEP_PROTOCOL, 0, "this family's number is in use");
    struct kept_family *f = calloc(1, sizeof *f);
    if (!f)
        return err_at(e, ENOMEM, STEP_MEMORY, 0, "family");
    int r = keeper_hold_layer(keeper, &q->mounts, &f->layer, e);
    if (r == 0)
        r = make_family(keeper, q, fds, &f->family, e);
    if (r == 0 && (r = watch_family(keeper, &f->family)) < 0) {
        r = err_at(e, -r, STEP_MEMORY, 0, "watching the family");
        family_destroy(&keeper->host, &f->family);
    }
    if (r < 0) {
        keeper_release_layer(f->layer);
        free(f);
        return r;
    }
    f->slot = q->slot;
    f->token = q->token;
    f->mounts = q->mounts;
    f->make_serial = q->head.serial;
    f->deadline_us = clock_monotonic_us() + FAMILY_READY_MS * UINT64_C(1000);
    LIST_ADD(keeper->families, f);
    keeper->family[f->slot] = f;
    return 0;
}

int keeper_end_family(struct keeper *keeper, const struct request_family_end *q, struct err *e)
{
    struct kept_family *f = q->slot < KEEPER_FAMILIES ? keeper->family[q->slot] : NULL;

    if (!f)
        return err_at(e, ENOENT, STEP_PROTOCOL, 0, "there is no such family");
    if (f->end_serial)
        return err_at(e, EALREADY, STEP_WAIT, 0, "the family is being ended");
    f->end_serial = q->head.serial;
    keeper_stop_family(keeper, f, NULL);
    return 0;
}

int keeper_find_family(const struct keeper *keeper, const struct request_create *q, struct kept_family **ret,
                       struct err *e)
{
    for (size_t i = 0; i < q->mounts.n; i++) {
        const struct frame_mount *m = &q->mounts.at[i];
        /* A zygote can become any process in its boxes, and would reach all their devices. */
        if (m->kind == MOUNT_DEVICE)
            return err_at(e, ENOTSUP, STEP_USAGE, i, "a box with devices cannot be of a family");
        if (m->number && !(mount_table[m->kind].flags & MOUNT_IN_FAMILY))
            return err_at(e, EINVAL, STEP_PROTOCOL, i, "create in a family");
    }
    if (q->family > KEEPER_FAMILIES)
        return err_at(e, EINVAL, STEP_PROTOCOL, 0, "create in a family");
    struct kept_family *f = keeper->family[q->family - 1];
    if (!f || f->state != FAMILY_READY)
        return err_at(e, ECHILD, STEP_USAGE, 0, "there is no such family, or it is not ready");
    if (!frame_mounts_equal(&f->mounts, &q->mounts, MOUNT_OF_FAMILY)
        || f->family.box.profile != (enum profile)q->profile)
        return err_at(e, EINVAL, STEP_PROTOCOL, 0, "a box must have the template and the profile of its family");
    *ret = f;
    return 0;
}

void keeper_leave_family(struct kept_box *box)
{
    if (!box->family)
        return;
    box->family->n_boxes--;
    box->family = NULL;
}

/* ---- all families ---- */

void keeper_tell_families(struct keeper *keeper)
{
    for (uint32_t i = 0; i < KEEPER_FAMILIES; i++) {
        struct kept_family *f = keeper->family[i];
        if (!f)
            continue;
        f->make_serial = f->end_serial = 0;
        if (f->state == FAMILY_READY) {
            tell_ready(keeper, f);
        } else {
            /* No request waits for it, and its end is not reported. */
            keeper_stop_family(keeper, f, NULL);
            keeper->family[i] = NULL;
        }
    }
}

void keeper_end_families(struct keeper *keeper)
{
    while (keeper->families) {
        struct kept_family *f = keeper->families;
        struct pollfd ended = { .fd = f->family.box.init.pidfd, .events = POLLIN };
        family_kill(&f->family);
        /* Unknown zombies keep its init waiting, too. */
        for (family_reap(&f->family); family_release(&keeper->host, &f->family) == 0; family_reap(&f->family)) {
            sweep(keeper);
            (void)poll(&ended, 1, END_STEP_MS);
        }
        free_family(f);
    }
    memset(keeper->family, 0, sizeof keeper->family);
}
