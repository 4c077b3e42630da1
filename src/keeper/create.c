/* From the frame that requests a box to the box.
 *
 *   frame -> spec -> plan      keeper_read_mounts() turns the frame's list of mounts into the spec's
 *   host mounts?               a child opens the callers' descriptors (opener.c)
 *   a store? volumes?          other children mount them, one after the other (box/store.h, box/volume.h)
 *   then                       raise_box()
 *   in a family?               it queues until few of its boxes are being born; then a midwife gives birth to its
 *                              init (box/family/family_box.c). A box that is made ahead queues until no caller's box
 *                              queues or is being born in any family
 *
 * No step blocks: until the box exists its frame is kept in box->waiting, and a box whose init is not born yet has a
 * midwife. */
#define _GNU_SOURCE
#include "keeper/create.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fd.h"
#include "keeper/families.h"
#include "keeper/later.h"
#include "keeper/layers.h"
#include "keeper/mounts.h"
#include "keeper/opener.h"
#include "keeper/trust.h"
#include "keeper/volumes.h"
#include "proto/checks.h"

/* For each family. More births would slow each other down, and each midwife is a copy of this process. */
enum { BIRTHS_MOST = 4 };

static int read_spec(const struct keeper *keeper, const struct kept_box *box, const struct request_create *q,
                     const int *fds, int store, const struct volume_uses *volumes, struct borrowed *borrowed,
                     struct box_spec *spec, struct err *e)
{
    if (q->profile >= PROFILE_COUNT || q->uid > 65534 || q->gid > 65534
        || !hostname_is_plain(q->hostname, sizeof q->hostname))
        return err_at(e, EINVAL, STEP_PROTOCOL, 0, "create");
    *spec = (struct box_spec){
        .terminal = q->flags & CREATE_TERMINAL,
        .has_secrets = true,
        .has_network = q->flags & CREATE_NETWORK,
        .profile = (enum profile)q->profile,
        .limits = q->limits,
        .hostname = q->hostname,
        .uid = q->uid,
        .gid = q->gid,
        .trust = box->trust,
    };
    return keeper_read_mounts(keeper, &q->mounts, fds, store, volumes, borrowed, spec, e);
}

static int make_plan(struct keeper *keeper, const struct kept_box *box, const struct request_create *q, const int *fds,
                     int store, const struct volume_uses *volumes, struct borrowed *borrowed, struct plan *plan,
                     struct err *e)
{
    static struct box_spec spec;    /* the plan borrows from it */

    int r = read_spec(keeper, box, q, fds, store, volumes, borrowed, &spec, e);
    if (r == 0)
        r = box_check_limits(&keeper->host, &spec.limits, e);
    if (r == 0)
        r = facts_read_root(&keeper->host.facts, spec_root(&spec), spec.has_network, e);
    return r < 0 ? r : plan_make(&spec, &keeper->host.facts, plan, e);
}

/* Watches init: its messages, and its end. */
static int watch_box(struct keeper *keeper, struct kept_box *box, struct err *e)
{
    const struct engine_box *b = &box->box;
    int r;

    if ((r = keeper_watch(keeper, b->init.pidfd, WATCH_INIT, box->slot, 0)) < 0
        || (r = keeper_watch(keeper, b->link, WATCH_BOX_LINK, box->slot, 0)) < 0
        || (!b->family && (r = keeper_watch(keeper, b->first.process.pidfd, WATCH_FIRST_END, box->slot, 0)) < 0)
        || (b->oom >= 0 && (r = keeper_watch(keeper, b->oom, WATCH_MEMORY, box->slot, 0)) < 0))
        return err_at(e, -r, STEP_MEMORY, 0, "watching the box");
    return 0;
}

/* Watches a midwife's message and its end: it may end without a message, and an init that it gave birth to would hold
 * its link open. */
static int watch_birth(struct keeper *keeper, struct kept_box *box, struct err *e)
{
    int r = keeper_watch(keeper, box->box.birth, WATCH_BIRTH, box->slot, 0);

    if (r == 0)
        r = keeper_watch(keeper, box->box.midwife.pidfd, WATCH_BIRTH, box->slot, 0);
    return r < 0 ? err_at(e, -r, STEP_MEMORY, 0, "watching the box") : 0;
}

