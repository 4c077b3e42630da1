/* A bump allocator. It first uses the owner's own storage, so that a small request needs no malloc; then heap blocks of
 * at least BLOCK_BYTES, which are chained so that they can be freed. */
#include "base/arena.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_BYTES 4096
#define ALIGNMENT   _Alignof(max_align_t)

struct arena_block {
    struct arena_block *next;
    _Alignas(max_align_t) char data[];
};

void arena_init(struct arena *a, void *first, size_t first_size)
{
    a->blocks = NULL;
    a->first = a->at = first;
    a->first_end = a->end = first ? (char *)first + first_size : NULL;
}

void arena_reset(struct arena *a)
{
    while (a->blocks) {
        struct arena_block *next = a->blocks->next;
        free(a->blocks);
        a->blocks = next;
    }
    a->at = a->first;
    a->end = a->first_end;
}

void *arena_alloc(struct arena *a, size_t size)
{
    if (size > SIZE_MAX / 2)
        return NULL;
    size_t pad = -(uintptr_t)a->at & (ALIGNMENT - 1);
    if (!a->at || pad + size > (size_t)(a->end - a->at)) {
        size_t room = size > BLOCK_BYTES ? size : BLOCK_BYTES;
        struct arena_block *block = malloc(sizeof *block + room);
        if (!block)
            return NULL;
        block->next = a->blocks;
        a->blocks = block;
        a->at = block->data;
        a->end = block->data + room;
        pad = 0;
    }
    char *found = a->at + pad;
    a->at = found + size;
    return found;
}

char *arena_copy(struct arena *a, const void *data, size_t size)
{
    char *copy = size < SIZE_MAX ? arena_alloc(a, size + 1) : NULL;
    if (!copy)
        return NULL;
    if (size)
        memcpy(copy, data, size);
    copy[size] = 0;
    return copy;
}

char *arena_printf(struct arena *a, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int size = vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *text = size < 0 ? NULL : arena_alloc(a, (size_t)size + 1);
    if (text)
        vsnprintf(text, (size_t)size + 1, format, again);
    va_end(again);
    return text;
}
