/* Makes a Python interpreter's objects immortal: from 3.12 on an object whose reference count has one certain value is
 * neither counted nor freed. A child then only writes to what it changes. Without it, calling a function writes to the
 * function, its code, its globals, its constants: each time the page is copied, and afterwards it is as it was.
 *
 * This file knows two things of an object: its first word is the count, the second its type. Python's side checks both,
 * and the value, before it calls (carrel_kernel/immortal.py). All else is asked of the interpreter. */
#define _GNU_SOURCE
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>

#include "zygote.h"

enum { TRAVERSE = 71 };                     /* Py_tp_traverse, of the stable ABI */
enum { FIRST_ROOM = 1 << 16 };
#define IMMORTAL    UINT64_C(0xffffffff)
#define IS_DICT     (1ul << 29)             /* Py_TPFLAGS_DICT_SUBCLASS */

struct object {
    uint64_t count;
    void    *type;
};

struct walk {
    const struct zygote_python *python;
    struct object **found;                  /* marked, their referents not yet */
    size_t n, room, marked;
    bool   is_short;                        /* of memory: some objects stay as they are, which is no harm */
};

typedef int traverse_fn(void *object, int (*visit)(void *, void *), void *data);

static bool has_room(struct walk *w)
{
    if (w->n < w->room)
        return true;
    size_t bytes = w->room * sizeof *w->found;
    void *p = mremap(w->found, bytes, 2 * bytes, MREMAP_MAYMOVE);
    if (p == MAP_FAILED)
        return false;
    w->found = p;
    w->room *= 2;
    return true;
}

static int mark(void *object, void *data)
{
    struct object *o = object;
    struct walk *w = data;

    if (!o || (uint32_t)o->count == IMMORTAL)
        return 0;
    if (!has_room(w)) {
        w->is_short = true;
        return 0;
    }
    o->count = IMMORTAL;
    w->marked++;
    w->found[w->n++] = o;
    return 0;
}

static void mark_referents(struct walk *w, struct object *o)
{
    const struct zygote_python *py = w->python;

    if (!py->is_collectable(o))
        return;
    uintptr_t slot = (uintptr_t)py->slot(o->type, TRAVERSE);
    if (slot)
        (void)((traverse_fn *)slot)(o, mark, w);
    if (py->flags(o->type) & IS_DICT) {     /* its own function leaves out keys that are text */
        void *key, *value;
        for (ptrdiff_t at = 0; py->next(o, &at, &key, &value);)
            (void)mark(key, w);
    }
}

long zygote_make_immortal(const struct zygote_python *python, void *const *roots, size_t n)
{
    struct walk w = { .python = python, .room = FIRST_ROOM };

    w.found = mmap(NULL, w.room * sizeof *w.found, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (w.found == MAP_FAILED)
        return -1;
    for (size_t i = 0; i < n; i++) {
        (void)mark(roots[i], &w);
        while (w.n > 0)
            mark_referents(&w, w.found[--w.n]);
    }
    (void)munmap(w.found, w.room * sizeof *w.found);
    return w.is_short ? -1 : (long)w.marked;
}
