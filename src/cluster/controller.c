/* From the watches into the cache, and from changes there to the queue. */
#include "cluster/controller.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cluster/extension.h"

static enum kind kind_of(const struct kube_watch *w)
{
    for (size_t i = 0; i < KINDS; i++)
        if (w->path == kind_info[i].path)
            return (enum kind)i;
    return KINDS;
}

static struct controller *controller_of(struct kube_watch *w)
{
    return (struct controller *)((char *)(w - kind_of(w)) - offsetof(struct controller, watch));
}

/* ---- changes ---- */

static void wake_if_there(struct controller *c, enum kind kind, const char *namespace, const char *name)
{
    if (name && cache_find(&c->cache, kind, namespace, name))
        work_wake(c, kind, namespace, name, false);
}

static void wake_owner(struct controller *c, const struct object *o)
{
    static const enum kind owners[] = { KIND_SANDBOX, KIND_KERNEL, KIND_POOL, KIND_BOXCLAIM, KIND_TEMPLATE };

    for (size_t i = 0; o->owner_kind && i < sizeof owners / sizeof *owners; i++)
        if (strcmp(o->owner_kind, kind_info[owners[i]].name) == 0)
            wake_if_there(c, owners[i], o->namespace, o->owner_name);
}

static int64_t generation_of(const struct object *o)
{
    switch (o->kind) {
    case KIND_SANDBOX:
        return ((const struct sandbox *)o)->generation;
    case KIND_KERNEL:
        return ((const struct kernel *)o)->generation;
    case KIND_TEMPLATE:
        return ((const struct template *)o)->generation;
    case KIND_POOL:
        return ((const struct pool *)o)->generation;
    case KIND_BOXCLAIM:
        return ((const struct boxclaim *)o)->generation;
    default:
        return 0;
    }
}

static void drop_if_made(struct controller *c, struct object *o)
{
    if (cache_first_owned(&c->cache, KIND_POD, o->uid))
        object_drop_template(o);
}

