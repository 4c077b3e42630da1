/* A connection begins with a greeting of 64 bytes each way, then a READY command each way, then frames:
 *
 *   flags (1: more frames of the message follow, 2: the size has 8 bytes, 4: a command), size (1 or 8 bytes, big
 *   endian), body
 *
 * A SUB subscribes by messages that begin with a byte 1 and unsubscribes with a byte 0. */
#include "zmtp/zmtp.h"

#include <errno.h>
#include <string.h>

enum {
    GREETING = 64,
    FLAG_MORE = 1,
    FLAG_LONG = 2,
    FLAG_COMMAND = 4,
    COMMAND_MOST = 4096,
    HEADER_MOST = 9,
    OUT_MOST = ZMTP_MESSAGE_MOST + (16 << 20),
};

static const char *const type_names[] = { "DEALER", "ROUTER", "PUB", "SUB", "REP" };

static void add_header(struct buf *out, unsigned flags, uint64_t size)
{
    uint8_t header[HEADER_MOST];

    if (size < 256) {
        header[0] = (uint8_t)flags;
        header[1] = (uint8_t)size;
        buf_add(out, header, 2);
        return;
    }
    header[0] = (uint8_t)(flags | FLAG_LONG);
    for (int i = 0; i < 8; i++)
        header[1 + i] = (uint8_t)(size >> (56 - 8 * i));
    buf_add(out, header, HEADER_MOST);
}

static void add_property(struct buf *out, const char *name, const void *value, size_t size)
{
    uint8_t length[4] = { (uint8_t)(size >> 24), (uint8_t)(size >> 16), (uint8_t)(size >> 8), (uint8_t)size };

    buf_add_char(out, (char)strlen(name));
    buf_add_text(out, name);
    buf_add(out, length, sizeof length);
    buf_add(out, value, size);
}

static void add_ready(struct zmtp *z, const void *identity, size_t identity_size)
{
    struct buf body;

    buf_init(&body, COMMAND_MOST);
    buf_add(&body, "\5READY", 6);
    add_property(&body, "Socket-Type", type_names[z->type], strlen(type_names[z->type]));
    if (z->type == ZMTP_DEALER || z->type == ZMTP_ROUTER)
        add_property(&body, "Identity", identity, identity ? identity_size : 0);
    add_header(&z->out, FLAG_COMMAND, body.length);
    buf_add(&z->out, body.data, body.length);
    buf_done(&body);
}

void zmtp_open(struct zmtp *z, enum zmtp_type type, const void *identity, size_t identity_size)
{
    uint8_t greeting[GREETING] = { 0xff, [9] = 0x7f, [10] = 3, [11] = 0, [12] = 'N', 'U', 'L', 'L' };

    *z = (struct zmtp){ .type = type };
    buf_init(&z->in, ZMTP_MESSAGE_MOST + HEADER_MOST);
    buf_init(&z->message, ZMTP_MESSAGE_MOST);
    buf_init(&z->out, OUT_MOST);
    buf_add(&z->out, greeting, sizeof greeting);
    add_ready(z, identity ? identity : "", identity_size);
}

void zmtp_close(struct zmtp *z)
{
    buf_done(&z->in);
    buf_done(&z->message);
    buf_done(&z->out);
}

/* ---- input ---- */

static int take_greeting(const uint8_t *g)
{
    static const uint8_t mechanism[20] = "NULL";

    if (g[0] != 0xff || !(g[9] & 1) || g[10] < 3)
        return -EPROTO;
    return memcmp(g + 12, mechanism, sizeof mechanism) == 0 ? 0 : -EPROTO;
}

static int take_ready(struct zmtp *z, const uint8_t *at, size_t size)
{
    const uint8_t *end = at + size;

    while (at < end) {
        size_t name_size = *at++;
        if ((size_t)(end - at) < name_size + 4)
            return -EPROTO;
        const uint8_t *name = at, *length = at + name_size;
        size_t value_size =
            (size_t)length[0] << 24 | (size_t)length[1] << 16 | (size_t)length[2] << 8 | (size_t)length[3];
        at = length + 4;
        if ((size_t)(end - at) < value_size)
            return -EPROTO;
        if (name_size == 8 && memcmp(name, "Identity", 8) == 0) {
            if (value_size > sizeof z->identity)
                return -EPROTO;
            memcpy(z->identity, at, value_size);
            z->identity_size = value_size;
        }
        at += value_size;
    }
    z->state = ZMTP_OPEN;
    if (z->type == ZMTP_SUB) {      /* everything */
        add_header(&z->out, 0, 1);
        buf_add(&z->out, "\1", 1);
    }
    return 0;
}

static int take_command(struct zmtp *z, const uint8_t *body, size_t size)
{
    if (size == 0 || body[0] >= size)
        return -EPROTO;
    size_t name_size = body[0];
    const uint8_t *name = body + 1, *rest = name + name_size;
    size_t rest_size = size - 1 - name_size;

    if (z->state == ZMTP_READY)
        return name_size == 5 && memcmp(name, "READY", 5) == 0 ? take_ready(z, rest, rest_size) : -EPROTO;
    if (name_size == 4 && memcmp(name, "PING", 4) == 0 && rest_size >= 2) {
        /* After the time to live comes a context of up to 16 bytes, which the PONG returns. */
        size_t context = rest_size - 2 > 16 ? 16 : rest_size - 2;
        add_header(&z->out, FLAG_COMMAND, 5 + context);
        buf_add(&z->out, "\4PONG", 5);
        buf_add(&z->out, rest + 2, context);
    }
    return 0;
}

