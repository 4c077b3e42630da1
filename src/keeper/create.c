/* From the frame that asks for a box to the box.
 *
 *   frame -> spec -> plan      read_mounts() turns the frame's list of mounts into the spec's
 *   host mounts?               a child opens what callers handed over (opener.c)
 *   a store?                   another child mounts it (box/store.h)
 *   then                       raise_box()
 *   in a family?               it stands in line until few are being born there; then a midwife gives birth to its
 *                              init (box/family/family_box.c)
 *
 * Nothing waits: until there is a box the frame is kept in box->waiting, and a box whose init is not born yet knows its
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
#include "box/device.h"
#include "keeper/families.h"
#include "keeper/later.h"
#include "keeper/opener.h"
#include "proto/checks.h"

/* Of one family. More would only get in each other's way, and each midwife has a copy of all that we have. */
enum { BIRTHS_MOST = 4 };

/* What a plan borrows of the host's devices. */
struct given {
    struct devices      devices;
    struct device_files files;
};

static void give_back(struct given *given)
{
    device_close(&given->files);
    devices_free(&given->devices);
}

static int read_host(const struct frame_mount *m, size_t i, int fd, struct box_spec *spec, struct err *e)
{
    if (!target_is_plain(m->target, sizeof m->target))
        return err_at(e, EINVAL, STEP_PROTOCOL, i, "mount target");
    spec->mount[spec->n_mounts++] = (struct mount_spec){
        .source = m->target, .target = m->target, .writable = m->writable != 0, .is_file = m->is_file != 0, .fd = fd
    };
    return 0;
}

/* A device by its name. What it is made of is the administrator's word twice: the kind is allowed, and the
 * specifications are his. */
static int read_device(const struct keeper *keeper, const struct frame_mount *m, size_t i, struct given *given,
                       struct box_spec *spec, struct err *e)
{
    char kind[CDI_NAME_MAX];

    if (!memchr(m->target, 0, sizeof m->target) || !cdi_name_is_valid(m->target))
        return err_at(e, EINVAL, STEP_PROTOCOL, i, "device");
    snprintf(kind, sizeof kind, "%.*s", (int)strcspn(m->target, "="), m->target);
    if (!keeper->device_kinds || !cdi_kind_is_allowed(keeper->device_kinds, kind))
        return err_set(e, EPERM, STEP_USAGE, "devices of the kind %s are not allowed on this server (devices.allow)",
                       kind);
    return device_add(spec, &keeper->host.facts, &given->devices, m->target, &given->files, e);
}

static bool is_covered(const struct box_spec *spec, const char *path)
{
    for (size_t i = 0; i < spec->n_mounts; i++) {
        size_t length = spec->mount[i].kind == MOUNT_HOST ? strlen(spec->mount[i].target) : 0;
        if (length && strncmp(path, spec->mount[i].target, length) == 0 && path[length] == '/')
            return true;
    }
    return false;
}

/* A template's directory below what the caller mounts, root's home for example, would be hidden by it. It comes after
 * it, and is seen if the caller has left an empty directory for it; what the caller has there himself stays. */
static void uncover_layers(struct box_spec *spec)
{
    for (size_t i = spec->n_mounts; i-- > 0;) {
        struct mount_spec layer = spec->mount[i];
        if (layer.kind != MOUNT_LAYER || !is_covered(spec, layer.target))
            continue;
        layer.fills_gap = true;
        memmove(&spec->mount[i], &spec->mount[i + 1], (spec->n_mounts - i - 1) * sizeof layer);
        spec->mount[spec->n_mounts - 1] = layer;
    }
}

/* The frame's list becomes the spec's: numbers become what the keeper's configuration names by them, the descriptors
 * are those that came with the host mounts. store: the mounted tree, or -1. */
static int read_mounts(const struct keeper *keeper, const struct request_create *q, const int *fds, int store,
                       struct given *given, struct box_spec *spec, struct err *e)
{
    size_t n_host = 0;
    int r = 0;

    if (frame_mount_count(q, MOUNT_DEVICE))
        devices_read(keeper->host.rootless, &given->devices);

    for (size_t i = 0; i < q->n_mounts && r == 0; i++) {
        const struct frame_mount *m = &q->mount[i];
        switch ((enum mount_kind)m->kind) {
        case MOUNT_HOST:
            r = read_host(m, i, fds[n_host++], spec, e);
            break;
        case MOUNT_ROOT:
            if (m->number > keeper->n_roots)
                return err_at(e, EINVAL, STEP_PROTOCOL, i, "root");
            spec->mount[spec->n_mounts++] = (struct mount_spec){
                .kind = MOUNT_ROOT, .source = m->number ? keeper->root[m->number - 1] : NULL,
                .writable = m->writable != 0, .fd = -1
            };
            break;
        case MOUNT_LAYER:
            if (m->number == 0 || m->number > keeper->n_templates)
                return err_at(e, EINVAL, STEP_PROTOCOL, i, "template");
            keeper_add_layers(keeper, m->number, spec);
            break;
        case MOUNT_STORE:
            if (m->number == 0)
                return err_at(e, EINVAL, STEP_PROTOCOL, i, "store");
            spec->mount[spec->n_mounts++] = (struct mount_spec){ .kind = MOUNT_STORE, .fd = store };
            break;
        case MOUNT_TMPFS:
        case MOUNT_DEVICE:
            break;
        case MOUNT_KINDS:
        default:
            return err_at(e, EINVAL, STEP_PROTOCOL, i, "kind of mount");
        }
    }
    uncover_layers(spec);
    /* Last, because they are as many entries as they like: for all others there is room. */
    for (size_t i = 0; i < q->n_mounts && r == 0; i++)
        if (q->mount[i].kind == MOUNT_DEVICE)
            r = read_device(keeper, &q->mount[i], i, given, spec, e);
    return r;
}

