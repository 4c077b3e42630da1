/* /v1/boxes/{id}/exec: starts commands and controls them. A foreground command belongs to its request: if the client
 * vanishes it is killed. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "base/parse.h"
#include "doors/native/execs/command.h"

enum { LIST_BYTES_MAX = 64 << 20, STDIN_PIECE = SHARE_SMALL_BYTES /* the rest of one is not charged */ };

/* ---- start ---- */

struct exec_wait {
    struct ask          *ask;
    struct exec         *exec;
    struct exec_follower follower;
};

static void run_on_end(struct ask *a, enum http_end how)
{
    struct exec_wait *run = a->work;
    struct err ignored;

    (void)how;
    exec_unfollow(&run->follower);
    if (run->exec->state != EXEC_ENDED)
        (void)!exec_signal(run->exec, SIGKILL, &ignored);
}

/* The keeper was lost before it had the command: the request is valid and can be retried. */
static bool was_lost(struct ask *a, const struct exec *x)
{
    if (x->state != EXEC_ENDED || x->failure.code != ECONNRESET)
        return false;
    reply_err(a, &x->failure);
    return true;
}

static void run_on_change(struct exec_follower *f)
{
    struct exec_wait *run = container_of(f, struct exec_wait, follower);

    if (run->exec->state != EXEC_ENDED)
        return;
    exec_unfollow(f);
    run->ask->on_end = NULL;
    if (!was_lost(run->ask, run->exec))
        reply_result(run->ask, run->exec);
}

/* A background command is acknowledged when the keeper has it; before that a crash of this front would lose it. */
static void promise_on_change(struct exec_follower *f)
{
    struct exec_wait *run = container_of(f, struct exec_wait, follower);

    if (run->exec->state == EXEC_STARTING && !run->exec->is_kept)
        return;
    exec_unfollow(f);
    run->ask->on_end = NULL;
    if (!was_lost(run->ask, run->exec))
        reply_json(run->ask, 202, exec_json(run->exec));
}

static void unfollow_on_end(struct ask *a, enum http_end how)
{
    (void)how;
    exec_unfollow(&((struct exec_wait *)a->work)->follower);
}

static void run_and_answer(struct ask *a, struct exec *x, bool background)
{
    struct exec_wait *run = arena_alloc(&a->r->arena, sizeof *run);
    struct err ignored;

    if (!run) {
        (void)!exec_signal(x, SIGKILL, &ignored);
        http_request_abort(a->r);
        return;
    }
    *run = (struct exec_wait){
        .ask = a, .exec = x, .follower.on_change = background ? promise_on_change : run_on_change
    };
    a->work = run;
    a->on_end = background ? unfollow_on_end : run_on_end;
    exec_follow(x, &run->follower);
}

static void start(struct ask *a, json_t *root)
{
    static const char *const known[] = { "stream", NULL };
    struct exec_request c = { .box = a->box, .who = &a->who };
    struct exec *x = NULL;
    struct err e = { 0 };
    bool stream = ask_accepts(a, "application/x-ndjson");

    if (!query_only(a, known) || !query_bool(a, "stream", &stream))
        return;
    int r = exec_request_read(&c, root, &e);
    if (r == 0)
        r = exec_request_start(&c, &x, &e);
    if (r == 0 && c.input && (r = exec_io_feed(x, c.input, c.input_size)) < 0) {
        (void)!exec_signal(x, SIGKILL, &e);
        r = r == -EDQUOT ? err_set(&e, EDQUOT, STEP_USAGE, SHARE_FULL) : err_at(&e, -r, STEP_MEMORY, 0, "stdin");
    }
    if (r < 0) {
        reply_err(a, &e);
        return;
    }
    const char *place = arena_printf(&a->r->arena, "/v1/boxes/%s/exec/%s", a->box->id, x->id);
    if (place)
        (void)http_reply_header(a->r, "Location", place);
    if (stream)
        stream_output(a, x, 0, STREAM_FOLLOW | STREAM_STARTED | (c.options.background ? 0 : STREAM_KILL));
    else
        run_and_answer(a, x, c.options.background);
}

void ask_exec_start(struct ask *a)
{
    body_json(a, BODY_LARGE, start);
}

