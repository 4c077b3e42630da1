/* A frame's header is gathered in w->header until it is complete, then judged; its payload is unmasked while it is
 * copied to the message (or to w->control, because control frames may come between the fragments of a message). A
 * large buffer is not kept after its message. */
#include "http/wsframe.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define KEEP_BYTES 4096

size_t wsframe_header(uint8_t header[static 10], enum wsframe_opcode opcode, size_t payload_size)
{
    header[0] = (uint8_t)(0x80 | opcode);
    if (payload_size < 126) {
        header[1] = (uint8_t)payload_size;
        return 2;
    }
    int bytes = payload_size < 65536 ? 2 : 8;
    header[1] = bytes == 2 ? 126 : 127;
    for (int i = 0; i < bytes; i++)
        header[2 + i] = (uint8_t)(payload_size >> 8 * (bytes - 1 - i));
    return 2 + (size_t)bytes;
}

size_t wsframe_header_masked(uint8_t header[static WSFRAME_HEADER_MAX], enum wsframe_opcode opcode, size_t payload_size,
                             const uint8_t mask[static 4])
{
    size_t n = wsframe_header(header, opcode, payload_size);

    header[1] |= 0x80;
    memcpy(header + n, mask, 4);
    return n + 4;
}

void wsframe_mask(char *to, const void *from, size_t n, const uint8_t mask[static 4], uint32_t at)
{
    const uint8_t *bytes = from;
    size_t i = 0;
    uint8_t turned[8];

    for (unsigned j = 0; j < 8; j++)
        turned[j] = mask[(at + j) & 3];
    uint64_t mask8, eight;
    memcpy(&mask8, turned, 8);
    for (; n - i >= 8; i += 8) {
        memcpy(&eight, bytes + i, 8);
        eight ^= mask8;
        memcpy(to + i, &eight, 8);
    }
    for (; i < n; i++)
        to[i] = (char)(bytes[i] ^ turned[i & 7]);
}

bool wsframe_is_utf8(const char *data, size_t size)
{
    const uint8_t *p = (const uint8_t *)data, *end = p + size;
    while (p < end) {
        uint64_t eight;
        while (end - p >= 8 && (memcpy(&eight, p, 8), !(eight & UINT64_C(0x8080808080808080))))
            p += 8;
        if (p == end)
            break;
        uint8_t lead = *p++;
        if (lead < 0x80)
            continue;
        int more = lead < 0xc2 || lead > 0xf4 ? 0 : lead < 0xe0 ? 1 : lead < 0xf0 ? 2 : 3;
        if (!more || end - p < more)
            return false;
        uint8_t low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;     /* no overlong forms */
        uint8_t high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;    /* no surrogates, nothing beyond U+10FFFF */
        for (; more; more--, p++, low = 0x80, high = 0xbf)
            if (*p < low || *p > high)
                return false;
    }
    return true;
}

int wsframe_close_code(const char *data, size_t size)
{
    if (size == 0)
        return WS_NO_STATUS;
    if (size == 1)
        return -WS_PROTOCOL_ERROR;
    int code = (uint8_t)data[0] << 8 | (uint8_t)data[1];
    bool known = (code >= 1000 && code <= 1003) || (code >= 1007 && code <= 1014) || (code >= 3000 && code <= 4999);
    if (!known)
        return -WS_PROTOCOL_ERROR;
    return wsframe_is_utf8(data + 2, size - 2) ? code : -WS_BAD_DATA;
}

static size_t header_size(const struct wsreader *w)
{
    if (w->n_header < 2)
        return 2;
    unsigned length = w->header[1] & 0x7f;
    return 2 + (length == 126 ? 2 : length == 127 ? 8 : 0) + (w->is_client ? 0 : 4);
}

