/* WAITING (in the queue) -> sent -> replied and idle -> billed -> over. A run ends early by its kernel's death; by a
 * timeout, by too much output, or because its client is gone, which all begin with the interrupt ladder and end like
 * the others. Reply and idle come on two channels, so a stock kernel's may come in either order. If the bill
 * (kernel_bill.c) takes time, it is requested when the first of them is there, so that it is ready about when the other
 * comes. */
#define _GNU_SOURCE
#include "front/kernels/kernel_run.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/jsonout.h"
#include "base/list.h"
#include "front/boxes/boxes.h"
#include "front/front.h"
#include "front/kernels/kernel_private.h"
#include "front/net/net.h"

enum { START_PATIENCE_MS = 60000, REPLY_PATIENCE_MS = 5000 };

static void begin_next(struct kernel *k);

static void run_free(struct kernel_run *run)
{
    struct front *front = run->box->front;

    for (struct kernel_run **at = &run->box->leaving; *at; at = &(*at)->next)
        if (*at == run) {
            *at = run->next;
            break;
        }
    loop_timer_cancel(front->loop, &run->timer);
    loop_task_cancel(front->loop, &run->end_task);
    kernel_bill_cancel(&run->bill);
    share_leave(&run->share);
    free((char *)(uintptr_t)run->options.code);
    json_decref(run->refused);
    free(run);
}

static void finish(struct kernel_run *run)
{
    struct metrics *m = &run->box->front->metrics;

    if (run->over)
        return;
    run->over = true;
    m->run_outcome[run->outcome]++;
    if (!run->abandoned && run->started_us)
        run->refused = net_box_refused(run->box, run->started_us);
    if (!run->abandoned)
        run->options.on_end(run);
    run_free(run);
}

static void on_end_task(struct loop_task *t)
{
    finish(container_of(t, struct kernel_run, end_task));
}

/* The cell may have been over for a while. */
static void on_billed(struct kernel_bill *b)
{
    struct kernel_run *run = container_of(b, struct kernel_run, bill);

    if (!run->kernel)
        finish(run);
}

/* The kernel is done with it. */
static void leave(struct kernel_run *run, enum outcome outcome, const char *reason)
{
    struct kernel *k = run->kernel;
    struct kernel_run **at = &kernel_private(k)->runs;
    struct loop *loop = k->front->loop;

    run->outcome = outcome;
    snprintf(run->reason, sizeof run->reason, "%s", reason);
    run->wall_us = run->started_us ? loop_now_us() - run->started_us : 0;
    memcpy(run->kernel_id, k->id, sizeof run->kernel_id);
    snprintf(run->context, sizeof run->context, "%s", k->name);
    run->way = k->way;
    run->state = k->state;
    run->restarts = k->restarts;
    run->kernel = NULL;
    loop_timer_cancel(loop, &run->timer);
    kernel_detach(&run->client);
    while (*at && *at != run)
        at = &(*at)->next;
    if (*at)
        *at = run->next;
    run->next = run->box->leaving;
    run->box->leaving = run;
    /* Without network the keeper passes on the names that were refused: its answer comes after them. */
    if (kernel_bill_close(&run->bill, outcome != OUTCOME_OK && !run->box->has_network))
        loop_task_add(loop, &run->end_task);
    begin_next(k);
}

static void end_of_dead(struct kernel_run *run)
{
    const struct kernel *k = run->kernel;
    enum outcome outcome = k->outcome ? k->outcome : OUTCOME_ERROR;
    char reason[480];

    snprintf(reason, sizeof reason, "%s", k->reason);
    if (!run->sent)
        outcome = OUTCOME_DEAD;
    else if (run->stopped)
        outcome = run->stopped;
    else if (outcome == OUTCOME_OK || outcome == OUTCOME_ERROR)
        outcome = OUTCOME_DIED;
    leave(run, outcome, reason);
}

static void end_of_cell(struct kernel_run *run)
{
    enum outcome outcome = OUTCOME_OK;

    if (run->stopped)
        outcome = run->stopped;
    else if (strcmp(run->status, "ok") == 0)
        outcome = OUTCOME_OK;
    else if (strcmp(run->status, "aborted") == 0 || (strcmp(run->ename, "KeyboardInterrupt") == 0 &&
                                                     run->interrupts != kernel_private(run->kernel)->interrupts))
        outcome = OUTCOME_INTERRUPTED;
    else
        outcome = OUTCOME_ERROR;
    struct kernel_private *p = kernel_private(run->kernel);
    if (p->asked_us)
        histogram_add(&run->box->front->metrics.first_result,
                      loop_now_us() - (run->options.since_us ? run->options.since_us : p->asked_us));
    p->asked_us = 0;
    leave(run, outcome,
          run->stopped == OUTCOME_TIMEOUT  ? "the cell ran longer than its timeout and was interrupted"
          : run->stopped == OUTCOME_OUTPUT ? "the cell said more than its output limit and was interrupted"
                                           : "");
}