/* ---- look ---- */

void ask_exec_list(struct ask *a)
{
    static const char *const known[] = { NULL };
    struct buf out;
    bool first = true;

    if (!query_only(a, known))
        return;
    buf_init(&out, LIST_BYTES_MAX);
    buf_add_text(&out, "{\"execs\":[");
    for (struct exec *x = a->box->execs; x; x = x->next) {
        json_t *body = exec_json(x);
        char *text = json_dumps(body, ASK_DUMP);
        if (!first)
            buf_add_char(&out, ',');
        buf_add_text(&out, text ? text : "null");
        first = false;
        free(text);
        json_decref(body);
    }
    buf_add_text(&out, "]}");
    reply_buf(a, 200, &out);
}

static void await_on_change(struct exec_follower *f)
{
    struct exec_wait *wait = container_of(f, struct exec_wait, follower);

    if (wait->exec->state != EXEC_ENDED)
        return;
    exec_unfollow(f);
    wait->ask->on_end = NULL;
    reply_json(wait->ask, 200, exec_json(wait->exec));
}

/* ?wait=true: answers when the command has ended. If the client goes away, the command continues. */
void ask_exec_get(struct ask *a)
{
    static const char *const known[] = { "wait", NULL };
    bool waits = false;

    if (!query_only(a, known) || !query_bool(a, "wait", &waits))
        return;
    struct exec_wait *wait = waits ? arena_alloc(&a->r->arena, sizeof *wait) : NULL;
    if (!wait || a->exec->state == EXEC_ENDED) {
        reply_json(a, 200, exec_json(a->exec));
        return;
    }
    *wait = (struct exec_wait){ .ask = a, .exec = a->exec, .follower.on_change = await_on_change };
    a->work = wait;
    a->on_end = unfollow_on_end;
    exec_follow(a->exec, &wait->follower);
}

void ask_exec_output(struct ask *a)
{
    static const char *const known[] = { "offset", "follow", NULL };
    uint64_t offset = 0;
    bool follow = false;

    if (!query_only(a, known) || !query_number(a, "offset", INT64_MAX, &offset) || !query_bool(a, "follow", &follow))
        return;
    if (!exec_log_has(&a->exec->log, offset)) {
        reply_fail(a, 400, "invalid", "there is no output at offset %llu; use an offset from the stream",
                   (unsigned long long)offset);
        return;
    }
    stream_output(a, a->exec, offset, follow ? STREAM_FOLLOW : 0);
}

/* ---- standard input ---- */

struct typing {
    struct ask *ask;
    struct exec_input feed;
    uint64_t    bytes;
    bool        close;
};

static void typing_on_end(struct ask *a, enum http_end how)
{
    struct typing *t = a->work;

    (void)how;
    exec_input_done(&t->feed);
}

static void typing_finish(struct typing *t, bool broken)
{
    struct ask *a = t->ask;

    if (!broken && t->close)
        exec_stdin_close(a->exec);
    exec_input_done(&t->feed);
    a->on_end = NULL;
    a->r->on_body = NULL;
    if (broken)
        reply_fail(a, 409, "stdin_closed", "the command does not read standard input (any more)");
    else
        reply_json(a, 200, json_pack("{s:I,s:b}", "bytes", (json_int_t)t->bytes, "closed", t->close));
}

static void type(struct http_request *r)
{
    struct ask *a = r->owner;
    struct typing *t = a->work;
    char data[STDIN_PIECE];

    while (!t->feed.busy) {
        ssize_t n = http_body_read(r, data, sizeof data);
        if (n == -EAGAIN || n == -EPIPE)
            return;
        if (n <= 0) {
            if (n == 0) {
                typing_finish(t, false);
            } else {
                exec_input_done(&t->feed);
                a->on_end = NULL;
                reply_fail(a, 400, "invalid", "the body is malformed");
            }
            return;
        }
        int w = exec_input_write(&t->feed, data, (size_t)n);
        if (w < 0 && w != -EAGAIN) {
            typing_finish(t, true);
            return;
        }
        t->bytes += (uint64_t)n;
    }
}

