/* Execs as a part of boxes: the keeper's events about them, their rows, their end with their box. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "front/boxes/box_parts.h"
#include "front/db/db.h"
#include "front/execs/exec_private.h"
#include "front/front.h"
#include "front/keeper_link.h"

static void forget_answer(const union event *event, int *fds, size_t n_fds, void *arg)
{
    (void)event;
    (void)fds;
    (void)n_fds;
    (void)arg;
}

static struct exec *by_number(struct box *box, uint64_t number)
{
    for (struct exec *x = box->execs; x; x = x->next)
        if (x->number == number && x->state != EXEC_ENDED)
            return x;
    return NULL;
}

/* A payload that is no exec of ours: a file helper of the last front, which ends by itself now, one whose end was
 * recorded just before the front died, or one that was abandoned because its answer was lost. Its slot is in use until
 * it has ended. */
static void take_stranger(struct box *box, const struct event_payload *event)
{
    const uint64_t bit = UINT64_C(1) << event->head.payload;

    if (box->slots_used & ~box->slots_foreign & bit)
        return;
    box->slots_used |= bit;
    box->slots_foreign |= bit;
    if (event->token) {
        struct request_signal q = {
            .head = { .type = REQUEST_SIGNAL, .box = box->slot, .payload = event->head.payload },
            .signal = SIGKILL,
            .group = 1,
        };
        keeper_link_request(box->front->keeper, &q, sizeof q, NULL, 0, forget_answer, NULL);
    }
}

static void forget_stranger(struct box *box, unsigned slot)
{
    const uint64_t bit = UINT64_C(1) << slot;

    if (box->slots_foreign & bit)
        box->slots_used &= ~bit;
    box->slots_foreign &= ~bit;
    exec_forget_slot(box, slot);
}

/* After a restart: the exec continues with the descriptors that the keeper held; if it has ended, its end comes as the
 * next event. A foreground exec has lost its client with the last front, and with it the only one who would have ended
 * it. */
static void found(struct box *box, const struct event_payload *event, int *fds, size_t n_fds)
{
    struct exec *x = by_number(box, event->token);
    struct err ignored;

    if (!x && event->has_ended) {
        forget_stranger(box, event->head.payload);
        return;
    }
    if (!x) {
        take_stranger(box, event);
        return;
    }
    bool is_orphan = !x->background && x->state == EXEC_STARTING;
    x->slot = event->head.payload;
    box->slots_used |= UINT64_C(1) << x->slot;
    exec_streams_adopt(x, fds, n_fds, event->n_held);
    x->state = EXEC_RUNNING;
    const struct exec_birth birth = { .way = (enum way)event->way };
    if (x->owner && !x->is_disowned)
        x->owner->adopt(x, event->has_ended ? NULL : &birth);
    /* The signal may be lost with the connection. */
    if (!event->has_ended && (is_orphan || x->is_disowned || x->killed_by_caller))
        (void)!exec_signal(x, SIGKILL, &ignored);
}

static void started(struct exec *x, const struct event_started *event, int *fds, size_t n_fds)
{
    const struct exec_birth birth = { .way = (enum way)event->way, .cpu_us = event->cpu_before_us };
    struct err ignored;

    x->state = EXEC_RUNNING;
    if (x->started_us)
        histogram_add(&x->box->front->metrics.exec_start, loop_now_us() - x->started_us);
    if (x->terminal && n_fds > 0)
        exec_streams_adopt(x, fds, n_fds, 0);
    if (x->early_signal)
        (void)!exec_signal(x, x->early_signal, &ignored);
    x->early_signal = 0;
    if (x->owner && x->owner->on_state)
        x->owner->on_state(x, &birth);
    exec_changed(x);
}

/* One of failure and end is NULL. */
static void ended(struct box *box, const struct event_head *event, uint64_t token, const struct err *failure,
                  const struct frame_end *end)
{
    struct exec *x = by_number(box, token);

    if (!x && box->slots_foreign >> event->payload & 1)
        forget_stranger(box, event->payload);
    if (!x)
        return;
    if (failure)
        x->failure = *failure;
    else
        x->end = *end;
    if (!exec_streams_wait(x))
        exec_ended(x);
}

