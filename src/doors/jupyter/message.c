/* Messages of WebSocket clients, both protocols, and our own.
 *
 * v1.kernel.websocket.jupyter.org is also the form that our kernels use. The default form is JSON text
 * {"header","parent_header","metadata","content","buffers","channel"} or, with buffers, a binary message: a big-endian
 * u32 count, that many u32 offsets, then the JSON and the buffers. Clients omit the channel (shell is meant), the
 * buffers, most of the header; dates come as numbers. Parts are slices of the received bytes and are never rewritten,
 * except for a header that must be completed: the kernel gets the client's bytes. */
#define _GNU_SOURCE
#include <endian.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "base/jsonout.h"
#include "base/jsonscan.h"
#include "doors/jupyter/message.h"


static struct iovec slice(const char *data, size_t size)
{
    return (struct iovec){ (char *)(uintptr_t)data, size };
}

static int wrong(struct err *e, const char *what)
{
    return err_set(e, EINVAL, STEP_PROTOCOL, "%s", what);
}

void client_message_done(struct client_message *p)
{
    free(p->buffer);
    free(p->header_text);
    *p = (struct client_message){ 0 };
}

static int find_channel(struct client_message *p, const char *name, size_t size, struct err *e)
{
    p->channel = kernel_channel_find(name, size);
    return p->channel < KERNEL_CHANNELS ? 0 : wrong(e, "unknown channel");
}

/* ---- parsing ---- */

static uint64_t u64_at(const char *data, size_t i)
{
    uint64_t v;

    memcpy(&v, data + 8 * i, 8);
    return le64toh(v);
}

int client_message_read_v1(struct client_message *p, const char *data, size_t size, struct err *e)
{
    *p = (struct client_message){ 0 };
    uint64_t n = size >= 8 ? u64_at(data, 0) : 0;
    if (n < KERNEL_OFFSETS_LEAST || n > KERNEL_OFFSETS_LEAST + KERNEL_BUFFERS_MOST || 8 * (n + 1) > size)
        return wrong(e, "wrong number of parts");
    for (size_t i = 1; i <= n; i++) {
        uint64_t at = u64_at(data, i);
        if (at > size || at < (i == 1 ? 8 * (n + 1) : u64_at(data, i - 1)))
            return wrong(e, "wrong offsets");
    }
    p->n_buffers = (unsigned)(n - KERNEL_OFFSETS_LEAST);
    p->buffer = calloc(p->n_buffers + 1, sizeof *p->buffer);
    if (!p->buffer)
        return err_at(e, ENOMEM, STEP_MEMORY, 0, "message");
    for (size_t i = 2; i < n; i++) {
        struct iovec v = slice(data + u64_at(data, i), (size_t)(u64_at(data, i + 1) - u64_at(data, i)));
        if (i - 2 < KERNEL_PARTS)
            p->part[i - 2] = v;
        else
            p->buffer[i - 2 - KERNEL_PARTS] = v;
    }
    return find_channel(p, data + u64_at(data, 1), (size_t)(u64_at(data, 2) - u64_at(data, 1)), e);
}

int client_message_read_text(struct client_message *p, const char *data, size_t size, struct err *e)
{
    static const char *const names[KERNEL_PARTS] = { "header", "parent_header", "metadata", "content" };
    const struct jsonslice all = { data, size };
    char channel[16];

    *p = (struct client_message){ 0 };
    if (!jsonscan_is_object(data, size))
        return wrong(e, "not a JSON object");
    for (int i = 0; i < KERNEL_PARTS; i++) {
        struct jsonslice part = jsonscan_find(all, names[i]);
        bool is_null = !part.data || (part.size == 4 && memcmp(part.data, "null", 4) == 0);
        if (i == PART_HEADER && is_null)
            return wrong(e, "no header");
        p->part[i] = is_null ? slice("{}", 2) : slice(part.data, part.size);
    }
    struct jsonslice named = jsonscan_find(all, "channel");
    p->channel = KERNEL_SHELL;
    if (!named.data || named.data[0] != '"')
        return 0;
    return jsonscan_text(named, channel, sizeof channel) ? find_channel(p, channel, strlen(channel), e)
                                                         : wrong(e, "unknown channel");
}

static uint32_t u32_at(const char *data, size_t i)
{
    uint32_t v;

    memcpy(&v, data + 4 * i, 4);
    return be32toh(v);
}

