#include "base/buf.h"

#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void buf_init(struct buf *b, size_t limit)
{
    *b = (struct buf){ .limit = limit < SIZE_MAX / 4 ? limit : SIZE_MAX / 4 };
}

void buf_init_fixed(struct buf *b, char *storage, size_t size)
{
    *b = (struct buf){ .data = storage, .capacity = size, .limit = size ? size - 1 : 0, .fixed = true };
    if (size)
        storage[0] = 0;
    else
        b->failure = EFBIG;
}

void buf_done(struct buf *b)
{
    if (!b->fixed)
        free(b->data);
    *b = (struct buf){ 0 };
}

void buf_clear(struct buf *b)
{
    b->length = 0;
    b->failure = b->fixed && !b->capacity ? EFBIG : 0;
    if (b->capacity)
        b->data[0] = 0;
}

char *buf_reserve(struct buf *b, size_t size)
{
    if (b->failure)
        return NULL;
    if (size > b->limit - b->length) {
        b->failure = EFBIG;
        return NULL;
    }
    size_t wanted = b->length + size + 1;
    if (wanted > b->capacity) { /* never in a fixed buffer: its limit is its capacity less one */
        size_t capacity = b->capacity ? b->capacity : 64;
        while (capacity < wanted)
            capacity *= 2;
        if (capacity > b->limit + 1)
            capacity = b->limit + 1;
        char *data = realloc(b->data, capacity);
        if (!data) {
            b->failure = ENOMEM;
            return NULL;
        }
        b->data = data;
        b->capacity = capacity;
        b->data[b->length] = 0;
    }
    return b->data + b->length;
}

void buf_commit(struct buf *b, size_t size)
{
    b->length += size;
    b->data[b->length] = 0;
}

void buf_add(struct buf *b, const void *data, size_t size)
{
    char *to = buf_reserve(b, size);

    if (!to)
        return;
    if (size)
        memcpy(to, data, size);
    buf_commit(b, size);
}

void buf_add_char(struct buf *b, char c)
{
    buf_add(b, &c, 1);
}

void buf_add_text(struct buf *b, const char *text)
{
    buf_add(b, text, strlen(text));
}

void buf_printf(struct buf *b, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (n < 0) {
        if (!b->failure)
            b->failure = EOVERFLOW;
        return;
    }
    char *to = buf_reserve(b, (size_t)n);
    if (!to)
        return;
    va_start(args, format);
    vsnprintf(to, (size_t)n + 1, format, args);
    va_end(args);
    buf_commit(b, (size_t)n);
}

const char *buf_string(const struct buf *b)
{
    return b->capacity ? b->data : "";
}

int buf_error(const struct buf *b)
{
    return -b->failure;
}
