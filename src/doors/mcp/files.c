/* Tools for a box's files. They use the box's file helper, and so have the box's rights. */
#define _GNU_SOURCE
#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/jsonout.h"
#include "base/list.h"
#include "doors/mcp/door.h"
#include "front/files/box_files.h"
#include "front/files/file_entry.h"
#include "front/kernels/kernels.h"
#include "http/wsframe.h"
#include "proto/defaults.h"

enum { READ_MOST = 8 << 20, LIST_MOST = 1000, PIECE = 1 << 18 };

struct working {
    struct mcp_call     *call;
    struct box_files_user   user;
    struct files_request question;
    const char          *path;          /* in the request */
    struct buf           data;          /* the bytes read; or entries as JSON */
    struct buf           lines;         /* entries as text: the inside of a JSON string */
    const char          *bytes;         /* to write; borrowed from the request */
    size_t               size, sent;
    uint64_t             listed;
    char                 box_id[16];    /* copied: a box that is deleted may be forgotten before its helper ends */
    bool                 is_ended;      /* of the upload */
};

static struct working *of(struct box_files_user *u)
{
    return container_of(u, struct working, user);
}

static void done(struct working *w)
{
    buf_done(&w->data);
    buf_done(&w->lines);
}

static void on_gone(struct mcp_call *c)
{
    struct working *w = c->work;

    box_files_close(&w->user, false);
    done(w);
}

/* ---- answers ---- */

static const char *type_of(const char *data, size_t size)
{
    return size > 8 && memcmp(data, "\x89PNG\r\n\x1a\n", 8) == 0 ? "image/png"
           : size > 3 && memcmp(data, "\xff\xd8\xff", 3) == 0    ? "image/jpeg"
           : size > 6 && memcmp(data, "GIF8", 4) == 0            ? "image/gif"
                                                                 : NULL;
}

static void answer_file(struct mcp_call *c, struct working *w)
{
    const char *data = buf_string(&w->data), *type = type_of(data, w->data.length);
    struct buf out;
    struct jsonout j;

    buf_init(&out, MCP_ANSWER_MOST);
    if (!type && wsframe_is_utf8(data, w->data.length)) {
        buf_add_text(&out, "\"content\":[{\"type\":\"text\",\"text\":");
        jsonout_init(&j, &out);
        jsonout_bytes(&j, NULL, data, w->data.length);
        if (jsonout_finish(&j) < 0 && !out.failure)
            out.failure = EINVAL;
        buf_add_char(&out, '}');
    } else {
        size_t room = 4 * ((w->data.length + 2) / 3) + 1;
        if (type) {
            buf_add_text(&out, "\"content\":[{\"type\":\"image\",\"data\":\"");
        } else {
            buf_add_text(&out, "\"content\":[{\"type\":\"resource\",\"resource\":{\"uri\":");
            char *uri =
                arena_printf(&c->r->arena, "box://%s%s%s", w->box_id, w->path[0] == '/' ? "" : BOX_HOME "/", w->path);
            jsonout_init(&j, &out);
            jsonout_string(&j, NULL, uri);
            if (jsonout_finish(&j) < 0 && !out.failure)
                out.failure = EINVAL;
            buf_add_text(&out, ",\"mimeType\":\"application/octet-stream\",\"blob\":\"");
        }
        char *to = buf_reserve(&out, room);
        if (to)
            buf_commit(&out,
                       (size_t)EVP_EncodeBlock((unsigned char *)to, (const unsigned char *)data, (int)w->data.length));
        if (type)
            buf_printf(&out, "\",\"mimeType\":\"%s\"}", type);
        else
            buf_add_text(&out, "\"}}");
    }
    /* For clients that show only text to their model. */
    if (type || !wsframe_is_utf8(data, w->data.length))
        buf_printf(&out, ",{\"type\":\"text\",\"text\":\"[%s, %zu bytes]\"}", type ? type : "not text", w->data.length);
    buf_add_text(&out, "],\"isError\":false");
    if (buf_error(&out) < 0)
        mcp_tool_fail(c, "the file is too large for an answer");
    else
        mcp_result(c, out.data, out.length);
    buf_done(&out);
}

static void answer_list(struct mcp_call *c, struct working *w, const struct files_done *end)
{
    struct buf out;

    buf_init(&out, MCP_ANSWER_MOST);
    buf_add_text(&out, "\"content\":[{\"type\":\"text\",\"text\":\"");
    buf_add(&out, buf_string(&w->lines), w->lines.length);
    buf_printf(&out, "[%llu entries%s]\"}],\"isError\":false,\"structuredContent\":{\"entries\":[",
               (unsigned long long)w->listed, end->cursor ? "; the folder has more, list it with run_command" : "");
    buf_add(&out, buf_string(&w->data), w->data.length);
    buf_printf(&out, "],\"complete\":%s}", end->cursor ? "false" : "true");
    if (w->data.failure || w->lines.failure || buf_error(&out) < 0)
        mcp_tool_fail(c, "the folder is too large for an answer");
    else
        mcp_result(c, out.data, out.length);
    buf_done(&out);
}

