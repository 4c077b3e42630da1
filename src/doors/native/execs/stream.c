/* Output for clients, from the log: as lines of JSON that follow the command, or as one answer when it has ended. A
 * line is one frame of the log, so a client can resume at any line's offset. Bytes that are not UTF-8, or that JSON
 * would inflate, travel as base64. */
#define _GNU_SOURCE
#include <errno.h>
#include <openssl/evp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/jsonout.h"
#include "base/list.h"
#include "doors/native/execs/command.h"
#include "http/wsframe.h"

enum { PIECE_MAX = 1 << 20, TURN_BYTES = 1 << 20, RESULT_MAX = 16 << 20, TEXT_MAX = 8 << 20 };

static char piece[PIECE_MAX];       /* the present frame; not used across calls */

struct output_stream {
    struct ask          *ask;
    struct exec         *exec;
    struct exec_follower follower;
    struct loop_task     task;
    struct exec_reader   reader;
    unsigned             flags;         /* enum stream_flag */
    bool                 over;
};

/* The length of the text in JSON. */
static size_t json_length(const char *data, size_t size)
{
    size_t n = 0;

    for (size_t i = 0; i < size; i++) {
        unsigned char c = (unsigned char)data[i];
        n += c < 0x20 ? (c == '\n' || c == '\t' || c == '\r' ? 2 : 6) : c == '"' || c == '\\' ? 2 : 1;
    }
    return n;
}

static void add_base64(struct jsonout *j, const char *key, const char *data, size_t size)
{
    unsigned char *text = malloc(size / 3 * 4 + 5);

    if (!text) {
        j->out->failure = ENOMEM;
        return;
    }
    int n = EVP_EncodeBlock(text, (const unsigned char *)data, (int)size);
    jsonout_bytes(j, key, (const char *)text, (size_t)n);
    free(text);
}

static void add_line(struct buf *line, const struct exec_frame *frame, const char *data, size_t size, uint64_t from,
                     uint64_t to)
{
    struct jsonout j;

    jsonout_init(&j, line);
    jsonout_open_object(&j, NULL);
    jsonout_string(&j, "type", frame->stream == 2 ? "stderr" : "stdout");
    if (wsframe_is_utf8(data, size) && json_length(data, size) <= size / 3 * 4 + 64)
        jsonout_bytes(&j, "data", data, size);
    else
        add_base64(&j, "data_base64", data, size);
    jsonout_unsigned(&j, "offset", from);
    jsonout_unsigned(&j, "next", to);
    jsonout_close(&j);
    if (jsonout_finish(&j) < 0 && !line->failure)
        line->failure = EINVAL;
    buf_add_char(line, '\n');
}

static void add_dropped(struct buf *line, const struct exec_reader *reader, uint64_t from)
{
    struct jsonout j;

    jsonout_init(&j, line);
    jsonout_open_object(&j, NULL);
    jsonout_string(&j, "type", "dropped");
    jsonout_unsigned(&j, "stdout_bytes", reader->missed[0]);
    jsonout_unsigned(&j, "stderr_bytes", reader->missed[1]);
    jsonout_unsigned(&j, "offset", from);
    jsonout_unsigned(&j, "next", reader->at);
    jsonout_close(&j);
    if (jsonout_finish(&j) < 0 && !line->failure)
        line->failure = EINVAL;
}

char *stream_dropped_text(const struct exec_reader *reader, uint64_t from)
{
    struct buf line;

    buf_init(&line, 256);
    add_dropped(&line, reader, from);
    return line.data;
}

char *stream_exit_text(const struct exec *x)
{
    json_t *o = json_pack("{s:s,s:s,s:I}", "type", "exit", "exec", x->id, "offset",
                          (json_int_t)exec_log_offset(&x->log)),
           *about = exec_json(x);
    char *text = NULL;

    if (o && about && json_object_update_missing(o, about) == 0)
        text = json_dumps(o, ASK_DUMP);
    json_decref(about);
    json_decref(o);
    return text;
}

static void finish(struct output_stream *s)
{
    s->over = true;
    exec_unfollow(&s->follower);
    if (s->exec->state == EXEC_ENDED) {
        char *text = stream_exit_text(s->exec);
        const struct iovec v[] = { { text, text ? strlen(text) : 0 }, { (void *)(uintptr_t)"\n", 1 } };
        if (!text || http_reply_writev(s->ask->r, v, 2) < 0)
            http_request_abort(s->ask->r);
        free(text);
    }
    http_reply_finish(s->ask->r);
}

/* Sends one frame, or the notice of a gap. 0: there is none now. */
static ssize_t send_frame(struct output_stream *s)
{
    struct exec_frame frame;
    struct buf line;
    uint64_t from = s->reader.at;
    ssize_t n = exec_log_read(&s->exec->log, &s->reader, &frame, piece, sizeof piece);

    if (n == 0)
        return 0;
    buf_init(&line, TEXT_MAX);
    if (n > 0 && frame.stream == EXEC_GAP) {
        add_dropped(&line, &s->reader, from);
        buf_add_char(&line, '\n');
    } else if (n > 0) {
        add_line(&line, &frame, piece, (size_t)n, from, s->reader.at);
    }
    /* Not marked over: with STREAM_KILL the end of the request kills the command. */
    if (n < 0 || s->reader.part || buf_error(&line) < 0 || http_reply_write(s->ask->r, line.data, line.length) < 0)
        http_request_abort(s->ask->r);
    n = (ssize_t)line.length + 1;
    buf_done(&line);
    return n;
}

