/* The door's state of a kernel. A record listens to the kernel all the time and
 *
 * - tracks the executions that have not ended, so that they end when the process dies: with an error, its reply and the
 *   idle status, and the reason in words. Other servers leave the clients waiting;
 * - restarts a kernel that died, in place, as Jupyter's servers do: at once, and five times if it dies soon each time;
 * - sends "restarting" and "dead" to the clients;
 * - remembers how far each session has read, for its return.
 *
 * A kernel from an earlier front gets its record with the first request for it. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "doors/jupyter/message.h"

enum { DEATHS_MOST = 5, SOON_MS = 30000 };

static void forget_pending(struct kernel_record *record, unsigned i)
{
    free(record->execution[i].header);
    record->n_executions--;
    memmove(&record->execution[i], &record->execution[i + 1], (record->n_executions - i) * sizeof record->execution[i]);
}

/* The kernel runs, or does not. True: no client knows its id, and it must be removed. */
static bool answer_waiters(struct kernel_record *record, const char *why)
{
    struct gateway_request *list = record->waiters;
    struct pending_kernel *pending = record->pending;
    struct kernel *k = record->client.kernel;
    bool runs = k && (k->state == KERNEL_IDLE || k->state == KERNEL_BUSY);

    record->waiters = NULL;
    record->pending = NULL;
    for (struct gateway_request *next; list; list = next) {
        next = list->next;
        if (runs)
            answer_json(list, 200, kernel_model(k));
        else
            answer_fail(list, 500, "the kernel does not start: %s", why);
    }
    if (pending && runs)
        pending_kernel_started(pending, k);
    else if (pending)
        pending_kernel_failed(pending, why);
    return pending && !runs;
}

static void record_free(struct kernel_record *record)
{
    struct loop *loop = record->jupyter->front->loop;

    while (record->n_executions)
        forget_pending(record, record->n_executions - 1);
    loop_timer_cancel(loop, &record->launch);
    loop_task_cancel(loop, &record->task);
    LIST_REMOVE(record);
    free(record);
}

/* ---- its end, and a new life ---- */

static bool box_lives(const struct kernel *k)
{
    return k->box->phase == PHASE_RUNNING || k->box->phase == PHASE_PAUSED;
}

/* The kernel ends or has ended. */
void record_close(struct kernel_record *record, const char *why)
{
    record_fail_pending(record, "DeadKernelError", why);
    record_tell_state(record, "dead");
    connections_close(record, why);
    (void)answer_waiters(record, why);
    kernel_detach(&record->client);
    loop_timer_cancel(record->jupyter->front->loop, &record->launch);
    loop_task_add(record->jupyter->front->loop, &record->task);
}

static void give_up(struct kernel_record *record, const char *why)
{
    if (answer_waiters(record, why))
        kernel_remove(record->jupyter, record->client.kernel, why, NULL);
    else
        record_tell_state(record, "dead");
}

static void on_dead(struct kernel_record *record)
{
    const struct kernel *k = record->client.kernel;
    int64_t now = front_now_ms();

    loop_timer_cancel(k->front->loop, &record->launch);
    if (!box_lives(k)) {
        record_close(record, k->reason[0] ? k->reason : "the kernel's box has ended");
        return;
    }
    record_fail_pending(record, "DeadKernelError", k->reason[0] ? k->reason : "the kernel has died");
    record->deaths = now - record->died_ms < SOON_MS ? record->deaths + 1 : 1;
    record->died_ms = now;
    /* A kernel that never ran would not run the next time either; a kernel of another door is that door's to
     * restart. */
    if (!record->has_run || record->deaths > DEATHS_MOST || !kernel_is_ours(k))
        give_up(record, k->reason);
    else
        loop_task_add(k->front->loop, &record->task);
}

static void on_task(struct loop_task *t)
{
    struct kernel_record *record = container_of(t, struct kernel_record, task);
    struct kernel *k = record->client.kernel;
    struct err e = { 0 };

    if (!k) {
        if (record->connections || record->waiters || record->pending)
            record_close(record, "the kernel is gone");    /* every waiting client gets an answer; the next turn frees
                                                            * the record */
        else
            record_free(record);
        return;
    }
    if (k->state != KERNEL_DEAD)
        return;
    record->is_reviving = true;
    if (kernel_restart(k, &e) < 0)
        give_up(record, e.what);
}

static void on_launch(struct loop_timer *t)
{
    struct kernel_record *record = container_of(t, struct kernel_record, launch);
    struct kernel *k = record->client.kernel;

    if (k && (k->state == KERNEL_STARTING || k->state == KERNEL_RESTARTING))
        kernel_remove(record->jupyter, k, "the kernel did not start in time (KERNEL_LAUNCH_TIMEOUT)", NULL);
}