static void set_deadline(struct keeper *keeper, struct kept_box *box)
{
    box->deadline_us = clock_monotonic_us() + FAMILY_FORK_MS * UINT64_C(1000);
    keeper_note_deadline(keeper, box->deadline_us);
}

static void count_birth(struct keeper *keeper, const struct kept_box *box, bool begins)
{
    unsigned by = begins ? 1 : -1u;

    box->family->n_births += by;
    if (!box->is_ahead)
        keeper->n_callers_born += by;
}

/* The midwife is done and will exit; it is reaped when the box is complete or destroyed. */
static void birth_is_over(struct keeper *keeper, struct kept_box *box)
{
    keeper_unwatch(keeper, box->box.midwife.pidfd);
    count_birth(keeper, box, false);
    keeper->look_at_line = true;
}

/* The box is dying, and its birth is cancelled. */
static void end_unborn(struct keeper *keeper, struct kept_box *box)
{
    struct process_end end;

    keeper_reap_later(keeper, &box->box.midwife);
    if (box->box.init.pidfd >= 0 && keeper_watch(keeper, box->box.init.pidfd, WATCH_INIT, box->slot, 0) == 0)
        return;
    if (box->box.init.pidfd >= 0)
        box_reap_init(&box->box, &end);
    keeper_bury_box(keeper, box);
}

void keeper_birth_goes_on(struct keeper *keeper, struct kept_box *box)
{
    struct engine_box *b = &box->box;
    struct err e = { 0 };

    if (b->birth < 0)
        return;
    if (box->dying) {
        if (family_box_call_off(b, false) > 0) {
            birth_is_over(keeper, box);
            end_unborn(keeper, box);
        }
        return;
    }
    keeper_unwatch(keeper, b->birth);
    int r = family_box_born(b, &e);
    if (r == 0 && (r = keeper_watch(keeper, b->birth, WATCH_BIRTH, box->slot, 0)) == 0)
        return;
    if (b->birth < 0)
        birth_is_over(keeper, box);
    if (r > 0)
        r = watch_box(keeper, box, &e);
    if (r == 0) {
        set_deadline(keeper, box);      /* now it is the zygote's deadline */
        return;
    }
    if (!e.code)
        (void)err_at(&e, -r, STEP_MEMORY, 0, "watching the box");
    keeper_end_box(keeper, box, &e);
    if (b->birth < 0)
        end_unborn(keeper, box);
}

/* Makes the box in its slot. store: the mounted tree, or -1. Its volumes are mounted. On failure the box is empty. */
static int raise_box(struct keeper *keeper, struct kept_box *box, const struct request_create *q, const int *fds,
                     int store, struct err *e)
{
    static struct plan plan;        /* large, and unused after box_create */
    static struct borrowed borrowed;
    struct kept_family *family = NULL;
    int r = make_plan(keeper, box, q, fds, store, &box->volumes, &borrowed, &plan, e);

    if (r == 0 && q->family)
        r = keeper_find_family(keeper, q, &family, e);
    if (r == 0) {
        keeper->host.caller_uid = q->owner_uid;
        keeper->host.caller_gid = q->owner_gid;
        r = family ? family_box_create(&keeper->host, &family->family, &plan, true, &box->box, e)
                   : box_create(&keeper->host, &plan, NULL, true, &box->box, e);
    }
    keeper_return_mounts(&borrowed);
    keeper_close_volumes(&box->volumes);
    keeper_drop_trust(&box->trust);
    if (r < 0) {
        box_clear(&box->box);
        return r;
    }
    if (family) {
        family->n_boxes++;
        box->family = family;
        box->box.is_blank = q->flags & CREATE_BLANK;
        count_birth(keeper, box, true);
        set_deadline(keeper, box);
    }
    r = family ? watch_birth(keeper, box, e) : watch_box(keeper, box, e);
    if (r < 0) {
        struct process_end end;
        box_destroy(&keeper->host, &box->box, &end);
        box_clear(&box->box);
        if (family)
            count_birth(keeper, box, false);
        keeper_leave_family(box);
    }
    return r;
}

