/* run_code: a cell in the box's default kernel. Its output is sent as progress while it runs. Strings of the kernel are
 * valid JSON; they are passed on unchanged between their quotes. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/jsonout.h"
#include "base/jsonscan.h"
#include "doors/mcp/door.h"
#include "front/kernels/kernel_run.h"
#include "front/request/fields.h"

enum { RUN_MS = 60000, OUTPUT_BYTES = 1 << 20, IMAGES_MOST = 16 };

struct run_tool {
    struct mcp_call   *call;
    struct kernel_run *run;
    const char        *code;        /* in the request's arena */
    size_t             code_size;
    uint64_t           timeout_ms;
    char               box_id[16];
    bool               is_restarted;        /* the kernel had died; its variables are gone */
    struct buf         out[2];      /* stdout, stderr: between the quotes */
    struct buf         value;       /* of the last expression; between the quotes */
    struct buf         error;       /* the traceback */
    struct buf         images;      /* content blocks, each with a comma before it */
    unsigned           n_images;
    bool               has_value;
};

static void done(struct run_tool *w)
{
    buf_done(&w->out[0]);
    buf_done(&w->out[1]);
    buf_done(&w->value);
    buf_done(&w->error);
    buf_done(&w->images);
}

static void on_gone(struct mcp_call *c)
{
    struct run_tool *w = c->work;

    if (w->run)
        kernel_run_abandon(w->run);
    done(w);
}

/* ---- messages ---- */

static struct jsonslice content(const struct kernel_message *m)
{
    return (struct jsonslice){ .data = m->part[PART_CONTENT].iov_base, .size = m->part[PART_CONTENT].iov_len };
}

/* A kernel's JSON may have line ends between tokens, but never in a string. */
static void add_inside(struct buf *out, struct jsonslice string)
{
    struct jsonslice inside = jsonscan_inside(string);

    if (inside.data)
        buf_add(out, inside.data, inside.size);
}

static void take_image(struct run_tool *w, struct jsonslice data)
{
    static const char *const types[] = { "image/png", "image/jpeg", "image/gif", "image/webp" };

    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        struct jsonslice inside = jsonscan_inside(jsonscan_find(data, types[i]));
        if (!inside.data || w->n_images == IMAGES_MOST)
            continue;
        buf_add_text(&w->images, ",{\"type\":\"image\",\"data\":\"");
        size_t start = w->images.length;
        buf_add(&w->images, inside.data, inside.size);
        /* matplotlib's base64 has line ends, written \n. */
        size_t to = start;
        for (size_t from = start; !w->images.failure && from < w->images.length; from++) {
            if (w->images.data[from] == '\\') {
                from++;
                continue;
            }
            w->images.data[to++] = w->images.data[from];
        }
        if (!w->images.failure)
            w->images.length = to;
        buf_printf(&w->images, "\",\"mimeType\":\"%s\"}", types[i]);
        w->n_images++;
        return;
    }
}

static void take_result(struct run_tool *w, const struct kernel_message *m)
{
    struct jsonslice data = jsonscan_find(content(m), "data");
    unsigned before = w->n_images;

    if (!data.data || data.data[0] != '{')
        return;
    take_image(w, data);
    if (strcmp(m->type, "execute_result") == 0) {
        buf_clear(&w->value);
        add_inside(&w->value, jsonscan_find(data, "text/plain"));
        w->has_value = true;
    } else if (w->n_images == before) {
        add_inside(&w->out[0], jsonscan_find(data, "text/plain"));
        buf_add_text(&w->out[0], "\\n");
    }
}

/* Adds the lines of a traceback without terminal colours (\u001b[...m). */
static void take_error(struct run_tool *w, const struct kernel_message *m)
{
    json_t *root = json_loadb(content(m).data, content(m).size, 0, NULL), *line;
    struct buf text;
    struct jsonout j;
    size_t i;

    buf_init(&text, OUTPUT_BYTES);
    json_array_foreach(json_object_get(root, "traceback"), i, line) {
        const char *at = json_is_string(line) ? json_string_value(line) : "";
        for (; *at; at++) {
            if (*at == '\033' && at[1] == '[') {
                at += 2 + strspn(at + 2, "0123456789;:?");
                if (!*at)
                    break;
                continue;
            }
            buf_add_char(&text, *at);
        }
        buf_add_char(&text, '\n');
    }
    buf_clear(&w->error);
    jsonout_init(&j, &w->error);
    jsonout_bytes(&j, NULL, buf_string(&text), text.length);
    (void)!jsonout_finish(&j);
    buf_done(&text);
    json_decref(root);
}

