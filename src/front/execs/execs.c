/* An exec's life. The front makes the pipes; the command gets one end of each through the keeper, and the keeper holds
 * duplicates of our ends, so that the next front gets them if this one dies. So all data that must not be lost is in a
 * pipe, in the log, or in the keeper. */
#define _GNU_SOURCE
#include "front/boxes/box_disk.h"
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
#include "front/boxes/box_parts.h"
#include "front/boxes/box_text.h"
#include "front/db/db.h"
#include "front/execs/exec_env.h"
#include "front/execs/exec_private.h"
#include "front/front.h"
#include "front/keeper_link.h"
#include "front/net/net.h"
#include "proto/command.h"
#include "proto/ending.h"

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

static void forget_answer(const union event *event, int *fds, size_t n_fds, void *arg)
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

void exec_forget_slot(struct box *box, unsigned slot)
{
    struct request_head q = { .type = REQUEST_FORGET, .box = box->slot, .payload = (uint16_t)slot };
    keeper_link_request(box->front->keeper, &q, sizeof q, NULL, 0, forget_answer, NULL);
}

static void forget(struct exec *x)
{
    x->box->slots_used &= ~(UINT64_C(1) << x->slot);
    if (x->box->slot != BOX_NO_SLOT)
        exec_forget_slot(x->box, x->slot);
}

static void save(void *arg)
{
    exec_save(arg);
}

/* is_with_keeper: the keeper still holds its end. It releases it only when the end is stored: a front that dies in
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
    if (x->owner)
        x->owner->on_end(x);
    exec_link_close(x);
    x->ended_ms = front_now_ms();
    x->box->running--;
    front->metrics.outcome[x->outcome] += x->outcome != OUTCOME_NONE;
    if (x->outcome)
        histogram_add(&front->metrics.exec, x->end.wall_us);
    front->metrics.execs_failed += x->failure.code != 0;
    box_touch(x->box);
    box_event_with(x->box, save, x, "exec_ended",
                   json_pack("{s:s,s:s?}", "exec", x->id, "outcome", exec_outcome_name(x)));
    if (is_with_keeper)
        forget(x);
    exec_changed(x);
    x->is_ending = false;
    if (x->delete_box)
        (void)!box_delete(x->box, BOX_REASON_COMMAND_ENDED, NULL, NULL, &ignored);       /* it may be ending already */
}

void exec_end(struct exec *x)
{
    end_exec(x, false);
}

