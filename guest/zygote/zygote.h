/* For a program that becomes a zygote: it imports and warms up, stays single-threaded, and then serves.
 *
 *     struct zygote_child child;
 *     if (zygote_serve(NULL, NULL, &child) < 0)       // returns in children only
 *         exit(1);
 *     zygote_running();                               // or zygote_exec()
 *     ... child.argv, child.env, stdin, stdout, stderr are the command's
 *
 * A child is a sealed payload in a box of its own: other user, other files, other processes, no descriptor of the
 * zygote but 0, 1, 2, which are its own. In all else it is a copy of the zygote, including the state of its random
 * generators; seed is for them. Locks, caches and open files of libraries must survive that, as with fork(); handlers
 * of pthread_atfork() are not called. */
#ifndef CARREL_ZYGOTE_H
#define CARREL_ZYGOTE_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

struct zygote_child {
    int            argc;
    char         **argv, **env;         /* NULL-terminated; live as long as the process */
    unsigned char  seed[32];            /* fresh random bytes, of this child only */
};

/* Forks children on the keeper's requests. warm, if not NULL, is called in a child before it takes its command, so that
 * the pages that it touches are copied already. The command may come meanwhile, so warm should be short. Returns 0 in a
 * child that got its command, and -errno in the zygote if there is no keeper (any more). */
int  zygote_serve(void (*warm)(void *data), void *data, struct zygote_child *ret);

/* For warm: whether a command waits for its return, or comes within that time. */
int  zygote_is_asked(int wait_ms);

/* The child's first message: the command runs from now on, and its timeout counts. */
void zygote_running(void);

/* Instead: replaces the child by a program. Returns only after it reported the failure to the keeper; then exit. */
void zygote_exec(char *const *argv, char *const *env);

/* Optional, for an interpreter that gets its memory in arenas (PyObject_SetArenaAllocator): puts a zygote's arenas side
 * by side; before serving, makes arenas and heap cheap to fork. */
void *zygote_arena_alloc(void *unused, size_t size);
void  zygote_arena_free(void *unused, void *arena, size_t size);
void  zygote_settle_memory(void);

/* Optional, before serving: makes fewer mappings of the program's libraries. Only with one thread. */
void zygote_join_libraries(void);

/* Functions of Python's C interface: PyObject_IS_GC, PyType_GetSlot, PyDict_Next, PyType_GetFlags. */
struct zygote_python {
    int           (*is_collectable)(void *object);
    void         *(*slot)(void *type, int slot);
    int           (*next)(void *dict, ptrdiff_t *at, void **key, void **value);
    unsigned long (*flags)(void *type);
};

/* Optional, for CPython 3.12 and 3.13: the objects, and all that they refer to, are never counted or freed any more.
 * Returns the number of those that became so, or -1 if memory was short and some did not. */
long zygote_make_immortal(const struct zygote_python *python, void *const *roots, size_t n);

/* Like PyMemAllocatorEx. */
struct zygote_allocator {
    void *context;
    void *(*malloc)(void *context, size_t size);
    void *(*calloc)(void *context, size_t n, size_t size);
    void *(*realloc)(void *context, void *p, size_t size);
    void  (*free)(void *context, void *p);
};

/* Optional: objects allocated between the two calls lie side by side. Each takes the present allocator and changes it
 * to the one to set. 0 or -1. */
int  zygote_gather(struct zygote_allocator *allocator);
void zygote_gathered(struct zygote_allocator *allocator);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