static bool on_message(struct kernel_run *run, struct kernel_message *m)
{
    struct run_tool *w = run->options.owner;

    if (strcmp(m->type, "stream") == 0) {
        struct jsonslice text = jsonscan_find(content(m), "text");
        if (jsonscan_inside(text).data) {
            add_inside(&w->out[jsonscan_is(jsonscan_find(content(m), "name"), "stderr")], text);
            mcp_progress(w->call, text.data, text.size);
        }
    } else if (strcmp(m->type, "error") == 0) {
        take_error(w, m);
    } else if (strcmp(m->type, "display_data") == 0 || strcmp(m->type, "execute_result") == 0) {
        take_result(w, m);
    } else if (strcmp(m->type, "clear_output") == 0) {
        buf_clear(&w->out[0]);
        buf_clear(&w->out[1]);
        buf_clear(&w->images);
        w->n_images = 0;
    }
    return false;
}

/* ---- the answer ---- */

static void add_string(struct buf *out, const char *text)
{
    struct jsonout j;

    jsonout_init(&j, out);
    jsonout_string(&j, NULL, text);
    if (jsonout_finish(&j) < 0 && !out->failure)
        out->failure = EINVAL;
}

/* Whether the inside of a JSON string ends with a line end: with \n, but not with \\n. */
static bool ends_line(const struct buf *text, size_t from)
{
    size_t n = text->length, backslashes = 0;

    if (n <= from)
        return true;
    while (n - 1 > from + backslashes && text->data[n - 2 - backslashes] == '\\')
        backslashes++;
    return text->data[n - 1] == 'n' && backslashes % 2 == 1;
}

/* Adds a part of the text on its own lines. size: of data, between the quotes. */
static void add_part(struct buf *out, size_t from, const char *label, const char *data, size_t size)
{
    if (!ends_line(out, from))
        buf_add_text(out, "\\n");
    if (*label)
        buf_printf(out, "[%s]\\n", label);
    buf_add(out, data, size);
}

/* Output that stands alone gets no label; neither does a value that stands alone. */
static void add_text(struct buf *out, struct run_tool *w, const struct kernel_run *run)
{
    bool has_error = w->error.length > 2, is_mixed = w->out[1].length || (w->has_value && w->out[0].length);
    size_t from = out->length;
    struct buf told;

    if (w->out[0].length)
        add_part(out, from, is_mixed ? "stdout" : "", w->out[0].data, w->out[0].length);
    if (w->out[1].length)
        add_part(out, from, "stderr", w->out[1].data, w->out[1].length);
    if (w->has_value)
        add_part(out, from, is_mixed ? "value" : "", buf_string(&w->value), w->value.length);
    if (has_error)
        add_part(out, from, "", w->error.data + 1, w->error.length - 2);
    if (w->is_restarted)
        add_part(out, from, "the kernel had ended and was restarted: its variables are gone", "", 0);
    if (run->outcome != OUTCOME_OK && (!has_error || run->outcome != OUTCOME_ERROR)) {
        buf_init(&told, 6 * sizeof run->reason + 16);
        add_string(&told, run->reason[0] ? run->reason : outcome_name(run->outcome));
        add_part(out, from, outcome_name(run->outcome), told.length > 2 ? told.data + 1 : "",
                 told.length > 2 ? told.length - 2 : 0);
        buf_done(&told);
    }
    if (run->refused) {
        struct buf line;
        buf_init(&line, 4096);
        buf_init(&told, 6 * 4096);
        mcp_add_refused(&line, w->call, w->box_id, run->refused);
        add_string(&told, buf_string(&line));
        add_part(out, from, "", told.length > 2 ? told.data + 1 : "", told.length > 2 ? told.length - 2 : 0);
        buf_done(&told);
        buf_done(&line);
    }
    if (!w->call->box && !ends_line(out, from))
        buf_add_text(out, "\\n");
    mcp_add_place(out, w->call, w->box_id, run->wall_us / 1000);
}

static void add_content(struct buf *out, struct run_tool *w, const struct kernel_run *run)
{
    buf_add_text(out, "\"content\":[{\"type\":\"text\",\"text\":\"");
    add_text(out, w, run);
    buf_add_text(out, "\"}");
    buf_add(out, buf_string(&w->images), w->images.length);
    buf_add_char(out, ']');
}

