/* The search takes the same time for all texts, or the speed of a long answer would tell how much of a guess is right:
 * at each place it compares a word with the end of the value, and only where that is equal the whole value, without
 * stopping at a difference. So time tells of eight characters at once, and then of all of them. (A search that skips,
 * or that goes on in the value as long as the text fits, is hundreds of times faster for one text than for another.)
 *
 * The search reads the bytes as they came, with as many earlier ones as a value may begin in. Those that were not
 * passed on yet are kept a second time, masked. */
#include "broker/mask.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK_BYTES = 4096 };

int mask_value_init(struct mask_value *v, const void *bytes, size_t size)
{
    size_t n = size < sizeof v->end ? size : sizeof v->end;
    uint8_t end[sizeof v->end] = { 0 }, counts[sizeof v->counts] = { 0 };

    *v = (struct mask_value){ .bytes = malloc(size), .size = size };
    if (!v->bytes) {
        v->size = 0;
        return -ENOMEM;
    }
    memcpy(v->bytes, bytes, size);
    memcpy(end + sizeof end - n, v->bytes + size - n, n);
    memset(counts + sizeof counts - n, 0xff, n);
    memcpy(&v->end, end, sizeof end);
    memcpy(&v->counts, counts, sizeof counts);
    explicit_bzero(end, sizeof end);
    return 0;
}

void mask_value_done(struct mask_value *v)
{
    if (v->bytes)
        explicit_bzero(v->bytes, v->size);
    free(v->bytes);
    explicit_bzero(v, sizeof *v);
}

void mask_init(struct mask *m)
{
    m->n = m->longest = m->n_seen = m->n_held = 0;
}

void mask_done(struct mask *m)
{
    explicit_bzero(m, sizeof *m);
}

void mask_add(struct mask *m, const struct mask_value *value)
{
    if (m->n == MASK_VALUES)
        return;
    m->value[m->n++] = value;
    if (value->size > m->longest)
        m->longest = value->size;
}

/* Looks at every byte: see above. */
static bool is_equal(const uint8_t *a, const uint8_t *b, size_t size)
{
    uint8_t differences = 0;

    for (size_t i = 0; i < size; i++)
        differences |= a[i] ^ b[i];
    return differences == 0;
}

/* A value that ends in the last n_new bytes of text is covered in the window, which ends where text does. A word before
 * text can be read, too. */
static void cover(const struct mask_value *v, const uint8_t *text, size_t size, size_t n_new, char *window,
                  size_t window_size)
{
    size_t end = size - n_new + 1 > v->size ? size - n_new + 1 : v->size;

    for (; end <= size; end++) {
        uint64_t word;
        memcpy(&word, text + end - sizeof word, sizeof word);
        if (((word ^ v->end) & v->counts) != 0 || !is_equal(text + end - v->size, v->bytes, v->size))
            continue;
        size_t at = window_size - (size - end), back = v->size < at ? v->size : at;
        memset(window + at - back, '*', back);
    }
}

/* At most BLOCK_BYTES, for which out has room. */
static void feed_block(struct mask *m, const char *data, size_t size, struct buf *out)
{
    uint8_t room[sizeof(uint64_t) + MASK_VALUE_MOST + BLOCK_BYTES], *text = room + sizeof(uint64_t);
    size_t n_text = m->n_seen + size, n_window = m->n_held + size, keep = m->longest > 0 ? m->longest - 1 : 0;
    char *window = buf_reserve(out, n_window);

    if (!window)
        return;
    memset(room, 0, sizeof(uint64_t));
    memcpy(text, m->seen, m->n_seen);
    memcpy(text + m->n_seen, data, size);
    memcpy(window, m->held, m->n_held);
    memcpy(window + m->n_held, data, size);
    for (size_t i = 0; i < m->n; i++)
        cover(m->value[i], text, n_text, size, window, n_window);
    m->n_seen = keep < n_text ? keep : n_text;
    memcpy(m->seen, text + n_text - m->n_seen, m->n_seen);
    m->n_held = keep < n_window ? keep : n_window;
    memcpy(m->held, window + n_window - m->n_held, m->n_held);
    buf_commit(out, n_window - m->n_held);
}

void mask_feed(struct mask *m, const void *data, size_t size, struct buf *out)
{
    for (size_t at = 0, n; at < size; at += n) {
        n = size - at < BLOCK_BYTES ? size - at : BLOCK_BYTES;
        feed_block(m, (const char *)data + at, n, out);
    }
}

void mask_release(struct mask *m, struct buf *out)
{
    buf_add(out, m->held, m->n_held);
    m->n_held = 0;
}

void mask_end(struct mask *m, struct buf *out)
{
    mask_release(m, out);
    m->n_seen = 0;
}