static void answer_written(struct mcp_call *c, struct working *w, const struct files_done *end)
{
    struct buf text;

    buf_init(&text, MCP_TEXT_MOST);
    buf_printf(&text, "%llu bytes written to %s\n", (unsigned long long)end->bytes, w->path);
    mcp_add_place(&text, c, w->box_id, MCP_UNTIMED);
    mcp_tool_result(c, buf_string(&text),
                    json_pack("{s:s,s:s,s:I}", "box", w->box_id, "path", w->path, "bytes", (json_int_t)end->bytes),
                    false);
    buf_done(&text);
}

/* `12345 name`, or for other kinds `folder name/`, `link name -> target`. */
static void add_line(struct buf *out, const struct files_entry *entry, const char *name, const char *link)
{
    char text[3 * 4096];
    struct jsonout j;
    struct buf quoted;
    int kind = (int)(entry->mode & S_IFMT), size = (int)entry->name_size;

    if (kind == S_IFDIR)
        snprintf(text, sizeof text, "folder  %.*s/\n", size, name);
    else if (kind == S_IFLNK)
        snprintf(text, sizeof text, "link  %.*s -> %.*s\n", size, name, (int)entry->link_size, link);
    else
        snprintf(text, sizeof text, "%llu  %.*s%s\n", (unsigned long long)entry->size, size, name,
                 kind == S_IFREG ? "" : "  (no plain file)");
    buf_init(&quoted, 6 * sizeof text + 3);
    jsonout_init(&j, &quoted);
    jsonout_bytes(&j, NULL, text, strlen(text));
    if (jsonout_finish(&j) < 0 && !out->failure)
        out->failure = EINVAL;
    else
        buf_add(out, quoted.data + 1, quoted.length - 2);
    buf_done(&quoted);
}

/* ---- the helper ---- */

static void on_entries(struct box_files_user *u, const char *data, size_t size)
{
    struct working *w = of(u);
    struct files_entry entry;
    const char *name, *link;

    while (w->question.op == FILES_LIST && file_entry_next(&data, &size, &entry, &name, &link)) {
        if (w->listed++)
            buf_add_char(&w->data, ',');
        file_entry_json(&w->data, &entry, name, link, NULL);
        add_line(&w->lines, &entry, name, link);
    }
}

static void on_data(struct box_files_user *u, const char *data, size_t size)
{
    struct working *w = of(u);

    if (w->question.op != FILES_READ)
        return;         /* a helper is a process of the box, so its data is untrusted */
    if (!w->data.failure && !mcp_keep(w->call, w->data.length + size))
        w->data.failure = EDQUOT;
    buf_add(&w->data, data, size);
}

static void send_more(struct box_files_user *u)
{
    static _Alignas(8) char piece[sizeof(struct files_head) + PIECE];
    struct working *w = of(u);

    while (!w->is_ended && box_files_has_room(u)) {
        size_t n = w->size - w->sent < PIECE ? w->size - w->sent : PIECE;
        memcpy(piece + sizeof(struct files_head), w->bytes + w->sent, n);
        w->is_ended = n == 0;
        box_files_send(u, n ? FILES_DATA : FILES_END, piece + sizeof(struct files_head), n);
        w->sent += n;
    }
}

static void on_done(struct box_files_user *u, const struct files_done *end)
{
    struct working *w = of(u);
    struct mcp_call *c = w->call;
    bool is_upload = w->question.op == FILES_WRITE;

    box_files_close(u, !is_upload || w->is_ended);
    c->on_gone = NULL;
    if (end->code)
        mcp_tool_fail(c, "%.200s: %s", w->path, end->text[0] ? end->text : strerror(end->code));
    else if (w->data.failure == EDQUOT)
        mcp_tool_fail(c, "%s", SHARE_FULL);
    else if (w->data.failure)
        mcp_tool_fail(c, "%.200s has more than %d MiB; read a part of it with run_command", w->path, READ_MOST >> 20);
    else if (is_upload)
        answer_written(c, w, end);
    else if (w->question.op == FILES_LIST)
        answer_list(c, w, end);
    else
        answer_file(c, w);
    done(w);
}

static void on_lost(struct box_files_user *u, const struct err *e)
{
    struct working *w = of(u);

    w->call->on_gone = NULL;
    mcp_tool_err(w->call, e);
    done(w);
}

