/* The copy of the cluster that reconcilers decide by. Objects come from watches and from answers to our own writes; the
 * newest version of an object wins, from either source. */
#ifndef CARREL_CLUSTER_CACHE_H
#define CARREL_CLUSTER_CACHE_H

#include "cluster/object.h"

struct table {
    struct object **bucket;
    size_t          size, count;        /* size: a power of two */
};

struct cache {
    struct table      of[KINDS];
    struct object   **owned;            /* Pods and Sandboxes by owned_key: their owner's uid, or a pool's label */
    struct claim_ref **refs;            /* Sandboxes by the claims they mention */
    size_t            owned_size, refs_size, n_owned, n_refs;
    uint32_t          list[KINDS];      /* number of the present list */
    uint64_t          newest[KINDS];    /* version */
    uint64_t          watched[KINDS];   /* the newest version that the watch has reported */
    uint64_t          before_list[KINDS];
    bool              rolled_back[KINDS];   /* the server is older than the cache: a restored backup */
    /* An object has changed. was is NULL if it is new, now is NULL if it is gone. Both are valid during the call. */
    void (*on_change)(void *owner, const struct object *was, const struct object *now);
    void *owner;
};

MUST_CHECK int cache_init(struct cache *c);
void cache_done(struct cache *c);

struct object *cache_find(const struct cache *c, enum kind kind, const char *namespace, const char *name);

/* Takes the object over; frees it if the cache has a newer one. True: it is in the cache now. */
bool cache_put(struct cache *c, struct object *o);
/* Like cache_put() for the answer to a call, which may arrive after events of a watch: if the object is missing and the
 * watch has passed its version, it was deleted meanwhile and is not put back. is_partial: the watch covers only some
 * objects. */
bool cache_put_answer(struct cache *c, struct object *o, bool is_partial);
/* The object is gone as of this version. An object of that name with another uid, or a newer one, stays. uid NULL:
 * any. */
void cache_remove(struct cache *c, enum kind kind, const char *namespace, const char *name, const char *uid,
                  uint64_t version);

/* Around a list: objects that were not put meanwhile and are not newer than the list are gone. The list's version must
 * be set before the first object of a page. */
void cache_list_begin(struct cache *c, enum kind kind);
void cache_list_version(struct cache *c, enum kind kind, uint64_t version);
void cache_list_end(struct cache *c, enum kind kind, uint64_t version);

/* Removes all objects of this kind. */
void cache_clear(struct cache *c, enum kind kind);

/* The Pods or Sandboxes that the object of this uid controls: the first, then by cache_next_owned(). For Sandboxes
 * without a controller, key is "NAMESPACE/LABEL" of the pool that made them. */
struct object *cache_first_owned(const struct cache *c, enum kind kind, const char *key);
struct object *cache_next_owned(const struct object *o);

/* The Sandboxes that mention a claim. */
struct claim_ref *cache_first_ref(const struct cache *c, const char *namespace, const char *claim);
struct claim_ref *cache_next_ref(const struct claim_ref *r, const char *namespace, const char *claim);

/* Iterates over the objects of a kind: *at starts as 0. */
struct object *cache_walk(const struct cache *c, enum kind kind, size_t *bucket, const struct object *last);

#endif
