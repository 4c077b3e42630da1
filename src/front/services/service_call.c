/* Calls. A call that cannot run yet is queued here: if its caller goes away it costs nothing, and a worker that dies
 * loses only its present call. A call that timed out, or whose caller has gone, is over for its caller at once. The
 * worker gets a cancellation; if the function does not end it gets a signal, and at last it is killed and replaced:
 *
 *   cancel (raises in the function) -- 2 s --> SIGINT -- 8 s --> SIGKILL */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/buf.h"
#include "base/list.h"
#include "front/boxes/boxes.h"
#include "front/front.h"
#include "front/net/net.h"
#include "front/services/service_private.h"

enum { CHECK_BYTES_MOST = 64 << 10 };
static const unsigned long long ids = 1000000000000000000ULL;      /* 18 digits: the most that jsonscan_number()
                                                                    * accepts */
enum { LADDER_INT_MS = 2000, LADDER_KILL_MS = 8000 };
/* The link's queue for a worker that does not read is for calls: a missing check loses nothing. */
enum { CHECKS_QUEUED_MOST = 16 };
_Static_assert((int)SERVICE_CALL_BYTES < (int)LINK_MESSAGE_MOST, "a call fits into a message");

static void on_timer(struct loop_timer *t);

struct service_call *service_call_by_id(struct service *s, unsigned long long id)
{
    for (struct service_call *c = s->private->calls; c; c = c->next)
        if (c->id == id)
            return c;
    return NULL;
}

/* ---- the log ---- */

static void note(struct service *s, struct call_private *q, enum call_outcome outcome, size_t result_bytes)
{
    struct service_private *p = s->private;

    q->entry.outcome = outcome;
    q->entry.result_bytes = result_bytes;
    q->entry.wall_us = loop_now_us() - q->started_us;
    if (!p->log)
        p->log = calloc(SERVICE_LOG_MOST, sizeof *p->log);
    if (!p->log)
        return;
    p->log[p->log_at] = q->entry;
    p->log_at = (p->log_at + 1) % SERVICE_LOG_MOST;
    p->n_log += p->n_log < SERVICE_LOG_MOST;
}

json_t *service_log(const struct service *s)
{
    const struct service_private *p = s->private;
    json_t *list = json_array();

    for (unsigned i = 0; i < p->n_log; i++) {
        const struct call_entry *one =
            &p->log[(p->log_at + SERVICE_LOG_MOST - p->n_log + i) % SERVICE_LOG_MOST];
        json_array_append_new(list, json_pack("{s:o,s:s,s:s,s:s,s:f,s:I,s:I}", "time", front_time_json(one->time_ms),
                                              "who", one->who, "function", one->function, "outcome",
                                              call_outcome_name(one->outcome), "wall_ms",
                                              (double)one->wall_us / 1000, "args_bytes", (json_int_t)one->args_bytes,
                                              "result_bytes", (json_int_t)one->result_bytes));
    }
    return list;
}

/* ---- the queue ---- */

static void drop_message(struct service_call *c)
{
    struct service_private *p = c->service->private;
    struct call_private *q = c->private;

    if (!q->message)
        return;
    guest_message_unref(q->message);
    q->message = NULL;
    (void)share_move_bytes(&p->share, p->queued_bytes, p->queued_bytes - q->bytes);
    p->queued_bytes -= q->bytes;
    q->holder->bytes -= q->bytes;
}

/* Removes the call at this place from the list. */
static struct service_call *take_at(struct service *s, struct service_call **at)
{
    struct service_private *p = s->private;
    struct service_call *c = *at;

    *at = c->next;
    if (!c->next)
        p->calls_end = at;
    if (p->running == c) {
        p->running = NULL;
        call_holder_served(p, c->private->holder, false);
    }
    if (c->private->sent && c->private->is_async) {
        p->n_async--;
        c->private->holder->n_async--;
    }
    s->n_calls--;
    return c;
}

static void unlist(struct service_call *c)
{
    struct service_call **at = &c->service->private->calls;

    while (*at != c)
        at = &(*at)->next;
    (void)take_at(c->service, at);
}