static void on_payload(struct box *box, const union event *event, int *fds, size_t n_fds)
{
    struct exec *x;

    switch (event->head.type) {
    case EVENT_PAYLOAD:
        found(box, &event->payload, fds, n_fds);
        break;
    case EVENT_STARTED:
        if ((x = by_number(box, event->started.token)))
            started(x, &event->started, fds, n_fds);
        break;
    case EVENT_FAILED:
        ended(box, &event->head, event->failed.token, &event->failed.err, NULL);
        break;
    case EVENT_ENDED:
        ended(box, &event->head, event->ended.token, NULL, &event->ended.end);
        break;
    default:
        break;
    }
}

static void on_box_end(struct box *box, enum phase phase, enum box_reason reason)
{
    (void)phase;
    (void)reason;
    for (struct exec *x = box->execs; x; x = x->next)
        if (x->state != EXEC_ENDED) {
            exec_streams_drain(x);
            x->outcome = OUTCOME_KILLED;
            x->end.code = -1;
            x->end.signal = SIGKILL;
            exec_end(x);
        }
    box->slots_used = box->slots_foreign = 0;
}

static void on_synced(struct box *box)
{
    for (struct exec *x = box->execs; x; x = x->next)
        if (x->state == EXEC_STARTING) {
            (void)err_set(&x->failure, ECONNRESET, STEP_WAIT,
                          "the server was restarted before the command was started");
            exec_end(x);
        }
}

struct loading {
    struct box *box;
    unsigned    n;
};

static int load_one(const struct db_exec *row, void *arg)
{
    struct loading *loading = arg;
    struct box *box = loading->box;
    struct exec *x = exec_new(box);
    json_t *body = json_loads(row->body, 0, NULL);

    if (!x || !body || json_object_size(body) == 0) {
        json_decref(body);
        if (x)
            exec_free(x);
        return 0;
    }
    snprintf(x->id, sizeof x->id, "%s", row->id);
    x->number = row->number;
    exec_from_json(x, body);
    exec_open_log(x);
    exec_log_open(&x->log);
    if (row->ended)
        exec_log_close(&x->log);
    json_decref(body);
    x->state = row->ended ? EXEC_ENDED : EXEC_STARTING;
    box->running += !row->ended;
    x->next = box->execs;
    box->execs = x;
    if (++loading->n % EXECS_KEPT == 0)
        execs_forget_oldest(box);   /* there may be any number of rows; those that were read may be deleted */
    return 0;
}

static int load(struct box *box, struct err *e)
{
    struct loading loading = { .box = box };
    int r = db_execs(box->front->db, box->number, load_one, &loading, e);

    execs_forget_oldest(box);
    return r;
}

static uint64_t kept_bytes(const struct box *box)
{
    uint64_t bytes = 0;

    for (const struct exec *x = box->execs; x; x = x->next)
        bytes += exec_log_kept_bytes(&x->log);
    return bytes;
}

static void remove_logs(struct box *box)
{
    for (struct exec *x = box->execs; x; x = x->next)
        exec_log_unlink(&x->log);
}

static void free_all(struct box *box)
{
    while (box->execs) {
        struct exec *x = box->execs;
        box->execs = x->next;
        exec_free(x);
    }
}

static void on_stop(struct box *box)
{
    for (struct exec *x = box->execs; x; x = x->next)
        if (x->state != EXEC_ENDED)
            x->reason = EXEC_REASON_STOPPED;
}

static bool needs(const struct box *box)
{
    for (const struct exec *x = box->execs; x; x = x->next)
        if (x->followers)
            return true;
    return false;
}

const struct box_part execs_part = {
    .load = load,
    .on_payload = on_payload,
    .on_box_synced = on_synced,
    .on_stop = on_stop,
    .on_end = on_box_end,
    .needs = needs,
    .disk_bytes = kept_bytes,
    .remove_files = remove_logs,
    .free = free_all,
};
