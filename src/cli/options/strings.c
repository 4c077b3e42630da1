#include "cli/options/strings.h"

#include <stdalign.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK_BYTES = 8192 };

struct pool_chunk {
    alignas(max_align_t) struct pool_chunk *previous;
    alignas(max_align_t) char data[];
};

void *pool_alloc(struct pool *pool, size_t size)
{
    const size_t unit = alignof(max_align_t);

    if (size > SIZE_MAX / 2)
        return NULL;
    size = size ? (size + unit - 1) / unit * unit : unit; /* even nothing has an address of its own */
    if (size > pool->left) {
        size_t room = size > CHUNK_BYTES ? size : CHUNK_BYTES;
        struct pool_chunk *chunk = malloc(sizeof *chunk + room);
        if (!chunk)
            return NULL;
        chunk->previous = pool->chunks;
        pool->chunks = chunk;
        pool->next = chunk->data;
        pool->left = room;
    }
    char *data = pool->next;
    pool->next += size;
    pool->left -= size;
    memset(data, 0, size);
    return data;
}

char *pool_copy(struct pool *pool, const char *data, size_t size)
{
    char *copy = size < SIZE_MAX ? pool_alloc(pool, size + 1) : NULL;

    if (copy && size)
        memcpy(copy, data, size);
    return copy;
}

void pool_done(struct pool *pool)
{
    for (struct pool_chunk *chunk = pool->chunks, *previous; chunk; chunk = previous) {
        previous = chunk->previous;
        free(chunk);
    }
    *pool = (struct pool){ 0 };
}
