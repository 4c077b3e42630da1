/* An exec's life. The front makes the pipes; the command gets one end of each through the keeper, and the keeper holds
 * duplicates of our ends, so that the next front gets them if this one dies. Everything that must not be lost is
 * therefore in a pipe, in the log, or in the keeper. */
#define _GNU_SOURCE
#include "front/execs/execs.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/list.h"
#include "front/boxes/box_private.h"
#include "front/db/db.h"
#include "front/execs/exec_private.h"
#include "front/front.h"
#include "front/keeper_link.h"
#include "front/net/net.h"
#include "front/kernels/kernels.h"
#include "front/services/services.h"
#include "proto/command.h"
#include "proto/ending.h"

enum { EXECS_KEPT = 256 };

struct exec *exec_find(struct box *box, const char *id)
{
    for (struct exec *x = box->execs; x; x = x->next)
        if (strcmp(x->id, id) == 0)
            return x;
    return NULL;
}

void exec_follow(struct exec *x, struct exec_follower *f)
{
    LIST_ADD(x->followers, f);
}

void exec_unfollow(struct exec_follower *f)
{
    LIST_REMOVE(f);
}

void exec_changed(struct exec *x)
{
    for (struct exec_follower *f = x->followers, *next; f; f = next) {
        next = f->next;
        f->on_change(f);
    }
}

void exec_save(struct exec *x)
{
    struct err e;
    json_t *body = exec_row_json(x);
    char *text = json_dumps(body, JSON_COMPACT);
    struct db_exec row = {
        .number = x->number, .box = x->box->number, .id = x->id, .body = text, .ended = x->state == EXEC_ENDED
    };

    if (!text || db_exec_update(x->box->front->db, &row, &e) < 0)
        front_log("error", "cannot store an exec", "exec", x->id, NULL);
    free(text);
    json_decref(body);
}

/* ---- starting ---- */

static unsigned free_slot(const struct box *box)
{
    for (unsigned i = 0; i < KEEPER_PAYLOADS; i++)
        if (!(box->slots_used >> i & 1))
            return i;
    return KEEPER_PAYLOADS;
}

static void forget_answer(const struct event *event, int *fds, size_t n_fds, void *arg)
{
    (void)event;
    (void)fds;
    (void)n_fds;
    (void)arg;
}

void exec_release_input(struct exec *x)
{
    struct request_head q = { .type = REQUEST_CLOSE_INPUT, .box = x->box->slot, .payload = (uint16_t)x->slot };

    if (x->box->slot != BOX_NO_SLOT)
        keeper_link_request(x->box->front->keeper, &q, sizeof q, NULL, 0, forget_answer, NULL);
}

static void forget_slot(struct box *box, unsigned slot)
{
    struct request_head q = { .type = REQUEST_FORGET, .box = box->slot, .payload = (uint16_t)slot };
    keeper_link_request(box->front->keeper, &q, sizeof q, NULL, 0, forget_answer, NULL);
}

static void forget(struct exec *x)
{
    x->box->slots_used &= ~(UINT64_C(1) << x->slot);
    if (x->box->slot != BOX_NO_SLOT)
        forget_slot(x->box, x->slot);
}

/* is_with_keeper: the keeper still holds its end. It lets go of it only when the end is stored: a front that dies in
 * between finds the end in at least one of the two. */
static void end_exec(struct exec *x, bool is_with_keeper)
{
    struct front *front = x->box->front;
    struct err ignored;

    if (x->state == EXEC_ENDED)
        return;
    exec_streams_close(x);
    exec_log_close(&x->log);
    x->state = EXEC_ENDED;
    x->is_ending = true;
    kernels_on_exec_change(x);
    services_on_exec_end(x);
    x->link = fd_close(x->link);
    x->ended_ms = front_now_ms();
    x->box->running--;
    front->metrics.outcome[x->outcome] += x->outcome != OUTCOME_NONE;
    if (x->outcome)
        histogram_add(&front->metrics.exec, x->end.wall_us);
    front->metrics.execs_failed += x->failure.code != 0;
    box_touch(x->box);
    box_event_with(x->box, x, "exec_ended",
                   json_pack("{s:s,s:s?}", "exec", x->id, "outcome", outcome_name(x->outcome)));
    if (is_with_keeper)
        forget(x);
    exec_changed(x);
    x->is_ending = false;
    if (x->delete_box)
        (void)!box_delete(x->box, BOX_REASON_COMMAND_ENDED, NULL, NULL, &ignored);       /* it may be going already */
}

void exec_end(struct exec *x)
{
    end_exec(x, false);
}

