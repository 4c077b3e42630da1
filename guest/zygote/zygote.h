/* For a program that is to be a zygote: it imports and warms what it wants, stays single-threaded, and then serves.
 *
 *     struct zygote_child child;
 *     if (zygote_serve(NULL, NULL, &child) < 0)       // returns in children only
 *         exit(1);
 *     zygote_running();                               // or zygote_exec()
 *     ... child.argv, child.env, stdin, stdout, stderr are the command's
 *
 * A child is a sealed payload in a box of its own: other user, other files, other processes, no descriptor of the
 * zygote but 0, 1, 2, which are its own. It is a copy of the zygote in all else; in particular of the state of its
 * random generators, for which seed is meant. Locks, caches and open files of libraries must be fit for that, as with
 * fork(); handlers of pthread_atfork() are not called. */
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

/* Forks children at the keeper's word. warm, if not NULL, is called in a child before it takes its command, so that
 * what it touches is its own already. The command may come meanwhile: then warm should not be long. Returns 0 in a
 * child that got its command, and -errno in the zygote if there is no keeper (any more). */
int  zygote_serve(void (*warm)(void *data), void *data, struct zygote_child *ret);

/* For warm: whether somebody waits for it to return, or does so within that time. */
int  zygote_is_asked(int wait_ms);

/* The child's first word: from here on the command runs, and its time counts. */
void zygote_running(void);

/* Instead: replaces the child by a program. Returns only after telling the keeper why it failed; end then. */
void zygote_exec(char *const *argv, char *const *env);

/* Optional, for an interpreter that gets its memory in arenas (PyObject_SetArenaAllocator): has those of a zygote side
 * by side; and when all is there, before serving, arenas and heap are made cheap to fork. */
void *zygote_arena_alloc(void *unused, size_t size);
void  zygote_arena_free(void *unused, void *arena, size_t size);
void  zygote_settle_memory(void);

/* As PyMemAllocatorEx. */
struct zygote_allocator {
    void *context;
    void *(*malloc)(void *context, size_t size);
    void *(*calloc)(void *context, size_t n, size_t size);
    void *(*realloc)(void *context, void *p, size_t size);
    void  (*free)(void *context, void *p);
};

/* Optional: what is allocated between the two comes to lie side by side. Each takes the allocator that there is and
 * changes it to the one to set. 0 or -1. */
int  zygote_gather(struct zygote_allocator *allocator);
void zygote_gathered(struct zygote_allocator *allocator);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