/* Sends as much as possible without blocking. */
static void pump(struct output_stream *s)
{
    size_t turn = 0;

    while (!s->over && http_reply_room(s->ask->r) > 0) {
        if (turn >= TURN_BYTES) {
            loop_task_add(s->ask->r->loop, &s->task);
            break;
        }
        bool ended = s->exec->state == EXEC_ENDED;
        ssize_t n = send_frame(s);
        turn += (size_t)n;
        if (n > 0)
            continue;
        if (ended || !(s->flags & STREAM_FOLLOW)) {
            finish(s);
            return;
        }
        break;
    }
    if (!s->over)
        exec_reader_moved(s->exec);
}

static size_t pending(struct exec_follower *f)
{
    return http_reply_pending(container_of(f, struct output_stream, follower)->ask->r);
}

static void on_change(struct exec_follower *f)
{
    pump(container_of(f, struct output_stream, follower));
}

static void on_task(struct loop_task *t)
{
    pump(container_of(t, struct output_stream, task));
}

static void on_writable(struct http_request *r)
{
    pump(((struct ask *)r->owner)->work);
}

static void on_end(struct ask *a, enum http_end how)
{
    struct output_stream *s = a->work;
    struct err ignored;

    (void)how;
    exec_unfollow(&s->follower);
    loop_task_cancel(a->r->loop, &s->task);
    /* Nothing is left to kill, and the exec may be gone already. */
    if (s->over || s->exec->state == EXEC_ENDED)
        return;
    if (s->flags & STREAM_KILL)
        (void)!exec_signal(s->exec, SIGKILL, &ignored);
    exec_reader_moved(s->exec);
}

void stream_output(struct ask *a, struct exec *x, uint64_t offset, unsigned flags)
{
    struct output_stream *s = arena_alloc(&a->r->arena, sizeof *s);
    char line[96];

    if (!s || http_reply_header(a->r, "Content-Type", "application/x-ndjson") < 0
        || http_reply_header(a->r, "Cache-Control", "no-store") < 0 || http_reply_start(a->r, 200, HTTP_CHUNKED) < 0) {
        http_request_abort(a->r);
        return;
    }
    *s = (struct output_stream){
        .ask = a, .exec = x, .flags = flags, .follower.on_change = on_change, .task.on_run = on_task
    };
    exec_reader_init(&s->reader, offset);
    s->follower.reader = &s->reader;
    s->follower.pending = pending;
    s->follower.is_owner = flags & STREAM_KILL;
    a->work = s;
    a->on_end = on_end;
    a->r->on_writable = on_writable;
    exec_follow(x, &s->follower);
    if (flags & STREAM_STARTED) {
        snprintf(line, sizeof line, "{\"type\":\"started\",\"exec\":\"%s\"}\n", x->id);
        if (http_reply_write(a->r, line, strlen(line)) < 0)
            http_request_abort(a->r);
    }
    pump(s);
}

/* ---- one answer ---- */

static void add_text(struct jsonout *j, const char *stream, const struct exec_text *t)
{
    const char *data = buf_string(&t->text);
    char key[32];

    jsonout_bytes(j, stream, data, t->text.length);
    snprintf(key, sizeof key, "%s_base64", stream);
    if (!wsframe_is_utf8(data, t->text.length))
        add_base64(j, key, data, t->text.length);
    snprintf(key, sizeof key, "%s_dropped_at", stream);
    if (t->missing)
        jsonout_unsigned(j, key, t->missing_at);
}

void reply_result(struct ask *a, const struct exec *x)
{
    struct exec_text output[2];
    struct buf tail, all;
    struct jsonout j;
    json_t *about = exec_json(x);

    buf_init(&tail, (size_t)RESULT_MAX * 8);
    buf_init(&all, (size_t)RESULT_MAX * 8 + BODY_LARGE);
    (void)exec_io_collect(x, RESULT_MAX, output);
    jsonout_init(&j, &tail);
    jsonout_open_object(&j, NULL);
    add_text(&j, "stdout", &output[0]);
    add_text(&j, "stderr", &output[1]);
    /* The log has more. */
    jsonout_bool(&j, "cut", exec_output_bytes(x) - x->log.gap.dropped[0] - x->log.gap.dropped[1] > RESULT_MAX);
    jsonout_close(&j);
    if (jsonout_finish(&j) < 0 && !tail.failure)
        tail.failure = ENOMEM;
    exec_show_missing(about, output[0].missing, output[1].missing);
    reply_join(&all, about, &tail);
    exec_text_done(output);
    buf_done(&tail);
    reply_buf(a, 200, &all);
}