/* The keeper's answer to the request: if it failed, there is no payload. */
static void on_asked(const struct event *event, int *fds, size_t n_fds, void *arg)
{
    struct exec *x = arg;

    (void)fds;
    (void)n_fds;
    if (x->state == EXEC_ENDED)
        return;
    x->is_kept = event->result == 0;
    if (!x->is_kept) {
        x->failure = event->err;
        x->box->slots_used &= ~(UINT64_C(1) << x->slot);
        exec_end(x);
    } else if (x->background) {
        exec_changed(x);
    }
}

static void ask_keeper(struct exec *x, const struct exec_options *o, int command, const int theirs[3])
{
    struct request_start q = {
        .head = { .type = REQUEST_START, .box = x->box->slot, .payload = (uint16_t)x->slot },
        .token = x->number,
        .timeout_ms = o->timeout_ms,
        .user = o->user,
        .group = o->group,
        .way = o->fork ? START_FORK : START_EXEC,
    };
    int fds[8];
    size_t n = 0;

    fds[n++] = command;
    for (int i = 0; i < 3; i++)
        if (theirs[i] >= 0) {
            q.has_stdio[i] = 1;
            fds[n++] = theirs[i];
        }
    const int ours[3] = { o->link ? x->link : x->in.fd, x->out.fd, x->err.fd };
    for (int i = 0; i < 3 && !o->terminal; i++)
        if (ours[i] >= 0) {
            q.n_held++;
            fds[n++] = ours[i];
        }
    keeper_link_request(x->box->front->keeper, &q, sizeof q, fds, n, on_asked, x);
}

static struct exec *exec_new(struct box *box)
{
    struct exec *x = calloc(1, sizeof *x);

    if (!x)
        return NULL;
    x->box = box;
    x->link = -1;
    x->log.fd = -1;
    x->argv = json_array();
    exec_streams_init(x);
    return x;
}

/* Once id and limit are known. */
static void open_log(struct exec *x)
{
    exec_log_init(&x->log, x->box->front->execs_dir, x->id);
    x->log.bound = x->output_limit ? 0 : x->box->front->config.output_kept_bytes;
}

static void exec_free(struct exec *x)
{
    exec_streams_close(x);
    x->state = EXEC_ENDED;
    if (x->on_stdin)
        x->on_stdin(x, x->stdin_arg);   /* what waited for it is dropped */
    exec_log_close(&x->log);
    fd_close(x->link);
    json_decref(x->argv);
    json_decref(x->refused);
    json_decref(x->about_kernel);
    free(x->cwd);
    free(x->failure_text);
    free(x);
}

/* Ended execs beyond a bound are forgotten, with their rows and their logs. */
static void forget_oldest(struct box *box)
{
    struct exec **at = &box->execs;
    struct err e;
    unsigned n = 0;

    for (struct exec *x; (x = *at);) {
        if (++n > EXECS_KEPT && x->state == EXEC_ENDED && !x->is_ending && !x->followers) {
            *at = x->next;
            /* A row that stays is forgotten by the next front, when it has read it. */
            if (db_exec_delete(box->front->db, x->number, &e) < 0)
                front_log("error", "cannot remove an exec from the database", "exec", x->id, NULL);
            exec_log_unlink(&x->log);
            exec_free(x);
        } else {
            at = &x->next;
        }
    }
}

static int store_new(struct exec *x, struct err *e)
{
    json_t *body = exec_row_json(x);
    char *text = json_dumps(body, JSON_COMPACT);
    struct db_exec row = { .box = x->box->number, .id = x->id, .body = text };
    int r = text ? db_exec_insert(x->box->front->db, &row, e) : err_at(e, ENOMEM, STEP_MEMORY, 0, "exec");

    x->number = row.number;
    free(text);
    json_decref(body);
    return r;
}