/* The first call that the worker has, or with all, the first; NULL: none. */
static struct service_call *take_next(struct service *s, bool all)
{
    for (struct service_call **at = &s->private->calls; *at; at = &(*at)->next)
        if (all || (*at)->private->sent)
            return take_at(s, at);
    return NULL;
}

/* For a call that is in no list any more. */
static void free_call(struct service_call *c)
{
    struct call_private *q = c->private;

    drop_message(c);
    call_holder_leave(q->holder);
    loop_timer_cancel(c->service->front->loop, &q->timer);
    if (q->answer) {
        boxes_cancel(c->service->front, c);
        guest_message_unref(q->answer);
    }
    json_decref(c->refused);
    free(q);
    free(c);
}

/* Calls the caller back; the call may live on although it is over. */
static void tell_end(struct service_call *c, enum call_outcome outcome, struct jsonslice result)
{
    struct call_private *q = c->private;

    if (q->is_over)
        return;
    q->is_over = true;
    c->outcome = outcome;
    c->result = result;
    c->wall_us = loop_now_us() - q->started_us;
    note(c->service, q, outcome, outcome == CALL_OK ? result.size : 0);
    if (q->sent && outcome != CALL_ABANDONED)
        c->refused = net_box_refused(c->service->box, q->sent_us);
    if (outcome != CALL_ABANDONED && c->options.on_end)
        c->options.on_end(c);
}

void service_call_finish(struct service_call *c, enum call_outcome outcome, struct jsonslice result)
{
    struct service *s = c->service;

    if (s->exec)
        exec_pull(s->exec);     /* earlier output comes first */
    unlist(c);          /* its callback may end the service, and with it all calls in the list */
    tell_end(c, outcome, result);
    free_call(c);
    if (!s->private->gone)
        loop_task_add(s->front->loop, &s->private->pump_task);
}

/* It may have come because the keeper was lost: then the names are, too. */
static void on_names(struct box *box, const struct frame_usage *usage, const struct err *e, void *arg)
{
    struct service_call *c = arg;

    (void)box;
    (void)usage;
    (void)e;
    service_call_finish(c, CALL_ERROR, c->private->value);
}

void service_call_fail(struct service_call *c, struct guest_message *m, struct jsonslice error)
{
    struct call_private *q = c->private;
    struct box *box = c->service->box;
    struct err ignored;

    if (q->answer)
        return;
    if (box->has_network || q->is_over || box_usage(box, on_names, c, &ignored) < 0) {
        service_call_finish(c, CALL_ERROR, error);
        return;
    }
    guest_message_ref(m);
    q->answer = m;
    q->value = error;
}

enum { BEGINNING = 32 };

/* The beginning of a message; returns its length. */
static size_t begin_message(enum service_message kind, char text[BEGINNING])
{
    return (size_t)snprintf(text, BEGINNING, "{\"" SERVICE_KEY_TYPE "\":\"%s\"", service_message_name(kind));
}

/* False: too much is on its way; the next answer tries again. */
static bool send_call(struct service *s, struct service_call *c)
{
    struct service_private *p = s->private;
    struct call_private *q = c->private;

    net_box_begin_command(s->box);
    q->sent_us = loop_now_us();
    if (guest_link_send(&p->link, q->message) < 0)
        return false;
    drop_message(c);
    q->sent = true;
    if (q->is_async) {
        p->n_async++;
        q->holder->n_async++;
        call_holder_served(p, q->holder, true);
    } else {
        p->running = c;
    }
    return true;
}

/* For a queued call: the worker checks its arguments now, so that a wrong one need not wait. */
static void send_check(struct service *s, struct service_call *c)
{
    const struct guest_message *asked = c->private->message;
    char call[BEGINNING], check[BEGINNING];

    if (c->private->sent || s->state != SERVICE_READY || !asked || asked->size > CHECK_BYTES_MOST ||
        s->private->link.n_queued >= CHECKS_QUEUED_MOST)
        return;
    size_t call_size = begin_message(SERVICE_CALL, call), check_size = begin_message(SERVICE_CHECK, check);
    struct guest_message *m = guest_message_new(0, asked->size - call_size + check_size);
    if (!m)
        return;
    memcpy(m->data, check, check_size);
    memcpy(m->data + check_size, asked->data + call_size, asked->size - call_size);
    c->private->checked = guest_link_send(&s->private->link, m) == 0;
    guest_message_unref(m);
}

