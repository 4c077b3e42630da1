/* From the watches into the cache, and from what changed there to what must be looked at. */
#include "cluster/controller.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char *const nouns[KINDS] = { "sandboxes", "kernels", "pods", "services", "persistentvolumeclaims" };
static const char *const paths[KINDS] = { "/apis/agents.x-k8s.io/v1beta1/sandboxes", "/apis/jupyter.org/v1/kernels",
                                          "/api/v1/pods", "/api/v1/services", "/api/v1/persistentvolumeclaims" };

static enum kind kind_of(const struct kube_watch *w)
{
    for (size_t i = 0; i < KINDS; i++)
        if (w->path == paths[i])
            return (enum kind)i;
    return KINDS;
}

static struct controller *controller_of(struct kube_watch *w)
{
    return (struct controller *)((char *)(w - kind_of(w)) - offsetof(struct controller, watch));
}

/* ---- what changed ---- */

static void wake_if_there(struct controller *c, enum kind kind, const char *namespace, const char *name)
{
    if (name && cache_find(&c->cache, kind, namespace, name))
        work_wake(c, kind, namespace, name, false);
}

static void wake_owner(struct controller *c, const struct object *o)
{
    if (!o->owner_kind)
        return;
    if (strcmp(o->owner_kind, "Sandbox") == 0)
        wake_if_there(c, KIND_SANDBOX, o->namespace, o->owner_name);
    else if (strcmp(o->owner_kind, "Kernel") == 0)
        wake_if_there(c, KIND_KERNEL, o->namespace, o->owner_name);
}

static int64_t generation_of(const struct object *o)
{
    return o->kind == KIND_SANDBOX ? ((const struct sandbox *)o)->generation : ((const struct kernel *)o)->generation;
}

static void drop_if_made(struct controller *c, struct object *o)
{
    if (cache_first_owned(&c->cache, o->uid))
        object_drop_template(o);
}

static void on_change(void *owner, const struct object *was, const struct object *now)
{
    struct controller *c = owner;
    const struct object *any = now ? now : was;

    switch (any->kind) {
    case KIND_SANDBOX:
    case KIND_KERNEL: {
        bool is_soft = was && now && generation_of(was) == generation_of(now) && was->deleting == now->deleting;
        if (now)
            drop_if_made(c, (struct object *)now);
        if (now && !was && any->kind == KIND_SANDBOX && c->watch[KIND_SANDBOX].synced)
            ((struct sandbox *)now)->seen_ms = loop_now_ms();
        if (now)
            work_wake(c, any->kind, any->namespace, any->name, is_soft);
        break;
    }
    case KIND_POD:
        if (now && now->owner_name) {
            struct object *by = cache_find(&c->cache, KIND_SANDBOX, now->namespace, now->owner_name);
            if (!by)
                by = cache_find(&c->cache, KIND_KERNEL, now->namespace, now->owner_name);
            if (by && object_is_owned_by(now, by))
                object_drop_template(by);
        }
        /* fall through */
    case KIND_SERVICE:
        wake_if_there(c, KIND_SANDBOX, any->namespace, any->name);
        wake_if_there(c, KIND_KERNEL, any->namespace, any->name);
        if (was)
            wake_owner(c, was);
        if (now)
            wake_owner(c, now);
        break;
    case KIND_CLAIM:
        for (struct claim_ref *r = cache_first_ref(&c->cache, any->namespace, any->name); r;
             r = cache_next_ref(r, any->namespace, any->name))
            work_wake(c, KIND_SANDBOX, r->box->o.namespace, r->box->o.name, false);
        break;
    default:
        break;
    }
}

/* ---- the watches ---- */

static void wake_all(struct controller *c, enum kind kind)
{
    size_t bucket;

    for (struct object *o = NULL; (o = cache_walk(&c->cache, kind, &bucket, o));)
        work_wake(c, kind, o->namespace, o->name, true);
}

bool controller_is_synced(const struct controller *c)
{
    return c->watch[KIND_POD].synced && c->watch[KIND_SERVICE].synced && c->watch[KIND_CLAIM].synced &&
           c->watch[KIND_SANDBOX].synced;
}

void controller_lead(struct controller *c)
{
    if (!controller_is_synced(c) || c->leads || (c->elects && !kube_lease_is_held(&c->lease)))
        return;
    c->leads = true;
    log_line(LOG_INFO, "acting: %zu sandboxes, %zu kernels, %zu pods, %zu services, %zu volume claims known",
             c->cache.of[KIND_SANDBOX].count, c->cache.of[KIND_KERNEL].count, c->cache.of[KIND_POD].count,
             c->cache.of[KIND_SERVICE].count, c->cache.of[KIND_CLAIM].count);
    wake_all(c, KIND_SANDBOX);
    wake_all(c, KIND_KERNEL);
}

