/* Hash tables with chains through the objects themselves. Three indexes: by name, Pods and Sandboxes by owner,
 * Sandboxes by volume claim.
 *
 * Versions of one API server grow, and a list without a version is a consistent read: no object that was seen before
 * the list began is newer than it. So an object older than ours is an echo and is dropped, and an object newer than a
 * list survives the list. If a list is older than objects seen before it, the server's database was restored from a
 * backup; then the list is right and the cache is wrong. */
#include "cluster/cache.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cluster/extension.h"

enum { START_SIZE = 256 };

static uint32_t hash_key(const char *a, const char *b)
{
    uint64_t h = hash_bytes(HASH_SEED, a, strlen(a) + 1);

    h = hash_bytes(h, b, strlen(b));
    return (uint32_t)(h ^ h >> 32);
}

int cache_init(struct cache *c)
{
    *c = (struct cache){ .owned_size = START_SIZE, .refs_size = START_SIZE };
    c->owned = calloc(START_SIZE, sizeof *c->owned);
    c->refs = calloc(START_SIZE, sizeof *c->refs);
    bool good = c->owned && c->refs;
    for (size_t i = 0; i < KINDS; i++) {
        c->of[i] = (struct table){ .bucket = calloc(START_SIZE, sizeof(struct object *)), .size = START_SIZE };
        good = good && c->of[i].bucket;
    }
    return good ? 0 : -ENOMEM;
}

void cache_done(struct cache *c)
{
    for (size_t i = 0; i < KINDS; i++) {
        for (size_t b = 0; b < c->of[i].size && c->of[i].bucket; b++)
            for (struct object *o = c->of[i].bucket[b], *next; o; o = next) {
                next = o->next;
                object_free(o);
            }
        free(c->of[i].bucket);
    }
    free(c->owned);
    free(c->refs);
    *c = (struct cache){ 0 };
}

/* ---- the indexes ---- */

static size_t owned_bucket(const struct cache *c, const char *uid)
{
    return hash_key(uid, "") & (c->owned_size - 1);
}

static size_t ref_bucket(const struct cache *c, const char *namespace, const char *claim)
{
    return hash_key(namespace, claim) & (c->refs_size - 1);
}

static void grow_owned(struct cache *c)
{
    size_t old = c->owned_size;
    struct object **from = c->owned, **to = calloc(old * 2, sizeof *to);

    if (!to)
        return;
    c->owned = to;
    c->owned_size = old * 2;
    for (size_t b = 0; b < old; b++)
        for (struct object *o = from[b], *next; o; o = next) {
            next = o->next_owned;
            size_t i = owned_bucket(c, o->owned_key);
            o->next_owned = to[i];
            to[i] = o;
        }
    free(from);
}

static void grow_refs(struct cache *c)
{
    size_t old = c->refs_size;
    struct claim_ref **from = c->refs, **to = calloc(old * 2, sizeof *to);

    if (!to)
        return;
    c->refs = to;
    c->refs_size = old * 2;
    for (size_t b = 0; b < old; b++)
        for (struct claim_ref *r = from[b], *next; r; r = next) {
            next = r->next;
            size_t i = ref_bucket(c, r->box->o.namespace, r->name);
            r->next = to[i];
            to[i] = r;
        }
    free(from);
}

static void index_object(struct cache *c, struct object *o)
{
    if (o->owned_key) {
        if (++c->n_owned > c->owned_size)
            grow_owned(c);
        size_t i = owned_bucket(c, o->owned_key);
        o->next_owned = c->owned[i];
        c->owned[i] = o;
    }
    if (o->kind == KIND_SANDBOX) {
        struct sandbox *s = (struct sandbox *)o;
        for (size_t k = 0; k < s->n_claims; k++) {
            if (++c->n_refs > c->refs_size)
                grow_refs(c);
            size_t i = ref_bucket(c, o->namespace, s->claims[k].name);
            s->claims[k].next = c->refs[i];
            c->refs[i] = &s->claims[k];
        }
    }
}

