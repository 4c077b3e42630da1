/* Puts objects that every child will write to, if only to count references, side by side, so that they share pages: a
 * child copies these and not one page for each.
 *
 * This file wraps the interpreter's object allocator. While it gathers, allocations come from its own region;
 * afterwards only frees go through it, and objects in the region are never freed: they are few, and live as long as the
 * zygote. */
#define _GNU_SOURCE
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include "zygote.h"

enum { ALIGN = 16, CLASSES = 256, NEAR = 8 };
#define PLACE_BYTES ((size_t)4 << 20)

struct block {                  /* before each object; the rest is used while it is free */
    size_t        size;         /* without this header */
    struct block *next;
};

static struct zygote_allocator before;
static char                   *place, *next;
static struct block           *freed[CLASSES];
static bool                    is_gathering;

static bool is_here(const void *p)
{
    return (uintptr_t)p - (uintptr_t)place < PLACE_BYTES;
}

/* NULL if there is no room. */
static void *take(size_t size)
{
    size_t rounded = (size + ALIGN - 1) & ~(size_t)(ALIGN - 1), class = rounded / ALIGN;

    if (!rounded || class >= CLASSES)
        return NULL;
    for (size_t i = class; i < CLASSES && i <= class + NEAR; i++)
        if (freed[i]) {
            struct block *b = freed[i];
            freed[i] = b->next;
            return (char *)b + ALIGN;
        }
    if (rounded + ALIGN > (size_t)(place + PLACE_BYTES - next))
        return NULL;
    struct block *b = (void *)next;
    next += rounded + ALIGN;
    b->size = rounded;
    return (char *)b + ALIGN;
}

static void *get(void *context, size_t size)
{
    void *p = is_gathering ? take(size) : NULL;
    return p ? p : before.malloc(context, size);
}

static void *get_clear(void *context, size_t n, size_t size)
{
    size_t all;
    void *p = is_gathering && !__builtin_mul_overflow(n, size, &all) ? take(all) : NULL;
    return p ? memset(p, 0, all) : before.calloc(context, n, size);
}

static void give(void *context, void *p)
{
    if (!is_here(p)) {
        before.free(context, p);
    } else if (is_gathering) {
        struct block *b = (void *)((char *)p - ALIGN);
        b->next = freed[b->size / ALIGN];
        freed[b->size / ALIGN] = b;
    }
}

static void *change(void *context, void *p, size_t size)
{
    if (!is_here(p))
        return before.realloc(context, p, size);
    const struct block *b = (void *)((char *)p - ALIGN);
    if (size <= b->size)
        return p;
    void *q = get(context, size);
    if (q) {
        memcpy(q, p, b->size);
        give(context, p);
    }
    return q;
}

int zygote_gather(struct zygote_allocator *allocator)
{
    if (!place) {
        void *p = mmap(NULL, PLACE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED)
            return -1;
        place = next = p;
        before = *allocator;
    }
    is_gathering = true;
    *allocator = (struct zygote_allocator){ before.context, get, get_clear, change, give };
    return 0;
}

void zygote_gathered(struct zygote_allocator *allocator)
{
    is_gathering = false;
    allocator->malloc = before.malloc;
    allocator->calloc = before.calloc;
}
