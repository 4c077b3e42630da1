/* WebSocket frames: the same messages whole and in pieces, within bounds. The first byte gives the size of the pieces
 * and the reading side. */
#include <stdlib.h>
#include <string.h>

#include "http/wsframe.h"

#define MESSAGE_MAX 1000

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool fine)
{
    if (!fine)
        abort();
}

/* A hash over everything that came out. */
static uint64_t read_all(const uint8_t *data, size_t size, size_t step, bool role)
{
    struct wsreader w = { .max_bytes = MESSAGE_MAX, .is_client = role };
    uint64_t hash = 1469598103934665603u;
    for (size_t at = 0; at < size;) {
        size_t n = size - at < step ? size - at : step, taken = 0, got = 0;
        const char *message = NULL;
        uint8_t *piece = malloc(n);
        memcpy(piece, data + at, n);
        int r = wsreader_take(&w, piece, n, &taken, &message, &got);
        free(piece);
        check(taken <= n && (taken || r));
        at += taken;
        if (r) {
            hash = (hash ^ (uint64_t)(uint32_t)r) * 1099511628211u;
            hash = (hash ^ (r < 0 ? 0 : got)) * 1099511628211u;
        }
        if (r < 0)
            break;
        check(r == 0 || r == WS_TEXT || r == WS_BINARY || r == WS_CLOSE || r == WS_PING || r == WS_PONG);
        if (r > 0) {
            check(got <= (r & 8 ? WSFRAME_CONTROL_MAX : MESSAGE_MAX) && message[got] == 0);
            check(r != WS_TEXT || wsframe_is_utf8(message, got));
            for (size_t i = 0; i < got; i++)
                hash = (hash ^ (uint8_t)message[i]) * 1099511628211u;
        }
        if (r == WS_CLOSE && wsframe_close_code(message, got) > 0)
            hash++;
    }
    wsreader_done(&w);
    return hash;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    bool role = data[0] & 0x80;         /* the reading side: a server, or a client */
    check(read_all(data + 1, size - 1, size, role) == read_all(data + 1, size - 1, (size_t)(data[0] & 0x7f) + 1, role));
    return 0;
}
