/* Ten thousand variables are legal, so names are found by a small open-addressed hash table of entry numbers. Entries
 * are never removed. */
#include "cli/options/envlist.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/fd.h"
#include "base/parse.h"
#include "box/spec.h"
#include "cli/options/exec_limits.h"

void envlist_init(struct envlist *list, struct arena *arena)
{
    *list = (struct envlist){ .arena = arena };
}

void envlist_done(struct envlist *list)
{
    free(list->entry);
    free(list->slot);
    *list = (struct envlist){ 0 };
}

bool envlist_name_is_valid(const char *name, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        char c = name[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
        bool later = (c >= '0' && c <= '9') || c == '.' || c == '-';
        if (!letter && !(i > 0 && later))
            return false;
    }
    return length > 0;
}

static uint32_t hash_name(const char *name, size_t length)
{
    uint32_t hash = 2166136261U; /* FNV-1a: the names are the caller's own, so an attack by collisions is pointless */

    for (size_t i = 0; i < length; i++)
        hash = (hash ^ (unsigned char)name[i]) * 16777619U;
    return hash;
}

/* The slot of a name: the one that holds it, or the free one for it. */
static uint32_t *find_slot(const struct envlist *list, const char *name, size_t length)
{
    for (size_t i = hash_name(name, length);; i++) {
        uint32_t *slot = &list->slot[i & (list->n_slots - 1)];
        if (!*slot)
            return slot;
        const char *entry = list->entry[*slot - 1];
        if (!strncmp(entry, name, length) && entry[length] == '=')
            return slot;
    }
}

/* Makes room for one more entry and the NULL behind it. */
static int grow(struct envlist *list)
{
    if (list->count + 1 < list->capacity)
        return 0;
    size_t capacity = list->capacity ? list->capacity * 2 : 32;
    char **entry = reallocarray(list->entry, capacity, sizeof *entry);
    if (!entry)
        return -ENOMEM;
    list->entry = entry;
    list->capacity = capacity;

    uint32_t *slot = calloc(capacity * 2, sizeof *slot);
    if (!slot)
        return -ENOMEM;
    free(list->slot);
    list->slot = slot;
    list->n_slots = capacity * 2;
    for (size_t i = 0; i < list->count; i++)
        *find_slot(list, list->entry[i], strcspn(list->entry[i], "=")) = (uint32_t)i + 1;
    return 0;
}

int envlist_set(struct envlist *list, const char *name, size_t name_length, const char *value, size_t value_length)
{
    if (!envlist_name_is_valid(name, name_length) || memchr(value, 0, value_length))
        return -EINVAL;
    if (name_length > EXEC_STRING_MAX || value_length > EXEC_STRING_MAX - 1 - name_length)
        return -E2BIG;
    int r = grow(list);
    if (r < 0)
        return r;
    uint32_t *slot = find_slot(list, name, name_length);
    if (!*slot && list->count == SPEC_ENV_MAX)
        return -ENOSPC;
    char *entry = arena_alloc(list->arena, name_length + 1 + value_length + 1);
    if (!entry)
        return -ENOMEM;
    memcpy(entry, name, name_length);
    entry[name_length] = '=';
    if (value_length)
        memcpy(entry + name_length + 1, value, value_length);
    entry[name_length + 1 + value_length] = '\0';
    if (!*slot)
        *slot = (uint32_t)++list->count;
    list->entry[*slot - 1] = entry;
    return 0;
}

int envlist_set_from(struct envlist *list, const char *origin, const char *name, size_t name_length, const char *value,
                     size_t value_length, struct err *e)
{
    int r = envlist_set(list, name, name_length, value, value_length);

    switch (-r) {
    case 0:
        return 0;
    case EINVAL:
        return err_set(e, EINVAL, STEP_USAGE,
                       "%s: not a variable name before '='; use letters, digits and '_', not a digit first", origin);
    case E2BIG:
        return err_set(e, EINVAL, STEP_USAGE, "%s: the variable is %zu bytes; Linux allows %d", origin,
                       name_length + 1 + value_length, EXEC_STRING_MAX);
    case ENOSPC:
        return err_set(e, EINVAL, STEP_USAGE, "%s: more than %d environment variables", origin, SPEC_ENV_MAX);
    default:
        return err_set(e, -r, STEP_MEMORY, "%s", origin);
    }
}

const char *envlist_get(const struct envlist *list, const char *name)
{
    size_t length = strlen(name);
    const uint32_t *slot = list->n_slots ? find_slot(list, name, length) : NULL;

    return slot && *slot ? list->entry[*slot - 1] + length + 1 : NULL;
}

bool envlist_has(const struct envlist *list, const char *name, size_t length)
{
    return list->n_slots && *find_slot(list, name, length);
}

int envlist_finish(struct envlist *list, char ***ret)
{
    int r = grow(list);

    if (r < 0)
        return r;
    list->entry[list->count] = NULL;
    *ret = TAKE_PTR(list->entry);
    envlist_done(list);
    return 0;
}