static void typing_on_room(struct exec_input *f)
{
    struct typing *t = container_of(f, struct typing, feed);

    if (f->exec->in.fd < 0)
        typing_finish(t, true);
    else
        type(t->ask->r);
}

void ask_exec_stdin(struct ask *a)
{
    static const char *const known[] = { "close", NULL };
    struct typing *t = arena_alloc(&a->r->arena, sizeof *t);
    bool close = false;

    if (!query_only(a, known) || !query_bool(a, "close", &close))
        return;
    bool coming = a->exec->terminal && a->exec->state == EXEC_STARTING;
    if (!t || (a->exec->in.fd < 0 && !coming)) {
        reply_fail(a, 409, "stdin_closed",
                   "the command does not read standard input (any more); start it with \"stdin\": true");
        return;
    }
    *t = (struct typing){ .ask = a, .close = close };
    if (exec_input_init(&t->feed, a->exec, typing_on_room) < 0) {
        reply_fail(a, 409, "busy", "another request is writing to this command's standard input");
        return;
    }
    a->work = t;
    a->on_end = typing_on_end;
    a->r->on_body = type;
    a->r->no_body_deadline = true;
    box_touch(a->box);
    type(a->r);
}

/* ---- resize, signal, kill ---- */

struct size_body {
    uint32_t rows, columns;
};

static int take_rows(const char *name, json_t *v, void *into, struct err *e)
{
    return body_count(name, v, 1, 4096, &((struct size_body *)into)->rows, e);
}

static int take_columns(const char *name, json_t *v, void *into, struct err *e)
{
    return body_count(name, v, 1, 4096, &((struct size_body *)into)->columns, e);
}

int command_resize(struct exec *x, json_t *root, struct err *e)
{
    static const struct body_field fields[] = { { "rows", take_rows }, { "cols", take_columns } };
    struct size_body size = { 0 };
    int r = body_fields(root, "", fields, 2, &size, e);

    if (r == 0 && (!size.rows || !size.columns))
        r = err_set(e, EINVAL, STEP_USAGE, "rows and cols are needed");
    return r < 0 ? r : exec_resize(x, (uint16_t)size.rows, (uint16_t)size.columns, e);
}

static void answer(struct ask *a, int r, const struct err *e)
{
    if (r < 0)
        reply_err(a, e);
    else
        reply_json(a, 200, exec_json(a->exec));
}

static void resize(struct ask *a, json_t *root)
{
    struct err e = { 0 };
    answer(a, command_resize(a->exec, root, &e), &e);
}

void ask_exec_resize(struct ask *a)
{
    body_json(a, BODY_SMALL, resize);
}

static int take_signal(const char *name, json_t *v, void *into, struct err *e)
{
    int *ret = into;

    if (json_is_integer(v) && json_integer_value(v) >= 1 && json_integer_value(v) <= 64) {
        *ret = (int)json_integer_value(v);
        return 0;
    }
    const char *text = json_is_string(v) ? json_string_value(v) : "";
    if (strncmp(text, "SIG", 3) == 0)
        text += 3;
    for (int i = 1; i < 32; i++) {
        const char *known = sigabbrev_np(i);
        if (known && strcmp(known, text) == 0) {
            *ret = i;
            return 0;
        }
    }
    return err_set(e, EINVAL, STEP_USAGE, "%s must be a number from 1 to 64 or a name like \"TERM\"", name);
}

int command_signal(struct exec *x, json_t *root, struct err *e)
{
    static const struct body_field fields[] = { { "signal", take_signal } };
    int number = 0;
    int r = body_fields(root, "", fields, 1, &number, e);

    if (r == 0 && !number)
        r = err_set(e, EINVAL, STEP_USAGE, "signal is missing");
    return r < 0 ? r : exec_signal(x, number, e);
}

static void send_signal(struct ask *a, json_t *root)
{
    struct err e = { 0 };
    answer(a, command_signal(a->exec, root, &e), &e);
}

void ask_exec_signal(struct ask *a)
{
    body_json(a, BODY_SMALL, send_signal);
}

void ask_exec_kill(struct ask *a)
{
    struct err e = { 0 };
    int r = a->exec->state == EXEC_ENDED ? 0 : exec_signal(a->exec, SIGKILL, &e);

    answer(a, r, &e);
}
