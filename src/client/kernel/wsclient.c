/* RFC 6455, as much of it as one trusted server needs: no extensions, masked frames out, plain frames in. */
#define _GNU_SOURCE
#include "client/kernel/wsclient.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>

enum {
    FIN = 0x80,
    MASKED = 0x80,
    OP_CONTINUE = 0,
    OP_TEXT = 1,
    OP_BINARY = 2,
    OP_CLOSE = 8,
    OP_PING = 9,
    OP_PONG = 10
};

static void add_frame(struct wsclient *w, unsigned opcode, const void *data, size_t size)
{
    uint8_t head[14] = { (uint8_t)(FIN | opcode) }, mask[4];
    size_t n = 2;

    if (getrandom(mask, sizeof mask, GRND_NONBLOCK) != sizeof mask)
        memset(mask, 0x5a, sizeof mask);        /* it hides nothing from anybody here */
    if (size < 126) {
        head[1] = (uint8_t)(MASKED | size);
    } else {
        unsigned bytes = size < 65536 ? 2 : 8;
        head[1] = (uint8_t)(MASKED | (bytes == 2 ? 126 : 127));
        for (unsigned i = 0; i < bytes; i++)
            head[n++] = (uint8_t)((uint64_t)size >> 8 * (bytes - 1 - i));
    }
    memcpy(head + n, mask, sizeof mask);
    buf_add(&w->out, head, n + sizeof mask);
    char *room = buf_reserve(&w->out, size);
    if (!room)
        return;
    for (size_t i = 0; i < size; i++)
        room[i] = (char)(((const uint8_t *)data)[i] ^ mask[i % 4]);
    buf_commit(&w->out, size);
}

int wsclient_open(struct wsclient *w, const struct server *s, const char *target, const char *protocol, struct err *e)
{
    char fields[512];

    *w = (struct wsclient){ .x = malloc(sizeof *w->x) };
    buf_init(&w->in, WSCLIENT_MOST + 16);
    buf_init(&w->message, WSCLIENT_MOST);
    buf_init(&w->out, WSCLIENT_MOST + (16 << 20));
    if (!w->x)
        return err_at(e, ENOMEM, STEP_MEMORY, 0, "connection");
    snprintf(fields, sizeof fields,
             "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
             "Sec-WebSocket-Key: Y2FycmVsIGtlcm5lbCBsbw==\r\nSec-WebSocket-Protocol: %s\r\n",
             protocol);
    int r = exchange_open(w->x, s, "GET", target, fields, EXCHANGE_NO_BODY, e);
    if (r < 0) {
        w->x->fd = -1;
        return r;
    }
    r = exchange_answer(w->x, e);
    if (r == 0 && w->x->status != 101)
        r = err_set(e, EPROTO, STEP_USAGE, "the server refuses the channels of the kernel (HTTP %d)", w->x->status);
    return r;
}

void wsclient_done(struct wsclient *w)
{
    if (w->x && w->x->fd >= 0)
        exchange_close(w->x);
    free(w->x);
    w->x = NULL;
    buf_done(&w->in);
    buf_done(&w->message);
    buf_done(&w->out);
}

static int take_frame(struct wsclient *w, unsigned first, const char *data, size_t size, wsclient_message *call,
                      void *arg)
{
    unsigned opcode = first & 0x0f;

    if (opcode == OP_PING)
        add_frame(w, OP_PONG, data, size);
    if (opcode == OP_CLOSE) {
        add_frame(w, OP_CLOSE, data, size < 2 ? 0 : 2);
        w->closed = true;
    }
    if (opcode >= OP_CLOSE)
        return 0;
    buf_add(&w->message, data, size);
    if (buf_error(&w->message) < 0)
        return -EPROTO;
    if (first & FIN) {
        call(w->message.data ? w->message.data : "", w->message.length, arg);
        buf_clear(&w->message);
    }
    return 0;
}

static int take_frames(struct wsclient *w, wsclient_message *call, void *arg)
{
    size_t at = 0;
    int r = 0;

    while (r == 0 && w->in.length - at >= 2) {
        const uint8_t *frame = (const uint8_t *)w->in.data + at;
        size_t have = w->in.length - at, head = 2, bytes = frame[1] == 126 ? 2 : frame[1] == 127 ? 8 : 0;
        uint64_t size = bytes ? 0 : frame[1];
        if (frame[1] & MASKED || frame[0] & 0x70)
            return -EPROTO;
        if (have < head + bytes)
            break;
        for (size_t i = 0; i < bytes; i++)
            size = size << 8 | frame[head + i];
        head += bytes;
        if (size > WSCLIENT_MOST)
            return -EPROTO;
        if (have - head < size)
            break;
        r = take_frame(w, frame[0], (const char *)frame + head, (size_t)size, call, arg);
        at += head + (size_t)size;
    }
    if (at > 0) {
        memmove(w->in.data, w->in.data + at, w->in.length - at);
        w->in.length -= at;
    }
    return r;
}

int wsclient_read(struct wsclient *w, wsclient_message *call, void *arg)
{
    enum { PIECE = 256 << 10 };

    for (int i = 0; i < 16; i++) {
        char *room = buf_reserve(&w->in, PIECE);
        if (!room)
            return -EPROTO;
        ssize_t n = exchange_read(w->x, room, PIECE, false);
        if (n == -EAGAIN)
            return 0;
        if (n <= 0) {
            w->closed = true;
            return -ECONNRESET;
        }
        buf_commit(&w->in, (size_t)n);
        int r = take_frames(w, call, arg);
        if (r < 0)
            return r;
    }
    return 0;
}

int wsclient_send(struct wsclient *w, const void *data, size_t size)
{
    add_frame(w, OP_BINARY, data, size);
    return buf_error(&w->out);
}

int wsclient_write(struct wsclient *w)
{
    ssize_t n = send(w->x->fd, w->out.data, w->out.length, MSG_NOSIGNAL | MSG_DONTWAIT);

    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -errno;
    memmove(w->out.data, w->out.data + n, w->out.length - (size_t)n);
    w->out.length -= (size_t)n;
    return 0;
}
