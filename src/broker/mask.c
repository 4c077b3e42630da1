/* The search of Knuth, Morris and Pratt: one pass, and held bytes need no storage, because they are a beginning of the
 * value itself. With several values the output of one search is the input of the next. */
#include "broker/mask.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int mask_value_init(struct mask_value *v, const void *bytes, size_t size)
{
    *v = (struct mask_value){ .bytes = malloc(size), .size = size, .shorter = calloc(size, sizeof *v->shorter) };
    if (!v->bytes || !v->shorter) {
        free(v->bytes);
        free(v->shorter);
        *v = (struct mask_value){ 0 };
        return -ENOMEM;
    }
    memcpy(v->bytes, bytes, size);
    for (size_t i = 1, n = 0; i < size; i++) {
        while (n > 0 && v->bytes[i] != v->bytes[n])
            n = v->shorter[n - 1];
        n += v->bytes[i] == v->bytes[n];
        v->shorter[i] = (uint16_t)n;
    }
    return 0;
}

void mask_value_done(struct mask_value *v)
{
    if (v->bytes)
        explicit_bzero(v->bytes, v->size);
    if (v->shorter)
        explicit_bzero(v->shorter, v->size * sizeof *v->shorter);
    free(v->bytes);
    free(v->shorter);
    *v = (struct mask_value){ 0 };
}

void mask_init(struct mask *m)
{
    *m = (struct mask){ 0 };
}

void mask_add(struct mask *m, const struct mask_value *value)
{
    size_t at = m->n;

    if (at == MASK_VALUES)
        return;
    for (; at > 0 && m->value[at - 1]->size < value->size; at--)
        m->value[at] = m->value[at - 1];
    m->value[at] = value;
    m->n++;
}

static void feed_from(struct mask *m, size_t which, const uint8_t *data, size_t size, struct buf *out);

/* Bytes that are no part of this value go on to the next one. */
static void pass(struct mask *m, size_t which, const void *data, size_t size, struct buf *out)
{
    if (size > 0)
        feed_from(m, which + 1, data, size, out);
}

static void pass_stars(struct mask *m, size_t which, size_t size, struct buf *out)
{
    char stars[256];

    memset(stars, '*', sizeof stars);
    for (size_t n; size > 0; size -= n) {
        n = size < sizeof stars ? size : sizeof stars;
        pass(m, which, stars, n, out);
    }
}

static void feed_from(struct mask *m, size_t which, const uint8_t *data, size_t size, struct buf *out)
{
    if (which == m->n) {
        buf_add(out, data, size);
        return;
    }
    const struct mask_value *v = m->value[which];
    size_t at = 0, n = m->matched[which];

    while (at < size) {
        if (n == 0) {
            const uint8_t *first = memchr(data + at, v->bytes[0], size - at);
            size_t plain = first ? (size_t)(first - data) - at : size - at;
            pass(m, which, data + at, plain, out);
            at += plain;
            if (!first)
                break;
            n = 1;
            at++;
        } else if (data[at] == v->bytes[n]) {
            n++;
            at++;
        } else {
            size_t less = v->shorter[n - 1];
            pass(m, which, v->bytes, n - less, out);
            n = less;
            continue;
        }
        if (n == v->size) {
            pass_stars(m, which, n, out);
            n = 0;
        }
    }
    m->matched[which] = n;
}

void mask_feed(struct mask *m, const void *data, size_t size, struct buf *out)
{
    feed_from(m, 0, data, size, out);
}

void mask_end(struct mask *m, struct buf *out)
{
    for (size_t i = 0; i < m->n; i++) {
        size_t held = m->matched[i];
        m->matched[i] = 0;
        pass(m, i, m->value[i]->bytes, held, out);
    }
}