static void unindex_object(struct cache *c, struct object *o)
{
    if (o->owned_key) {
        struct object **at = &c->owned[owned_bucket(c, o->owned_key)];
        while (*at != o)
            at = &(*at)->next_owned;
        *at = o->next_owned;
        c->n_owned--;
    }
    if (o->kind == KIND_SANDBOX) {
        struct sandbox *s = (struct sandbox *)o;
        for (size_t k = 0; k < s->n_claims; k++) {
            struct claim_ref **at = &c->refs[ref_bucket(c, o->namespace, s->claims[k].name)];
            while (*at != &s->claims[k])
                at = &(*at)->next;
            *at = s->claims[k].next;
            c->n_refs--;
        }
    }
}

/* ---- by name ---- */

static struct object **place_of(const struct cache *c, enum kind kind, uint32_t hash, const char *namespace,
                                const char *name)
{
    struct object **at = &c->of[kind].bucket[hash & (c->of[kind].size - 1)];

    while (*at && ((*at)->hash != hash || strcmp((*at)->name, name) != 0 || strcmp((*at)->namespace, namespace) != 0))
        at = &(*at)->next;
    return at;
}

static void grow(struct table *t)
{
    struct object **to = calloc(t->size * 2, sizeof *to);

    if (!to)
        return;
    for (size_t b = 0; b < t->size; b++)
        for (struct object *o = t->bucket[b], *next; o; o = next) {
            next = o->next;
            size_t i = o->hash & (t->size * 2 - 1);
            o->next = to[i];
            to[i] = o;
        }
    free(t->bucket);
    t->bucket = to;
    t->size *= 2;
}

struct object *cache_find(const struct cache *c, enum kind kind, const char *namespace, const char *name)
{
    return *place_of(c, kind, hash_key(namespace, name), namespace, name);
}

static void tell(struct cache *c, const struct object *was, const struct object *now)
{
    if (c->on_change)
        c->on_change(c->owner, was, now);
}

/* Passes our own knowledge of an object, which the API lacks, from one version to the next. */
static void inherit(struct object *now, const struct object *was)
{
    if (now->kind == KIND_SANDBOX) {
        ((struct sandbox *)now)->seen_ms = ((const struct sandbox *)was)->seen_ms;
        ((struct sandbox *)now)->is_reserved = ((const struct sandbox *)was)->is_reserved;
    } else if (now->kind == KIND_POOL) {
        ((struct pool *)now)->memory = ((const struct pool *)was)->memory;
    } else if (now->kind == KIND_BOXCLAIM) {
        ((struct boxclaim *)now)->seen_us = ((const struct boxclaim *)was)->seen_us;
    }
}

bool cache_put(struct cache *c, struct object *o)
{
    enum kind kind = o->kind;
    o->hash = hash_key(o->namespace, o->name);
    struct object **at = place_of(c, kind, o->hash, o->namespace, o->name), *was = *at;

    o->generation_of_list = c->list[kind];
    if (o->version > c->newest[kind])
        c->newest[kind] = o->version;
    if (was && was->version >= o->version && !c->rolled_back[kind]) {
        was->generation_of_list = c->list[kind];
        bool same = was->version == o->version;
        /* The same version again can only restore parts that were dropped. */
        if (same && kind == KIND_SANDBOX && !((struct sandbox *)was)->pod_spec) {
            struct sandbox *from = (struct sandbox *)o, *to = (struct sandbox *)was;
            to->pod_spec = from->pod_spec;
            to->claim_templates = from->claim_templates;
            from->pod_spec = from->claim_templates = NULL;
        } else if (same && kind == KIND_KERNEL && !((struct kernel *)was)->pod_spec) {
            ((struct kernel *)was)->pod_spec = ((struct kernel *)o)->pod_spec;
            ((struct kernel *)o)->pod_spec = NULL;
        }
        object_free(o);
        return same;
    }
    if (was && strcmp(was->uid, o->uid) == 0)
        inherit(o, was);
    if (was) {
        unindex_object(c, was);
        o->next = was->next;
        *at = o;
    } else {
        o->next = NULL;
        *at = o;
        if (++c->of[kind].count > c->of[kind].size)
            grow(&c->of[kind]);
    }
    index_object(c, o);
    tell(c, was, o);
    object_free(was);
    return true;
}