int exec_start(struct box *box, const struct exec_options *options, struct exec **ret, struct err *e)
{
    struct front *front = box->front;
    int theirs[3] = { -1, -1, -1 };
    FD command = -1;

    if (box->phase != PHASE_RUNNING)
        return err_set(e, EBUSY, STEP_USAGE, "the box is %s; only in a running one can a command be started",
                       phase_names[box->phase]);
    unsigned slot = free_slot(box);
    if (slot == KEEPER_PAYLOADS)
        return err_set(e, EAGAIN, STEP_USAGE, "%d commands run in this box already", KEEPER_PAYLOADS);
    const struct command_spec spec = { .argv = options->argv, .env = options->env, .workdir = options->cwd,
                                       .terminal = options->terminal, .rows = options->rows,
                                       .columns = options->columns };
    int r = command_pack(&spec, &command, e);
    if (r < 0)
        return r;
    struct exec *x = exec_new(box);
    if (!x)
        return err_at(e, ENOMEM, STEP_MEMORY, 0, "exec");
    front_make_id('x', x->id);
    x->slot = slot;
    x->background = options->background;
    x->terminal = options->terminal;
    x->delete_box = options->delete_box;
    x->output_limit = options->output_bytes;
    x->timeout_ms = options->timeout_ms;
    open_log(x);
    for (char **a = options->argv; *a; a++)
        exec_show_argument(x, *a);
    x->cwd = options->cwd ? strdup(options->cwd) : NULL;
    x->user = options->user;
    x->group = options->group;
    x->started_ms = front_now_ms();
    x->started_us = loop_now_us();
    x->rows = options->rows;
    x->columns = options->columns;
    x->about_kernel = json_incref(options->kernel);
    r = options->terminal ? 0 : exec_streams_open(x, options, theirs, e);
    if (r == 0)
        r = store_new(x, e);
    if (r < 0) {
        for (int i = 0; i < 3; i++)
            fd_close(theirs[i]);
        exec_free(x);
        return r;
    }
    x->next = box->execs;
    box->execs = x;
    box->slots_used |= UINT64_C(1) << slot;
    box->running++;
    box_touch(box);
    front->metrics.execs_started++;
    ask_keeper(x, options, command, theirs);
    for (int i = 0; i < 3; i++)
        fd_close(theirs[i]);
    forget_oldest(box);
    *ret = x;
    return 0;
}

int exec_resize(struct exec *x, uint16_t rows, uint16_t columns, struct err *e)
{
    struct winsize size = { .ws_row = rows, .ws_col = columns };

    if (!x->terminal)
        return err_set(e, ENOTTY, STEP_USAGE, "this command has no terminal");
    x->rows = rows;
    x->columns = columns;
    if (x->state == EXEC_RUNNING && ioctl(x->out.fd, TIOCSWINSZ, &size) < 0)
        return err_at(e, errno, STEP_STDIO, 0, "terminal");
    return 0;
}

int exec_signal(struct exec *x, int signal, struct err *e)
{
    struct request_signal q = { .head = { .type = REQUEST_SIGNAL, .box = x->box->slot, .payload = (uint16_t)x->slot },
                                .signal = signal,
                                .group = 1 };

    if (signal < 1 || signal > 64)
        return err_set(e, EINVAL, STEP_USAGE, "there is no signal %d", signal);
    if (x->state == EXEC_ENDED)
        return err_set(e, ESRCH, STEP_USAGE, "the command has ended");
    if (signal == SIGKILL)
        x->killed_by_caller = true;
    /* Until its exec it has no process group yet, and drops what it gets. So the signal waits for that; but what is to
     * be killed is killed at once, too, as the one process that it is. */
    if (x->state == EXEC_STARTING) {
        x->early_signal = x->early_signal == SIGKILL ? SIGKILL : signal;
        if (signal != SIGKILL)
            return 0;
        q.group = 0;
    }
    keeper_link_request(x->box->front->keeper, &q, sizeof q, NULL, 0, forget_answer, NULL);
    return 0;
}

/* ---- what the keeper tells ---- */

static struct exec *by_slot(struct box *box, unsigned slot)
{
    for (struct exec *x = box->execs; x; x = x->next)
        if (x->slot == slot && x->state != EXEC_ENDED)
            return x;
    return NULL;
}

static void ended(struct exec *x, const struct event *event)
{
    x->end = *event;
    if (event->type == EVENT_FAILED || (event->type == EVENT_PAYLOAD && event->err.code))
        x->failure = event->err;
    if (!exec_streams_wait(x))
        exec_ended(x);
}

void exec_ended(struct exec *x)
{
    exec_streams_drain(x);
    if (!x->failure.code) {
        bool known = x->end.outcome > OUTCOME_NONE && x->end.outcome < OUTCOME_COMMAND_COUNT;
        x->outcome = x->over_limit ? OUTCOME_OUTPUT : known ? (enum outcome)x->end.outcome : OUTCOME_ERROR;
        x->limit_value = ending_limit(x->outcome, &x->box->settings.limits, x->timeout_ms, x->output_limit);
    }
    if (!x->about_kernel && x->started_us)
        x->refused = net_box_refused(x->box, x->started_us);
    end_exec(x, true);
}

/* In a box that was made for this caller the first one was forked for him, too. */
static enum kernel_way way_of(const struct box *box, const struct event *event)
{
    return event->code == WAY_PARKED && box->token ? KERNEL_PARKED
           : event->code == WAY_EXECUTED           ? KERNEL_COLD
                                                   : KERNEL_FORKED;
}