static void go(struct mcp_call *c, struct box *box)
{
    struct working *w = c->work;
    struct err e = { 0 };

    const struct kernel *k = mcp_kernel_of(c, box);
    memcpy(w->box_id, box->id, sizeof w->box_id);
    if (k && k->cwd && w->path[0] != '/' && !(w->path = arena_printf(&c->r->arena, "%s/%s", k->cwd, w->path))) {
        mcp_error(c, MCP_INTERNAL, "out of memory");
        done(w);
        return;
    }
    w->user = (struct box_files_user){
        .on_entries = on_entries, .on_data = on_data, .on_done = on_done, .on_room = send_more, .on_lost = on_lost
    };
    int r = box_files_open(box, &w->user, &e);
    if (r == 0) {
        r = box_files_ask(&w->user, &w->question, w->path, NULL, &e);
        if (r < 0)
            box_files_close(&w->user, false);
    }
    if (r < 0) {
        mcp_tool_err(c, &e);
        done(w);
        return;
    }
    c->on_gone = on_gone;
    if (w->question.op == FILES_WRITE)
        send_more(&w->user);
}

/* ---- the tools ---- */

/* NULL: answered. Refuses every argument that is not in known, by name. */
static struct working *begin(struct mcp_call *c, json_t *arguments, const char *const *known, size_t most)
{
    struct working *w = arena_alloc(&c->r->arena, sizeof *w);
    const char *key;
    json_t *value;

    if (!w) {
        mcp_error(c, MCP_INTERNAL, "out of memory");
        return NULL;
    }
    json_object_foreach(arguments, key, value) {
        size_t i = 0;
        while (known[i] && strcmp(known[i], key) != 0)
            i++;
        if (!known[i] || !json_is_string(value)) {
            mcp_tool_fail(c, "%.64s is no argument of this tool, or no string; see its schema", key);
            return NULL;
        }
    }
    *w = (struct working){ .call = c, .path = json_string_value(json_object_get(arguments, "path")) };
    if (w->path && !w->path[0])
        w->path = NULL;
    buf_init(&w->data, most);
    buf_init(&w->lines, most);
    c->work = w;
    return w;
}

static void in_box(struct mcp_call *c, json_t *arguments)
{
    struct box *box = mcp_find_box(c, arguments);

    if (box)
        go(c, box);
}

void mcp_read_file(struct mcp_call *c, json_t *arguments)
{
    static const char *const known[] = { "path", "box", NULL };
    struct working *w = begin(c, arguments, known, READ_MOST);

    if (!w)
        return;
    if (!w->path) {
        mcp_tool_fail(c, "path is missing");
        return;
    }
    w->question = (struct files_request){ .op = FILES_READ, .length = READ_MOST + 1 };
    in_box(c, arguments);
}

void mcp_list_files(struct mcp_call *c, json_t *arguments)
{
    static const char *const known[] = { "path", "box", NULL };
    struct working *w = begin(c, arguments, known, READ_MOST);

    if (!w)
        return;
    if (!w->path)
        w->path = ".";
    w->question = (struct files_request){ .op = FILES_LIST, .limit = LIST_MOST };
    in_box(c, arguments);
}

/* Decodes into the request's arena, so it is freed with the call. NULL: done; else why not. */
static const char *decode(struct working *w, const char *text)
{
    size_t n = strlen(text);

    if (n % 4 != 0)
        return "content_base64 is no base64";
    if (!mcp_keep(w->call, n))
        return SHARE_FULL;
    char *decoded = arena_alloc(&w->call->r->arena, n / 4 * 3 + 1);
    if (!decoded)
        return "out of memory";
    int size = EVP_DecodeBlock((unsigned char *)decoded, (const unsigned char *)text, (int)n);
    if (size < 0)
        return "content_base64 is no base64";
    for (size_t i = 1; i <= 2 && i <= n && text[n - i] == '='; i++)
        size--;
    w->bytes = decoded;
    w->size = (size_t)size;
    return NULL;
}

void mcp_write_file(struct mcp_call *c, json_t *arguments)
{
    static const char *const known[] = { "path", "box", "content", "content_base64", NULL };
    struct working *w = begin(c, arguments, known, READ_MOST);
    json_t *text = json_object_get(arguments, "content"), *coded = json_object_get(arguments, "content_base64");

    if (!w)
        return;
    if (!w->path || !text == !coded) {
        mcp_tool_fail(c, w->path ? "either content or content_base64 must be there" : "path is missing");
        return;
    }
    const char *wrong = coded ? decode(w, json_string_value(coded)) : NULL;
    if (wrong) {
        mcp_tool_fail(c, "%s", wrong);
        return;
    }
    if (text) {
        w->bytes = json_string_value(text);
        w->size = json_string_length(text);
    }
    w->question = (struct files_request){ .op = FILES_WRITE, .mode = 0644,
                                          .flags = FILES_CREATE | FILES_TRUNCATE | FILES_ATOMIC | FILES_PARENTS };
    mcp_with_box(c, arguments, go);
}