/* The keeper's answer to the request: if it failed, there is no payload. */
static void on_asked(const union event *event, int *fds, size_t n_fds, void *arg)
{
    struct exec *x = arg;
    const struct err *e = event_failure(event);

    (void)fds;
    (void)n_fds;
    if (x->state == EXEC_ENDED)
        return;
    x->is_kept = !e;
    if (e) {
        x->failure = *e;
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
    const int ours[3] = { x->in.fd, x->out.fd, x->err.fd };
    for (int i = 0; i < 3 && !o->terminal; i++)
        if (ours[i] >= 0) {
            q.n_held++;
            fds[n++] = ours[i];
        }
    keeper_link_request(x->box->front->keeper, &q, sizeof q, fds, n, on_asked, x);
}

struct exec *exec_new(struct box *box)
{
    struct exec *x = calloc(1, sizeof *x);

    if (!x)
        return NULL;
    x->box = box;
    x->log.fd = -1;
    x->argv = json_array();
    exec_streams_init(x);
    return x;
}

void exec_open_log(struct exec *x)
{
    exec_log_init(&x->log, x->box->front->execs_dir, x->id);
    x->log.bound = x->output_limit ? 0 : x->box->front->config.output_kept_bytes;
}

void exec_free(struct exec *x)
{
    exec_streams_close(x);
    exec_link_close(x);
    x->state = EXEC_ENDED;
    if (x->on_stdin)
        x->on_stdin(x, x->stdin_arg);   /* queued input is dropped */
    exec_log_close(&x->log);
    json_decref(x->argv);
    json_decref(x->refused);
    json_decref(x->about);
    free(x->cwd);
    free(x->failure_text);
    free(x);
}

void execs_forget_oldest(struct box *box)
{
    struct exec **at = &box->execs;
    struct err e;
    unsigned n = 0;

    for (struct exec *x; (x = *at);) {
        if (++n > EXECS_KEPT && x->state == EXEC_ENDED && !x->is_ending && !x->followers) {
            *at = x->next;
            /* If the row stays, the next front deletes it after reading it. */
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

static int pack(const struct box *box, const struct exec_options *o, int *ret, struct err *e)
{
    struct command_spec spec = { .argv = o->argv, .env = o->env, .workdir = o->cwd, .terminal = o->terminal,
                                 .rows = o->rows, .columns = o->columns };
    struct exec_files files;
    int r = exec_files_read(box, o->secrets, o->user == 0, &files, e);

    if (r < 0)
        return r;
    spec.files = files.file;
    spec.n_files = files.n;
    r = command_pack(&spec, ret, e);
    exec_files_done(&files);
    return r;
}

int exec_start(struct box *box, const struct exec_options *options, struct exec **ret, struct err *e)
{
    struct front *front = box->front;
    int theirs[3] = { -1, -1, -1 };
    FD command = -1;

    if (box->phase != PHASE_RUNNING)
        return err_set(e, EBUSY, STEP_USAGE, "the box %s; only in a running one can a command be started",
                       box_show_state(box).text);
    unsigned slot = free_slot(box);
    if (slot == KEEPER_PAYLOADS)
        return err_set(e, EAGAIN, STEP_USAGE, "%d commands run in this box already", KEEPER_PAYLOADS);
    int r = options->owner ? 0 : box_disk_check(front, box->owner, 0, e);
    if (r < 0)
        return r;
    r = pack(box, options, &command, e);
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
    exec_open_log(x);
    for (char **a = options->argv; *a; a++)
        exec_show_argument(x, *a);
    x->cwd = options->cwd ? strdup(options->cwd) : NULL;
    x->user = options->user;
    x->group = options->group;
    x->started_ms = front_now_ms();
    x->started_us = loop_now_us();
    x->rows = options->rows;
    x->columns = options->columns;
    x->owner = options->owner;
    x->owned_by = options->owned_by;
    x->about = json_incref(options->about);
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
    if (!x->owner)
        net_box_begin_command(box);
    ask_keeper(x, options, command, theirs);
    for (int i = 0; i < 3; i++)
        fd_close(theirs[i]);
    execs_forget_oldest(box);
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
    /* Before its exec it has no process group and drops signals, so the signal waits; but SIGKILL is also sent at once,
     * to the single process. */
    if (x->state == EXEC_STARTING) {
        x->early_signal = x->early_signal == SIGKILL ? SIGKILL : signal;
        if (signal != SIGKILL)
            return 0;
        q.group = 0;
    }
    keeper_link_request(x->box->front->keeper, &q, sizeof q, NULL, 0, forget_answer, NULL);
    return 0;
}

void exec_ended(struct exec *x)
{
    exec_streams_drain(x);
    if (!x->failure.code) {
        bool known = x->end.outcome > OUTCOME_NONE && x->end.outcome < OUTCOME_COMMAND_COUNT;
        x->outcome = x->over_limit ? OUTCOME_OUTPUT : known ? (enum outcome)x->end.outcome : OUTCOME_ERROR;
        x->limit_value = ending_limit(x->outcome, &x->box->settings.limits, x->timeout_ms, x->output_limit);
    }
    if (!x->owner && x->started_us)
        x->refused = net_box_refused(x->box, x->started_us);
    end_exec(x, true);
}

void exec_disown(struct exec *x)
{
    struct err ignored;

    x->is_disowned = true;
    exec_save(x);
    (void)!exec_signal(x, SIGKILL, &ignored);
}
