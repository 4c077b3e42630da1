/* run_command: a shell command in the foreground; it is killed when its caller goes away. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/jsonout.h"
#include "base/list.h"
#include "doors/mcp/door.h"
#include "front/execs/exec_io.h"
#include "front/execs/exec_request.h"
#include "front/kernels/kernels.h"
#include "proto/ending.h"

enum { RUN_S = 60, SHOWN_BYTES = 1 << 20 };

struct command_tool {
    struct mcp_call     *call;
    struct exec         *exec;
    struct exec_follower follower;
    json_t              *body;      /* as for the native API; borrowed from the request */
};

static void on_gone(struct mcp_call *c)
{
    struct command_tool *w = c->work;
    struct err ignored;

    exec_unfollow(&w->follower);
    if (w->exec->state != EXEC_ENDED)
        (void)!exec_signal(w->exec, SIGKILL, &ignored);
}

/* Bytes that are not UTF-8, also a character cut at the end, become U+FFFD, because jansson refuses them. */
static json_t *text_json(const struct buf *b)
{
    json_t *text = json_stringn(buf_string(b), b->length);
    struct jsonout j;
    struct buf mended;

    if (text)
        return text;
    buf_init(&mended, 6 * b->length + 16);
    jsonout_init(&j, &mended);
    jsonout_bytes(&j, NULL, buf_string(b), b->length);
    if (jsonout_finish(&j) == 0)
        text = json_loadb(mended.data, mended.length, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    buf_done(&mended);
    return text ? text : json_string("");
}

static void end_line(struct buf *all)
{
    if (all->length && all->data[all->length - 1] != '\n')
        buf_add_char(all, '\n');
}

/* Adds a note where bytes are missing. */
static void mark_gap(struct exec_text *t)
{
    struct buf marked;

    if (!t->missing)
        return;
    buf_init(&marked, t->text.limit + 128);
    buf_add(&marked, buf_string(&t->text), t->missing_at);
    buf_printf(&marked, "\n[\xe2\x80\xa6 %s; write it to a file and read parts of that \xe2\x80\xa6]\n",
               ending_left_out(t->missing).text);
    buf_add(&marked, buf_string(&t->text) + t->missing_at, t->text.length - t->missing_at);
    buf_done(&t->text);
    t->text = marked;
}

static void add_part(struct buf *all, const char *label, const struct buf *part)
{
    end_line(all);
    buf_add_text(all, label);
    buf_add(all, buf_string(part), part->length);
}

/* Adds the outcome, unless it is ok. */
static void add_end(struct buf *all, const struct exec *x, const json_t *shown)
{
    const json_t *code = json_object_get(shown, "exit_code");
    const char *remark = json_string_value(json_object_get(shown, "remark"));

    if (!x->outcome)
        buf_printf(all, "the command could not be started: %s\n", x->failure.what);
    else if (x->outcome == OUTCOME_TIMEOUT)
        buf_printf(all, "[timeout: %s]\n", remark);
    else if (json_is_integer(code) && json_integer_value(code) != 0)
        buf_printf(all, "[exit code %d%s%s]\n", (int)json_integer_value(code), x->outcome == OUTCOME_ERROR ? "" : ": ",
                   remark ? remark : x->outcome == OUTCOME_ERROR ? "" : outcome_name(x->outcome));
    else if (x->outcome != OUTCOME_OK)
        buf_printf(all, "[ended: %s]\n", remark ? remark : outcome_name(x->outcome));
}

static void answer(struct mcp_call *c, const struct exec *x)
{
    struct exec_text out[2];
    struct buf all;
    bool failed = x->outcome != OUTCOME_OK, whole = exec_io_collect(x, SHOWN_BYTES, out);
    json_t *shown = exec_json(x), *code = json_object_get(shown, "exit_code");

    exec_show_missing(shown, out[0].missing, out[1].missing);
    mark_gap(&out[0]);
    mark_gap(&out[1]);
    buf_init(&all, SHOWN_BYTES + 2048);
    if (out[0].text.length)
        add_part(&all, out[1].text.length ? "[stdout]\n" : "", &out[0].text);
    if (out[1].text.length)
        add_part(&all, "[stderr]\n", &out[1].text);
    if (!c->box || failed || !whole)
        end_line(&all);
    add_end(&all, x, shown);
    mcp_add_refused(&all, c, x->box->id, x->refused);
    if (!whole)
        buf_add_text(&all, "[some of the output is lost]\n");
    mcp_add_place(&all, c, x->box->id, (uint64_t)json_number_value(json_object_get(shown, "wall_ms")));
    json_t *text = text_json(&all);
    json_t *structured =
        json_pack("{s:s,s:s,s:O,s:o,s:o,s:b,s:O,s:O,s:O,s:O*,s:O*}", "box", x->box->id, "outcome",
                  exec_outcome_name(x), "exit_code", code ? code : json_null(),
                  "stdout", text_json(&out[0].text), "stderr", text_json(&out[1].text), "truncated",
                  out[0].missing || out[1].missing || !whole, "stdout_dropped_bytes",
                  json_object_get(shown, "stdout_dropped_bytes"), "stderr_dropped_bytes",
                  json_object_get(shown, "stderr_dropped_bytes"), "wall_ms", json_object_get(shown, "wall_ms"),
                  "remark", json_object_get(shown, "remark"), "refused", x->refused);
    mcp_tool_text(c, text, structured, failed);
    json_decref(shown);
    exec_text_done(out);
    buf_done(&all);
}

static void on_change(struct exec_follower *f)
{
    struct command_tool *w = container_of(f, struct command_tool, follower);

    if (w->exec->state != EXEC_ENDED)
        return;
    exec_unfollow(f);
    w->call->on_gone = NULL;
    answer(w->call, w->exec);
}

/* At /mcp/boxes/NAME a command runs like one that the box's kernel starts: in its directory, with its environment. */
static void use_kernels_place(const struct mcp_call *c, struct box *box, json_t *body)
{
    const struct kernel *k = mcp_kernel_of(c, box);
    json_t *env = k ? json_object() : NULL;

    for (char **v = k ? k->env : NULL; v && *v; v++) {
        const char *equals = strchr(*v, '=');
        char *name = equals ? arena_copy(&c->r->arena, *v, (size_t)(equals - *v)) : NULL;
        if (name)
            (void)!json_object_set_new(env, name, json_string(equals + 1));
    }
    if (env)
        (void)!json_object_set_new(body, "env", env);
    if (k && k->cwd && !json_object_get(body, "cwd"))
        (void)!json_object_set_new(body, "cwd", json_string(k->cwd));
}

static void go(struct mcp_call *c, struct box *box)
{
    struct command_tool *w = c->work;
    struct exec_request command = { .box = box, .who = &c->who };
    struct err e = { 0 };

    use_kernels_place(c, box, w->body);
    int r = exec_request_read(&command, w->body, &e);
    if (r == 0)
        r = exec_request_start(&command, &w->exec, &e);
    if (r < 0) {
        mcp_tool_err(c, &e);
        return;
    }
    w->follower.on_change = on_change;
    exec_follow(w->exec, &w->follower);
    c->on_gone = on_gone;
}

void mcp_run_command(struct mcp_call *c, json_t *arguments)
{
    struct command_tool *w = arena_alloc(&c->r->arena, sizeof *w);
    const char *key;
    json_t *value;

    if (!w) {
        mcp_error(c, MCP_INTERNAL, "out of memory");
        return;
    }
    *w = (struct command_tool){ .call = c, .body = json_pack("{s:i}", "timeout", RUN_S) };
    /* The request lives as long as the call, so it keeps the command's body. */
    if (w->body)
        (void)!json_object_set_new(c->m.root, "carrel", w->body);
    json_object_foreach(arguments, key, value) {
        bool is_text = json_is_string(value);
        if (strcmp(key, "command") == 0 && is_text)
            (void)!json_object_set(w->body, "shell", value);
        else if (strcmp(key, "box") == 0)
            continue;
        else if (strcmp(key, "cwd") == 0 || strcmp(key, "timeout") == 0)
            (void)!json_object_set(w->body, key, value);
        else {
            mcp_tool_fail(c, "%.64s is no argument of run_command, or of the wrong type; see its schema", key);
            return;
        }
    }
    if (!json_object_get(w->body, "shell")) {
        mcp_tool_fail(c, "command is missing");
        return;
    }
    c->work = w;
    mcp_with_box(c, arguments, go);
}
