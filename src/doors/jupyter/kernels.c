/* /api/kernels. Each kernel has a box of its own, which is made first and goes with it. While the box is being made the
 * kernel is a struct making: it counts against the caller's limit and holds its id. The answer comes when the kernel
 * runs: clients give one that they have been told of only a moment, and one that cannot start is an error with its
 * reason. A client that goes away meanwhile only loses the answer if it chose the id and can ask again; else nobody
 * would ever find the kernel, and it is not made. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "doors/jupyter/door.h"
#include "front/boxes/box_request.h"

struct making {
    struct making *next, **back;
    struct front  *front;
    struct call   *call;            /* NULL: nobody waits */
    made_callback *done;
    char          *owner;           /* owned */
    struct wish    wish;            /* owned */
};

static void making_unlist(struct making *m)
{
    LIST_REMOVE(m);
}

static void making_free(struct making *m)
{
    making_unlist(m);
    wish_done(&m->wish);
    free(m->owner);
    free(m);
}

static void making_finish(struct making *m, struct kernel *k, const struct err *e)
{
    struct call *c = m->call;
    made_callback *done = m->done;

    making_free(m);
    if (c) {
        c->on_gone = NULL;
        done(c, k, e, false);
    }
}

void making_started(struct making *m, struct kernel *k)
{
    bool wanted = m->call || m->wish.is_chosen;

    making_finish(m, k, NULL);
    if (!wanted)
        kernel_remove(k, "nobody waited for the kernel", NULL);
}

void making_failed(struct making *m, const char *why)
{
    struct err e = { 0 };

    (void)err_set(&e, EIO, STEP_NONE, "the kernel does not start: %s", why);
    making_finish(m, NULL, &e);
}

static void on_box(struct box *box, const struct err *failure, void *arg)
{
    struct making *m = arg;
    struct err e = { 0 }, ignored;
    struct kernel *k = NULL;

    if (failure) {
        making_finish(m, NULL, failure);
        return;
    }
    const struct kernel_options options = {
        .id = m->wish.id,
        .spec = m->front->config.template[m->wish.spec - 1].name,
        .env = m->wish.env,
    };
    bool wanted = m->call || m->wish.is_chosen;
    int r = wanted ? kernel_start(box, &options, &k, &e) : -ECANCELED;
    struct desk *d = r == 0 ? desk_of(k) : NULL;
    if (d) {
        making_unlist(m);
        desk_await(d, m, m->wish.launch_ms);
        return;
    }
    if (r == 0) {
        kernel_end(k, "out of memory");
        (void)err_at(&e, ENOMEM, STEP_MEMORY, 0, "the kernel");
    }
    (void)!box_delete(box, "asked", NULL, NULL, &ignored);
    making_finish(m, NULL, &e);
}

static void making_gone(struct call *c)
{
    struct making *m = c->work;

    m->call = NULL;
}

static unsigned count_kernels(const struct jupyter *j, const char *owner)
{
    unsigned n = 0;

    for (const struct making *m = j->makings; m; m = m->next)
        n += strcmp(m->owner, owner) == 0;
    /* Also the dead: each still has its box, and can be started again. */
    for (const struct kernel *k = j->front->kernels; k; k = k->next)
        n += kernel_is_ours(k) && strcmp(k->box->owner, owner) == 0;
    return n;
}

/* 0, or -EEXIST with the kernel if there is one already. */
static int check_new(struct call *c, const struct wish *w, struct kernel **ret, struct err *e)
{
    const struct jupyter *j = c->front->jupyter;
    uint32_t most = c->front->config.jupyter.max_kernels;

    *ret = kernel_find(c->front, c->who.name, w->id);
    bool exists = *ret != NULL;
    for (const struct making *m = j->makings; m && !exists; m = m->next)
        exists = strcmp(m->wish.id, w->id) == 0 && strcmp(m->owner, c->who.name) == 0;
    if (exists)
        return err_set(e, EEXIST, STEP_NONE, "Kernel already exists: %s", w->id);
    if (most && count_kernels(j, c->who.name) >= most)
        return err_set(e, EDQUOT, STEP_USAGE,
                       "%s has %u kernels already (dead ones count), which is the most on this server; delete one",
                       c->who.name, most);
    return 0;
}

static struct making *making_new(struct call *c, struct wish *w, made_callback *done)
{
    struct jupyter *j = c->front->jupyter;
    struct making *m = calloc(1, sizeof *m);

    if (!m)
        return NULL;
    *m = (struct making){ .front = c->front, .call = c, .done = done, .wish = *w };
    *w = (struct wish){ 0 };
    m->owner = strdup(c->who.name);
    if (!m->owner) {
        making_free(m);
        return NULL;
    }
    LIST_ADD(j->makings, m);
    return m;
}