int client_message_read_binary(struct client_message *p, const char *data, size_t size, struct err *e)
{
    *p = (struct client_message){ 0 };
    size_t n = size >= 4 ? u32_at(data, 0) : 0;
    if (n < 1 || n > KERNEL_BUFFERS_MOST + 1 || 4 * (n + 1) > size)
        return wrong(e, "wrong number of buffers");
    for (size_t i = 1; i <= n; i++)
        if (u32_at(data, i) > size || u32_at(data, i) < (i == 1 ? 4 * (n + 1) : u32_at(data, i - 1)))
            return wrong(e, "wrong offsets");
    size_t end = n > 1 ? u32_at(data, 2) : size;
    int r = client_message_read_text(p, data + u32_at(data, 1), end - u32_at(data, 1), e);
    if (r < 0)
        return r;
    p->n_buffers = (unsigned)n - 1;
    p->buffer = calloc(n, sizeof *p->buffer);
    if (!p->buffer)
        return err_at(e, ENOMEM, STEP_MEMORY, 0, "message");
    for (size_t i = 2; i <= n; i++)
        p->buffer[i - 2] = slice(data + u32_at(data, i), (i < n ? u32_at(data, i + 1) : size) - u32_at(data, i));
    return 0;
}

/* ---- completing ---- */

static bool is_there(struct jsonslice value)
{
    return value.data && value.data[0] == '"' && value.size > 2;
}

/* False: unusable. A value that is missing or no text is "". */
static bool header_text(struct jsonslice header, const char *name, char *text, size_t size)
{
    struct jsonslice value = jsonscan_find(header, name);

    text[0] = '\0';
    return !is_there(value) || jsonscan_text(value, text, size);
}

static void complete_date(json_t *header)
{
    json_t *v = json_object_get(header, "date");
    double seconds = json_number_value(v);
    char text[40];

    bool is_time = json_is_number(v) && isfinite(seconds) && seconds >= 0 && seconds < 1e11;
    jupyter_time(is_time ? (int64_t)(seconds * 1000) : front_now_ms(), text);
    json_object_set_new(header, "date", json_string(text));
}

static void fill(json_t *header, struct jsonslice from, const char *name, const char *value)
{
    if (!is_there(jsonscan_find(from, name)))
        json_object_set_new(header, name, json_string(value));      /* a failure shows in the text */
}

/* Rewrites the header. */
static int add_missing(struct client_message *p, struct jsonslice from, const char *user, struct err *e)
{
    json_t *header = json_loadb(from.data, from.size, 0, NULL);

    if (!json_is_object(header)) {
        json_decref(header);
        return wrong(e, "the header is not a JSON object");
    }
    fill(header, from, "session", p->session);
    fill(header, from, "username", user);
    fill(header, from, "version", "5.3");
    if (!is_there(jsonscan_find(from, "date")))
        complete_date(header);
    p->header_text = json_dumps(header, JSON_COMPACT);
    json_decref(header);
    if (!p->header_text)
        return err_at(e, ENOMEM, STEP_MEMORY, 0, "message");
    p->part[PART_HEADER] = slice(p->header_text, strlen(p->header_text));
    return 0;
}

int client_message_complete(struct client_message *p, const char *session, const char *user, struct err *e)
{
    static const char *const needed[] = { "session", "username", "version", "date" };
    const struct jsonslice header = { p->part[PART_HEADER].iov_base, p->part[PART_HEADER].iov_len };
    bool is_complete = true;

    if (header.size > HEADER_MOST)
        return wrong(e, "the header is too long");
    if (!jsonscan_is_object(header.data, header.size))
        return wrong(e, "the header is not a JSON object");
    if (!header_text(header, "msg_id", p->id, sizeof p->id) || !p->id[0]
        || !header_text(header, "msg_type", p->type, sizeof p->type) || !p->type[0]
        || !header_text(header, "session", p->session, sizeof p->session))
        return wrong(e, "the header needs msg_id and msg_type, and they must not be long");
    if (!p->session[0])
        snprintf(p->session, sizeof p->session, "%s", session);
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        is_complete &= is_there(jsonscan_find(header, needed[i]));
    return is_complete ? 0 : add_missing(p, header, user, e);
}

/* ---- our own ---- */

