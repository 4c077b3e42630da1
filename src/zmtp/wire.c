#define _GNU_SOURCE
#include "zmtp/wire.h"

#include <endian.h>
#include <errno.h>
#include <stdint.h>
#include <string.h>

static const char delimiter[] = "<IDS|MSG>";

static bool is_delimiter(const struct iovec *part)
{
    return part->iov_len == sizeof delimiter - 1 && memcmp(part->iov_base, delimiter, part->iov_len) == 0;
}

/* Constant time, whether the signature is right or wrong. */
static bool is_signed(const struct wire_key *key, const struct wire *w, const struct iovec *signature)
{
    char right[HMAC_HEX + 1];
    unsigned difference = 0;

    if (key->size == 0)
        return true;
    if (signature->iov_len != HMAC_HEX)
        return false;
    hmac_hex(key->text, key->size, w->part, KERNEL_PARTS, right);
    for (size_t i = 0; i < HMAC_HEX; i++)
        difference |= (unsigned)(right[i] ^ ((const char *)signature->iov_base)[i]);
    return difference == 0;
}

int wire_from_zmq(const struct wire_key *key, const struct iovec *part, size_t n, struct wire *ret)
{
    size_t at = 0;

    while (at < n && !is_delimiter(&part[at]))
        at++;
    if (n - at < 2 + KERNEL_PARTS)
        return -EPROTO;
    ret->channel = KERNEL_CHANNELS;
    ret->n_idents = at;
    memcpy(ret->ident, part, at * sizeof *part);
    memcpy(ret->part, part + at + 2, sizeof ret->part);
    ret->n_buffers = n - at - 2 - KERNEL_PARTS;
    memcpy(ret->buffer, part + at + 2 + KERNEL_PARTS, ret->n_buffers * sizeof *part);
    return is_signed(key, ret, &part[at + 1]) ? 0 : -EPERM;
}

int wire_to_zmq(const struct wire_key *key, const struct wire *w, char signature[HMAC_HEX + 1],
                struct iovec ret[ZMTP_PARTS])
{
    size_t n = 0;

    if (w->n_idents + 2 + KERNEL_PARTS + w->n_buffers > ZMTP_PARTS)
        return -EMSGSIZE;
    signature[0] = '\0';
    if (key->size)
        hmac_hex(key->text, key->size, w->part, KERNEL_PARTS, signature);
    for (size_t i = 0; i < w->n_idents; i++)
        ret[n++] = w->ident[i];
    ret[n++] = (struct iovec){ (void *)(uintptr_t)delimiter, sizeof delimiter - 1 };
    ret[n++] = (struct iovec){ signature, strlen(signature) };
    for (size_t i = 0; i < KERNEL_PARTS; i++)
        ret[n++] = w->part[i];
    for (size_t i = 0; i < w->n_buffers; i++)
        ret[n++] = w->buffer[i];
    return (int)n;
}

/* ---- v1: the number of offsets, the offsets, then the parts between them ---- */

static uint64_t number_at(const uint8_t *data, size_t index)
{
    uint64_t value;

    memcpy(&value, data + 8 * index, sizeof value);
    return le64toh(value);
}

int wire_from_v1(const void *data, size_t size, struct wire *ret)
{
    const uint8_t *bytes = data;

    if (size < 8)
        return -EPROTO;
    uint64_t n = number_at(bytes, 0);
    if (n < KERNEL_OFFSETS_LEAST || n > KERNEL_OFFSETS_LEAST + ZMTP_PARTS - 8 || size < 8 * (n + 1))
        return -EPROTO;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t offset = number_at(bytes, i + 1), before = i ? number_at(bytes, i) : 8 * (n + 1);
        if (offset < before || offset > size || (i == 0 && offset != before) || (i == n - 1 && offset != size))
            return -EPROTO;
    }
    *ret = (struct wire){ .n_buffers = n - KERNEL_OFFSETS_LEAST };
    for (uint64_t i = 0; i + 1 < n; i++) {
        uint64_t begin = number_at(bytes, i + 1), end = number_at(bytes, i + 2);
        struct iovec piece = { (void *)(uintptr_t)(bytes + begin), end - begin };
        if (i == 0) {
            ret->channel = kernel_channel_find(piece.iov_base, piece.iov_len);
            if (ret->channel == KERNEL_CHANNELS)
                return -EPROTO;
        } else if (i <= KERNEL_PARTS) {
            ret->part[i - 1] = piece;
        } else {
            ret->buffer[i - 1 - KERNEL_PARTS] = piece;
        }
    }
    return 0;
}

static void add_number(struct buf *out, uint64_t value)
{
    value = htole64(value);
    buf_add(out, &value, sizeof value);
}

void wire_to_v1(const struct wire *w, enum kernel_channel channel, struct buf *out)
{
    const char *name = kernel_channel_name(channel);
    uint64_t n = KERNEL_OFFSETS_LEAST + w->n_buffers, at = 8 * (n + 1);

    add_number(out, n);
    add_number(out, at);
    add_number(out, at += strlen(name));
    for (size_t i = 0; i < KERNEL_PARTS; i++)
        add_number(out, at += w->part[i].iov_len);
    for (size_t i = 0; i < w->n_buffers; i++)
        add_number(out, at += w->buffer[i].iov_len);
    buf_add_text(out, name);
    for (size_t i = 0; i < KERNEL_PARTS; i++)
        buf_add(out, w->part[i].iov_base, w->part[i].iov_len);
    for (size_t i = 0; i < w->n_buffers; i++)
        buf_add(out, w->buffer[i].iov_base, w->buffer[i].iov_len);
}
