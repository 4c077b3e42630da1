/* A volume is made and grown by a child (box/volume.c), which may outlive the front that requested it: a volume that
 * was not finished when another front connects is not made. It cannot be changed while a box has it. */
#define _GNU_SOURCE
#include "keeper/volumes.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>

#include "base/fd.h"
#include "base/list.h"
#include "keeper/later.h"

static bool has(const struct volume_uses *volumes, uint64_t number)
{
    for (size_t i = 0; i < volumes->n; i++)
        if (volumes->use[i].number == number)
            return true;
    return false;
}

static int check_unused(const struct keeper *keeper, uint64_t number, struct err *e)
{
    for (uint32_t i = 0; i < KEEPER_BOXES; i++)
        if (keeper->box[i] && has(&keeper->box[i]->volumes, number))
            return err_set(e, EBUSY, STEP_USAGE, "a box still has the volume");
    for (const struct kept_volume_job *j = keeper->volume_jobs; j; j = j->next)
        if (j->job.number == number)
            return err_set(e, EBUSY, STEP_USAGE, "the volume is being changed");
    return 0;
}

static void tell(const struct volume_facts *facts, uint32_t serial, struct keeper *keeper)
{
    const struct event_volume event = { .head = { .type = EVENT_VOLUME, .serial = serial }, .volume = facts->number,
                                        .bytes = facts->bytes, .used_bytes = facts->used_bytes };

    keeper_tell(keeper, &event, sizeof event, NULL, 0);
}

/* An end that is not watched is found with the next one that is. */
static int begin(struct keeper *keeper, enum volume_task task, const struct request_volume *q, struct err *e)
{
    struct kept_volume_job *j = calloc(1, sizeof *j);
    int r = j ? volume_change(&keeper->volumes, keeper->host.self, task, q->volume, q->bytes, &j->job, e)
              : err_at(e, ENOMEM, STEP_MEMORY, 0, "volume");

    if (r == 0 && j->job.process.pidfd >= 0
        && (r = keeper_watch(keeper, j->job.process.pidfd, WATCH_VOLUME, 0, 0)) < 0) {
        struct process_end end;
        (void)!process_signal(&j->job.process, SIGKILL);
        (void)!process_reap(&j->job.process, 1, &end);
        struct err ignored;
        (void)!volume_changed(&keeper->volumes, &j->job, false, &ignored);
        r = err_at(e, -r, STEP_MEMORY, 0, "watching the volume");
    }
    if (r == 0 && j->job.process.pidfd < 0) {       /* a folder: it is done */
        r = volume_changed(&keeper->volumes, &j->job, true, e);
        free(j);
        return r;
    }
    if (r < 0) {
        free(j);
        return r;
    }
    j->serial = q->head.serial;
    LIST_ADD(keeper->volume_jobs, j);
    return 1;
}

int keeper_change_volume(struct keeper *keeper, const struct request_volume *q, struct err *e)
{
    struct volume_facts facts;
    struct process remover;
    int r = q->operation == VOLUME_OP_LOOK ? 0 : check_unused(keeper, q->volume, e);

    if (r < 0)
        return r;
    switch (q->operation) {
    case VOLUME_OP_MAKE:
        return begin(keeper, VOLUME_MAKE, q, e);
    case VOLUME_OP_GROW:
        return begin(keeper, VOLUME_GROW, q, e);
    case VOLUME_OP_REMOVE:
        r = volume_remove(&keeper->volumes, q->volume, &remover, e);
        keeper_reap_later(keeper, &remover);
        return r;
    case VOLUME_OP_LOOK:
        r = volume_look(&keeper->volumes, q->volume, &facts, e);
        if (r == 0)
            tell(&facts, q->head.serial, keeper);
        return r < 0 ? r : 1;
    default:
        return err_at(e, EINVAL, STEP_PROTOCOL, 0, "volume");
    }
}

static void finish(struct keeper *keeper, struct kept_volume_job *j, bool is_wanted)
{
    struct err e = { 0 };

    if (volume_changed(&keeper->volumes, &j->job, is_wanted, &e) < 0 && !e.code)
        (void)err_set(&e, ECANCELED, STEP_HOST, "the volume was not made");
    if (j->serial)
        keeper_tell_done(keeper, 0, j->serial, &e);
    LIST_REMOVE(j);
    free(j);
}

void keeper_volumes_ended(struct keeper *keeper)
{
    struct process_end end;

    for (struct kept_volume_job *j = keeper->volume_jobs, *next; j; j = next) {
        next = j->next;
        keeper_unwatch(keeper, j->job.process.pidfd);
        int r = process_reap(&j->job.process, 0, &end);
        if (r == 0)
            (void)!keeper_watch(keeper, j->job.process.pidfd, WATCH_VOLUME, 0, 0);
        else
            finish(keeper, j, true);
    }
}

static void tell_one(const struct volume_facts *facts, void *arg)
{
    tell(facts, 0, arg);
}

void keeper_tell_volumes(struct keeper *keeper)
{
    struct process_end end;

    for (struct kept_volume_job *j = keeper->volume_jobs, *next; j; j = next) {
        next = j->next;
        j->serial = 0;
        if (j->job.task != VOLUME_MAKE)
            continue;
        keeper_unwatch(keeper, j->job.process.pidfd);
        (void)!process_signal(&j->job.process, SIGKILL);
        (void)!process_reap(&j->job.process, 1, &end);
        finish(keeper, j, false);
    }
    volumes_each(&keeper->volumes, tell_one, keeper);
}

void keeper_end_volumes(struct keeper *keeper)
{
    struct process_end end;

    for (struct kept_volume_job *j = keeper->volume_jobs, *next; j; j = next) {
        next = j->next;
        if (j->job.task == VOLUME_MAKE)
            (void)!process_signal(&j->job.process, SIGKILL);
        (void)!process_reap(&j->job.process, 1, &end);
        finish(keeper, j, true);
    }
}

void keeper_name_volumes(const struct frame_mounts *list, struct volume_uses *ret)
{
    *ret = (struct volume_uses){ 0 };
    for (size_t i = 0; i < list->n; i++)
        if (list->at[i].kind == MOUNT_VOLUME)
            ret->use[ret->n++] = (struct volume_use){ .number = list->at[i].number, .tree = -1 };
}

void keeper_recall_devices(const struct keeper *keeper, struct volume_uses *volumes)
{
    for (uint32_t i = 0; i < KEEPER_BOXES; i++)
        for (size_t k = 0; keeper->box[i] && k < keeper->box[i]->volumes.n; k++) {
            const struct volume_use *other = &keeper->box[i]->volumes.use[k];
            for (size_t n = 0; n < volumes->n; n++)
                if (other->device && other->number == volumes->use[n].number)
                    volumes->use[n].device = other->device;
        }
}

int keeper_open_folders(const struct keeper *keeper, struct volume_uses *volumes, struct err *e)
{
    for (size_t i = 0; i < volumes->n; i++) {
        int r = volume_open_folder(&keeper->volumes, volumes->use[i].number, &volumes->use[i].tree, e);
        if (r < 0)
            return r;
    }
    return 0;
}

void keeper_close_volumes(struct volume_uses *volumes)
{
    for (size_t i = 0; i < volumes->n; i++)
        volumes->use[i].tree = fd_close(volumes->use[i].tree);
}
