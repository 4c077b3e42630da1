/* WebSocket frames and messages (RFC 6455) of both sides: a client masks its frames, a server does not. Pure: no
 * I/O. */
#ifndef CARREL_HTTP_WSFRAME_H
#define CARREL_HTTP_WSFRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum wsframe_opcode {
    WS_CONTINUATION = 0, WS_TEXT = 1, WS_BINARY = 2, WS_CLOSE = 8, WS_PING = 9, WS_PONG = 10,
};

/* Status codes of a close. */
enum {
    WS_NORMAL = 1000, WS_GOING_AWAY = 1001, WS_PROTOCOL_ERROR = 1002, WS_NO_STATUS = 1005, WS_ABNORMAL = 1006,
    WS_BAD_DATA = 1007, WS_POLICY = 1008, WS_TOO_BIG = 1009, WS_INTERNAL = 1011, WS_TRY_LATER = 1013,
};

#define WSFRAME_HEADER_MAX 14
#define WSFRAME_CONTROL_MAX 125

/* The header of an unmasked frame. Returns its size. */
size_t wsframe_header(uint8_t header[static 10], enum wsframe_opcode opcode, size_t payload_size);

/* The header of a client's frame. Returns its size. */
size_t wsframe_header_masked(uint8_t header[static WSFRAME_HEADER_MAX], enum wsframe_opcode opcode, size_t payload_size,
                             const uint8_t mask[static 4]);
/* Masks or unmasks; from may be to. at: the number of payload bytes before these, modulo 4. */
void wsframe_mask(char *to, const void *from, size_t n, const uint8_t mask[static 4], uint32_t at);

bool wsframe_is_utf8(const char *data, size_t size);

/* Assembles messages from the other side's frames. At the start every field but the first three is zero. */
struct wsreader {
    size_t max_bytes;               /* of a message */
    bool   any_text;                /* text need not be UTF-8 */
    bool   is_client;               /* we are the client: incoming frames are not masked */
    /* Private: */
    uint8_t  header[WSFRAME_HEADER_MAX], n_header, opcode, message_opcode;
    bool     in_payload, fin;
    uint64_t left;                  /* of the frame's payload */
    uint32_t mask_at;
    uint8_t  mask[4];
    char    *message;
    size_t   size, room;
    char     control[WSFRAME_CONTROL_MAX + 1];
    uint8_t  n_control;
};

/* Takes bytes up to the end of the first message or control frame among them.
 * Returns its opcode (never WS_CONTINUATION) with data and size, valid until the next call; 0 if more bytes are needed;
 * a negated close status if the connection must end: WS_PROTOCOL_ERROR, WS_BAD_DATA, WS_TOO_BIG, WS_INTERNAL. */
int wsreader_take(struct wsreader *w, const uint8_t *in, size_t in_size, size_t *ret_taken,
                  const char **ret_data, size_t *ret_size) MUST_CHECK;

void wsreader_done(struct wsreader *w);

/* Reads a close frame. Returns its code (WS_NO_STATUS if empty) or -WS_PROTOCOL_ERROR, -WS_BAD_DATA. */
int wsframe_close_code(const char *data, size_t size) MUST_CHECK;

#endif