struct kept_create *keeper_new_create(const struct request_create *q)
{
    struct kept_create *w = calloc(1, sizeof *w);

    if (!w)
        return NULL;
    w->frame = *q;
    w->job.link = w->job.process.pidfd = w->store_tree = -1;
    return w;
}

/* Keeps the frame until the box can be made. */
static int keep_frame(struct kept_box *box, const struct request_create *q, struct err *e)
{
    if (!box->waiting)
        box->waiting = keeper_new_create(q);
    return box->waiting ? 0 : err_at(e, ENOMEM, STEP_MEMORY, 0, "box");
}

/* Whether a box of this family must wait until others are born. One that is made ahead would take processors from the
 * callers' boxes of all families, so it waits for those. */
static bool is_crowded(const struct keeper *keeper, const struct kept_family *family, bool is_ahead)
{
    return family->n_births >= BIRTHS_MOST || (is_ahead && keeper->n_callers_born > 0);
}

/* Whether one that came before it, or that goes before it, waits. */
static bool is_overtaken(const struct keeper *keeper, const struct kept_family *family, bool is_ahead)
{
    for (const struct kept_box *box = keeper->line; box; box = box->waiting->next_in_line)
        if (!box->dying && (is_ahead || (!box->is_ahead && box->waiting->frame.family == family->slot + 1)))
            return true;
    return false;
}

static void join_line(struct keeper *keeper, struct kept_box *box)
{
    struct kept_box **at = &keeper->line;

    while (*at && (box->is_ahead || !(*at)->is_ahead))
        at = &(*at)->waiting->next_in_line;
    box->waiting->next_in_line = *at;
    box->waiting->is_in_line = true;
    *at = box;
}

/* Makes a box without a store now, or queues it. */
static int raise_in_turn(struct keeper *keeper, struct kept_box *box, const struct request_create *q, const int *fds,
                         struct err *e)
{
    struct kept_family *family = NULL;
    int r = q->family ? keeper_find_family(keeper, q, &family, e) : 0;

    bool waits = family && (is_crowded(keeper, family, box->is_ahead) || is_overtaken(keeper, family, box->is_ahead));
    if (r == 0 && !waits)
        return raise_box(keeper, box, q, fds, -1, e);
    if (r == 0)
        r = keep_frame(box, q, e);
    if (r < 0)
        return r;
    join_line(keeper, box);
    box->box.state = BOX_MAKING;
    return 0;
}

static void leave_line(struct keeper *keeper, const struct kept_box *box)
{
    struct kept_box **at = &keeper->line;

    while (*at && *at != box)
        at = &(*at)->waiting->next_in_line;
    if (*at)
        *at = box->waiting->next_in_line;
    box->waiting->is_in_line = false;
}

/* Callers' boxes come first in the line. */
static bool callers_wait(const struct keeper *keeper)
{
    return keeper->line && !keeper->line->is_ahead;
}

/* Makes the box if it is its turn. It may be gone afterwards. */
static void take_turn(struct keeper *keeper, struct kept_box *box)
{
    const struct kept_create *w = box->waiting;
    struct kept_family *family = NULL;
    struct err e = { 0 };
    int r = box->dying ? 0 : keeper_find_family(keeper, &w->frame, &family, &e);

    if (family && (is_crowded(keeper, family, box->is_ahead) || (box->is_ahead && callers_wait(keeper))))
        return;
    if (r == 0 && !box->dying)
        r = raise_box(keeper, box, &w->frame, w->fds, -1, &e);
    if (r < 0)
        keeper_end_box(keeper, box, &e);
    keeper_free_create(keeper, box);
    if (box->dying)
        keeper_bury_box(keeper, box);
}

void keeper_take_turns(struct keeper *keeper)
{
    if (!keeper->look_at_line)
        return;
    keeper->look_at_line = false;
    keeper_take_fork_turns(keeper);
    for (struct kept_box *box = keeper->line, *next; box; box = next) {
        next = box->waiting->next_in_line;
        take_turn(keeper, box);
    }
}