static void on_over(struct kernel_run *run)
{
    struct run_tool *w = run->options.owner;
    bool failed = run->outcome != OUTCOME_OK;
    struct buf out;

    w->run = NULL;
    buf_init(&out, MCP_ANSWER_MOST);
    add_content(&out, w, run);
    buf_printf(&out, ",\"isError\":%s,\"structuredContent\":{\"box\":\"%s\",\"outcome\":\"%s\",\"stdout\":\"",
               failed ? "true" : "false", w->box_id, outcome_name(run->outcome));
    buf_add(&out, buf_string(&w->out[0]), w->out[0].length);
    buf_add_text(&out, "\",\"stderr\":\"");
    buf_add(&out, buf_string(&w->out[1]), w->out[1].length);
    buf_add_text(&out, w->has_value ? "\",\"value\":\"" : "\",\"value\":null");
    if (w->has_value) {
        buf_add(&out, buf_string(&w->value), w->value.length);
        buf_add_char(&out, '"');
    }
    if (w->error.length) {
        buf_add_text(&out, ",\"error\":");
        buf_add(&out, w->error.data, w->error.length);
    }
    if (run->reason[0]) {
        buf_add_text(&out, ",\"reason\":");
        add_string(&out, run->reason);
    }
    char *refused = run->refused ? json_dumps(run->refused, JSON_COMPACT) : NULL;
    if (refused)
        buf_printf(&out, ",\"refused\":%s", refused);
    free(refused);
    buf_printf(&out, ",\"restarted\":%s,\"images\":%u,\"wall_ms\":%llu}", w->is_restarted ? "true" : "false",
               w->n_images, (unsigned long long)(run->wall_us / 1000));
    struct mcp_call *c = w->call;
    bool too_large = w->out[0].failure || w->out[1].failure || w->value.failure || w->error.failure
                     || w->images.failure || out.failure;
    c->on_gone = NULL;
    done(w);
    if (too_large)
        mcp_tool_fail(c, "the output of the code is too large for an answer; write it to a file, and read that");
    else
        mcp_result(c, out.data, out.length);
    buf_done(&out);
}

/* ---- beginning ---- */

static void go(struct mcp_call *c, struct box *box)
{
    struct run_tool *w = c->work;
    struct kernel *k = kernel_in_box(box, "default");
    struct kernel_options fresh = { 0 };
    struct kernel_run_options o = {
        .code = w->code,
        .code_size = w->code_size,
        .timeout_ms = w->timeout_ms,
        .session = MCP_SESSION,
        .restart = true,
        .output_bytes = OUTPUT_BYTES,
        .on_message = on_message,
        .on_end = on_over,
        .owner = w,
    };
    struct err e = { 0 };

    memcpy(w->box_id, box->id, sizeof w->box_id);
    w->is_restarted = k && k->state == KERNEL_DEAD;
    int r = k ? 0 : kernel_start(box, &fresh, &k, &e);
    if (r == 0)
        r = kernel_run_start(k, &o, &w->run, &e);
    if (r < 0) {
        c->on_gone = NULL;
        done(w);
        mcp_tool_err(c, &e);
        return;
    }
    c->on_gone = on_gone;
}

struct run_arguments {
    const char *code;
    uint64_t    timeout_ms;
};

static int take_code(const char *name, json_t *v, void *into, struct err *e)
{
    if (!json_is_string(v))
        return err_set(e, EINVAL, STEP_USAGE, "%s must be a string", name);
    ((struct run_arguments *)into)->code = json_string_value(v);
    return 0;
}

/* Read by mcp_with_box(). */
static int pass_over(const char *name, json_t *v, void *into, struct err *e)
{
    (void)name, (void)v, (void)into, (void)e;
    return 0;
}

static int take_timeout(const char *name, json_t *v, void *into, struct err *e)
{
    return body_duration(name, v, &((struct run_arguments *)into)->timeout_ms, e);
}

void mcp_run_code(struct mcp_call *c, json_t *arguments)
{
    static const struct body_field fields[] = { { "code", take_code },
                                                { "box", pass_over },
                                                { "timeout", take_timeout } };
    struct run_arguments a = { .timeout_ms = RUN_MS };
    struct run_tool *w = arena_alloc(&c->r->arena, sizeof *w);
    struct err e = { 0 };

    int r = w ? body_fields(arguments, "", fields, sizeof fields / sizeof *fields, &a, &e)
              : err_at(&e, ENOMEM, STEP_MEMORY, 0, "run_code");
    if (r == 0 && !a.code)
        r = err_set(&e, EINVAL, STEP_USAGE, "code is missing");
    if (r < 0) {
        mcp_tool_err(c, &e);
        return;
    }
    *w = (struct run_tool){ .call = c,
                           .code = arena_copy(&c->r->arena, a.code, strlen(a.code)),
                           .code_size = strlen(a.code),
                           .timeout_ms = a.timeout_ms };
    for (int i = 0; i < 2; i++)
        buf_init(&w->out[i], MCP_TEXT_MOST);
    buf_init(&w->value, MCP_TEXT_MOST);
    buf_init(&w->error, 6 * OUTPUT_BYTES + 16);        /* each byte of the text may become six */
    buf_init(&w->images, MCP_ANSWER_MOST / 2);
    c->work = w;
    if (w->code)
        mcp_with_box(c, arguments, go);
    else
        mcp_error(c, MCP_INTERNAL, "out of memory");
}