/* After a restart: the exec goes on with the descriptors that the keeper held. A foreground one has lost its client
 * with the last front, and with it the only one who would have ended it. */
static void resume(struct exec *x, const struct event *event, int *fds, size_t n_fds)
{
    struct err ignored;
    bool is_orphan = !x->background && x->state == EXEC_STARTING;

    exec_streams_adopt(x, fds, n_fds, event->n_held);
    x->state = EXEC_RUNNING;
    if (!event->state)
        x->way = way_of(x->box, event);
    if (json_object_get(x->about_kernel, "service"))
        services_adopt(x);
    else if (x->about_kernel && !x->is_nobodys)
        kernels_adopt(x);
    if (event->state)
        ended(x, event);
    else if (is_orphan || x->is_nobodys || x->killed_by_caller)     /* the signal may be lost with the connection */
        (void)!exec_signal(x, SIGKILL, &ignored);
}

/* A payload that is no exec of ours: a file helper of the last front, which ends by itself now, one whose end was noted
 * just before the front died, or one that was given up because its answer was lost. Its slot is in use until it has
 * ended. */
static void take_stranger(struct box *box, const struct event *event)
{
    const uint64_t bit = UINT64_C(1) << event->payload;

    if (event->state) {
        forget_slot(box, event->payload);
        return;
    }
    if (box->slots_used & bit)
        return;
    box->slots_used |= bit;
    box->slots_foreign |= bit;
    if (event->token) {
        struct request_signal q = { .head = { .type = REQUEST_SIGNAL, .box = box->slot, .payload = event->payload },
                                    .signal = SIGKILL,
                                    .group = 1 };
        keeper_link_request(box->front->keeper, &q, sizeof q, NULL, 0, forget_answer, NULL);
    }
}

static void stranger_ended(struct box *box, unsigned slot)
{
    const uint64_t bit = UINT64_C(1) << slot;

    if (!(box->slots_foreign & bit))
        return;
    box->slots_foreign &= ~bit;
    box->slots_used &= ~bit;
    forget_slot(box, slot);
}

void execs_on_keeper_event(struct box *box, const struct event *event, int *fds, size_t n_fds)
{
    struct err ignored;
    struct exec *x = NULL;

    if (event->type == EVENT_PAYLOAD) {
        for (x = box->execs; x && x->number != event->token; x = x->next)
            ;
        if (!x || x->state == EXEC_ENDED) {
            take_stranger(box, event);
            return;
        }
        x->slot = event->payload;
        box->slots_used |= UINT64_C(1) << x->slot;
        resume(x, event, fds, n_fds);
        return;
    }
    x = by_slot(box, event->payload);
    if (!x) {
        if (event->type != EVENT_STARTED)
            stranger_ended(box, event->payload);
        return;
    }
    if (event->type == EVENT_STARTED) {
        x->state = EXEC_RUNNING;
        if (x->started_us)
            histogram_add(&box->front->metrics.exec_start, loop_now_us() - x->started_us);
        if (x->terminal && n_fds > 0)
            exec_streams_adopt(x, fds, n_fds, 0);
        if (x->early_signal)
            (void)!exec_signal(x, x->early_signal, &ignored);
        x->early_signal = 0;
        x->way = way_of(box, event);
        if (event->cpu_us > box->unbilled_us)
            box->unbilled_us = event->cpu_us;
        kernels_on_exec_change(x);
        exec_changed(x);
    } else {
        ended(x, event);
    }
}

void execs_lost(struct box *box)
{
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

void execs_synced(struct box *box)
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
    open_log(x);
    exec_log_open(&x->log);
    if (row->ended)
        exec_log_close(&x->log);
    json_decref(body);
    x->state = row->ended ? EXEC_ENDED : EXEC_STARTING;
    box->running += !row->ended;
    x->next = box->execs;
    box->execs = x;
    if (++loading->n % EXECS_KEPT == 0)
        forget_oldest(box);     /* there may be any number of rows; those that were read may be removed meanwhile */
    return 0;
}

int execs_load(struct box *box, struct err *e)
{
    struct loading loading = { .box = box };
    int r = db_execs(box->front->db, box->number, load_one, &loading, e);

    forget_oldest(box);
    return r;
}

void execs_forget(struct box *box)
{
    for (struct exec *x = box->execs; x; x = x->next)
        exec_log_unlink(&x->log);
}

void execs_free(struct box *box)
{
    while (box->execs) {
        struct exec *x = box->execs;
        box->execs = x->next;
        exec_free(x);
    }
}