struct kernel_message *message_make(enum kernel_channel channel, const char *type, const char *parent, json_t *content)
{
    const char *name = kernel_channel_name(channel);
    char uuid[37], time[40], header[256];
    AUTO_FREE char *text = content ? json_dumps(content, JSON_COMPACT) : NULL;

    json_decref(content);
    if (!text)
        return NULL;
    jupyter_uuid(uuid);
    jupyter_time(front_now_ms(), time);
    snprintf(header, sizeof header,
             "{\"msg_id\":\"%s\",\"msg_type\":\"%s\",\"session\":\"carrel\",\"username\":\"carrel\",\"date\":\"%s\","
             "\"version\":\"5.3\"}", uuid, type, time);
    const char *const parts[] = { name, header, parent ? parent : "{}", "{}", text };
    enum { N = sizeof parts / sizeof *parts };
    size_t size = 8 * (N + 2);
    for (size_t i = 0; i < N; i++)
        size += strlen(parts[i]);
    struct kernel_message *m = kernel_message_new(size);
    if (!m)
        return NULL;
    m->channel = channel;
    snprintf(m->type, sizeof m->type, "%s", type);
    snprintf(m->id, sizeof m->id, "%s", uuid);
    size_t at = 8 * (N + 2);
    uint64_t number = htole64(N + 1);
    memcpy(m->raw.data, &number, 8);
    for (size_t i = 0; i < N; i++) {
        size_t n = strlen(parts[i]);
        number = htole64(at);
        memcpy(m->raw.data + 8 * (1 + i), &number, 8);
        memcpy(m->raw.data + at, parts[i], n);
        if (i)
            m->part[i - 1] = slice(m->raw.data + at, n);
        at += n;
    }
    number = htole64(at);
    memcpy(m->raw.data + 8 * (1 + N), &number, 8);
    return m;
}

static void add_part(struct buf *b, const char *name, const struct iovec *part)
{
    buf_add_text(b, name);
    buf_add(b, part->iov_base, part->iov_len);
}

static void add_json(struct buf *b, const struct kernel_message *m)
{
    struct buf ids;
    struct jsonout j;

    buf_init(&ids, 2048);
    jsonout_init(&j, &ids);
    jsonout_open_object(&j, NULL);
    jsonout_string(&j, "msg_id", m->id);
    jsonout_string(&j, "msg_type", m->type);
    jsonout_string(&j, "channel", kernel_channel_name(m->channel));
    jsonout_close(&j);
    if (jsonout_finish(&j) < 0)
        b->failure = ENOMEM;
    else
        buf_add(b, ids.data, ids.length - 1);
    buf_done(&ids);
    add_part(b, ",\"header\":", &m->part[PART_HEADER]);
    add_part(b, ",\"parent_header\":", &m->part[PART_PARENT]);
    add_part(b, ",\"metadata\":", &m->part[PART_METADATA]);
    add_part(b, ",\"content\":", &m->part[PART_CONTENT]);
    buf_add_text(b, m->n_buffers ? "}" : ",\"buffers\":[]}");
}

static void put_u32(struct buf *b, size_t i, size_t value)
{
    uint32_t v = htobe32((uint32_t)value);

    memcpy(b->data + 4 * i, &v, 4);
}

char *message_default(const struct kernel_message *m, size_t *ret_size, bool *ret_is_text)
{
    struct buf b;
    size_t n = m->n_buffers;

    *ret_is_text = n == 0;
    buf_init(&b, m->raw.size + 4096 + 4 * (n + 2));
    char *room = buf_reserve(&b, m->raw.size + 1024 + 4 * (n + 2));
    if (!room)
        return NULL;
    if (n) {
        memset(room, 0, 4 * (n + 2));
        buf_commit(&b, 4 * (n + 2));
    }
    add_json(&b, m);
    for (unsigned i = 0; i < n; i++) {
        struct iovec v = kernel_message_buffer(m, i);
        if (buf_error(&b) == 0)
            put_u32(&b, 2 + i, b.length);
        buf_add(&b, v.iov_base, v.iov_len);
    }
    if (buf_error(&b) < 0) {
        buf_done(&b);
        return NULL;
    }
    if (n) {
        put_u32(&b, 0, n + 1);
        put_u32(&b, 1, 4 * (n + 2));
    }
    *ret_size = b.length;
    return b.data;
}
