/* POST /v1/boxes/{id}/run and POST /v1/run: code in, results out, as lines while they arrive or as one answer. A client
 * that vanishes, a timeout and too much output interrupt the cell; the interpreter and its variables stay. /v1/run
 * makes a box for one run and always deletes it. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/jsonout.h"
#include "doors/native/run/run.h"
#include "front/boxes/box_request.h"

enum { LINE_MOST = LINK_MESSAGE_MOST + 4096, PENDING_MOST = 256 << 20 };

struct api_run {
    struct ask        *ask;
    struct kernel_run *run;         /* NULL: not started, or over */
    struct run_body    body;
    json_t            *root;        /* owned: body borrows from it while the box is made */
    uint64_t           own_box;     /* number of the box made for this run, which may be forgotten by now; 0: none */
    bool               stream;
    struct buf         pending;     /* lines that the client has not taken yet */
    size_t             charged;     /* to the request: for pending and answer */
    bool               is_over;     /* over budget: further events are dropped, and the answer says so */
    struct run_answer  answer;
};

static void done(struct api_run *w)
{
    struct box *box = w->own_box ? boxes_by_number(w->ask->front, w->own_box) : NULL;
    struct err ignored;

    json_decref(w->root);
    w->root = NULL;
    buf_done(&w->pending);
    run_answer_done(&w->answer);
    (void)share_move_bytes(&w->ask->r->share, w->charged, 0);
    w->charged = 0;
    w->own_box = 0;
    if (box)
        (void)!box_delete(box, BOX_REASON_RUN_OVER, NULL, NULL, &ignored);
}

static void on_end(struct ask *a, enum http_end how)
{
    struct api_run *w = a->work;

    (void)how;
    boxes_cancel(a->front, a);
    if (w->run)
        kernel_run_abandon(w->run);
    w->run = NULL;
    done(w);
}

/* ---- lines ---- */

/* Charges this total to the request; false: over budget. */
static bool charge(struct api_run *w, size_t bytes)
{
    if (!share_move_bytes(&w->ask->r->share, w->charged, bytes))
        return false;
    w->charged = bytes;
    return true;
}

/* True: the client takes no more for now. */
static bool put(struct api_run *w, const char *data, size_t size)
{
    if (w->pending.length == 0 && http_reply_write(w->ask->r, data, size) == 0)
        return http_reply_room(w->ask->r) == 0;
    buf_add(&w->pending, data, size);
    if (w->pending.failure || !charge(w, w->pending.length))
        http_request_abort(w->ask->r);
    return true;
}

static void on_writable(struct http_request *r)
{
    struct api_run *w = ((struct ask *)r->owner)->work;

    if (w->pending.length > 0) {
        if (http_reply_write(r, w->pending.data, w->pending.length) < 0)
            return;
        buf_clear(&w->pending);
        (void)charge(w, 0);
    }
    if (!w->run) {
        w->ask->on_end = NULL;
        done(w);
        http_reply_finish(r);
    } else if (http_reply_room(r) > 0) {
        kernel_run_resume(w->run);
    }
}

static bool on_message(struct kernel_run *run, struct kernel_message *m)
{
    struct api_run *w = run->options.owner;
    struct buf line;
    bool full = false;

    if (!w->stream) {
        if (!w->is_over)
            run_answer_add(&w->answer, m);
        if (!w->is_over && !charge(w, run_answer_bytes(&w->answer))) {
            w->is_over = true;
            run_answer_done(&w->answer);
            (void)charge(w, 0);
        }
        return false;
    }
    buf_init(&line, LINE_MOST);
    if (run_event(m, &line)) {
        buf_add_char(&line, '\n');
        if (line.failure)
            http_request_abort(w->ask->r);
        else
            full = put(w, line.data, line.length);
    }
    buf_done(&line);
    return full;
}

static void on_over(struct kernel_run *run)
{
    struct api_run *w = run->options.owner;
    struct ask *a = w->ask;
    struct jsonout j;
    struct buf line;

    w->run = NULL;
    if (!w->stream) {
        a->on_end = NULL;
        (void)charge(w, 0);     /* the connection is charged for it now */
        if (w->is_over)
            error_reply_full(a->r);
        else
            run_answer_send(&w->answer, a, run);
        done(w);
        return;
    }
    buf_init(&line, 4096);
    jsonout_init(&j, &line);
    jsonout_open_object(&j, NULL);
    jsonout_string(&j, "type", "outcome");
    run_event_outcome(run, &j);
    jsonout_close(&j);
    buf_add_char(&line, '\n');
    if (jsonout_finish(&j) < 0 || line.failure)
        http_request_abort(a->r);
    else
        (void)!put(w, line.data, line.length);
    buf_done(&line);
    if (w->pending.length > 0)
        return;         /* on_writable() ends it */
    a->on_end = NULL;
    done(w);
    http_reply_finish(a->r);
}

