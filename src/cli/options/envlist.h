/* The environment of a payload while it is built: later values replace earlier ones. */
#ifndef CARREL_CLI_OPTIONS_ENVLIST_H
#define CARREL_CLI_OPTIONS_ENVLIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"

struct envlist {
    struct arena *arena;        /* borrowed: owns the strings; must live longer */
    char        **entry;    /* NULL-terminated once envlist_finish was called; owned */
    size_t        count;
    size_t        capacity;
    uint32_t     *slot;     /* hash table of entry numbers + 1; owned */
    size_t        n_slots;  /* power of two, at least twice count */
};

void envlist_init(struct envlist *list, struct arena *arena);
void envlist_done(struct envlist *list);

/* A letter or '_', then letters, digits, '_', '.' and '-'. */
bool envlist_name_is_valid(const char *name, size_t length);

/* -EINVAL: the name is invalid or there is a NUL in the value; -E2BIG: the entry is longer than the kernel accepts;
 * -ENOSPC: more than SPEC_ENV_MAX variables; -ENOMEM. Sets no message: the caller knows the origin. */
MUST_CHECK int envlist_set(struct envlist *list, const char *name, size_t name_length, const char *value,
                           size_t value_length);

/* The same with a message that begins with origin ("--env", "secrets.env:3"). The message never contains a value. */
MUST_CHECK int envlist_set_from(struct envlist *list, const char *origin, const char *name, size_t name_length,
                                const char *value, size_t value_length, struct err *e);

/* The value of a variable; NULL: there is none. */
const char *envlist_get(const struct envlist *list, const char *name);
bool envlist_has(const struct envlist *list, const char *name, size_t length);

/* Hands the NULL-terminated array to the caller, who frees it (not its strings). */
MUST_CHECK int envlist_finish(struct envlist *list, char ***ret);

#endif
