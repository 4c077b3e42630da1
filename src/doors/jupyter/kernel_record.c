/* A desk is what the door keeps about a kernel. It listens to the kernel without a pause and
 *
 * - knows which executions wait for their end, so that they get one when the process dies: an error, its reply and the
 *   idle status, with the reason in words. Other servers leave the clients waiting;
 * - starts a kernel that died again, in place, as Jupyter's servers do: at once, five times if it dies soon each time;
 * - tells the clients "restarting" and "dead";
 * - remembers how far each session has read, for when it comes back.
 *
 * A kernel that an earlier front made gets its desk when somebody first asks for it. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "doors/jupyter/door.h"

enum { DEATHS_MOST = 5, SOON_MS = 30000 };

static void forget_pending(struct desk *d, unsigned i)
{
    free(d->pending[i].header);
    d->n_pending--;
    memmove(&d->pending[i], &d->pending[i + 1], (d->n_pending - i) * sizeof d->pending[i]);
}

/* It runs, or does not. True: nobody knows of it, and it is to go. */
static bool answer_waiters(struct desk *d, const char *why)
{
    struct call *list = d->waiters;
    struct making *m = d->making;
    struct kernel *k = d->client.kernel;
    bool runs = k && (k->state == KERNEL_IDLE || k->state == KERNEL_BUSY);

    d->waiters = NULL;
    d->making = NULL;
    for (struct call *next; list; list = next) {
        next = list->next;
        if (runs)
            answer_json(list, 200, kernel_model(k));
        else
            answer_fail(list, 500, "the kernel does not start: %s", why);
    }
    if (m && runs)
        making_started(m, k);
    else if (m)
        making_failed(m, why);
    return m && !runs;
}

static void desk_free(struct desk *d)
{
    struct loop *loop = d->jupyter->front->loop;

    while (d->n_pending)
        forget_pending(d, d->n_pending - 1);
    loop_timer_cancel(loop, &d->launch);
    loop_task_cancel(loop, &d->task);
    LIST_REMOVE(d);
    free(d);
}

/* ---- its end, and a new life ---- */

static bool box_lives(const struct kernel *k)
{
    return k->box->phase == PHASE_RUNNING || k->box->phase == PHASE_PAUSED;
}

/* The kernel goes, or has gone. */
void desk_close(struct desk *d, const char *why)
{
    desk_fail_pending(d, "DeadKernelError", why);
    desk_tell_state(d, "dead");
    wires_close(d, why);
    (void)answer_waiters(d, why);
    kernel_detach(&d->client);
    loop_timer_cancel(d->jupyter->front->loop, &d->launch);
    loop_task_add(d->jupyter->front->loop, &d->task);
}

static void give_up(struct desk *d, const char *why)
{
    if (answer_waiters(d, why))
        kernel_remove(d->client.kernel, why, NULL);
    else
        desk_tell_state(d, "dead");
}

static void on_dead(struct desk *d)
{
    const struct kernel *k = d->client.kernel;
    int64_t now = front_now_ms();

    loop_timer_cancel(k->front->loop, &d->launch);
    if (!box_lives(k)) {
        desk_close(d, k->reason[0] ? k->reason : "the kernel's box has ended");
        return;
    }
    desk_fail_pending(d, "DeadKernelError", k->reason[0] ? k->reason : "the kernel has died");
    d->deaths = now - d->died_ms < SOON_MS ? d->deaths + 1 : 1;
    d->died_ms = now;
    /* One that never ran will not run the next time either; of one that another door has made that door says itself
     * what is to happen. */
    if (!d->has_run || d->deaths > DEATHS_MOST || !kernel_is_ours(k))
        give_up(d, k->reason);
    else
        loop_task_add(k->front->loop, &d->task);
}

static void on_task(struct loop_task *t)
{
    struct desk *d = container_of(t, struct desk, task);
    struct kernel *k = d->client.kernel;
    struct err e = { 0 };

    if (!k) {
        if (d->wires || d->waiters || d->making)
            desk_close(d, "the kernel is gone");    /* nobody is left without an answer; then the next turn */
        else
            desk_free(d);
        return;
    }
    if (k->state != KERNEL_DEAD)
        return;
    d->is_reviving = true;
    if (kernel_restart(k, &e) < 0)
        give_up(d, e.what);
}

