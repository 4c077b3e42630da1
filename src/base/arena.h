/* Memory that is freed all at once, for example that of a request or of a command line. A zeroed arena is empty. */
#ifndef CARREL_BASE_ARENA_H
#define CARREL_BASE_ARENA_H

#include <stddef.h>

#include "base/err.h"

struct arena_block;

struct arena {
    char *at, *end;             /* the free part of the present block */
    char *first, *first_end;    /* storage of the owner, used before the heap */
    struct arena_block *blocks;
};

/* first may be NULL; it must outlive the arena. */
void arena_init(struct arena *a, void *first, size_t first_size);

/* Frees everything but first; the arena can be used again. */
void arena_reset(struct arena *a);

/* Aligned for any type; not cleared. NULL when memory is short. */
void *arena_alloc(struct arena *a, size_t size) MUST_CHECK;

/* A copy with a NUL after it. NULL when memory is short. */
char *arena_copy(struct arena *a, const void *data, size_t size) MUST_CHECK;

char *arena_printf(struct arena *a, const char *format, ...) PRINTF_LIKE(2, 3) MUST_CHECK;

#endif
