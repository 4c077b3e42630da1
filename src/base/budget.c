/* A hash table of the owners who hold something now. An owner's entry is made with its first share and freed with its
 * last one, so there are never more entries than shares. */
#include "base/budget.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct budget {
    struct budget  *next;
    struct budgets *all;
    uint64_t        used;
    unsigned        shares;
    char            owner[];
};

static struct budget **bucket_of(struct budgets *all, const char *owner)
{
    uint32_t hash = 2166136261u;

    for (const char *p = owner; *p; p++)
        hash = (hash ^ (unsigned char)*p) * 16777619u;
    return &all->bucket[hash % BUDGETS_BUCKETS];
}

int share_join(struct share *s, struct budgets *all, const char *owner)
{
    struct budget **bucket = bucket_of(all, owner), *b = *bucket;
    uint64_t held = s->held;

    while (b && strcmp(b->owner, owner) != 0)
        b = b->next;
    if (!b) {
        size_t size = strlen(owner) + 1;
        b = malloc(sizeof *b + size);
        if (!b) {
            share_leave(s);
            s->held = held;
            return -ENOMEM;
        }
        *b = (struct budget){ .next = *bucket, .all = all };
        memcpy(b->owner, owner, size);
        *bucket = b;
    }
    b->shares++;
    share_leave(s);
    b->used += held;
    all->used += held;
    *s = (struct share){ .budget = b, .held = held };
    return 0;
}

bool share_is_of(const struct share *s, const char *owner)
{
    return s->budget && strcmp(s->budget->owner, owner) == 0;
}

static bool fits(uint64_t most, uint64_t used, uint64_t more)
{
    return !most || (used <= most && more <= most - used);
}

bool share_fits(const struct share *s, uint64_t more)
{
    const struct budget *b = s->budget;

    return !b || (fits(b->all->most, b->used, more) && fits(b->all->all_most, b->all->used, more));
}

bool share_move(struct share *s, uint64_t from, uint64_t to)
{
    if (to > from && !share_fits(s, to - from))
        return false;
    if (from > s->held) {       /* gives back more than it took: a bug */
#ifdef __SANITIZE_ADDRESS__
        abort();
#endif
        from = s->held;
    }
    s->held = s->held - from + to;
    if (s->budget) {
        s->budget->used = s->budget->used - from + to;
        s->budget->all->used = s->budget->all->used - from + to;
    }
    return true;
}

void share_leave(struct share *s)
{
    struct budget *b = s->budget;

    if (b) {
        b->used -= s->held;
        b->all->used -= s->held;
        if (--b->shares == 0) {
            struct budget **at = bucket_of(b->all, b->owner);
            while (*at != b)
                at = &(*at)->next;
            *at = b->next;
            free(b);
        }
    }
    *s = (struct share){ 0 };
}

bool budgets_are_empty(const struct budgets *all)
{
    for (unsigned i = 0; i < BUDGETS_BUCKETS; i++)
        if (all->bucket[i])
            return false;
    return true;
}