/* ---- while it runs ---- */

static void stop(struct kernel_run *run, enum outcome why)
{
    if (!run->stopped) {        /* only once: later messages must not extend its time */
        bool had_time = run->began || why == OUTCOME_TIMEOUT;
        run->stopped = why;
        loop_timer_set(run->kernel->front->loop, &run->timer, had_time ? REPLY_PATIENCE_MS : START_PATIENCE_MS);
    }
    kernel_stop_cell(run->kernel, run->id);
}

/* A kernel that alternates between idle and busy would stay on the ladder's first step for ever. */
static void give_up(struct kernel_run *run)
{
    loop_timer_set(run->kernel->front->loop, &run->timer, REPLY_PATIENCE_MS);
    if (run->began)
        kernel_condemn(run->kernel, run->stopped == OUTCOME_INTERRUPTED ? OUTCOME_KILLED : run->stopped,
                       "the cell went on after it was interrupted, and the kernel was killed (SIGKILL)");
}

static void on_timeout(struct loop_timer *t)
{
    struct kernel_run *run = container_of(t, struct kernel_run, timer);

    if (run->idle) {            /* nothing to interrupt, only a reply that never came */
        leave(run, run->stopped ? run->stopped : OUTCOME_TIMEOUT,
              "the kernel said that the cell was over and did not reply");
        return;
    }
    if (run->stopped)
        give_up(run);
    else
        stop(run, OUTCOME_TIMEOUT);
    if (run->began || !run->kernel)
        return;
    if (run->kernel->state == KERNEL_STARTING)
        kernel_condemn(run->kernel, OUTCOME_TIMEOUT, "the kernel did not start in time");
    else if (kernel_has_time(run->kernel))
        kernel_condemn(run->kernel, OUTCOME_TIMEOUT, "the kernel had nothing else to do and did not begin the cell");
}

/* Its timeout starts here, because the start of an interpreter is not the cell's fault. */
static void note_begin(struct kernel_run *run)
{
    run->began = true;
    if (run->stopped)
        loop_timer_set(run->kernel->front->loop, &run->timer, REPLY_PATIENCE_MS);
    else if (run->options.timeout_ms)
        loop_timer_set(run->kernel->front->loop, &run->timer, run->options.timeout_ms);
}

static void note_reply(struct kernel_run *run, const struct kernel_message *m)
{
    struct jsonslice content = kernel_message_part(m, PART_CONTENT);
    unsigned long long count;

    run->replied = true;
    if (!jsonscan_text(jsonscan_find(content, "status"), run->status, sizeof run->status))
        snprintf(run->status, sizeof run->status, "error");
    (void)jsonscan_text(jsonscan_find(content, "ename"), run->ename, sizeof run->ename);
    if (jsonscan_number(jsonscan_find(content, "execution_count"), &count))
        run->execution_count = count;
}

/* Ends the cell once reply and idle have come. On a busy machine a first cell is faster than the keeper's word on its
 * kernel: how it was started, and what of the box's processor time is not the cell's. */
static void look_at_end(struct kernel_run *run)
{
    if (run->replied && run->idle && !kernel_private(run->kernel)->link.keep)
        end_of_cell(run);
    else if (kernel_bill_takes_time(&run->bill))
        (void)kernel_bill_close(&run->bill, false);
}

void kernel_runs_confirmed(struct kernel *k)
{
    struct kernel_run *run = kernel_private(k)->runs;

    if (run && run->replied && run->idle)
        end_of_cell(run);
}

/* The beginning of a stream message: these bytes, still escaped, of its text. NULL: no memory. */
static struct kernel_message *cut_stream(const struct kernel_message *m, struct jsonslice name, struct jsonslice text)
{
    struct iovec part[KERNEL_PARTS];
    struct kernel_message *cut = NULL;
    struct err ignored;
    struct buf content;