static int read_spec(const struct keeper *keeper, const struct request_create *q, const int *fds, size_t n_fds,
                     int store, struct given *given, struct box_spec *spec, struct err *e)
{
    if (q->profile >= PROFILE_COUNT || q->n_mounts > KEEPER_LIST || frame_mount_count(q, MOUNT_HOST) != n_fds
        || frame_mount_count(q, MOUNT_DEVICE) > KEEPER_DEVICES
        || frame_mount_count(q, MOUNT_ROOT) > 1 || frame_mount_count(q, MOUNT_LAYER) > 1
        || frame_mount_count(q, MOUNT_TMPFS) + frame_mount_count(q, MOUNT_STORE) > 1 || q->uid > 65534 || q->gid > 65534
        || !hostname_is_plain(q->hostname, sizeof q->hostname))
        return err_at(e, EINVAL, STEP_PROTOCOL, 0, "create");
    *spec = (struct box_spec){
        .terminal = q->flags & CREATE_TERMINAL,
        .has_network = q->flags & CREATE_NETWORK,
        .profile = (enum profile)q->profile,
        .limits = q->limits,
        .hostname = q->hostname,
        .uid = q->uid,
        .gid = q->gid,
    };
    return read_mounts(keeper, q, fds, store, given, spec, e);
}

static int make_plan(struct keeper *keeper, const struct request_create *q, const int *fds, size_t n_fds, int store,
                     struct given *given, struct plan *plan, struct err *e)
{
    static struct box_spec spec;    /* lives as long as the plan */

    int r = read_spec(keeper, q, fds, n_fds, store, given, &spec, e);
    if (r == 0)
        r = box_check_limits(&keeper->host, &spec.limits, e);
    if (r == 0)
        r = facts_read_root(&keeper->host.facts, spec_root(&spec), e);
    return r < 0 ? r : plan_make(&spec, &keeper->host.facts, plan, e);
}

/* Its init is there: what it says, and its end. */
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

/* The end of a midwife is watched besides its word: it may come without one, and an init that it gave birth to would
 * hold its link open. */
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

/* The midwife has nothing left to do but to end, and is reaped when the box is complete or goes. */
static void birth_is_over(struct keeper *keeper, struct kept_box *box)
{
    keeper_unwatch(keeper, box->box.midwife.pidfd);
    box->family->n_births--;
    keeper->look_at_line = true;
}

/* The box is dying, and nobody is born in it any more. */
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
        set_deadline(keeper, box);      /* from now on it is the zygote's */
        return;
    }
    if (!e.code)
        (void)err_at(&e, -r, STEP_MEMORY, 0, "watching the box");
    keeper_end_box(keeper, box, &e);
    if (b->birth < 0)
        end_unborn(keeper, box);
}

/* Makes the box in its slot. store: the mounted tree, or -1. On failure the box is none. */
static int raise_box(struct keeper *keeper, struct kept_box *box, const struct request_create *q, const int *fds,
                     size_t n_fds, int store, struct err *e)
{
    static struct plan plan;        /* big, and used by nobody after box_create */
    static struct given given;
    struct kept_family *family = NULL;
    int r = make_plan(keeper, q, fds, n_fds, store, &given, &plan, e);

    if (r == 0 && q->family)
        r = keeper_find_family(keeper, q, &family, e);
    if (r == 0) {
        keeper->host.caller_uid = q->owner_uid;
        keeper->host.caller_gid = q->owner_gid;
        r = family ? family_box_create(&keeper->host, &family->family, &plan, true, &box->box, e)
                   : box_create(&keeper->host, &plan, NULL, true, &box->box, e);
    }
    give_back(&given);
    if (r < 0) {
        box_clear(&box->box);
        return r;
    }
    if (family) {
        family->n_boxes++;
        family->n_births++;
        box->family = family;
        set_deadline(keeper, box);
    }
    r = family ? watch_birth(keeper, box, e) : watch_box(keeper, box, e);
    if (r < 0) {
        struct process_end end;
        box_destroy(&keeper->host, &box->box, &end);
        box_clear(&box->box);
        if (family)
            family->n_births--;
        keeper_leave_family(box);
    }
    return r;
}