/* The oldest call of the holder who has waited longest; NULL: none may be sent now. */
static struct service_call *next_of(const struct service_private *p, bool is_async)
{
    struct service_call *next = NULL;

    for (struct service_call *c = p->calls; c; c = c->next) {
        const struct call_private *q = c->private;
        if (q->sent || q->is_over || q->is_async != is_async || (is_async && !call_holder_may_run(p, q->holder)))
            continue;
        if (!next || q->holder->turn[is_async] < next->private->holder->turn[is_async])
            next = c;
    }
    return next;
}

void service_pump(struct service *s)
{
    struct service_private *p = s->private;
    struct service_call *c;

    if (s->state != SERVICE_READY || p->gone)
        return;
    if (!p->running && (c = next_of(p, false)))
        (void)send_call(s, c);
    while ((c = next_of(p, true)) && send_call(s, c))
        ;
}

void service_calls_end(struct service *s, enum call_outcome outcome, bool all)
{
    /* A callback may change the list. */
    for (struct service_call *c; (c = take_next(s, all));) {
        c->died = s->outcome ? s->outcome : OUTCOME_ERROR;
        c->reason = s->reason;
        if (c->private->answer)
            tell_end(c, CALL_ERROR, c->private->value);
        else
            tell_end(c, outcome, (struct jsonslice){ 0 });
        free_call(c);
    }
}

/* ---- starting ---- */

static struct guest_message *make_message(const struct call_options *o, unsigned long long id)
{
    char beginning[BEGINNING];
    struct buf text;
    struct guest_message *m = NULL;

    buf_init(&text, SERVICE_CALL_BYTES);
    (void)begin_message(SERVICE_CALL, beginning);
    buf_printf(&text, "%s,\"" SERVICE_KEY_ID "\":%llu,\"" SERVICE_KEY_FUNCTION "\":\"%s\",\"" SERVICE_KEY_ARGS "\":",
               beginning, id, o->function);
    if (o->args.data)
        buf_add(&text, o->args.data, o->args.size);
    else
        buf_add_text(&text, "[]");
    buf_add_text(&text, ",\"" SERVICE_KEY_KWARGS "\":");
    if (o->kwargs.data)
        buf_add(&text, o->kwargs.data, o->kwargs.size);
    else
        buf_add_text(&text, "{}");
    buf_add_char(&text, '}');
    if (!text.failure && (m = guest_message_new(0, text.length)))
        memcpy(m->data, text.data, text.length);
    buf_done(&text);
    return m;
}

static int check(struct service *s, const struct call_options *o, const json_t **ret, struct err *e)
{
    if (s->state == SERVICE_DEAD)
        return err_set(e, EPIPE, STEP_USAGE, "the service is dead: %s", s->reason);
    if (s->box->phase != PHASE_RUNNING)
        return err_set(e, EBUSY, STEP_USAGE, "the service's box is %s", phase_names[s->box->phase]);
    if (s->state == SERVICE_LOADING && !json_array_size(s->functions))
        return err_set(e, EBUSY, STEP_USAGE, "the service is still loading its functions; wait until it is ready");
    /* While it reloads it has the functions of its last worker. */
    *ret = service_function(s, o->function);
    if (!*ret)
        return err_set(e, ENOENT, STEP_USAGE, "there is no function '%.40s' in this service", o->function);
    if (o->args.size + o->kwargs.size > SERVICE_CALL_BYTES - 512)
        return err_set(e, EMSGSIZE, STEP_USAGE, "the arguments may have %d bytes", SERVICE_CALL_BYTES - 512);
    return 0;
}

/* Random, so that a worker cannot answer a call before it was sent, and one that outlives this front does not mistake
 * the next front's calls for ours. */
