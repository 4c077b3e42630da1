/* A command over a WebSocket. Server to client: binary messages with one byte for the stream (1 stdout, 2 stderr) and
 * then output; text messages {"type":"started"} at first, {"type":"dropped",…} where output is missing and
 * {"type":"exit",…} at the end. Client to server: binary messages with a byte 0 and then input; text messages
 * {"type":"resize","rows":24,"cols":80}, {"type":"signal","signal":"INT"}, {"type":"close_stdin"}. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "doors/native/execs/command.h"
#include "http/websocket.h"

enum { PIECE_BYTES = 65536, TURN_PIECES = 16, MESSAGE_MAX = 1 << 20 };

struct terminal {
    struct ask          *ask;
    struct websocket    *socket;
    struct exec         *exec;
    struct exec_follower follower;
    struct exec_input          feed;
    struct loop_task     task;
    struct exec_reader   reader;
    bool                 has_feed, kill, over, close_stdin;
};

static void say(struct terminal *t, const char *text)
{
    if (websocket_send(t->socket, true, text, strlen(text)) < 0)
        websocket_close(t->socket, WS_TRY_LATER, "the client does not read");
}

/* The exit is the last message. If the output before it has filled the queue, on_writable() tries again. */
static void finish(struct terminal *t)
{
    char *text = stream_exit_text(t->exec);
    int r = text ? websocket_send(t->socket, true, text, strlen(text)) : -ENOMEM;

    free(text);
    if (r == -EAGAIN)
        return;
    t->over = true;
    exec_unfollow(&t->follower);
    websocket_close(t->socket, r < 0 ? WS_INTERNAL : WS_NORMAL, r < 0 ? "the exit cannot be sent" : "");
}

/* Sends the result of one read. 1: sent; 0: there is nothing, or on_writable follows; -errno. */
static int send_piece(struct terminal *t)
{
    char data[PIECE_BYTES];
    struct exec_frame frame;
    struct exec_reader reader = t->reader;
    ssize_t n = exec_log_read(&t->exec->log, &reader, &frame, data, sizeof data);

    if (n <= 0)
        return (int)n;
    if (frame.stream == EXEC_GAP) {
        char *text = stream_dropped_text(&reader, t->reader.at);
        if (text)
            say(t, text);
        free(text);
    } else {
        const struct iovec v[] = { { &frame.stream, 1 }, { data, (size_t)n } };
        int r = websocket_sendv(t->socket, false, v, 2);
        if (r < 0)
            return r == -EAGAIN ? 0 : r;
    }
    t->reader = reader;
    return 1;
}

static void pump(struct terminal *t)
{
    int r = 1;

    for (int i = 0; r > 0 && !t->over; i++) {
        if (i == TURN_PIECES) {
            loop_task_add(t->ask->r->loop, &t->task);
            break;
        }
        bool ended = t->exec->state == EXEC_ENDED;
        r = send_piece(t);
        if (r < 0) {
            t->over = true;
            websocket_close(t->socket, WS_INTERNAL, "the output cannot be read");
            return;
        }
        if (r == 0 && ended && t->reader.at >= exec_log_offset(&t->exec->log)) {
            finish(t);
            return;
        }
    }
    exec_reader_moved(t->exec);
}

static size_t pending(struct exec_follower *f)
{
    return http_reply_pending(container_of(f, struct terminal, follower)->ask->r);
}

static void on_change(struct exec_follower *f)
{
    pump(container_of(f, struct terminal, follower));
}

static void on_task(struct loop_task *task)
{
    pump(container_of(task, struct terminal, task));
}

static void on_writable(struct websocket *w, void *owner)
{
    (void)w;
    pump(owner);
}

static void on_room(struct exec_input *f)
{
    struct terminal *t = container_of(f, struct terminal, feed);

    if (t->close_stdin)
        exec_stdin_close(t->exec);
    websocket_resume(t->socket);
}