static void on_launch(struct loop_timer *t)
{
    struct desk *d = container_of(t, struct desk, launch);
    struct kernel *k = d->client.kernel;

    if (k && (k->state == KERNEL_STARTING || k->state == KERNEL_RESTARTING))
        kernel_remove(k, "the kernel did not start in time (KERNEL_LAUNCH_TIMEOUT)", NULL);
}

static void on_state(struct kernel_client *c)
{
    struct desk *d = container_of(c, struct desk, client);
    struct loop *loop = d->jupyter->front->loop;

    switch (c->kernel->state) {
    case KERNEL_DEAD:
        on_dead(d);
        break;
    case KERNEL_RESTARTING:
        if (d->is_reviving)     /* to JupyterLab the word means that it has died by itself */
            desk_tell_state(d, "restarting");
        d->is_reviving = false;
        if (kernel_is_ours(c->kernel))
            loop_timer_set(loop, &d->launch, d->launch_ms);
        break;
    case KERNEL_IDLE:
    case KERNEL_BUSY:
        d->has_run = true;
        loop_timer_cancel(loop, &d->launch);
        (void)answer_waiters(d, "");
        break;
    case KERNEL_STARTING:
        break;
    }
}

static bool on_message(struct kernel_client *c, struct kernel_message *m)
{
    struct desk *d = container_of(c, struct desk, client);

    d->last = m->number;
    if (m->channel == KERNEL_SHELL && strcmp(m->type, "execute_reply") == 0)
        for (unsigned i = 0; i < d->n_pending; i++)
            if (strcmp(d->pending[i].id, m->parent_id) == 0) {
                forget_pending(d, i);
                break;
            }
    return false;
}

struct desk *desk_of(struct kernel *k)
{
    struct jupyter *j = k->front->jupyter;
    struct desk *d = j->desks;

    while (d && d->client.kernel != k)
        d = d->next;
    if (d)
        return d;
    d = calloc(1, sizeof *d);
    if (!d)
        return NULL;
    d->jupyter = j;
    d->has_run = k->state == KERNEL_IDLE || k->state == KERNEL_BUSY;
    d->launch_ms = 60000;
    d->client.on_message = on_message;
    d->client.on_state = on_state;
    d->launch.on_expire = on_launch;
    d->task.on_run = on_task;
    LIST_ADD(j->desks, d);
    d->last = kernel_last_number(k);
    kernel_attach(k, &d->client, UINT64_MAX);
    loop_task_add(j->front->loop, &j->sweep);   /* the desks of kernels that are gone do not grow in number */
    /* It died while nobody was there to start it again: the front was new, and nobody had asked for it. */
    if (k->state == KERNEL_DEAD && k->is_adopted && kernel_is_ours(k) && box_lives(k))
        loop_task_add(j->front->loop, &d->task);
    return d;
}

/* ---- executions ---- */

void desk_expect(struct desk *d, const char *id, const char *session, const char *header)
{
    if (d->n_pending == DESK_PENDING)
        forget_pending(d, 0);
    struct pending *p = &d->pending[d->n_pending];
    *p = (struct pending){ .header = strdup(header) };
    snprintf(p->id, sizeof p->id, "%s", id);
    snprintf(p->session, sizeof p->session, "%s", session);
    d->n_pending += p->header != NULL;
}

static void send_own(struct desk *d, struct kernel_message *m, const char *session, const char *id)
{
    if (!m)
        return;
    snprintf(m->parent_session, sizeof m->parent_session, "%s", session);
    snprintf(m->parent_id, sizeof m->parent_id, "%s", id);
    wires_send(d, m);
    kernel_message_unref(m);
}

void desk_fail(struct desk *d, const char *id, const char *session, const char *header, const char *name,
               const char *why)
{
    char line[512];

    snprintf(line, sizeof line, "%s: %s", name, why);
    send_own(d, message_make(KERNEL_IOPUB, "error", header, json_pack("{s:s,s:s,s:[s]}", "ename", name, "evalue", why,
                                                                      "traceback", line)), session, id);
    send_own(d, message_make(KERNEL_SHELL, "execute_reply", header,
                             json_pack("{s:s,s:s,s:s,s:[s],s:i,s:{},s:[]}", "status", "error", "ename", name, "evalue",
                                       why, "traceback", line, "execution_count", 0, "user_expressions", "payload")),
             session, id);
    send_own(d, message_make(KERNEL_IOPUB, "status", header, json_pack("{s:s}", "execution_state", "idle")), session,
             id);
}