/* Records when an object first appeared while we watch. */
static void note_time(struct controller *c, struct object *now)
{
    struct timespec t;

    if (!c->watch[now->kind].synced)
        return;
    clock_gettime(CLOCK_REALTIME, &t);
    if (now->kind == KIND_SANDBOX)
        ((struct sandbox *)now)->seen_ms = loop_now_ms();
    else if (now->kind == KIND_BOXCLAIM)
        ((struct boxclaim *)now)->seen_us = (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* Wakes the objects that refer to it: pools a template, claims a pool. */
static void wake_users(struct controller *c, const struct object *o)
{
    enum kind users = o->kind == KIND_TEMPLATE ? KIND_POOL : KIND_BOXCLAIM;
    size_t bucket;

    for (struct object *u = NULL; (u = cache_walk(&c->cache, users, &bucket, u));) {
        const char *name = users == KIND_POOL ? ((struct pool *)u)->template_name : ((struct boxclaim *)u)->pool_name;
        if (strcmp(u->namespace, o->namespace) == 0 && (!name || strcmp(name, o->name) == 0))
            work_wake(c, users, u->namespace, u->name, false);
        if (users == KIND_POOL && name && strcmp(name, o->name) == 0)
            wake_users(c, u);
    }
}

static void on_own_change(struct controller *c, const struct object *was, const struct object *now)
{
    const struct object *any = now ? now : was;
    bool is_soft = was && now && generation_of(was) == generation_of(now) && was->deleting == now->deleting;

    if (now && !was)
        note_time(c, (struct object *)now);
    if (any->kind == KIND_SANDBOX || any->kind == KIND_KERNEL) {
        if (now)
            drop_if_made(c, (struct object *)now);
        if (was)
            wake_owner(c, was);
        if (now)
            wake_owner(c, now);
        if (!now || !was)
            wake_if_there(c, KIND_BOXCLAIM, any->namespace, any->name);
    } else if (any->kind != KIND_BOXCLAIM && !is_soft) {
        wake_users(c, any);
    }
    if (now)
        work_wake(c, any->kind, any->namespace, any->name, is_soft);
}

static void on_policy_change(struct controller *c, const struct object *any)
{
    static const char end[] = "-network-policy";
    size_t n = strlen(any->name), cut = sizeof end - 1;
    char name[320];

    if (n <= cut || n >= sizeof name || strcmp(any->name + n - cut, end) != 0)
        return;
    memcpy(name, any->name, n - cut);
    name[n - cut] = '\0';
    wake_if_there(c, KIND_TEMPLATE, any->namespace, name);
    wake_if_there(c, KIND_BOXCLAIM, any->namespace, name);
}

static void on_change(void *owner, const struct object *was, const struct object *now)
{
    struct controller *c = owner;
    const struct object *any = now ? now : was;

    switch (any->kind) {
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
    case KIND_NETPOLICY:
        on_policy_change(c, any);
        break;
    default:
        on_own_change(c, was, now);
    }
}

/* ---- the watches ---- */

static void wake_all(struct controller *c, enum kind kind)
{
    size_t bucket;

    for (struct object *o = NULL; (o = cache_walk(&c->cache, kind, &bucket, o));)
        work_wake(c, kind, o->namespace, o->name, true);
}

static bool is_wanted(const struct controller *c, enum kind kind)
{
    return kind == KIND_KERNEL ? c->with_kernels : kind < KIND_TEMPLATE || c->with_extensions;
}

/* A cluster may lack the definitions of Kernels and of the extensions, but not of Sandboxes. */
static bool is_done_without(const struct kube_watch *w, enum kind kind)
{
    return w->status == 404 && (kind == KIND_KERNEL || kind >= KIND_TEMPLATE);
}

/* All existing objects of this kind are in the cache, or the server does not know the kind. */
static bool is_listed(const struct controller *c, enum kind kind)
{
    return c->watch[kind].synced || !is_wanted(c, kind) || is_done_without(&c->watch[kind], kind);
}

bool controller_is_synced(const struct controller *c)
{
    for (enum kind kind = 0; kind < KINDS; kind++)
        if (kind != KIND_KERNEL && !is_listed(c, kind))
            return false;
    return true;
}

void controller_lead(struct controller *c)
{
    static const enum kind reconciled[] = { KIND_SANDBOX, KIND_KERNEL, KIND_TEMPLATE, KIND_POOL, KIND_BOXCLAIM };

    if (!controller_is_synced(c) || c->leads || (c->elects && !kube_lease_is_held(&c->lease)))
        return;
    c->leads = true;
    log_line(LOG_INFO, "acting: %zu sandboxes, %zu kernels, %zu pools, %zu claims, %zu pods, %zu services, %zu volume "
             "claims known", c->cache.of[KIND_SANDBOX].count, c->cache.of[KIND_KERNEL].count,
             c->cache.of[KIND_POOL].count, c->cache.of[KIND_BOXCLAIM].count, c->cache.of[KIND_POD].count,
             c->cache.of[KIND_SERVICE].count, c->cache.of[KIND_CLAIM].count);
    for (size_t i = 0; i < sizeof reconciled / sizeof *reconciled; i++)
        wake_all(c, reconciled[i]);
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
        log_line(LOG_WARN, "%s: an object is not understood: %s", kind_info[kind].plural, e.what);
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
    if (is_wanted(c, kind) && c->watch[kind].phase == KUBE_WATCH_OFF)
        kube_watch_start(&c->watch[kind]);
}

/* Starts watches in the order of dependencies: objects of Sandboxes before Sandboxes (most need no write, and then keep
 * no template), pools and their Sandboxes before claims. */
static void start_next(struct controller *c)
{
    if (!is_listed(c, KIND_POD) || !is_listed(c, KIND_SERVICE) || !is_listed(c, KIND_CLAIM) ||
        !is_listed(c, KIND_TEMPLATE) || !is_listed(c, KIND_NETPOLICY))
        return;
    start(c, KIND_SANDBOX);
    start(c, KIND_KERNEL);
    start(c, KIND_POOL);
    if (is_listed(c, KIND_SANDBOX) && is_listed(c, KIND_POOL))
        start(c, KIND_BOXCLAIM);
    controller_lead(c);
}

static void on_listed(struct kube_watch *w)
{
    struct controller *c = controller_of(w);
    enum kind kind = kind_of(w);

    cache_list_end(&c->cache, kind, strtoull(w->version, NULL, 10));
    log_line(LOG_DEBUG, "%s: listed at version %s", kind_info[kind].plural, w->version);
    start_next(c);
}

static void on_absent(struct kube_watch *w)
{
    struct controller *c = controller_of(w);

    cache_clear(&c->cache, kind_of(w));
    start_next(c);
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
    struct controller *c = controller_of(w);

    if (!*text) {
        if (c->is_unanswered)
            log_line(LOG_INFO, "the API server answers again");
        if (c->is_trouble_told[kind])
            log_line(LOG_INFO, "%s: watching again", kind_info[kind].plural);
        c->is_unanswered = c->is_trouble_told[kind] = false;
    } else if (w->status == 0) {        /* affects all kinds alike: one line */
        if (!c->is_unanswered)
            log_line(LOG_ERROR, "the API server does not answer: %s; trying on", text);
        c->is_unanswered = true;
    } else if (is_done_without(w, kind)) {
        log_line(LOG_INFO, "%s are not installed here, and not looked after until they are", kind_info[kind].plural);
        c->is_trouble_told[kind] = true;
    } else {
        log_line(LOG_ERROR, "%s: cannot be watched: %s%s; trying on", kind_info[kind].plural, text, hint_for(w, kind));
        c->is_trouble_told[kind] = true;
    }
}

void controller_write_trouble(const struct controller *c, struct buf *out)
{
    for (enum kind kind = 0; kind < KINDS; kind++) {
        const struct kube_watch *w = &c->watch[kind];
        if (!is_wanted(c, kind) || is_done_without(w, kind))
            continue;
        if (kube_watch_is_failing(w))
            buf_printf(out, "%s: cannot be watched: %s%s\n", kind_info[kind].plural, w->why, hint_for(w, kind));
        else if (!w->synced)
            buf_printf(out, "%s: not listed yet\n", kind_info[kind].plural);
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
        w->path = kind_info[i].path;
        w->on_listing = on_listing;
        w->on_object = on_object;
        w->on_listed = on_listed;
        w->on_absent = on_absent;
        w->on_trouble = on_trouble;
    }
    if (!c->with_extensions)
        log_line(LOG_INFO, "SandboxTemplates, SandboxWarmPools and SandboxClaims are left alone (--extensions=false)");
    if (!c->with_kernels)
        log_line(LOG_INFO, "Kernels are left alone (--kernels=false)");
    start(c, KIND_POD);
    start(c, KIND_SERVICE);
    start(c, KIND_CLAIM);
    start(c, KIND_TEMPLATE);
    start(c, KIND_NETPOLICY);
}