void keeper_free_create(struct keeper *keeper, struct kept_box *box)
{
    struct kept_create *w = box->waiting;
    struct process_end end;
    struct err ignored;
    FD tree = -1;

    if (w->is_in_line)
        leave_line(keeper, box);

    if (w->job.process.pidfd >= 0)
        (void)!process_reap(&w->job.process, 1, &end);
    if (w->job.link >= 0 && w->mounts_volumes)
        (void)!volumes_mounted(&w->job, box->volumes.use, box->volumes.n, &ignored);
    else if (w->job.link >= 0)
        (void)!store_ready(&keeper->stores, &w->job, &tree, &ignored);
    keeper_close_volumes(&box->volumes);
    fd_close(w->store_tree);
    for (size_t i = 0; i < w->n_fds; i++)
        fd_close(w->fds[i]);
    if (w->opener)
        keeper_free_opener(keeper, w->opener);
    free(w);
    box->waiting = NULL;
}

/* A job has begun. */
static int watch_job(struct keeper *keeper, struct kept_box *box, struct err *e)
{
    struct kept_create *w = box->waiting;
    int r = keeper_watch(keeper, w->job.process.pidfd, WATCH_STORE, box->slot, 0);

    if (r < 0) {
        (void)!process_signal(&w->job.process, SIGKILL);
        return err_at(e, -r, STEP_MEMORY, 0, "watching the box");
    }
    box->box.state = BOX_MAKING;
    return 0;
}

/* A child mounts the volumes; the box is made afterwards. Folders need no child. */
static int mount_volumes(struct keeper *keeper, struct kept_box *box, const struct request_create *q, const int *fds,
                         int store, struct err *e)
{
    struct volume_uses *v = &box->volumes;

    if (keeper->volumes.are_folders) {
        int r = keeper_open_folders(keeper, v, e);
        if (r == 0)
            r = raise_box(keeper, box, q, fds, store, e);
        keeper_close_volumes(v);
        return r;
    }
    int r = keep_frame(box, q, e);
    if (r < 0)
        return r;
    keeper_recall_devices(keeper, v);
    box->waiting->mounts_volumes = true;
    r = volumes_mount(&keeper->volumes, keeper->host.self, v->use, v->n, q->uid, q->gid, &box->waiting->job, e);
    return r < 0 ? r : watch_job(keeper, box, e);
}

/* A child mounts the store; the box is made afterwards. */
static int mount_store(struct keeper *keeper, struct kept_box *box, const struct request_create *q, struct err *e)
{
    int r = keep_frame(box, q, e);

    if (r < 0)
        return r;
    struct kept_create *w = box->waiting;
    r = store_prepare(&keeper->stores, keeper->host.self, box->store, q->limits.disk_bytes, &w->job, e);
    return r < 0 ? r : watch_job(keeper, box, e);
}

/* Begins with the first thing that the box needs. */
static int mount_or_raise(struct keeper *keeper, struct kept_box *box, const struct request_create *q, const int *fds,
                          struct err *e)
{
    return box->store       ? mount_store(keeper, box, q, e)
           : box->volumes.n ? mount_volumes(keeper, box, q, fds, -1, e)
                            : raise_in_turn(keeper, box, q, fds, e);
}

static bool still_waits(const struct kept_create *w)
{
    return w->job.process.pidfd >= 0 || w->is_in_line;
}

void keeper_mounts_opened(struct keeper *keeper, struct kept_box *box)
{
    const struct kept_create *w = box->waiting;
    const struct request_create *q = &w->frame;
    struct err e = { 0 };
    int r = keeper_take_mounts(keeper, box, &e);

    if (r == 0)
        return;
    if (r > 0 && !box->dying)
        r = mount_or_raise(keeper, box, q, w->fds, &e);
    if (r == 0 && still_waits(w))
        return;
    if (r < 0)
        keeper_end_box(keeper, box, &e);
    keeper_free_create(keeper, box);
    if (box->dying)
        keeper_bury_box(keeper, box);
}

