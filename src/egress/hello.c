/* TLS records are parsed byte by byte, so that fragments and records of one byte make no difference.
 *
 * The first ClientHello may not be the last: a server can request a second one (HelloRetryRequest), and OpenSSL takes
 * the server name from that. So one change of cipher and early data, which may stand between the two, are skipped, and
 * a second ClientHello is checked like the first. Anything else ends the inspection. Renegotiation is encrypted and
 * cannot be seen; today's servers refuse it. */
#include "egress/hello.h"

#include <string.h>

enum { START, HEAD, BODY };

enum {
    CHANGE_CIPHER = 0x14,
    ALERT = 0x15,
    HANDSHAKE = 0x16,
    DATA = 0x17,
    HEARTBEAT = 0x18,
    CLIENT_HELLO = 1,
    RECORD_MOST = 16384 + 256,
    MESSAGE_MOST = 16384,           /* real ones have 2 KiB, also with post-quantum keys */
    EARLY_MOST = 16384 + 4096,      /* OpenSSL skips 16 KiB of early data at most, unless configured otherwise */
    SERVER_NAME = 0,
    EARLY_DATA = 42,
};

struct slice {
    const uint8_t *at;
    size_t         left;
};

/* Reads a vector after a length of `wide` bytes; false if it does not fit. */
static bool take_vector(struct slice *from, unsigned wide, struct slice *ret)
{
    size_t length = 0;

    if (from->left < wide)
        return false;
    for (unsigned i = 0; i < wide; i++)
        length = length << 8 | from->at[i];
    if (from->left - wide < length)
        return false;
    *ret = (struct slice){ from->at + wide, length };
    from->at += wide + length;
    from->left -= wide + length;
    return true;
}

static bool skip(struct slice *from, size_t n)
{
    if (from->left < n)
        return false;
    from->at += n;
    from->left -= n;
    return true;
}

/* The list of exactly one host name. */
static bool read_server_name(struct slice extension, char ret[NET_NAME_SIZE])
{
    struct slice list, name;

    return take_vector(&extension, 2, &list) && extension.left == 0 && list.left > 0 && list.at[0] == 0 &&
           skip(&list, 1) && take_vector(&list, 2, &name) && list.left == 0 &&
           net_name_clean((const char *)name.at, name.left, ret);
}

static enum hello_verdict check_client_hello(struct hello *h, const char *name, struct slice body)
{
    struct slice ignored, extensions = { NULL, 0 }, extension;
    bool is_named = false;

    h->other[0] = '\0';
    if (!skip(&body, 2 + 32) || !take_vector(&body, 1, &ignored) || !take_vector(&body, 2, &ignored) ||
        !take_vector(&body, 1, &ignored))
        return HELLO_WRONG;
    if (body.left > 0 && (!take_vector(&body, 2, &extensions) || body.left > 0))
        return HELLO_WRONG;
    while (extensions.left > 0) {
        if (extensions.left < 2)
            return HELLO_WRONG;
        unsigned type = (unsigned)(extensions.at[0] << 8 | extensions.at[1]);
        if (!skip(&extensions, 2) || !take_vector(&extensions, 2, &extension))
            return HELLO_WRONG;
        if (type == EARLY_DATA)
            h->sends_early = true;
        if (type != SERVER_NAME)
            continue;
        if (is_named || !read_server_name(extension, h->other))
            return HELLO_WRONG;
        is_named = true;
    }
    return is_named && strcmp(h->other, name) == 0 ? HELLO_SO_FAR : HELLO_OTHER;
}

/* Bytes of handshake messages. The first message must be a ClientHello and end with its record: no valid client sends
 * more in that record. */
static enum hello_verdict feed_message(struct hello *h, const char *name, const uint8_t *data, size_t size)
{
    if (h->message.limit == 0)
        buf_init(&h->message, MESSAGE_MOST);
    buf_add(&h->message, data, size);
    if (buf_error(&h->message) < 0)
        return HELLO_WRONG;
    const uint8_t *m = (const uint8_t *)h->message.data;
    if (m[0] != CLIENT_HELLO)
        return h->checked ? HELLO_PASS : HELLO_WRONG;
    if (h->message.length < 4)
        return HELLO_MORE;
    size_t length = (size_t)m[1] << 16 | (size_t)(m[2] << 8 | m[3]);
    /* An encrypted message of TLS 1.2 may by chance begin like a ClientHello; one that claims such a size is no
     * ClientHello. */
    if (length > MESSAGE_MOST - 4)
        return h->checked ? HELLO_PASS : HELLO_WRONG;
    if (h->message.length < length + 4)
        return HELLO_MORE;
    if (h->message.length > length + 4 || size < h->left)
        return HELLO_WRONG;
    enum hello_verdict verdict = check_client_hello(h, name, (struct slice){ m + 4, length });
    if (verdict == HELLO_SO_FAR && h->checked)
        verdict = HELLO_PASS;
    h->checked = true;
    buf_clear(&h->message);
    return verdict;
}

static enum hello_verdict feed_start(struct hello *h, uint8_t byte)
{
    h->head[h->n_head++] = byte;
    if (h->n_head == 1)
        return byte >= CHANGE_CIPHER && byte <= HEARTBEAT ? HELLO_MORE : HELLO_PASS;
    if (byte != 3)
        return HELLO_PASS;
    /* Servers ignore alerts before a ClientHello. */
    if (h->head[0] != HANDSHAKE)
        return HELLO_WRONG;
    h->stage = HEAD;
    return HELLO_MORE;
}

/* A record's head is complete. */
static enum hello_verdict begin_record(struct hello *h)
{
    h->left = (uint16_t)(h->head[3] << 8 | h->head[4]);
    h->n_head = 0;
    h->stage = BODY;
    if (h->head[1] != 3 || h->left == 0 || h->left > RECORD_MOST)
        return HELLO_WRONG;
    if (h->head[0] == HANDSHAKE)
        return HELLO_MORE;
    if (!h->checked || h->message.length > 0)
        return HELLO_WRONG;
    if (h->head[0] == CHANGE_CIPHER && h->left == 1)
        return HELLO_MORE;
    return h->head[0] == DATA && h->sends_early && h->early < EARLY_MOST ? HELLO_SO_FAR : HELLO_PASS;
}

static enum hello_verdict feed_body(struct hello *h, const char *name, const uint8_t *data, size_t size)
{
    if (h->head[0] == HANDSHAKE)
        return feed_message(h, name, data, size);
    if (h->head[0] == DATA)
        h->early += (uint32_t)size;
    return h->head[0] == DATA ? HELLO_SO_FAR : HELLO_MORE;
}

enum hello_verdict hello_feed(struct hello *h, const char *name, const uint8_t *data, size_t size)
{
    enum hello_verdict verdict = HELLO_MORE;

    while (size > 0) {
        size_t n = 1;
        if (h->stage == START) {
            verdict = feed_start(h, data[0]);
        } else if (h->stage == HEAD) {
            h->head[h->n_head++] = data[0];
            verdict = h->n_head < sizeof h->head ? HELLO_MORE : begin_record(h);
        } else {
            n = size < h->left ? size : h->left;
            verdict = feed_body(h, name, data, n);
            h->left = (uint16_t)(h->left - n);
            if (h->left == 0)
                h->stage = HEAD;
        }
        if (verdict > HELLO_SO_FAR)
            return verdict;
        data += n;
        size -= n;
    }
    return verdict;
}

void hello_done(struct hello *h)
{
    buf_done(&h->message);
}
