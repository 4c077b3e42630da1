/* A growing buffer with an upper bound. A failure is remembered, so that a writer checks once, at the end. */
#ifndef CARREL_BASE_BUF_H
#define CARREL_BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

struct buf {
    char  *data;        /* owned unless fixed; always NUL-terminated once something was added */
    size_t length;
    size_t capacity;
    size_t limit;       /* length never exceeds it */
    int    failure;     /* first error as a positive errno, or 0; later additions do nothing */
    bool   fixed;       /* data is the caller's */
};

/* An empty buffer that takes at most limit bytes. Nothing is allocated yet. */
void buf_init(struct buf *b, size_t limit);
/* An empty buffer in the caller's storage, for size - 1 bytes and a NUL. */
void buf_init_fixed(struct buf *b, char *storage, size_t size);
void buf_done(struct buf *b);
/* Forgets the contents and the failure, keeps the storage. */
void buf_clear(struct buf *b);

/* All or nothing: data that does not fit below the limit gives EFBIG and leaves the contents as they were. */
void buf_add(struct buf *b, const void *data, size_t size);
void buf_add_char(struct buf *b, char c);
void buf_add_text(struct buf *b, const char *text);
void buf_printf(struct buf *b, const char *format, ...) PRINTF_LIKE(2, 3);

/* Room for size more bytes at the end, or NULL; buf_commit says how many of them were used. */
char *buf_reserve(struct buf *b, size_t size);
void buf_commit(struct buf *b, size_t size);

/* The contents as a string, "" if there are none. Valid until the next addition. */
const char *buf_string(const struct buf *b);

/* 0 or -errno of the first failure. */
MUST_CHECK int buf_error(const struct buf *b);

#endif