void keeper_store_ended(struct keeper *keeper, struct kept_box *box)
{
    struct kept_create *w = box->waiting;
    struct process_end end;
    struct err e = { 0 };
    FD tree = -1;

    if (process_reap(&w->job.process, 0, &end) <= 0)
        return;
    int r = w->mounts_volumes ? volumes_mounted(&w->job, box->volumes.use, box->volumes.n, &e)
                              : store_ready(&keeper->stores, &w->job, &tree, &e);
    if (w->mounts_volumes)
        tree = TAKE_FD(w->store_tree);
    if (r == 0 && !box->dying && box->volumes.n && !w->mounts_volumes) {
        r = mount_volumes(keeper, box, &w->frame, w->fds, tree, &e);
        if (r == 0 && still_waits(w)) {
            w->store_tree = TAKE_FD(tree);
            return;
        }
    } else if (r == 0 && !box->dying) {
        r = raise_box(keeper, box, &w->frame, w->fds, tree, &e);
    }
    if (r < 0)
        keeper_end_box(keeper, box, &e);
    keeper_free_create(keeper, box);
    if (box->dying)
        keeper_bury_box(keeper, box);
}

int keeper_check_store(const struct keeper *keeper, uint64_t store, struct err *e)
{
    for (uint32_t i = 0; store && i < KEEPER_BOXES; i++)
        if (keeper->box[i] && keeper->box[i]->store == store)
            return err_at(e, EBUSY, STEP_USAGE, 0, "the box's files are in use");
    return 0;
}

/* Checks that need no child, before the mounts are opened. */
static int check_create(struct keeper *keeper, const struct kept_box *box, const struct request_create *q,
                        const int *fds, struct err *e)
{
    static struct plan plan;
    static struct borrowed borrowed;
    struct kept_family *family;
    int r = keeper_check_store(keeper, frame_mount_number(&q->mounts, MOUNT_STORE), e);

    if (r == 0)
        r = make_plan(keeper, box, q, fds, -1, NULL, &borrowed, &plan, e);
    keeper_return_mounts(&borrowed);
    return r == 0 && q->family ? keeper_find_family(keeper, q, &family, e) : r;
}

static void free_unmade(struct keeper *keeper, struct kept_box *box)
{
    if (box->waiting)
        keeper_free_create(keeper, box);
    keeper_drop_trust(&box->trust);
    keeper_release_layer(box->layer);
    free(box);
}

/* fds: those of the frame's mounts. */
static int create(struct keeper *keeper, struct kept_box *box, const struct request_create *q, int *fds, size_t n_fds,
                  struct err *e)
{
    bool waits = box->store || n_fds || frame_mount_find(&q->mounts, MOUNT_VOLUME);
    int r = keeper_hold_layer(keeper, &q->mounts, &box->layer, e);

    if (r == 0 && q->flags & CREATE_TRUST)
        r = keeper_take_trust(&fds[n_fds], &box->trust, e);
    if (r == 0 && waits)
        r = check_create(keeper, box, q, fds, e);
    if (r < 0)
        return r;
    keeper_name_volumes(&q->mounts, &box->volumes);
    return n_fds ? keeper_open_mounts(keeper, box, q, fds, e) : mount_or_raise(keeper, box, q, fds, e);
}

int keeper_create(struct keeper *keeper, const struct request_create *q, int *fds, size_t n_fds, struct err *e)
{
    size_t n_mounts = n_fds - (q->flags & CREATE_TRUST ? CREATE_TRUST_FDS : 0);

    if (!frame_mounts_are_sane(&q->mounts) || frame_mount_flagged(&q->mounts, MOUNT_HAS_FD) != n_mounts
        || q->flags > CREATE_FLAGS || (q->flags & CREATE_BLANK && !q->family))
        return err_at(e, EINVAL, STEP_PROTOCOL, 0, "create");
    struct kept_box *box = calloc(1, sizeof *box);
    if (!box)
        return err_at(e, ENOMEM, STEP_MEMORY, 0, "box");
    box_clear(&box->box);
    box->slot = q->head.box;
    box->token = q->token;
    box->is_ahead = q->flags & CREATE_AHEAD;
    box->store = frame_mount_number(&q->mounts, MOUNT_STORE);
    int r = create(keeper, box, q, fds, n_mounts, e);
    if (r < 0) {
        free_unmade(keeper, box);
        return r;
    }
    keeper->box[box->slot] = box;
    keeper->n_boxes++;
    box->create_serial = q->head.serial;
    return 0;
}
