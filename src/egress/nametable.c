/* Two hash tables over the same entries, by name and by address, that grow with them, and a ring in the order of
 * use. */
#define _GNU_SOURCE
#include "egress/nametable.h"

#include <stdlib.h>
#include <string.h>

enum {
    FIRST_ADDRESS = 198u << 24 | 18u << 16,
    ADDRESSES = 1u << 17,
    SPARED = 256,               /* at both ends of the range, so that no address looks like a network or a broadcast */
    BUCKETS_AT_FIRST = 16,
};

struct named {
    struct named *by_name, *by_address;         /* next in the bucket */
    struct named *newer, *older;
    uint64_t      hash;
    uint32_t      address;
    bool          pinned;
    char          name[];
};

struct nametable {
    struct named **names, **addresses;
    size_t         n_buckets, n;
    struct named   ring;                /* newer: the least recently used entry */
};

/* FNV-1a, then mixed: its low bits alone are too similar for names with equal ends. */
static uint64_t hash_name(const char *name)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);

    for (; *name; name++)
        h = (h ^ (uint8_t)*name) * UINT64_C(0x100000001b3);
    h ^= h >> 32;
    h *= UINT64_C(0x9e3779b97f4a7c15);
    return h ^ h >> 29;
}

static size_t bucket_of(const struct nametable *t, uint64_t hash)
{
    return (size_t)hash & (t->n_buckets - 1);
}

struct nametable *nametable_new(void)
{
    struct nametable *t = calloc(1, sizeof *t);

    if (!t)
        return NULL;
    t->n_buckets = BUCKETS_AT_FIRST;
    t->names = calloc(t->n_buckets, sizeof *t->names);
    t->addresses = calloc(t->n_buckets, sizeof *t->addresses);
    t->ring.newer = t->ring.older = &t->ring;
    if (t->names && t->addresses)
        return t;
    nametable_free(t);
    return NULL;
}

void nametable_free(struct nametable *t)
{
    if (!t)
        return;
    for (struct named *e = t->ring.newer, *next; e != &t->ring; e = next) {
        next = e->newer;
        free(e);
    }
    free(t->names);
    free(t->addresses);
    free(t);
}

static void ring_leave(struct named *e)
{
    e->newer->older = e->older;
    e->older->newer = e->newer;
}

static void ring_join(struct nametable *t, struct named *e)
{
    e->older = t->ring.older;
    e->newer = &t->ring;
    e->older->newer = e;
    t->ring.older = e;
}

static void use(struct nametable *t, struct named *e)
{
    ring_leave(e);
    ring_join(t, e);
}

static void join_buckets(struct nametable *t, struct named *e)
{
    struct named **by_name = &t->names[bucket_of(t, e->hash)];
    struct named **by_address = &t->addresses[bucket_of(t, e->address)];

    e->by_name = *by_name;
    *by_name = e;
    e->by_address = *by_address;
    *by_address = e;
}

static void leave_buckets(struct nametable *t, struct named *e)
{
    struct named **at = &t->names[bucket_of(t, e->hash)];

    while (*at != e)
        at = &(*at)->by_name;
    *at = e->by_name;
    for (at = &t->addresses[bucket_of(t, e->address)]; *at != e;)
        at = &(*at)->by_address;
    *at = e->by_address;
}

/* If memory is short, the buckets only get longer. */
static void grow(struct nametable *t)
{
    size_t n = t->n_buckets * 2;
    struct named **names = calloc(n, sizeof(struct named *)), **addresses = calloc(n, sizeof(struct named *));

    if (!names || !addresses) {
        free(names);
        free(addresses);
        return;
    }
    free(t->names);
    free(t->addresses);
    t->names = names;
    t->addresses = addresses;
    t->n_buckets = n;
    for (struct named *e = t->ring.newer; e != &t->ring; e = e->newer)
        join_buckets(t, e);
}

static struct named *find_address(const struct nametable *t, uint32_t address)
{
    struct named *e = t->addresses[bucket_of(t, address)];

    while (e && e->address != address)
        e = e->by_address;
    return e;
}

/* There are 32 times as many addresses as names, so the walk is short. */
static uint32_t free_address(const struct nametable *t, uint64_t hash)
{
    uint32_t usable = ADDRESSES - 2 * SPARED, at = (uint32_t)((hash >> 20) % usable);

    while (find_address(t, FIRST_ADDRESS + SPARED + at))
        at = (at + 1) % usable;
    return FIRST_ADDRESS + SPARED + at;
}

static bool drop_oldest(struct nametable *t)
{
    for (struct named *e = t->ring.newer; e != &t->ring; e = e->newer)
        if (!e->pinned) {
            leave_buckets(t, e);
            ring_leave(e);
            free(e);
            t->n--;
            return true;
        }
    return false;
}

static void put_address(uint32_t address, uint8_t ret[4])
{
    for (int i = 0; i < 4; i++)
        ret[i] = (uint8_t)(address >> (24 - 8 * i));
}

bool nametable_give(struct nametable *t, const char *name, bool pinned, uint8_t ret[4])
{
    uint64_t hash = hash_name(name);
    struct named *e = t->names[bucket_of(t, hash)];

    while (e && (e->hash != hash || strcmp(e->name, name) != 0))
        e = e->by_name;
    if (e) {
        e->pinned |= pinned;
        use(t, e);
        put_address(e->address, ret);
        return true;
    }
    if (t->n == NAMETABLE_MOST) {
        if (!drop_oldest(t))
            return false;
    } else if (t->n >= t->n_buckets) {
        grow(t);
    }
    size_t size = strlen(name) + 1;
    e = calloc(1, sizeof *e + size);
    if (!e)
        return false;
    memcpy(e->name, name, size);
    e->hash = hash;
    e->address = free_address(t, hash);
    e->pinned = pinned;
    join_buckets(t, e);
    ring_join(t, e);
    t->n++;
    put_address(e->address, ret);
    return true;
}

const char *nametable_find(struct nametable *t, const uint8_t address[4])
{
    struct named *e =
        find_address(t, (uint32_t)address[0] << 24 | (uint32_t)(address[1] << 16 | address[2] << 8 | address[3]));

    if (!e)
        return NULL;
    use(t, e);
    return e->name;
}

void nametable_unpin(struct nametable *t)
{
    for (struct named *e = t->ring.newer; e != &t->ring; e = e->newer)
        e->pinned = false;
}