static unsigned long long new_id(struct service *s)
{
    unsigned long long id;

    do {
        if (getrandom(&id, sizeof id, 0) != (ssize_t)sizeof id)
            abort();            /* cannot happen once the kernel has booted */
        id %= ids;
    } while (!id || service_call_by_id(s, id));
    return id;
}

int service_call_start(struct service *s, const struct call_options *o, struct service_call **ret, struct err *e)
{
    struct service_private *p = s->private;
    const json_t *function = NULL;
    struct call_holder *h = NULL;
    int r = check(s, o, &function, e);

    if (r < 0 || (r = call_holder_join(s, o->who, &h, e)) < 0)
        return r;
    struct service_call *c = calloc(1, sizeof *c);
    struct call_private *q = calloc(1, sizeof *q);
    unsigned long long id = new_id(s);
    struct guest_message *m = c && q ? make_message(o, id) : NULL;
    if (!m || !call_holder_may_keep(s, h, m->size) ||
        !share_move_bytes(&p->share, p->queued_bytes, p->queued_bytes + m->size)) {
        if (m)
            guest_message_unref(m);
        free(c);
        free(q);
        call_holder_leave(h);
        return m ? err_set(e, EDQUOT, STEP_USAGE, SHARE_FULL) : err_at(e, ENOMEM, STEP_MEMORY, 0, "call");
    }
    p->queued_bytes += m->size;
    h->bytes += m->size;
    *c = (struct service_call){ .service = s, .options = *o, .id = id, .private = q };
    *q = (struct call_private){ .holder = h,
                                .message = m,
                                .bytes = m->size,
                                .is_async = json_is_true(json_object_get(function, "async")),
                                .started_us = loop_now_us(),
                                .timer.on_expire = on_timer,
                                .call = c };
    q->entry.time_ms = front_now_ms();
    q->entry.args_bytes = o->args.size + o->kwargs.size;
    snprintf(q->entry.who, sizeof q->entry.who, "%s", o->who);
    snprintf(q->entry.function, sizeof q->entry.function, "%s", o->function);
    c->options.function = c->options.who = NULL;
    c->options.args = c->options.kwargs = (struct jsonslice){ 0 };
    *p->calls_end = c;
    p->calls_end = &c->next;
    s->n_calls++;
    s->n_called++;
    if (o->timeout_ms)
        loop_timer_set(s->front->loop, &q->timer, o->timeout_ms);
    box_touch(s->box);
    service_pump(s);
    send_check(s, c);
    *ret = c;
    return 0;
}

/* ---- stopping ---- */

static void interrupt(struct service_call *c)
{
    struct service *s = c->service;

    c->private->ladder = 1;
    loop_timer_set(s->front->loop, &c->private->timer, LADDER_INT_MS);
    service_say_cancel(s, c->id);
}

static void climb(struct service_call *c)
{
    struct service *s = c->service;
    struct err ignored;

    if (c->private->ladder++ == 1) {
        loop_timer_set(s->front->loop, &c->private->timer, LADDER_KILL_MS);
        if (s->exec)
            (void)!exec_signal(s->exec, SIGINT, &ignored);
        return;
    }
    service_condemn(s, OUTCOME_KILLED, "the worker was ended because a function could not be interrupted");
}

static void stop(struct service_call *c, enum call_outcome outcome)
{
    if (!c->private->sent) {
        unlist(c);
        tell_end(c, outcome, (struct jsonslice){ 0 });
        free_call(c);
        return;
    }
    loop_timer_cancel(c->service->front->loop, &c->private->timer);
    if (c->service->exec && c->service->state == SERVICE_READY && !c->private->answer)
        interrupt(c);
    tell_end(c, outcome, (struct jsonslice){ 0 });      /* last: it may end everything */
}

static void on_timer(struct loop_timer *t)
{
    struct service_call *c = (container_of(t, struct call_private, timer))->call;

    if (c->private->is_over)
        climb(c);
    else
        stop(c, CALL_TIMEOUT);
}

void service_call_abandon(struct service_call *c)
{
    if (!c->private->is_over)
        stop(c, CALL_ABANDONED);
}