bool cache_put_answer(struct cache *c, struct object *o, bool is_partial)
{
    if (!is_partial && o->version <= c->watched[o->kind] && !cache_find(c, o->kind, o->namespace, o->name)) {
        object_free(o);
        return false;
    }
    return cache_put(c, o);
}

static void take_out(struct cache *c, struct object **at)
{
    struct object *o = *at;

    *at = o->next;
    c->of[o->kind].count--;
    unindex_object(c, o);
    tell(c, o, NULL);
    object_free(o);
}

void cache_remove(struct cache *c, enum kind kind, const char *namespace, const char *name, const char *uid,
                  uint64_t version)
{
    struct object **at = place_of(c, kind, hash_key(namespace, name), namespace, name);

    if (version != UINT64_MAX && version > c->newest[kind])
        c->newest[kind] = version;
    if (*at && (!uid || strcmp((*at)->uid, uid) == 0) && (*at)->version <= version)
        take_out(c, at);
}

void cache_list_begin(struct cache *c, enum kind kind)
{
    c->list[kind]++;
    c->before_list[kind] = c->newest[kind];
    c->rolled_back[kind] = false;
}

void cache_list_version(struct cache *c, enum kind kind, uint64_t version)
{
    c->rolled_back[kind] = version < c->before_list[kind];
}

void cache_list_end(struct cache *c, enum kind kind, uint64_t version)
{
    bool back = version < c->before_list[kind];

    for (size_t b = 0; b < c->of[kind].size; b++)
        for (struct object **at = &c->of[kind].bucket[b]; *at;) {
            bool is_newer = (*at)->version > version && !back;
            if ((*at)->generation_of_list == c->list[kind] || is_newer)
                at = &(*at)->next;
            else
                take_out(c, at);
        }
    c->rolled_back[kind] = false;
    c->watched[kind] = version;
    c->newest[kind] = back || version > c->newest[kind] ? version : c->newest[kind];
}

void cache_clear(struct cache *c, enum kind kind)
{
    for (size_t b = 0; b < c->of[kind].size; b++)
        while (c->of[kind].bucket[b])
            take_out(c, &c->of[kind].bucket[b]);
}

static struct object *owned_from(struct object *o, enum kind kind, const char *key)
{
    while (o && (o->kind != kind || strcmp(o->owned_key, key) != 0))
        o = o->next_owned;
    return o;
}

struct object *cache_first_owned(const struct cache *c, enum kind kind, const char *key)
{
    return owned_from(c->owned[owned_bucket(c, key)], kind, key);
}

struct object *cache_next_owned(const struct object *o)
{
    return owned_from(o->next_owned, o->kind, o->owned_key);
}

static struct claim_ref *matching(struct claim_ref *r, const char *namespace, const char *claim)
{
    while (r && (strcmp(r->name, claim) != 0 || strcmp(r->box->o.namespace, namespace) != 0))
        r = r->next;
    return r;
}

struct claim_ref *cache_first_ref(const struct cache *c, const char *namespace, const char *claim)
{
    return matching(c->refs[ref_bucket(c, namespace, claim)], namespace, claim);
}

struct claim_ref *cache_next_ref(const struct claim_ref *r, const char *namespace, const char *claim)
{
    return matching(r->next, namespace, claim);
}

struct object *cache_walk(const struct cache *c, enum kind kind, size_t *bucket, const struct object *last)
{
    struct object *o = last ? last->next : NULL;

    if (!last)
        *bucket = 0;
    else if (!o)
        ++*bucket;
    while (!o && *bucket < c->of[kind].size && !(o = c->of[kind].bucket[*bucket]))
        ++*bucket;
    return o;
}