static void on_order(struct terminal *t, const char *data, size_t size)
{
    json_t *root = json_loadb(data, size, JSON_REJECT_DUPLICATES, NULL);
    const char *kind = json_string_value(json_object_get(root, "type"));
    struct err e = { 0 };
    int r = -EINVAL;

    if (kind && strcmp(kind, "close_stdin") == 0) {
        t->close_stdin = true;
        if (!t->feed.busy)
            exec_stdin_close(t->exec);
        r = 0;
    } else if (kind && strcmp(kind, "resize") == 0) {
        (void)json_object_del(root, "type");
        r = command_resize(t->exec, root, &e);
    } else if (kind && strcmp(kind, "signal") == 0) {
        (void)json_object_del(root, "type");
        r = command_signal(t->exec, root, &e);
    } else {
        (void)err_set(&e, EINVAL, STEP_USAGE,
                      "a text message must be {\"type\":\"resize\"|\"signal\"|\"close_stdin\",…}");
    }
    json_decref(root);
    if (r < 0) {
        char text[400], *line;
        err_text(&e, text, sizeof text);
        json_t *o = json_pack("{s:s,s:s}", "type", "error", "message", text);
        line = json_dumps(o, ASK_DUMP);
        if (line)
            say(t, line);
        free(line);
        json_decref(o);
    }
}

static void on_message(struct websocket *w, bool is_text, const char *data, size_t size, void *owner)
{
    struct terminal *t = owner;

    if (t->over)
        return;
    box_touch(t->exec->box);
    if (is_text) {
        on_order(t, data, size);
        return;
    }
    if (size == 0 || data[0] != 0 || !t->has_feed) {
        websocket_close(w, WS_POLICY,
                        t->has_feed ? "input begins with a byte 0" : "another request is writing to this command");
        return;
    }
    int r = exec_input_write(&t->feed, data + 1, size - 1);
    if (r == -EAGAIN)
        websocket_pause(w);
    else if (r == -EDQUOT)
        websocket_close(w, WS_TRY_LATER, "the server keeps as much for you as it may (quota.buffers)");
}

static void on_close(struct websocket *w, int code, const char *reason, void *owner)
{
    struct terminal *t = owner;
    struct err ignored;

    (void)w;
    (void)code;
    (void)reason;
    exec_unfollow(&t->follower);
    loop_task_cancel(t->ask->r->loop, &t->task);
    if (t->has_feed)
        exec_input_done(&t->feed);
    if (t->over || t->exec->state == EXEC_ENDED)
        return;
    if (t->kill)
        (void)!exec_signal(t->exec, SIGKILL, &ignored);
    exec_reader_moved(t->exec);
}

/* 0, or the request was answered and the command left alone. */
static int open_socket(struct terminal *t)
{
    const struct websocket_config config = {
        .max_message_bytes = MESSAGE_MAX,
        .owner = t,
        .on_message = on_message,
        .on_writable = on_writable,
        .on_close = on_close,
    };
    int r = websocket_accept(t->ask->r, &config, &t->socket);

    if (r == -ENOMEM)
        http_request_abort(t->ask->r);
    return r;
}

static void attach(struct terminal *t)
{
    char line[96];

    t->has_feed = exec_input_init(&t->feed, t->exec, on_room) == 0;
    exec_follow(t->exec, &t->follower);
    snprintf(line, sizeof line, "{\"type\":\"started\",\"exec\":\"%s\"}", t->exec->id);
    say(t, line);
    loop_task_add(t->ask->r->loop, &t->task);
}

static struct terminal *terminal_new(struct ask *a)
{
    struct terminal *t = arena_alloc(&a->r->arena, sizeof *t);

    if (!t) {
        http_request_abort(a->r);
        return NULL;
    }
    *t = (struct terminal){ .ask = a, .follower.on_change = on_change, .task.on_run = on_task };
    t->follower.reader = &t->reader;
    t->follower.pending = pending;
    return t;
}

static bool is_upgrade(struct ask *a)
{
    if (a->r->head.wants_upgrade && http_list_has(http_head_get(&a->r->head, "Upgrade"), "websocket"))
        return true;
    (void)http_reply_header(a->r, "Upgrade", "websocket");
    reply_fail(a, 426, "upgrade_required", "this is a WebSocket");
    return false;
}