/* ---- beginning ---- */

static int start_run(struct api_run *w, struct box *box, struct err *e)
{
    const char *name = w->body.kernel.name ? w->body.kernel.name : "default";
    struct kernel *k = kernel_in_box(box, name);
    struct kernel_run *run = NULL;
    int r = 0;

    if (!k)
        r = run_body_env(&w->body) ? kernel_start(box, &w->body.kernel, &k, e)
                                   : err_at(e, ENOMEM, STEP_MEMORY, 0, "run");
    w->body.options.on_message = on_message;
    w->body.options.on_end = on_over;
    w->body.options.owner = w;
    if (r == 0)
        r = kernel_run_start(k, &w->body.options, &run, e);
    w->run = run;
    return r;
}

static bool start_stream(struct api_run *w, const struct box *box)
{
    struct ask *a = w->ask;

    (void)http_reply_header(a->r, "Carrel-Box", box->id);
    if (!w->stream)
        return true;
    a->r->on_writable = on_writable;
    if (http_reply_header(a->r, "Content-Type", "application/x-ndjson") == 0 &&
        http_reply_header(a->r, "Cache-Control", "no-store") == 0 && http_reply_start(a->r, 200, HTTP_CHUNKED) == 0)
        return true;
    http_request_abort(a->r);
    return false;
}

/* A failure before the answer has begun. */
static void refuse(struct api_run *w, const struct err *e)
{
    w->ask->on_end = NULL;
    reply_err(w->ask, e);
    done(w);
}

static void go(struct api_run *w, struct box *box)
{
    struct err e = { 0 };

    if (start_run(w, box, &e) < 0)
        refuse(w, &e);
    else
        (void)start_stream(w, box);      /* start_run causes no event before it returns */
    json_decref(w->root);
    w->root = NULL;
    if (w->run)
        (void)charge(w, 0);     /* the run has produced nothing yet */
}

static struct api_run *prepare(struct ask *a)
{
    static const char *const known[] = { "stream", NULL };
    struct api_run *w = arena_alloc(&a->r->arena, sizeof *w);
    bool stream = ask_accepts(a, "application/x-ndjson");

    if (!query_only(a, known) || !query_bool(a, "stream", &stream))
        return NULL;
    if (!w) {
        http_request_abort(a->r);
        return NULL;
    }
    *w = (struct api_run){ .ask = a, .stream = stream, .body.ask = a };
    buf_init(&w->pending, PENDING_MOST);
    run_answer_init(&w->answer);
    a->work = w;
    a->on_end = on_end;
    return w;
}

static void run_in_box(struct ask *a, json_t *root)
{
    struct api_run *w = prepare(a);
    struct err e = { 0 };

    if (!w)
        return;
    if (run_body_read(&w->body, root, NULL, &e) < 0)
        refuse(w, &e);
    else
        go(w, a->box);
}

void ask_run_box(struct ask *a)
{
    body_json(a, RUN_BODY_MOST, run_in_box);
}

static void on_made(struct box *box, const struct err *e, void *arg)
{
    struct ask *a = arg;
    struct api_run *w = a->work;

    if (e)
        refuse(w, e);
    else
        go(w, box);
}

static void run_alone(struct ask *a, json_t *root)
{
    struct api_run *w = prepare(a);
    struct box_request c = { .front = a->front, .who = &a->who, .r = a->r };
    struct box *box = NULL;
    json_t *rest = NULL;
    struct err e = { 0 };
    bool existed;

    if (!w)
        return;
    int r = run_body_read(&w->body, root, &rest, &e);
    if (r == 0 && !charge(w, w->body.options.code_size))    /* the root is kept until the box is ready */
        r = err_set(&e, EDQUOT, STEP_USAGE, SHARE_FULL);
    if (r == 0)
        r = box_request_read(&c, rest, &e);
    json_decref(rest);
    if (r == 0)
        box_mounts_want_template(&c.settings.mounts);
    w->body.options.since_us = loop_now_us();
    if (r == 0)
        r = boxes_create(a->front, a->who.name, a->who.uid, a->who.gid, c.name, NULL, &c.settings, on_made, a,
                         &box, &existed, &e);
    w->own_box = box ? box->number : 0;
    w->root = json_incref(root);
    if (r < 0)
        refuse(w, &e);
}

void ask_run(struct ask *a)
{
    body_json(a, RUN_BODY_MOST, run_alone);
}