static void on_state(struct kernel_client *c)
{
    struct kernel_record *record = container_of(c, struct kernel_record, client);
    struct loop *loop = record->jupyter->front->loop;

    switch (c->kernel->state) {
    case KERNEL_DEAD:
        on_dead(record);
        break;
    case KERNEL_RESTARTING:
        if (record->is_reviving)     /* JupyterLab shows this state as a crash */
            record_tell_state(record, "restarting");
        record->is_reviving = false;
        if (kernel_is_ours(c->kernel))
            loop_timer_set(loop, &record->launch, record->launch_ms);
        break;
    case KERNEL_IDLE:
    case KERNEL_BUSY:
        record->has_run = true;
        loop_timer_cancel(loop, &record->launch);
        (void)answer_waiters(record, "");
        break;
    case KERNEL_STARTING:
        break;
    }
}

static bool on_message(struct kernel_client *c, struct kernel_message *m)
{
    struct kernel_record *record = container_of(c, struct kernel_record, client);

    record->last = m->number;
    if (m->channel == KERNEL_SHELL && strcmp(m->type, "execute_reply") == 0)
        for (unsigned i = 0; i < record->n_executions; i++)
            if (strcmp(record->execution[i].id, m->parent_id) == 0) {
                forget_pending(record, i);
                break;
            }
    return false;
}

struct kernel_record *record_of(struct jupyter *j, struct kernel *k)
{
    struct kernel_record *record = j->records;

    while (record && record->client.kernel != k)
        record = record->next;
    if (record)
        return record;
    record = calloc(1, sizeof *record);
    if (!record)
        return NULL;
    record->jupyter = j;
    record->has_run = k->state == KERNEL_IDLE || k->state == KERNEL_BUSY;
    record->launch_ms = 60000;
    record->client.on_message = on_message;
    record->client.on_state = on_state;
    record->launch.on_expire = on_launch;
    record->task.on_run = on_task;
    LIST_ADD(j->records, record);
    record->last = kernel_last_number(k);
    kernel_attach(k, &record->client, UINT64_MAX);
    loop_task_add(j->front->loop, &j->sweep);   /* frees the records of kernels that are gone */
    /* It died under a new front that had no record for it yet, so it was not restarted then. */
    if (k->state == KERNEL_DEAD && k->is_adopted && kernel_is_ours(k) && box_lives(k))
        loop_task_add(j->front->loop, &record->task);
    return record;
}

/* ---- executions ---- */

void record_expect(struct kernel_record *record, const char *id, const char *session, char **header)
{
    if (record->n_executions == RECORD_PENDING)
        forget_pending(record, 0);
    struct pending_execution *p = &record->execution[record->n_executions];
    *p = (struct pending_execution){ .header = *header };
    *header = NULL;
    snprintf(p->id, sizeof p->id, "%s", id);
    snprintf(p->session, sizeof p->session, "%s", session);
    record->n_executions++;
}

static void send_own(struct kernel_record *record, struct kernel_message *m, const char *session, const char *id)
{
    if (!m)
        return;
    snprintf(m->parent_session, sizeof m->parent_session, "%s", session);
    snprintf(m->parent_id, sizeof m->parent_id, "%s", id);
    connections_send(record, m);
    kernel_message_unref(m);
}

void record_fail(struct kernel_record *record, const char *id, const char *session, const char *header,
                 const char *name, const char *why)
{
    char line[512];

    snprintf(line, sizeof line, "%s: %s", name, why);
    send_own(record, message_make(KERNEL_IOPUB, "error", header,
                                  json_pack("{s:s,s:s,s:[s]}", "ename", name, "evalue", why, "traceback", line)),
             session, id);
    send_own(record, message_make(KERNEL_SHELL, "execute_reply", header,
                             json_pack("{s:s,s:s,s:s,s:[s],s:i,s:{},s:[]}", "status", "error", "ename", name, "evalue",
                                       why, "traceback", line, "execution_count", 0, "user_expressions", "payload")),
             session, id);
    send_own(record, message_make(KERNEL_IOPUB, "status", header, json_pack("{s:s}", "execution_state", "idle")),
             session, id);
}

void record_fail_pending(struct kernel_record *record, const char *name, const char *why)
{
    while (record->n_executions) {
        struct pending_execution p = record->execution[0];
        p.header = strdup(p.header);
        forget_pending(record, 0);
        if (p.header)
            record_fail(record, p.id, p.session, p.header, name, why);
        free(p.header);
    }
}