static void on_listing(struct kube_watch *w)
{
    cache_list_begin(&controller_of(w)->cache, kind_of(w));
}

static void on_object(struct kube_watch *w, struct jsonslice text, bool is_deleted)
{
    struct controller *c = controller_of(w);
    enum kind kind = kind_of(w);
    struct err e;

    if (w->phase == KUBE_WATCH_LISTING)
        cache_list_version(&c->cache, kind, strtoull(w->version, NULL, 10));
    struct object *o = object_decode(kind, text, &e);
    if (!o) {
        log_line(LOG_WARN, "%s: an object is not understood: %s", nouns[kind], e.what);
        return;
    }
    if (w->phase == KUBE_WATCH_WATCHING && o->version > c->cache.watched[kind])
        c->cache.watched[kind] = o->version;
    if (is_deleted) {
        cache_remove(&c->cache, kind, o->namespace, o->name, o->uid, o->version);
        object_free(o);
    } else {
        (void)cache_put(&c->cache, o);
    }
}

static void start(struct controller *c, enum kind kind)
{
    if (c->watch[kind].phase == KUBE_WATCH_OFF)
        kube_watch_start(&c->watch[kind]);
}

static void on_listed(struct kube_watch *w)
{
    struct controller *c = controller_of(w);
    enum kind kind = kind_of(w);

    cache_list_end(&c->cache, kind, strtoull(w->version, NULL, 10));
    log_line(LOG_DEBUG, "%s: listed at version %s", nouns[kind], w->version);
    /* What belongs to Sandboxes is known before they are: most need nothing, and keep no template then. */
    if (c->watch[KIND_POD].synced && c->watch[KIND_SERVICE].synced && c->watch[KIND_CLAIM].synced) {
        start(c, KIND_SANDBOX);
        if (c->with_kernels)
            start(c, KIND_KERNEL);
    }
    controller_lead(c);
}

static void on_absent(struct kube_watch *w)
{
    cache_clear(&controller_of(w)->cache, kind_of(w));
}

/* A cluster may be without Kernels' definition, but not without Sandboxes'. */
static bool is_done_without(const struct kube_watch *w, enum kind kind)
{
    return kind == KIND_KERNEL && w->status == 404;
}

static const char *hint_for(const struct kube_watch *w, enum kind kind)
{
    if (w->status == 404 && kind == KIND_SANDBOX)
        return " (apply the CRD sandboxes.agents.x-k8s.io with version v1beta1)";
    if (w->status == 403)
        return " (the ClusterRole lacks a verb; see packaging/kubernetes)";
    if (w->status == 401)
        return " (the token or certificate is not, or no longer, accepted)";
    return "";
}

static void on_trouble(struct kube_watch *w, const char *text)
{
    enum kind kind = kind_of(w);

    if (!*text)
        log_line(LOG_INFO, "%s: watching again", nouns[kind]);
    else if (is_done_without(w, kind))
        log_line(LOG_INFO, "kernels.jupyter.org is not installed here; Kernels are not looked after until it is");
    else
        log_line(LOG_ERROR, "%s: cannot be watched: %s%s; trying on", nouns[kind], text, hint_for(w, kind));
}

void controller_write_trouble(const struct controller *c, struct buf *out)
{
    for (enum kind kind = 0; kind < KINDS; kind++) {
        const struct kube_watch *w = &c->watch[kind];
        if ((kind == KIND_KERNEL && !c->with_kernels) || is_done_without(w, kind))
            continue;
        if (kube_watch_is_failing(w))
            buf_printf(out, "%s: cannot be watched: %s%s\n", nouns[kind], w->why, hint_for(w, kind));
        else if (!w->synced)
            buf_printf(out, "%s: not listed yet\n", nouns[kind]);
    }
}

void controller_start(struct controller *c)
{
    c->cache.on_change = on_change;
    c->cache.owner = c;
    for (size_t i = 0; i < KINDS; i++) {
        struct kube_watch *w = &c->watch[i];
        w->client = c->client;
        w->loop = c->loop;
        w->path = paths[i];
        w->on_listing = on_listing;
        w->on_object = on_object;
        w->on_listed = on_listed;
        w->on_absent = on_absent;
        w->on_trouble = on_trouble;
    }
    start(c, KIND_POD);
    start(c, KIND_SERVICE);
    start(c, KIND_CLAIM);
}