static int judge_header(struct wsreader *w)
{
    uint8_t first = w->header[0], length = w->header[1] & 0x7f;
    bool is_control = first & 0x08;
    w->fin = first & 0x80;
    w->opcode = first & 0x0f;
    bool is_masked = w->header[1] & 0x80;
    if ((first & 0x70) || is_masked == w->is_client)    /* no extension was agreed; clients mask and servers do not */
        return -WS_PROTOCOL_ERROR;
    if (is_control ? w->opcode > WS_PONG || !w->fin || length > WSFRAME_CONTROL_MAX : w->opcode > WS_BINARY)
        return -WS_PROTOCOL_ERROR;
    if (!is_control && (w->opcode == WS_CONTINUATION) != (w->message_opcode != 0))
        return -WS_PROTOCOL_ERROR;
    unsigned bytes = length == 126 ? 2 : length == 127 ? 8 : 0;
    w->left = bytes ? 0 : length;
    for (unsigned i = 0; i < bytes; i++)
        w->left = w->left << 8 | w->header[2 + i];
    if ((bytes == 2 && w->left < 126) || (bytes == 8 && (w->left < 65536 || w->left >> 63)))
        return -WS_PROTOCOL_ERROR;      /* not the shortest form */
    if (is_masked)
        memcpy(w->mask, w->header + 2 + bytes, 4);
    w->mask_at = 0;
    w->in_payload = true;
    w->n_control = 0;
    if (!is_control && w->left > w->max_bytes - w->size)
        return -WS_TOO_BIG;
    if (!is_control && w->opcode != WS_CONTINUATION)
        w->message_opcode = w->opcode;
    return 0;
}

/* Grows as bytes arrive: a size in a frame's header costs nothing yet. */
static int reserve(struct wsreader *w, size_t more)
{
    if (w->room - w->size > more)
        return 0;
    size_t room = w->room ? w->room : 256;
    while (room - w->size <= more)
        room *= 2;
    char *grown = realloc(w->message, room);
    if (!grown)
        return -WS_INTERNAL;
    w->message = grown;
    w->room = room;
    return 0;
}

static void unmask(struct wsreader *w, char *to, const uint8_t *from, size_t n)
{
    if (w->is_client)
        memcpy(to, from, n);
    else
        wsframe_mask(to, from, n, w->mask, w->mask_at);
    w->mask_at = (uint32_t)(w->mask_at + n) & 3;
}

static int take_payload(struct wsreader *w, const uint8_t *in, size_t n)
{
    if (w->opcode & 0x08) {
        unmask(w, w->control + w->n_control, in, n);
        w->n_control = (uint8_t)(w->n_control + n);
    } else {
        int r = reserve(w, n);
        if (r < 0)
            return r;
        unmask(w, w->message + w->size, in, n);
        w->size += n;
    }
    w->left -= n;
    return 0;
}

/* The end of a frame. Returns an opcode if it completes a message or a control frame, else 0. */
static int end_frame(struct wsreader *w, const char **ret_data, size_t *ret_size)
{
    w->in_payload = false;
    w->n_header = 0;
    if (w->opcode & 0x08) {
        w->control[w->n_control] = 0;
        *ret_data = w->control;
        *ret_size = w->n_control;
        return w->opcode;
    }
    if (!w->fin)
        return 0;
    int opcode = w->message_opcode, r = reserve(w, 0);
    if (r < 0)
        return r;
    w->message[w->size] = 0;
    if (opcode == WS_TEXT && !w->any_text && !wsframe_is_utf8(w->message, w->size))
        return -WS_BAD_DATA;
    *ret_data = w->message;
    *ret_size = w->size;
    w->message_opcode = 0;
    w->size = 0;
    return opcode;
}

int wsreader_take(struct wsreader *w, const uint8_t *in, size_t in_size, size_t *ret_taken,
                  const char **ret_data, size_t *ret_size)
{
    size_t taken = 0;
    int r = 0;
    if (w->size == 0 && w->room > KEEP_BYTES) {
        free(w->message);
        w->message = NULL;
        w->room = 0;
    }
    while (r == 0) {
        if (!w->in_payload) {
            while (w->n_header < header_size(w) && taken < in_size)
                w->header[w->n_header++] = in[taken++];
            if (w->n_header < 2 || w->n_header < header_size(w))
                break;
            r = judge_header(w);
            continue;
        }
        size_t n = in_size - taken < w->left ? in_size - taken : (size_t)w->left;
        r = n ? take_payload(w, in + taken, n) : 0;
        taken += n;
        if (w->left || r < 0)
            break;
        r = end_frame(w, ret_data, ret_size);
    }
    *ret_taken = taken;
    return r;
}

void wsreader_done(struct wsreader *w)
{
    free(w->message);
    w->message = NULL;
    w->room = w->size = 0;
}