/* Takes w over. */
void kernel_make(struct call *c, struct wish *w, made_callback *done)
{
    struct box_request body = { .front = c->front, .who = &c->who, .r = c->r };
    struct kernel *existing = NULL;
    struct box *box = NULL;
    struct err e = { 0 };
    bool existed, may_exist = w->may_exist;

    int r = check_new(c, w, &existing, &e);
    if (r == -EEXIST && may_exist && existing && kernel_is_ours(existing)) {
        wish_done(w);
        done(c, existing, NULL, true);
        return;
    }
    if (r == 0)
        r = box_request_read(&body, w->box, &e);
    body.settings.template = w->spec;
    struct making *m = r == 0 ? making_new(c, w, done) : NULL;
    wish_done(w);
    if (r == 0 && !m) {
        box_settings_done(&body.settings);
        r = err_at(&e, ENOMEM, STEP_MEMORY, 0, "a kernel");
    }
    if (r == 0)
        r = boxes_create(c->front, c->who.name, c->who.uid, c->who.gid, NULL, NULL, &body.settings, on_box, m, &box,
                         &existed, &e);
    if (r < 0) {
        if (m)
            making_free(m);
        done(c, NULL, &e, false);
        return;
    }
    c->work = m;
    c->on_gone = making_gone;
}

/* ---- create, list, get ---- */

static void on_made(struct call *c, struct kernel *k, const struct err *e, bool existed)
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

static void create(struct call *c, json_t *root)
{
    struct wish w;
    struct err e = { 0 };

    if (wish_read(c->front, root, &w, &e) < 0)
        answer_err(c, &e);
    else
        kernel_make(c, &w, on_made);
}

void call_kernel_create(struct call *c)
{
    call_body(c, create);
}

void call_kernel_list(struct call *c)
{
    json_t *list = json_array();

    for (const struct kernel *k = c->front->kernels; k; k = k->next)
        if (kernel_is_ours(k) && strcmp(k->box->owner, c->who.name) == 0)
            json_array_append_new(list, kernel_model(k));
    answer_json(c, 200, list);
}

void call_kernel_get(struct call *c)
{
    struct kernel *k = call_kernel(c);

    if (k)
        answer_json(c, 200, kernel_model(k));
}

void call_status(struct call *c)
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
    struct call *c = arg;

    (void)box;
    if (e)
        answer_err(c, e);
    else
        answer_none(c);
}

static void remove_gone(struct call *c)
{
    boxes_cancel(c->front, c);
}

void kernel_remove(struct kernel *k, const char *reason, struct call *then_none)
{
    struct box *box = k->box;
    struct desk *d = desk_of(k);
    struct err e = { 0 };

    sessions_forget(k->front->jupyter, box->owner, k->id);
    if (d)
        desk_close(d, reason);
    bool is_ours = kernel_is_ours(k);
    kernel_end(k, reason);
    bool is_over = !is_ours || box->phase == PHASE_DELETED || box->phase == PHASE_FAILED;
    int r = is_over ? 0 : box_delete(box, "asked", then_none ? on_removed : NULL, then_none, &e);
    if (!then_none)
        return;
    if (r < 0)
        answer_err(then_none, &e);
    else if (is_over)
        answer_none(then_none);
    else
        then_none->on_gone = remove_gone;
}

void call_kernel_delete(struct call *c)
{
    struct kernel *k = call_kernel(c);

    if (k)
        kernel_remove(k, "the kernel was shut down", c);
}

static void interrupt(struct call *c, json_t *root)
{
    struct kernel *k = call_kernel(c);
    struct err e = { 0 };

    (void)root;
    if (!k)
        return;
    if (kernel_interrupt(k, &e) < 0)
        answer_err(c, &e);
    else
        answer_none(c);
}

void call_kernel_interrupt(struct call *c)
{
    call_body(c, interrupt);
}

static void restart(struct call *c, json_t *root)
{
    struct kernel *k = call_kernel(c);
    struct desk *d = k ? desk_of(k) : NULL;
    struct err e = { 0 };

    (void)root;
    if (!k)
        return;
    int r = d ? 0 : err_at(&e, ENOMEM, STEP_MEMORY, 0, "the kernel");
    if (r == 0) {
        desk_fail_pending(d, "KernelRestarted", "the kernel was restarted");
        r = kernel_restart(k, &e);
    }
    if (r < 0)
        answer_err(c, &e);
    else
        desk_wait(d, c);
}

void call_kernel_restart(struct call *c)
{
    call_body(c, restart);
}
