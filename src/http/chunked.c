/* The chunked coding.
 *
 *   SIZE ─ hex digits ─ ";" EXT ─ CR LF ─┬─ DATA ─ CR LF ─→ SIZE
 *                                        └─ size 0 ─→ TRAILER lines ─ CR LF ─→ DONE
 *
 * Framing goes byte by byte, data by memcpy. Trailer fields are checked and dropped. */
#include "http/parse.h"

#include <errno.h>
#include <string.h>

#include "http/chars.h"

enum {
    SIZE, EXT, SIZE_LF, DATA, DATA_CR, DATA_LF,
    TRAILER, TRAILER_NAME, TRAILER_VALUE, TRAILER_LF, LAST_LF, DONE
};

static int refuse(struct http_chunked *c, enum http_fault f)
{
    c->fault = f;
    return -EBADMSG;
}

static int step_size(struct http_chunked *c, char byte)
{
    int digit = char_hex(byte);
    if (digit >= 0) {
        if (++c->digits > 15)       /* 60 bits: no overflow, whatever the digits */
            return refuse(c, HTTP_BAD_CHUNK_SIZE);
        c->left = c->left << 4 | (unsigned)digit;
        return 0;
    }
    if (!c->digits || (byte != ';' && byte != '\r'))
        return refuse(c, byte == '\n' && c->digits ? HTTP_BARE_LF : HTTP_BAD_CHUNK_SIZE);
    c->n_ext = 0;
    c->state = byte == ';' ? EXT : SIZE_LF;
    return 0;
}

static int step_ext(struct http_chunked *c, char byte)
{
    if (byte == '\r') {
        c->state = SIZE_LF;
        return 0;
    }
    if (!char_is(byte, CHAR_VALUE))
        return refuse(c, byte == '\n' ? HTTP_BARE_LF : HTTP_BAD_CHUNK_EXT);
    if (++c->n_ext > HTTP_CHUNK_EXT_MAX || ++c->sum_ext > HTTP_CHUNK_EXT_SUM_MAX)
        return refuse(c, HTTP_LONG_CHUNK_EXT);
    return 0;
}

static int step_trailer(struct http_chunked *c, char byte)
{
    if (++c->n_trailer > HTTP_TRAILER_MAX_BYTES)
        return refuse(c, HTTP_LONG_TRAILER);
    switch (c->state) {
    case TRAILER:
        if (byte == '\r') {
            c->state = LAST_LF;
            return 0;
        }
        if (!char_is(byte, CHAR_TOKEN))
            break;
        c->state = TRAILER_NAME;
        return 0;
    case TRAILER_NAME:
        if (byte == ':')
            c->state = TRAILER_VALUE;
        else if (!char_is(byte, CHAR_TOKEN))
            break;
        return 0;
    case TRAILER_VALUE:
        if (byte == '\r')
            c->state = TRAILER_LF;
        else if (!char_is(byte, CHAR_VALUE))
            break;
        return 0;
    case TRAILER_LF:
        if (byte != '\n')
            break;
        c->state = TRAILER;
        return 0;
    default:    /* LAST_LF */
        if (byte != '\n')
            break;
        c->state = DONE;
        return 0;
    }
    return refuse(c, HTTP_BAD_TRAILER);
}

static int step(struct http_chunked *c, char byte)
{
    switch (c->state) {
    case SIZE:
        return step_size(c, byte);
    case EXT:
        return step_ext(c, byte);
    case SIZE_LF:
        if (byte != '\n')
            return refuse(c, HTTP_BARE_CR);
        c->state = c->left ? DATA : TRAILER;
        return 0;
    case DATA_CR:
        if (byte != '\r')
            return refuse(c, HTTP_BAD_CHUNK_END);
        c->state = DATA_LF;
        return 0;
    case DATA_LF:
        if (byte != '\n')
            return refuse(c, HTTP_BAD_CHUNK_END);
        c->state = SIZE;
        c->digits = 0;
        c->left = 0;
        return 0;
    default:
        return step_trailer(c, byte);
    }
}

int http_chunked_decode(struct http_chunked *c, const char *in, size_t size, char *out, size_t room,
                        size_t *ret_taken, size_t *ret_put)
{
    size_t taken = 0, put = 0;
    int r = c->fault ? -EBADMSG : 0;
    while (r == 0 && taken < size && c->state != DONE) {
        if (c->state != DATA) {
            r = step(c, in[taken++]);
            continue;
        }
        size_t n = size - taken < room - put ? size - taken : room - put;
        if (n > c->left)
            n = (size_t)c->left;
        if (n == 0)
            break;          /* no room */
        memmove(out + put, in + taken, n);
        taken += n;
        put += n;
        c->left -= n;
        if (c->left == 0)
            c->state = DATA_CR;
    }
    *ret_taken = taken;
    *ret_put = put;
    return r < 0 ? r : c->state == DONE;
}

bool http_chunked_is_between(const struct http_chunked *c)
{
    return c->state == SIZE && c->digits == 0;
}
