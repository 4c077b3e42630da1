/* /api/kernels. Each kernel has its own box, which is made before it and deleted with it. While the box is being made
 * the kernel is pending: it counts against the caller's limit and holds its id. The answer is sent when the kernel
 * runs, because clients wait only a moment for a kernel whose id they have; a kernel that cannot start is an error with
 * its reason. If the client goes away meanwhile, a kernel whose id the client chose is still made, because the client
 * can ask again; otherwise no client could find it, and it is not made. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "doors/jupyter/door.h"
#include "front/boxes/box_request.h"

struct pending_kernel {
    struct pending_kernel  *next, **back;
    struct jupyter         *jupyter;
    struct gateway_request *waiter;     /* NULL: the client has gone */
    started_callback       *done;
    char                   *owner;      /* owned */
    struct start_request    start;      /* owned */
};

static void pending_kernel_unlist(struct pending_kernel *pending)
{
    LIST_REMOVE(pending);
}

static void pending_kernel_free(struct pending_kernel *pending)
{
    pending_kernel_unlist(pending);
    start_request_done(&pending->start);
    free(pending->owner);
    free(pending);
}

static void pending_kernel_finish(struct pending_kernel *pending, struct kernel *k, const struct err *e)
{
    struct gateway_request *c = pending->waiter;
    started_callback *done = pending->done;

    pending_kernel_free(pending);
    if (c) {
        c->on_gone = NULL;
        done(c, k, e, false);
    }
}

void pending_kernel_started(struct pending_kernel *pending, struct kernel *k)
{
    bool wanted = pending->waiter || pending->start.is_chosen;
    struct jupyter *j = pending->jupyter;

    pending_kernel_finish(pending, k, NULL);
    if (!wanted)
        kernel_remove(j, k, "the client went away before the kernel was ready", NULL);
}

void pending_kernel_failed(struct pending_kernel *pending, const char *why)
{
    struct err e = { 0 };

    (void)err_set(&e, EIO, STEP_NONE, "the kernel does not start: %s", why);
    pending_kernel_finish(pending, NULL, &e);
}

static void on_box(struct box *box, const struct err *failure, void *arg)
{
    struct pending_kernel *pending = arg;
    struct err e = { 0 }, ignored;
    struct kernel *k = NULL;

    if (failure) {
        pending_kernel_finish(pending, NULL, failure);
        return;
    }
    const struct kernel_options options = {
        .id = pending->start.id,
        .spec = pending->jupyter->front->config.template[pending->start.spec - 1].name,
        .env = pending->start.env,
    };
    bool wanted = pending->waiter || pending->start.is_chosen;
    int r = wanted ? kernel_start(box, &options, &k, &e) : -ECANCELED;
    struct kernel_record *record = r == 0 ? record_of(pending->jupyter, k) : NULL;
    if (record) {
        pending_kernel_unlist(pending);
        record_await(record, pending, pending->start.launch_ms);
        return;
    }
    if (r == 0) {
        kernel_end(k, "out of memory");
        (void)err_at(&e, ENOMEM, STEP_MEMORY, 0, "the kernel");
    }
    (void)!box_delete(box, BOX_REASON_ASKED, NULL, NULL, &ignored);
    pending_kernel_finish(pending, NULL, &e);
}

static void pending_kernel_gone(struct gateway_request *c)
{
    struct pending_kernel *pending = c->work;

    pending->waiter = NULL;
}

static unsigned count_kernels(const struct jupyter *j, const char *owner)
{
    unsigned n = 0;

    for (const struct pending_kernel *pending = j->pending_kernels; pending; pending = pending->next)
        n += strcmp(pending->owner, owner) == 0;
    /* Also dead ones: each still has its box, and can be restarted. */
    for (const struct kernel *k = j->front->kernels; k; k = k->next)
        n += kernel_is_ours(k) && strcmp(k->box->owner, owner) == 0;
    return n;
}

/* 0, or -EEXIST with the kernel that has this id already. */
static int check_new(struct gateway_request *c, const struct start_request *q, struct kernel **ret, struct err *e)
{
    const struct jupyter *j = c->jupyter;
    uint32_t most = c->jupyter->config->max_kernels;

    *ret = kernel_find(c->front, c->who.name, q->id);
    bool exists = *ret != NULL;
    for (const struct pending_kernel *pending = j->pending_kernels; pending && !exists; pending = pending->next)
        exists = strcmp(pending->start.id, q->id) == 0 && strcmp(pending->owner, c->who.name) == 0;
    if (exists)
        return err_set(e, EEXIST, STEP_NONE, "Kernel already exists: %s", q->id);
    if (most && count_kernels(j, c->who.name) >= most)
        return err_set(e, EDQUOT, STEP_USAGE,
                       "%s has %u kernels already (dead ones count), which is the most on this server; delete one",
                       c->who.name, most);
    return 0;
}

static struct pending_kernel *pending_kernel_new(struct gateway_request *c, struct start_request *q,
                                                 started_callback *done)
{
    struct jupyter *j = c->jupyter;
    struct pending_kernel *pending = calloc(1, sizeof *pending);

    if (!pending)
        return NULL;
    *pending = (struct pending_kernel){ .jupyter = c->jupyter, .waiter = c, .done = done, .start = *q };
    *q = (struct start_request){ 0 };
    pending->owner = strdup(c->who.name);
    if (!pending->owner) {
        pending_kernel_free(pending);
        return NULL;
    }
    LIST_ADD(j->pending_kernels, pending);
    return pending;
}