void ask_exec_attach(struct ask *a)
{
    static const char *const known[] = { "offset", NULL };
    uint64_t offset = 0;
    struct terminal *t;

    if (!is_upgrade(a) || !query_only(a, known) || !query_number(a, "offset", INT64_MAX, &offset))
        return;
    if (!exec_log_has(&a->exec->log, offset)) {
        reply_fail(a, 400, "invalid", "there is no output at offset %llu; use an offset from the stream",
                   (unsigned long long)offset);
        return;
    }
    if (!(t = terminal_new(a)))
        return;
    t->exec = a->exec;
    exec_reader_init(&t->reader, offset);
    if (open_socket(t) == 0)
        attach(t);
}

/* A WebSocket's request has no body: ?argv=ls&argv=-l&tty=true&env=A=B. Texts become what they would be in JSON. */
static int read_query(struct exec_request *c, struct ask *a, struct err *e)
{
    struct http_text query = a->r->head.query, raw_name, raw, name, value;
    json_t *root = json_object(), *argv = json_array(), *env = json_object();
    int r = root && argv && env ? 0 : err_at(e, ENOMEM, STEP_MEMORY, 0, "command");

    while (r == 0 && query.data && http_query_next(&query, &raw_name, &raw)) {
        if (http_unescape(&a->r->arena, raw_name, true, &name) < 0
            || http_unescape(&a->r->arena, raw, true, &value) < 0) {
            r = err_set(e, EINVAL, STEP_USAGE, "the query cannot be decoded");
        } else if (http_text_is(name, "token")) {
            continue;
        } else if (http_text_is(name, "argv")) {
            r = json_array_append_new(argv, json_string(value.data)) < 0
                    ? err_set(e, EINVAL, STEP_USAGE, "argv is not UTF-8")
                    : 0;
        } else if (http_text_is(name, "env")) {
            char *equals = strchr(value.data, '=');
            if (!equals)
                r = err_set(e, EINVAL, STEP_USAGE, "env wants NAME=VALUE");
            else if (json_object_set_new(env, arena_copy(&a->r->arena, value.data, (size_t)(equals - value.data)),
                                         json_string(equals + 1))
                     < 0)
                r = err_set(e, EINVAL, STEP_USAGE, "env is not UTF-8");
        } else {
            json_t *v = http_text_is(value, "true")    ? json_true()
                        : http_text_is(value, "false") ? json_false()
                                                       : json_string(value.data);
            if (json_object_set_new(root, name.data, v) < 0)
                r = err_set(e, EINVAL, STEP_USAGE, "the query is not UTF-8");
        }
    }
    if (r == 0 && json_array_size(argv))
        json_object_set(root, "argv", argv);
    if (r == 0 && json_object_size(env))
        json_object_set(root, "env", env);
    json_decref(argv);
    json_decref(env);
    a->work = root;     /* the caller drops it: the command's texts are in it */
    return r < 0 ? r : exec_request_read(c, root, e);
}

void ask_exec_socket(struct ask *a)
{
    struct exec_request c = { .box = a->box, .who = &a->who };
    struct err e = { 0 };
    struct terminal *t;

    if (!is_upgrade(a) || !(t = terminal_new(a)))
        return;
    c.options.with_stdin = true;
    int r = read_query(&c, a, &e);
    if (r == 0 && (c.input || c.options.background))
        r = err_set(&e, EINVAL, STEP_USAGE, "stdin and background have no meaning here");
    c.options.with_stdin = true;
    if (r == 0)
        r = exec_request_start(&c, &t->exec, &e);
    json_decref(a->work);
    a->work = NULL;
    if (r < 0) {
        reply_err(a, &e);
        return;
    }
    t->kill = t->follower.is_owner = true;
    exec_reader_init(&t->reader, 0);
    if (open_socket(t) == 0)
        attach(t);
    else
        (void)!exec_signal(t->exec, SIGKILL, &e);
}