void desk_fail_pending(struct desk *d, const char *name, const char *why)
{
    while (d->n_pending) {
        struct pending p = d->pending[0];
        p.header = strdup(p.header);
        forget_pending(d, 0);
        if (p.header)
            desk_fail(d, p.id, p.session, p.header, name, why);
        free(p.header);
    }
}

void desk_tell_state(struct desk *d, const char *state)
{
    send_own(d, message_make(KERNEL_IOPUB, "status", NULL, json_pack("{s:s}", "execution_state", state)), "", "");
}

static void wait_gone(struct call *c)
{
    struct desk *d = c->work;

    for (struct call **p = &d->waiters; *p; p = &(*p)->next)
        if (*p == c) {
            *p = c->next;
            return;
        }
}

void desk_wait(struct desk *d, struct call *c)
{
    c->work = d;
    c->on_gone = wait_gone;
    c->next = d->waiters;
    d->waiters = c;
    if (d->client.kernel->state == KERNEL_IDLE || d->client.kernel->state == KERNEL_BUSY)
        (void)answer_waiters(d, "");
}

void desk_await(struct desk *d, struct making *m, uint32_t launch_ms)
{
    d->making = m;
    d->launch_ms = launch_ms;
    loop_timer_set(d->jupyter->front->loop, &d->launch, launch_ms);
    on_state(&d->client);       /* one that was parked runs already */
}

/* ---- sessions that come back ---- */

void desk_note(struct desk *d, const char *session, uint64_t number)
{
    size_t oldest = 0;

    for (size_t i = 0; i < DESK_SESSIONS; i++) {
        if (strcmp(d->session[i].id, session) == 0) {
            oldest = i;
            break;
        }
        if (d->session[i].left_ms < d->session[oldest].left_ms)
            oldest = i;
    }
    snprintf(d->session[oldest].id, sizeof d->session[oldest].id, "%s", session);
    d->session[oldest].number = number;
    d->session[oldest].left_ms = front_now_ms();
}

uint64_t desk_recall(struct desk *d, const char *session)
{
    for (size_t i = 0; i < DESK_SESSIONS; i++)
        if (session[0] && strcmp(d->session[i].id, session) == 0)
            return d->session[i].number;
    return UINT64_MAX;
}

/* ---- culling ---- */

static bool is_forgotten(const struct kernel *k, const struct config_jupyter *c, int64_t now)
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
    const struct config_jupyter *config = &j->front->config.jupyter;
    int64_t now = front_now_ms();

    for (struct kernel *k = j->front->kernels, *next; k; k = next) {
        next = k->next;
        if (kernel_is_ours(k) && is_forgotten(k, config, now)) {
            front_log("info", "a kernel that nobody uses is ended", "kernel", k->id, "owner", k->box->owner, NULL);
            kernel_remove(k, "nobody used the kernel for too long", NULL);
        }
    }
    loop_timer_set(j->front->loop, t, (uint64_t)config->cull_interval_s * 1000);
}

/* ---- all of them ---- */

/* A dead kernel goes without a word: with its box, or when another door deletes it. */
static void on_sweep(struct loop_task *t)
{
    struct jupyter *j = container_of(t, struct jupyter, sweep);

    for (struct desk *d = j->desks; d; d = d->next)
        if (!d->client.kernel)
            loop_task_add(j->front->loop, &d->task);
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

void desks_open(struct jupyter *j)
{
    j->cull.on_expire = on_cull;
    loop_timer_set(j->front->loop, &j->cull, (uint64_t)j->front->config.jupyter.cull_interval_s * 1000);
    j->sweep.on_run = on_sweep;
    j->watcher.on_event = on_box_event;
    boxes_watch(j->front, &j->watcher);
}

void desks_free(struct jupyter *j)
{
    loop_timer_cancel(j->front->loop, &j->cull);
    loop_task_cancel(j->front->loop, &j->sweep);
    boxes_unwatch(&j->watcher);
    for (struct desk *d = j->desks, *next; d; d = next) {
        next = d->next;
        kernel_detach(&d->client);
        desk_free(d);
    }
}