void start_kernel(struct gateway_request *c, struct start_request *q, started_callback *done)
{
    struct box_request body = { .front = c->front, .who = &c->who, .r = c->r };
    struct kernel *existing = NULL;
    struct box *box = NULL;
    struct err e = { 0 };
    bool existed, may_exist = q->may_exist;

    int r = check_new(c, q, &existing, &e);
    if (r == -EEXIST && may_exist && existing && kernel_is_ours(existing)) {
        start_request_done(q);
        done(c, existing, NULL, true);
        return;
    }
    if (r == 0)
        r = box_request_read(&body, q->box, &e);
    box_mounts_set(&body.settings.mounts, MOUNT_LAYER, q->spec, false);
    struct pending_kernel *pending = r == 0 ? pending_kernel_new(c, q, done) : NULL;
    start_request_done(q);
    if (r == 0 && !pending) {
        box_settings_done(&body.settings);
        r = err_at(&e, ENOMEM, STEP_MEMORY, 0, "a kernel");
    }
    if (r == 0)
        r = boxes_create(c->front, c->who.name, c->who.uid, c->who.gid, NULL, NULL, &body.settings, on_box, pending,
                         &box, &existed, &e);
    if (r < 0) {
        if (pending)
            pending_kernel_free(pending);
        done(c, NULL, &e, false);
        return;
    }
    c->work = pending;
    c->on_gone = pending_kernel_gone;
}

/* ---- create, list, get ---- */

static void on_started(struct gateway_request *c, struct kernel *k, const struct err *e, bool existed)
{
    (void)existed;
    if (!k) {
        answer_err(c, e);
        return;
    }
    const char *place = arena_printf(&c->r->arena, "/api/kernels/%s", k->id);
    if (place)
        (void)http_reply_header(c->r, "Location", place);
    answer_json(c, 201, kernel_model(k));
}

static void create(struct gateway_request *c, json_t *root)
{
    struct start_request q;
    struct err e = { 0 };

    if (start_request_read(c->jupyter, root, &q, &e) < 0)
        answer_err(c, &e);
    else
        start_kernel(c, &q, on_started);
}

void handle_kernel_create(struct gateway_request *c)
{
    gateway_body(c, create);
}

void handle_kernel_list(struct gateway_request *c)
{
    json_t *list = json_array();

    for (const struct kernel *k = c->front->kernels; k; k = k->next)
        if (kernel_is_ours(k) && strcmp(k->box->owner, c->who.name) == 0)
            json_array_append_new(list, kernel_model(k));
    answer_json(c, 200, list);
}

void handle_kernel_get(struct gateway_request *c)
{
    struct kernel *k = gateway_kernel(c);

    if (k)
        answer_json(c, 200, kernel_model(k));
}

void handle_status(struct gateway_request *c)
{
    char started[40], last[40];
    int64_t activity = c->front->started_ms;
    unsigned kernels = 0, connections = 0;

    for (const struct kernel *k = c->front->kernels; k; k = k->next)
        if (kernel_is_ours(k) && strcmp(k->box->owner, c->who.name) == 0) {
            kernels++;
            connections += k->connections;
            activity = k->activity_ms > activity ? k->activity_ms : activity;
        }
    jupyter_time(c->front->started_ms, started);
    jupyter_time(activity, last);
    answer_json(c, 200, json_pack("{s:s,s:s,s:I,s:I}", "started", started, "last_activity", last, "connections",
                                  (json_int_t)connections, "kernels", (json_int_t)kernels));
}

/* ---- end, interrupt, restart ---- */

static void on_removed(struct box *box, const struct err *e, void *arg)
{
    struct gateway_request *c = arg;

    (void)box;
    if (e)
        answer_err(c, e);
    else
        answer_none(c);
}

static void remove_gone(struct gateway_request *c)
{
    boxes_cancel(c->front, c);
}

void kernel_remove(struct jupyter *j, struct kernel *k, const char *reason, struct gateway_request *then_none)
{
    struct box *box = k->box;
    struct kernel_record *record = record_of(j, k);
    struct err e = { 0 };

    sessions_forget(j, box->owner, k->id);
    if (record)
        record_close(record, reason);
    bool is_ours = kernel_is_ours(k);
    kernel_end(k, reason);
    bool is_over = !is_ours || box->phase == PHASE_DELETED || box->phase == PHASE_FAILED;
    int r = is_over ? 0 : box_delete(box, BOX_REASON_ASKED, then_none ? on_removed : NULL, then_none, &e);
    if (!then_none)
        return;
    if (r < 0)
        answer_err(then_none, &e);
    else if (is_over)
        answer_none(then_none);
    else
        then_none->on_gone = remove_gone;
}

void handle_kernel_delete(struct gateway_request *c)
{
    struct kernel *k = gateway_kernel(c);

    if (k)
        kernel_remove(c->jupyter, k, "the kernel was shut down", c);
}

static void interrupt(struct gateway_request *c, json_t *root)
{
    struct kernel *k = gateway_kernel(c);
    struct err e = { 0 };

    (void)root;
    if (!k)
        return;
    if (kernel_interrupt(k, &e) < 0)
        answer_err(c, &e);
    else
        answer_none(c);
}

void handle_kernel_interrupt(struct gateway_request *c)
{
    gateway_body(c, interrupt);
}

static void restart(struct gateway_request *c, json_t *root)
{
    struct kernel *k = gateway_kernel(c);
    struct kernel_record *record = k ? record_of(c->jupyter, k) : NULL;
    struct err e = { 0 };

    (void)root;
    if (!k)
        return;
    int r = record ? 0 : err_at(&e, ENOMEM, STEP_MEMORY, 0, "the kernel");
    if (r == 0) {
        record_fail_pending(record, "KernelRestarted", "the kernel was restarted");
        r = kernel_restart(k, &e);
    }
    if (r < 0)
        answer_err(c, &e);
    else
        record_wait(record, c);
}

void handle_kernel_restart(struct gateway_request *c)
{
    gateway_body(c, restart);
}
