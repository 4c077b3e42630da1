/* Only the part that one trusted server needs; http/wsframe has the frames. */
#define _GNU_SOURCE
#include "client/kernel/wsclient.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>

static void add_frame(struct wsclient *w, enum wsframe_opcode opcode, const void *data, size_t size)
{
    uint8_t head[WSFRAME_HEADER_MAX], mask[4];

    if (getrandom(mask, sizeof mask, GRND_NONBLOCK) != sizeof mask)
        memset(mask, 0x5a, sizeof mask);        /* the mask need not be random here */
    buf_add(&w->out, head, wsframe_header_masked(head, opcode, size, mask));
    char *room = buf_reserve(&w->out, size);
    if (!room)
        return;
    wsframe_mask(room, data, size, mask, 0);
    buf_commit(&w->out, size);
}

int wsclient_open(struct wsclient *w, const struct server_address *s, const char *target, const char *protocol,
                  struct err *e)
{
    char fields[512];

    *w = (struct wsclient){ .x = malloc(sizeof *w->x),
                            .reader = { .max_bytes = WSCLIENT_MOST, .any_text = true, .is_client = true } };
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
    wsreader_done(&w->reader);
    buf_done(&w->out);
}

static int take(struct wsclient *w, const uint8_t *in, size_t size, wsclient_message *call, void *arg)
{
    while (size > 0) {
        const char *data;
        size_t taken, length;
        int opcode = wsreader_take(&w->reader, in, size, &taken, &data, &length);
        if (opcode < 0)
            return -EPROTO;
        if (opcode == WS_PING)
            add_frame(w, WS_PONG, data, length);
        if (opcode == WS_CLOSE) {
            add_frame(w, WS_CLOSE, data, length < 2 ? 0 : 2);
            w->closed = true;
        }
        if (opcode == WS_TEXT || opcode == WS_BINARY)
            call(data, length, arg);
        in += taken;
        size -= taken;
    }
    return 0;
}

int wsclient_read(struct wsclient *w, wsclient_message *call, void *arg)
{
    uint8_t piece[64 << 10];

    for (int i = 0; i < 64; i++) {
        ssize_t n = exchange_read(w->x, piece, sizeof piece, false);
        if (n == -EAGAIN)
            return 0;
        if (n <= 0) {
            w->closed = true;
            return -ECONNRESET;
        }
        int r = take(w, piece, (size_t)n, call, arg);
        if (r < 0)
            return r;
    }
    return 0;
}

int wsclient_send(struct wsclient *w, const void *data, size_t size)
{
    add_frame(w, WS_BINARY, data, size);
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