static void subscribe(struct zmtp *z, const uint8_t *body, size_t size)
{
    size_t topic = size - 1;
    unsigned i = 0;

    while (i < z->n_subscriptions && !(z->subscription[i].size == topic &&
                                       memcmp(z->subscription[i].bytes, body + 1, topic) == 0))
        i++;
    if (body[0] == 1 && i == z->n_subscriptions && i < ZMTP_SUBSCRIPTIONS && topic <= ZMTP_TOPIC) {
        memcpy(z->subscription[i].bytes, body + 1, topic);
        z->subscription[i].size = topic;
        z->n_subscriptions++;
    } else if (body[0] == 0 && i < z->n_subscriptions) {
        z->subscription[i] = z->subscription[--z->n_subscriptions];
    }
}

static int take_part(struct zmtp *z, bool more, const uint8_t *body, size_t size, zmtp_message *call, void *arg)
{
    struct iovec part[ZMTP_PARTS];

    if (z->type == ZMTP_PUB) {
        if (size > 0 && !more)
            subscribe(z, body, size);
        return 0;
    }
    if (z->n_parts == ZMTP_PARTS)
        return -EMSGSIZE;
    buf_add(&z->message, body, size);
    if (buf_error(&z->message) < 0)
        return -EMSGSIZE;
    z->ends[z->n_parts++] = z->message.length;
    if (more)
        return 0;
    for (size_t i = 0; i < z->n_parts; i++) {
        size_t begin = i ? z->ends[i - 1] : 0;
        part[i] = (struct iovec){ z->message.data ? z->message.data + begin : NULL, z->ends[i] - begin };
    }
    size_t n = z->n_parts;
    z->n_parts = 0;
    call(z, part, n, arg);
    buf_clear(&z->message);
    return 0;
}

/* Measures the first frame. 1: it is complete; 0: not yet. */
static int next_frame(const struct zmtp *z, const uint8_t *at, size_t have, size_t *ret_header, size_t *ret_size)
{
    uint64_t size = 0;

    if (have < 1)
        return 0;
    *ret_header = at[0] & FLAG_LONG ? 9 : 2;
    if (have < *ret_header)
        return 0;
    if (at[0] & ~(FLAG_MORE | FLAG_LONG | FLAG_COMMAND) || (at[0] & FLAG_COMMAND && at[0] & FLAG_MORE))
        return -EPROTO;
    for (size_t i = 1; i < *ret_header; i++)
        size = size << 8 | at[i];
    if (size > (at[0] & FLAG_COMMAND ? COMMAND_MOST : ZMTP_MESSAGE_MOST) - z->message.length)
        return -EMSGSIZE;
    *ret_size = (size_t)size;
    return have - *ret_header >= size;
}

int zmtp_feed(struct zmtp *z, const void *data, size_t size, zmtp_message *call, void *arg)
{
    size_t at = 0, header, body;
    int r = 0;

    buf_add(&z->in, data, size);
    if ((r = buf_error(&z->in)) < 0)
        return r;
    const uint8_t *bytes = (const uint8_t *)z->in.data;
    if (z->state == ZMTP_GREETING && z->in.length >= GREETING) {
        if ((r = take_greeting(bytes)) < 0)
            return r;
        z->state = ZMTP_READY;
        at = GREETING;
    }
    while (z->state != ZMTP_GREETING && (r = next_frame(z, bytes + at, z->in.length - at, &header, &body)) > 0) {
        const uint8_t *frame = bytes + at;
        at += header + body;
        if (frame[0] & FLAG_COMMAND)
            r = take_command(z, frame + header, body);
        else
            r = z->state == ZMTP_OPEN ? take_part(z, frame[0] & FLAG_MORE, frame + header, body, call, arg) : -EPROTO;
        if (r < 0)
            break;
    }
    if (at > 0) {
        memmove(z->in.data, z->in.data + at, z->in.length - at);
        z->in.length -= at;
    }
    return r < 0 ? r : 0;
}

/* ---- output ---- */

static bool is_wanted(const struct zmtp *z, const struct iovec *topic)
{
    for (unsigned i = 0; i < z->n_subscriptions; i++)
        if (z->subscription[i].size <= topic->iov_len &&
            memcmp(z->subscription[i].bytes, topic->iov_base, z->subscription[i].size) == 0)
            return true;
    return false;
}

int zmtp_send(struct zmtp *z, const struct iovec *part, size_t n)
{
    size_t before = z->out.length;

    if (n == 0 || (z->type == ZMTP_PUB && !is_wanted(z, &part[0])))
        return 0;
    for (size_t i = 0; i < n; i++) {
        add_header(&z->out, i + 1 < n ? FLAG_MORE : 0, part[i].iov_len);
        buf_add(&z->out, part[i].iov_base, part[i].iov_len);
    }
    if (buf_error(&z->out) == 0)
        return 0;
    z->out.failure = 0;
    z->out.length = before;
    return -EMSGSIZE;
}

void zmtp_sent(struct zmtp *z, size_t size)
{
    memmove(z->out.data, z->out.data + size, z->out.length - size);
    z->out.length -= size;
}
