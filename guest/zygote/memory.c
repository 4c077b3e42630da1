/* The layout of a zygote's memory. A fork copies its page tables, and a child's end takes them down: with 30,000 small
 * pages that takes longer than everything else. So the interpreter's arenas are put side by side, and when everything
 * is imported they and the heap become huge pages, of which a child has one entry each. A child's first write to one
 * splits its entry, not the page; it still copies 4 KiB.
 *
 * Later arenas, those of children, come from mmap() as usual. Huge pages are only tried: kernels before 6.1, or without
 * them, leave the memory as it is. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "zygote.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

enum { CHUNKS = 256, HEAP_MOST = 1024 };
#define HUGE_BYTES  ((size_t)2 << 20)
#define CHUNK_BYTES ((size_t)16 << 20)

static struct {
    char  *chunk[CHUNKS];
    size_t n;
    char  *next, *end;          /* of the last chunk */
    bool   is_closed;
} arenas;

static void *map(size_t size)
{
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

/* At a huge page's boundary. */
static bool add_chunk(void)
{
    char *p = arenas.n < CHUNKS ? map(CHUNK_BYTES + HUGE_BYTES) : NULL;

    if (!p)
        return false;
    size_t before = -(uintptr_t)p & (HUGE_BYTES - 1);
    if (before)
        (void)munmap(p, before);
    (void)munmap(p + before + CHUNK_BYTES, HUGE_BYTES - before);
    arenas.chunk[arenas.n++] = arenas.next = p + before;
    arenas.end = arenas.next + CHUNK_BYTES;
    return true;
}

void *zygote_arena_alloc(void *unused, size_t size)
{
    (void)unused;
    if (arenas.is_closed || size > CHUNK_BYTES)
        return map(size);
    if ((size_t)(arenas.end - arenas.next) < size && !add_chunk())
        return map(size);
    char *p = arenas.next;
    arenas.next += size;
    return p;
}

void zygote_arena_free(void *unused, void *p, size_t size)
{
    (void)unused;
    (void)munmap(p, size);
}

void zygote_settle_memory(void)
{
    if (arenas.is_closed)
        return;
    arenas.is_closed = true;
    if (arenas.end > arenas.next)
        (void)munmap(arenas.next, (size_t)(arenas.end - arenas.next));
    for (size_t i = 0; i < arenas.n; i++) {
        char *end = i + 1 < arenas.n ? arenas.chunk[i] + CHUNK_BYTES : arenas.next;
        for (char *p = arenas.chunk[i]; p + HUGE_BYTES <= end; p += HUGE_BYTES)
            (void)madvise(p, HUGE_BYTES, MADV_COLLAPSE);
    }
    /* The heap, downwards from its end; below it nothing is mapped. */
    char *top = sbrk(0);
    top -= (uintptr_t)top & (HUGE_BYTES - 1);
    for (int i = 0; i < HEAP_MOST; i++)
        if (madvise(top -= HUGE_BYTES, HUGE_BYTES, MADV_COLLAPSE) < 0 && errno == ENOMEM)
            break;
}