    buf_init(&content, name.size + text.size + 64);
    buf_add_text(&content, "{\"name\":");
    buf_add(&content, name.data ? name.data : "\"\"", name.data ? name.size : 2);
    buf_add_text(&content, ",\"text\":\"");
    buf_add(&content, text.data, text.size);
    buf_add_text(&content, "\"}");
    memcpy(part, m->part, sizeof part);
    part[PART_CONTENT] = (struct iovec){ content.data, content.length };
    if (buf_error(&content) < 0 || kernel_message_make(m->channel, part, NULL, 0, &cut, &ignored) < 0)
        cut = NULL;
    buf_done(&content);
    return cut;
}

/* Stream output counts by its text and is passed on up to the last allowed byte; other messages count by their content,
 * and are passed on completely or not at all. */
static bool take_output(struct kernel_run *run, struct kernel_message *m)
{
    size_t left = run->options.output_bytes - run->output_bytes, bytes = m->part[PART_CONTENT].iov_len, told = 0;
    struct jsonslice content = kernel_message_part(m, PART_CONTENT), text = { 0 };
    struct kernel_message *cut = NULL;
    bool fits = bytes <= left, wait = false;

    if (strcmp(m->type, "stream") == 0)
        text = jsonscan_inside(jsonscan_find(content, "text"));
    if (text.data) {
        told = jsonscan_cut(text, left, &bytes);
        fits = told == text.size;
    }
    run->output_bytes = fits ? run->output_bytes + bytes : run->options.output_bytes;
    if (fits)
        return run->abandoned ? false : run->options.on_message(run, m);
    stop(run, OUTCOME_OUTPUT);
    if (told > 0 && !run->abandoned)
        cut = cut_stream(m, jsonscan_find(content, "name"), (struct jsonslice){ text.data, told });
    if (cut)
        wait = run->options.on_message(run, cut);
    kernel_message_unref(cut);
    return wait;
}

static bool on_message(struct kernel_client *c, struct kernel_message *m)
{
    struct kernel_run *run = container_of(c, struct kernel_run, client);

    if (!run->sent || strcmp(m->parent_id, run->id) != 0)
        return false;
    if (m->channel == KERNEL_SHELL && strcmp(m->type, "execute_reply") == 0) {
        note_reply(run, m);
        look_at_end(run);
        return false;
    }
    if (m->channel == KERNEL_IOPUB && strcmp(m->type, "status") == 0) {
        if (!run->began)
            note_begin(run);
        run->idle = kernel_message_is_idle(m);
        if (run->idle)
            look_at_end(run);
        return false;
    }
    return m->channel == KERNEL_IOPUB || m->channel == KERNEL_STDIN ? take_output(run, m) : false;
}

static void on_state(struct kernel_client *c)
{
    struct kernel_run *run = container_of(c, struct kernel_run, client);
    const struct kernel *k = run->kernel;

    if (k->state == KERNEL_DEAD && (run->sent || !run->options.restart))
        end_of_dead(run);
    else if (k->state == KERNEL_RESTARTING && run->sent)
        leave(run, run->stopped ? run->stopped : OUTCOME_KILLED, "the kernel was restarted");
}

/* ---- its turn ---- */

static int send_request(struct kernel_run *run, struct err *e)
{
    struct kernel *k = run->kernel;
    char header[256];
    struct jsonout j;
    struct buf content;

    buf_init(&content, run->options.code_size * 6 + 256);
    jsonout_init(&j, &content);
    jsonout_open_object(&j, NULL);
    jsonout_bytes(&j, "code", run->options.code, run->options.code_size);
    jsonout_bool(&j, "silent", false);
    jsonout_bool(&j, "store_history", true);
    jsonout_open_object(&j, "user_expressions");
    jsonout_close(&j);
    jsonout_bool(&j, "allow_stdin", run->options.allow_stdin);
    jsonout_bool(&j, "stop_on_error", false);
    jsonout_close(&j);
    const char *session = run->options.session ? run->options.session : "carrel";
    size_t size = kernel_make_header_of(k, "execute_request", run->id, session, header, sizeof header);
    struct iovec none = { (char *)(uintptr_t)"{}", 2 };
    const struct iovec part[KERNEL_PARTS] = { { header, size }, none, none, { content.data, content.length } };
    int r = jsonout_finish(&j) < 0 ? err_at(e, ENOMEM, STEP_MEMORY, 0, "code")
                                   : kernel_send(k, KERNEL_SHELL, part, NULL, 0, e);
    buf_done(&content);
    share_leave(&run->share);
    free((char *)(uintptr_t)run->options.code);
    run->options.code = NULL;
    return r;
}