/* The frame is kept until there is more. */
static int keep_frame(struct kept_box *box, const struct request_create *q, struct err *e)
{
    struct kept_create *w = box->waiting;

    if (w)
        return 0;
    w = box->waiting = calloc(1, sizeof *w);
    if (!w)
        return err_at(e, ENOMEM, STEP_MEMORY, 0, "box");
    w->frame = *q;
    w->job.link = w->job.process.pidfd = -1;
    return 0;
}

/* Must a box of this family wait until others are born? */
static bool is_crowded(const struct keeper *keeper, const struct kept_family *family)
{
    for (const struct kept_box *box = keeper->line; box; box = box->waiting->next_in_line)
        if (box->waiting->frame.family == family->slot + 1 && !box->dying)
            return true;
    return family->n_births >= BIRTHS_MOST;
}

/* Makes a box without a store, now or when it is its turn: then it is in line. */
static int raise_in_turn(struct keeper *keeper, struct kept_box *box, const struct request_create *q, const int *fds,
                         size_t n_fds, struct err *e)
{
    struct kept_family *family = NULL;
    struct kept_box **last = &keeper->line;
    int r = q->family ? keeper_find_family(keeper, q, &family, e) : 0;

    if (r == 0 && (!family || !is_crowded(keeper, family)))
        return raise_box(keeper, box, q, fds, n_fds, -1, e);
    if (r == 0)
        r = keep_frame(box, q, e);
    if (r < 0)
        return r;
    while (*last)
        last = &(*last)->waiting->next_in_line;
    *last = box;
    box->waiting->is_in_line = true;
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

/* If it is its turn. The box may be gone then. */
static void take_turn(struct keeper *keeper, struct kept_box *box)
{
    const struct kept_create *w = box->waiting;
    struct kept_family *family = NULL;
    struct err e = { 0 };
    int r = box->dying ? 0 : keeper_find_family(keeper, &w->frame, &family, &e);

    if (family && family->n_births >= BIRTHS_MOST)
        return;
    if (r == 0 && !box->dying)
        r = raise_box(keeper, box, &w->frame, w->fds, w->n_fds, -1, &e);
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
    if (w->job.link >= 0)
        (void)!store_ready(&keeper->stores, &w->job, &tree, &ignored);
    for (size_t i = 0; i < w->n_fds; i++)
        fd_close(w->fds[i]);
    if (w->opener)
        keeper_free_opener(keeper, w->opener);
    free(w);
    box->waiting = NULL;
}

/* A child mounts the store; the box is made when it has. */
static int mount_store(struct keeper *keeper, struct kept_box *box, const struct request_create *q, struct err *e)
{
    int r = keep_frame(box, q, e);

    if (r < 0)
        return r;
    struct kept_create *w = box->waiting;
    r = store_prepare(&keeper->stores, keeper->host.self, box->store, q->limits.disk_bytes, &w->job, e);
    if (r == 0 && (r = keeper_watch(keeper, w->job.process.pidfd, WATCH_STORE, box->slot, 0)) < 0) {
        (void)!process_signal(&w->job.process, SIGKILL);
        r = err_at(e, -r, STEP_MEMORY, 0, "watching the box");
    }
    if (r == 0)
        box->box.state = BOX_MAKING;
    return r;
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
        r = box->store ? mount_store(keeper, box, q, &e) : raise_in_turn(keeper, box, q, w->fds, w->n_fds, &e);
    if (r == 0 && (box->store || w->is_in_line))
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
    int r = store_ready(&keeper->stores, &w->job, &tree, &e);
    if (r == 0 && !box->dying)
        r = raise_box(keeper, box, &w->frame, w->fds, w->n_fds, tree, &e);
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

/* What can be refused at once is, before anybody is asked to open the mounts. */
static int check_create(struct keeper *keeper, const struct request_create *q, const int *fds, size_t n_fds,
                        struct err *e)
{
    static struct plan plan;
    static struct given given;
    struct kept_family *family;
    int r = keeper_check_store(keeper, frame_mount_number(q, MOUNT_STORE), e);

    if (r == 0)
        r = make_plan(keeper, q, fds, n_fds, -1, &given, &plan, e);
    give_back(&given);
    return r == 0 && q->family ? keeper_find_family(keeper, q, &family, e) : r;
}

int keeper_create(struct keeper *keeper, const struct request_create *q, int *fds, size_t n_fds, struct err *e)
{
    uint64_t store = frame_mount_number(q, MOUNT_STORE);
    int r = store || n_fds ? check_create(keeper, q, fds, n_fds, e) : 0;

    if (r < 0)
        return r;
    struct kept_box *box = calloc(1, sizeof *box);
    if (!box)
        return err_at(e, ENOMEM, STEP_MEMORY, 0, "box");
    box_clear(&box->box);
    box->slot = q->head.box;
    box->token = q->token;
    box->store = store;
    if (n_fds)
        r = keeper_open_mounts(keeper, box, q, fds, e);
    else
        r = store ? mount_store(keeper, box, q, e) : raise_in_turn(keeper, box, q, fds, n_fds, e);
    if (r < 0) {
        if (box->waiting)
            keeper_free_create(keeper, box);
        free(box);
        return r;
    }
    keeper->box[box->slot] = box;
    keeper->n_boxes++;
    box->create_serial = q->head.serial;
    return 0;
}