void record_tell_state(struct kernel_record *record, const char *state)
{
    send_own(record, message_make(KERNEL_IOPUB, "status", NULL, json_pack("{s:s}", "execution_state", state)), "", "");
}

static void wait_gone(struct gateway_request *c)
{
    struct kernel_record *record = c->work;

    for (struct gateway_request **p = &record->waiters; *p; p = &(*p)->next)
        if (*p == c) {
            *p = c->next;
            return;
        }
}

void record_wait(struct kernel_record *record, struct gateway_request *c)
{
    c->work = record;
    c->on_gone = wait_gone;
    c->next = record->waiters;
    record->waiters = c;
    if (record->client.kernel->state == KERNEL_IDLE || record->client.kernel->state == KERNEL_BUSY)
        (void)answer_waiters(record, "");
}

void record_await(struct kernel_record *record, struct pending_kernel *pending, uint32_t launch_ms)
{
    record->pending = pending;
    record->launch_ms = launch_ms;
    loop_timer_set(record->jupyter->front->loop, &record->launch, launch_ms);
    on_state(&record->client);       /* a parked kernel runs already */
}

/* ---- sessions that come back ---- */

void record_note(struct kernel_record *record, const char *session, uint64_t number)
{
    size_t oldest = 0;

    for (size_t i = 0; i < RECORD_SESSIONS; i++) {
        if (strcmp(record->session[i].id, session) == 0) {
            oldest = i;
            break;
        }
        if (record->session[i].left_ms < record->session[oldest].left_ms)
            oldest = i;
    }
    snprintf(record->session[oldest].id, sizeof record->session[oldest].id, "%s", session);
    record->session[oldest].number = number;
    record->session[oldest].left_ms = front_now_ms();
}

uint64_t record_recall(struct kernel_record *record, const char *session)
{
    for (size_t i = 0; i < RECORD_SESSIONS; i++)
        if (session[0] && strcmp(record->session[i].id, session) == 0)
            return record->session[i].number;
    return UINT64_MAX;
}

/* ---- culling ---- */

static bool is_forgotten(const struct kernel *k, const struct jupyter_config *c, int64_t now)
{
    if (!c->cull_idle_s || now - k->activity_ms < (int64_t)c->cull_idle_s * 1000)
        return false;
    if (k->state == KERNEL_DEAD)
        return true;
    return (k->state == KERNEL_IDLE || (k->state == KERNEL_BUSY && c->cull_busy))
        && (k->connections == 0 || c->cull_connected);
}

static void on_cull(struct loop_timer *t)
{
    struct jupyter *j = container_of(t, struct jupyter, cull);
    const struct jupyter_config *config = j->config;
    int64_t now = front_now_ms();

    for (struct kernel *k = j->front->kernels, *next; k; k = next) {
        next = k->next;
        if (kernel_is_ours(k) && is_forgotten(k, config, now)) {
            front_log("info", "an idle kernel is ended", "kernel", k->id, "owner", k->box->owner, NULL);
            kernel_remove(j, k, "the kernel was idle for too long", NULL);
        }
    }
    loop_timer_set(j->front->loop, t, (uint64_t)config->cull_interval_s * 1000);
}

/* ---- all of them ---- */

/* A dead kernel disappears without a call: with its box, or when another door deletes it. */
static void on_sweep(struct loop_task *t)
{
    struct jupyter *j = container_of(t, struct jupyter, sweep);

    for (struct kernel_record *record = j->records; record; record = record->next)
        if (!record->client.kernel)
            loop_task_add(j->front->loop, &record->task);
}

static void on_box_event(struct box_watcher *w, const struct box *box, uint64_t number, const char *type, json_t *body)
{
    struct jupyter *j = container_of(w, struct jupyter, watcher);

    (void)box;
    (void)number;
    (void)body;
    if (strcmp(type, "phase") == 0)
        loop_task_add(j->front->loop, &j->sweep);
}

void records_open(struct jupyter *j)
{
    j->cull.on_expire = on_cull;
    loop_timer_set(j->front->loop, &j->cull, (uint64_t)j->config->cull_interval_s * 1000);
    j->sweep.on_run = on_sweep;
    j->watcher.on_event = on_box_event;
    boxes_watch(j->front, &j->watcher);
}

void records_free(struct jupyter *j)
{
    loop_timer_cancel(j->front->loop, &j->cull);
    loop_task_cancel(j->front->loop, &j->sweep);
    boxes_unwatch(&j->watcher);
    for (struct kernel_record *record = j->records, *next; record; record = next) {
        next = record->next;
        kernel_detach(&record->client);
        record_free(record);
    }
}