static void begin(struct kernel_run *run)
{
    struct kernel *k = run->kernel;
    struct err e = { 0 };

    kernel_bill_open(&run->bill, run->box, on_billed);
    run->started_us = loop_now_us();
    net_box_begin_command(run->box);
    run->interrupts = kernel_private(k)->interrupts;
    int r = k->state == KERNEL_DEAD ? kernel_restart(k, &e) : 0;
    if (run->kernel && r == 0)
        r = send_request(run, &e);
    run->sent = true;
    box_meter_ask(run->box);
    if (run->kernel && r < 0) {
        char text[200];
        err_text(&e, text, sizeof text);
        leave(run, k->state == KERNEL_DEAD ? OUTCOME_DEAD : OUTCOME_ERROR, text);
        return;
    }
    if (run->options.timeout_ms)
        loop_timer_set(k->front->loop, &run->timer, run->options.timeout_ms + START_PATIENCE_MS);
}

static void on_begin(struct loop_task *t)
{
    struct kernel_private *p = container_of(t, struct kernel_private, run_task);
    struct kernel_run *run = p->runs;

    if (p->gone || !run || run->sent)
        return;
    if (p->kernel->state == KERNEL_DEAD && !run->options.restart)
        end_of_dead(run);
    else
        begin(run);
}

/* From the loop, because callbacks request it. */
static void begin_next(struct kernel *k)
{
    struct kernel_private *p = kernel_private(k);

    p->run_task.on_run = on_begin;
    if (p->runs && !p->runs->sent)
        loop_task_add(k->front->loop, &p->run_task);
}

int kernel_run_start(struct kernel *k, const struct kernel_run_options *o, struct kernel_run **ret, struct err *e)
{
    struct kernel_private *p = kernel_private(k);
    struct kernel_run *run = calloc(1, sizeof *run), **at = &p->runs;
    char *code = malloc(o->code_size + 1);
    unsigned n = 0;

    for (; *at; at = &(*at)->next)
        n++;
    if (!run || !code || n >= KERNEL_RUNS_MOST) {
        free(run);
        free(code);
        return n >= KERNEL_RUNS_MOST ? err_set(e, EAGAIN, STEP_USAGE, "%u runs wait for this kernel already", n)
                                     : err_at(e, ENOMEM, STEP_MEMORY, 0, "run");
    }
    if (share_join(&run->share, &k->front->memory, k->box->owner) < 0 ||
        !share_move_bytes(&run->share, 0, o->code_size)) {
        share_leave(&run->share);
        free(run);
        free(code);
        return err_set(e, EDQUOT, STEP_USAGE, SHARE_FULL);
    }
    memcpy(code, o->code, o->code_size);
    run->options = *o;
    run->options.code = code;
    run->kernel = k;
    run->box = k->box;
    kernel_bill_open(&run->bill, k->box, on_billed);
    run->timer.on_expire = on_timeout;
    run->end_task.on_run = on_end_task;
    run->client.on_message = on_message;
    run->client.on_state = on_state;
    char part[16];
    front_make_id('r', part);
    snprintf(run->id, sizeof run->id, "%s_%s_%llu", p->session, part, (unsigned long long)++p->n_asked);
    kernel_attach(k, &run->client, UINT64_MAX);
    *at = run;
    if (p->runs == run && k->state != KERNEL_DEAD)
        begin(run);
    else
        begin_next(k);
    *ret = run;
    return 0;
}

void kernel_runs_end(struct kernel *k)
{
    while (kernel_private(k)->runs)
        end_of_dead(kernel_private(k)->runs);
}

void kernel_runs_drop(struct kernel *k)
{
    struct kernel_private *p = kernel_private(k);

    while (p->runs) {
        struct kernel_run *run = p->runs;
        p->runs = run->next;
        kernel_detach(&run->client);
        run_free(run);
    }
}

void kernel_runs_drop_leaving(struct box *box)
{
    while (box->leaving) {
        struct kernel_run *run = box->leaving;
        box->leaving = run->next;
        run_free(run);
    }
}

void kernel_run_resume(struct kernel_run *run)
{
    if (run->kernel)
        kernel_resume(run->kernel, &run->client);
}

void kernel_run_abandon(struct kernel_run *run)
{
    if (run->over)
        return;
    run->abandoned = true;
    if (!run->kernel)
        return;         /* the bill is pending */
    kernel_run_resume(run);
    if (run->sent && !run->idle)
        stop(run, OUTCOME_INTERRUPTED);
    else
        leave(run, OUTCOME_INTERRUPTED, "");
}
