/* From the API server's JSON to the cache's objects.
 *
 * A draft on the stack has its strings in a scratch buffer; pack() then makes one allocation of the struct and exactly
 * those bytes. The text is walked member by member, once for each level, so that a large object stays cheap. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cluster/decode.h"

/* Which members of a struct are strings in its own allocation. */
#define STRING(type, member) (uint16_t)offsetof(type, member)
static const uint16_t common_strings[] = {
    STRING(struct object, namespace), STRING(struct object, name), STRING(struct object, uid),
    STRING(struct object, owner_uid), STRING(struct object, owner_kind), STRING(struct object, owner_name),
    STRING(struct object, owner_group), STRING(struct object, owners), STRING(struct object, name_hash),
    STRING(struct object, owned_key), 0xffff };
static const uint16_t pod_strings[] = {
    STRING(struct pod, node), STRING(struct pod, ips), STRING(struct pod, scheduled_reason),
    STRING(struct pod, scheduled_message), STRING(struct pod, labels), STRING(struct pod, notes),
    STRING(struct pod, conditions), STRING(struct pod, state), STRING(struct pod, trouble), 0xffff };
static const uint16_t service_strings[] = { STRING(struct service, cluster_ip), STRING(struct service, selector),
                                            0xffff };
static const uint16_t no_strings[] = { 0xffff };
static const uint16_t sandbox_strings[] = {
    STRING(struct sandbox, pod_name), STRING(struct sandbox, created_by), STRING(struct sandbox, launch),
    STRING(struct sandbox, template_ref), STRING(struct sandbox, pool), STRING(struct sandbox, template_hash_label),
    STRING(struct sandbox, claim_id), STRING(struct sandbox, blueprint_label), STRING(struct sandbox, trouble),
    STRING(struct sandbox, waiting),
    STRING(struct sandbox, labels), STRING(struct sandbox, notes),
    STRING(struct sandbox, foreign), STRING(struct sandbox, status_service), STRING(struct sandbox, status_fqdn),
    STRING(struct sandbox, status_selector), STRING(struct sandbox, status_ips), STRING(struct sandbox, status_node),
    STRING(struct sandbox, condition[0].reason), STRING(struct sandbox, condition[0].message),
    STRING(struct sandbox, condition[1].reason), STRING(struct sandbox, condition[1].message),
    STRING(struct sandbox, condition[2].reason), STRING(struct sandbox, condition[2].message),
    STRING(struct sandbox, condition[3].reason), STRING(struct sandbox, condition[3].message), 0xffff };
static const uint16_t kernel_strings[] = {
    STRING(struct kernel, kernel_id), STRING(struct kernel, connection), STRING(struct kernel, labels),
    STRING(struct kernel, notes), STRING(struct kernel, conditions), STRING(struct kernel, state), 0xffff };

static const uint16_t template_strings[] = {
    STRING(struct template, hash_label), STRING(struct template, labels), STRING(struct template, notes),
    STRING(struct template, pod_spec), STRING(struct template, claim_templates), STRING(struct template, policy_spec),
    0xffff };
static const uint16_t pool_strings[] = { STRING(struct pool, template_name), STRING(struct pool, status_selector),
                                         0xffff };
static const uint16_t boxclaim_strings[] = {
    STRING(struct boxclaim, pool_name), STRING(struct boxclaim, template_name), STRING(struct boxclaim, warmth),
    STRING(struct boxclaim, assigned), STRING(struct boxclaim, assigned_label), STRING(struct boxclaim, observed),
    STRING(struct boxclaim, first_ready), STRING(struct boxclaim, requested), STRING(struct boxclaim, webhook),
    STRING(struct boxclaim, trace), STRING(struct boxclaim, trouble), STRING(struct boxclaim, created_by),
    STRING(struct boxclaim, labels), STRING(struct boxclaim, notes), STRING(struct boxclaim, env),
    STRING(struct boxclaim, claim_templates), STRING(struct boxclaim, foreign), STRING(struct boxclaim, box_name),
    STRING(struct boxclaim, box_ips), STRING(struct boxclaim, box_fqdn), STRING(struct boxclaim, ready.reason),
    STRING(struct boxclaim, ready.message), STRING(struct boxclaim, finished.reason),
    STRING(struct boxclaim, finished.message), 0xffff };

static const struct { size_t size; const uint16_t *strings; } kinds[KINDS] = {
    [KIND_SANDBOX] = { sizeof(struct sandbox), sandbox_strings },
    [KIND_KERNEL] = { sizeof(struct kernel), kernel_strings },
    [KIND_POD] = { sizeof(struct pod), pod_strings },
    [KIND_SERVICE] = { sizeof(struct service), service_strings },
    [KIND_CLAIM] = { sizeof(struct claim), no_strings },
    [KIND_TEMPLATE] = { sizeof(struct template), template_strings },
    [KIND_POOL] = { sizeof(struct pool), pool_strings },
    [KIND_BOXCLAIM] = { sizeof(struct boxclaim), boxclaim_strings },
    [KIND_NETPOLICY] = { sizeof(struct netpolicy), no_strings },
};

static const char *offset_of(size_t at)
{
    return (const char *)(uintptr_t)(at + 1);
}

const char *decode_keep(struct decoder *d, const char *data, size_t size)
{
    size_t at = d->scratch.length;

    if (!data)
        return NULL;
    buf_add(&d->scratch, data, size);
    buf_add_char(&d->scratch, '\0');
    return offset_of(at);
}

const char *decode_raw(struct decoder *d, struct jsonslice value)
{
    return decode_keep(d, value.data, value.size);
}

const char *decode_text(struct decoder *d, struct jsonslice value)
{
    size_t at = d->scratch.length;

    if (jsonscan_inside(value).size == 0)
        return NULL;
    char *room = buf_reserve(&d->scratch, value.size + 1);
    if (!room || !jsonscan_text(value, room, value.size + 1))
        return NULL;
    buf_commit(&d->scratch, strlen(room) + 1);
    return offset_of(at);
}

const char *decode_kept(const struct decoder *d, const char *kept)
{
    return kept && d->scratch.data ? d->scratch.data + ((uintptr_t)kept - 1) : "";
}

const char *decode_ips(struct decoder *d, struct jsonslice list, const char *member)
{
    struct jsonwalk w = jsonscan_walk(list);
    char one[64];
    struct buf ips;

    buf_init(&ips, 4096);
    while (jsonscan_next(&w))
        if (jsonscan_text(member ? jsonscan_find(w.value, member) : w.value, one, sizeof one))
            buf_printf(&ips, "%s%s", ips.length ? "," : "", one);
    const char *kept = ips.length ? decode_keep(d, ips.data, ips.length) : NULL;
    buf_done(&ips);
    return kept;
}

bool decode_is_object(struct jsonslice v)
{
    return v.data && *v.data == '{';
}

bool decode_is_true(struct jsonslice v)
{
    return v.size == 4 && memcmp(v.data, "true", 4) == 0;
}

uint8_t decode_truth(struct jsonslice v)
{
    return jsonscan_is(v, "true") ? YES : jsonscan_is(v, "false") ? NO : UNSET;
}

int64_t decode_time(struct jsonslice v)
{
    char text[64];
    int64_t t = 0;

    return jsonscan_text(v, text, sizeof text) && time_parse(text, &t) ? t : 0;
}

uint8_t decode_status(struct jsonslice v)
{
    return jsonscan_is(v, "True") ? COND_TRUE : jsonscan_is(v, "False") ? COND_FALSE : COND_UNKNOWN;
}

bool decode_condition(struct decoder *d, struct jsonslice c, const char *type, struct condition *to)
{
    unsigned long long generation = 0;

    if (!jsonscan_is(jsonscan_find(c, "type"), type))
        return false;
    (void)jsonscan_number(jsonscan_find(c, "observedGeneration"), &generation);
    *to = (struct condition){ .status = decode_status(jsonscan_find(c, "status")),
                              .reason = decode_text(d, jsonscan_find(c, "reason")),
                              .message = decode_text(d, jsonscan_find(c, "message")),
                              .since = decode_time(jsonscan_find(c, "lastTransitionTime")),
                              .generation = (int64_t)generation };
    return true;
}

void decode_foreign(struct buf *foreign, struct jsonslice c)
{
    if (foreign->length > 0)
        buf_add_char(foreign, ',');
    buf_add(foreign, c.data, c.size);
}

char *decode_copy(struct jsonslice v)
{
    return v.data ? strndup(v.data, v.size) : NULL;
}

const char *decode_conditions(struct decoder *d, struct jsonslice conditions)
{
    struct buf normal;

    buf_init(&normal, 1 << 20);
    conditions_write(conditions, &normal);
    const char *kept = decode_keep(d, buf_string(&normal), normal.length);
    buf_done(&normal);
    return kept;
}

/* ---- metadata ---- */

static void take_owners(struct decoder *d, struct jsonslice owners)
{
    struct jsonwalk w = jsonscan_walk(owners);
    size_t n = 0;
    bool has_controller = false;

    for (; jsonscan_next(&w); n++) {
        if (!decode_is_true(jsonscan_find(w.value, "controller")) || has_controller)
            continue;
        struct jsonslice group = jsonscan_inside(jsonscan_find(w.value, "apiVersion"));
        has_controller = true;
        d->d.o.owner_uid = decode_text(d, jsonscan_find(w.value, "uid"));
        d->d.o.owner_kind = decode_text(d, jsonscan_find(w.value, "kind"));
        d->d.o.owner_name = decode_text(d, jsonscan_find(w.value, "name"));
        const char *slash = group.data ? memchr(group.data, '/', group.size) : NULL;
        d->d.o.owner_group = slash ? decode_keep(d, group.data, (size_t)(slash - group.data)) : NULL;
    }
    if (n > (has_controller ? 1 : 0))
        d->d.o.owners = decode_raw(d, owners);
}

int decode_metadata(struct decoder *d, struct jsonslice whole, struct decoded_meta *ret)
{
    struct object *o = &d->d.o;
    struct jsonwalk w = jsonscan_walk(jsonscan_find(whole, "metadata"));
    unsigned long long number;
    char version[32] = "";

    *ret = (struct decoded_meta){ 0 };
    while (jsonscan_next(&w)) {
        if (jsonscan_is(w.key, "name"))
            o->name = decode_text(d, w.value);
        else if (jsonscan_is(w.key, "namespace"))
            o->namespace = decode_text(d, w.value);
        else if (jsonscan_is(w.key, "uid"))
            o->uid = decode_text(d, w.value);
        else if (jsonscan_is(w.key, "resourceVersion"))
            (void)jsonscan_text(w.value, version, sizeof version);
        else if (jsonscan_is(w.key, "generation") && jsonscan_number(w.value, &number))
            ret->generation = (int64_t)number;
        else if (jsonscan_is(w.key, "creationTimestamp"))
            ret->created = decode_time(w.value);
        else if (jsonscan_is(w.key, "deletionTimestamp"))
            o->deleting = *w.value.data == '"';
        else if (jsonscan_is(w.key, "labels"))
            ret->labels = w.value;
        else if (jsonscan_is(w.key, "annotations"))
            ret->notes = w.value;
        else if (jsonscan_is(w.key, "ownerReferences"))
            take_owners(d, w.value);
    }
    if (!o->name || !o->namespace || !o->uid || !version[0])
        return err_set(d->e, EBADMSG, STEP_PROTOCOL, "%s without name, namespace, uid or version",
                       kind_info[o->kind].name);
    if (buf_error(&d->scratch) < 0)
        return err_at(d->e, ENOMEM, STEP_MEMORY, 0, kind_info[o->kind].name);
    o->version = strtoull(version, NULL, 10);
    o->name_hash = decode_text(d, jsonscan_find(ret->labels, LABEL_HASH));
    o->adoptable = jsonscan_is(jsonscan_find(ret->labels, LABEL_ADOPTABLE), "true");
    return 0;
}

/* ---- Services and Kernels ---- */

static int take_service(struct decoder *d, struct jsonslice whole)
{
    struct jsonslice spec = jsonscan_find(whole, "spec");
    struct decoded_meta ignored;
    struct buf ports;
    int r = decode_metadata(d, whole, &ignored);

    if (r < 0)
        return r;
    d->d.service.cluster_ip = decode_text(d, jsonscan_find(spec, "clusterIP"));
    buf_init(&ports, 1 << 20);
    ports_write_own(jsonscan_find(spec, "ports"), &ports);
    d->d.service.ports_hash = hash_bytes(HASH_SEED, buf_string(&ports), ports.length);
    buf_done(&ports);
    char own[9];
    hash_name(decode_kept(d, d->d.o.name), own);
    struct jsonslice selector = jsonscan_find(spec, "selector");
    struct jsonwalk w = jsonscan_walk(selector);
    size_t n = 0;
    while (jsonscan_next(&w)) {
        n++;
        d->d.service.selects = n == 1 && jsonscan_is(w.key, LABEL_HASH) && jsonscan_is(w.value, own);
    }
    if (!d->d.service.selects && (d->d.o.name_hash || d->d.o.adoptable || d->d.o.owner_uid))
        d->d.service.selector = decode_raw(d, selector);
    return 0;
}

static int take_kernel(struct decoder *d, struct jsonslice whole)
{
    struct kernel *k = &d->d.kernel;
    struct jsonslice status = jsonscan_find(whole, "status");
    struct decoded_meta m;
    struct jsonslice template = jsonscan_find(jsonscan_find(whole, "spec"), "template");
    struct jsonslice spec = jsonscan_find(template, "spec"), meta = jsonscan_find(template, "metadata");
    struct jsonwalk w = jsonscan_walk(jsonscan_find(status, "conditions"));
    int r = decode_metadata(d, whole, &m);

    if (r < 0)
        return r;
    k->generation = m.generation;
    k->created = m.created;
    k->kernel_id = decode_text(d, jsonscan_find(m.notes, "jupyter.org/kernel-id"));
    k->connection = decode_text(d, jsonscan_find(m.notes, "jupyter.org/kernel-connection-info"));
    k->labels = decode_raw(d, jsonscan_find(meta, "labels"));
    k->notes = decode_raw(d, jsonscan_find(meta, "annotations"));
    k->conditions = decode_conditions(d, jsonscan_find(status, "conditions"));
    k->state = decode_raw(d, jsonscan_find(status, "containerState"));
    k->has_replicas = jsonscan_find(status, "readyReplicas").data != NULL;
    while (jsonscan_next(&w))
        if (jsonscan_is(jsonscan_find(w.value, "type"), "Ready"))
            k->ready = decode_status(jsonscan_find(w.value, "status"));
    k->has_spec = decode_is_object(spec);
    k->pod_spec = k->has_spec ? decode_copy(spec) : NULL;
    return 0;
}

/* ---- one allocation ---- */

static void relocate(void *object, const uint16_t *strings, const char *base)
{
    for (; *strings != 0xffff; strings++) {
        const char **at = (const char **)((char *)object + *strings);
        if (*at)
            *at = base + ((uintptr_t)*at - 1);
    }
}

static struct object *pack(struct decoder *d)
{
    enum kind kind = d->d.o.kind;
    size_t refs = (kinds[kind].size + 15) & ~(size_t)15, size = d->n_claims * sizeof(struct claim_ref);

    if (buf_error(&d->scratch) < 0)
        return NULL;
    char *memory = malloc(refs + size + d->scratch.length);
    if (!memory)
        return NULL;
    struct object *o = (struct object *)memory;
    memcpy(memory, &d->d, kinds[kind].size);
    char *text = memory + refs + size;
    memcpy(text, buf_string(&d->scratch), d->scratch.length);
    relocate(o, common_strings, text);
    relocate(o, kinds[kind].strings, text);
    if (kind == KIND_SANDBOX) {
        struct sandbox *s = (struct sandbox *)o;
        s->claims = (struct claim_ref *)(memory + refs);
        s->n_claims = (uint16_t)d->n_claims;
        for (size_t i = 0; i < d->n_claims; i++)
            s->claims[i] = (struct claim_ref){ .box = s, .is_template = d->claims[i].is_template,
                                               .name = text + ((uintptr_t)d->claims[i].name - 1) };
    }
    return o;
}

struct object *object_decode(enum kind kind, struct jsonslice text, struct err *e)
{
    static int (*const take[KINDS])(struct decoder *, struct jsonslice) = {
        [KIND_SANDBOX] = decode_sandbox, [KIND_KERNEL] = take_kernel, [KIND_POD] = decode_pod,
        [KIND_SERVICE] = take_service, [KIND_TEMPLATE] = decode_template, [KIND_POOL] = decode_pool,
        [KIND_BOXCLAIM] = decode_boxclaim, [KIND_NETPOLICY] = decode_netpolicy };
    struct decoder d = { .e = e };
    struct decoded_meta ignored;
    struct object *o = NULL;

    d.d.o.kind = (uint8_t)kind;
    buf_init(&d.scratch, 8 << 20);
    int r = take[kind] ? take[kind](&d, text) : decode_metadata(&d, text, &ignored);
    if (r == 0 && !(o = pack(&d)))
        err_at(e, ENOMEM, STEP_MEMORY, 0, kind_info[kind].name);
    if (!o && kind == KIND_SANDBOX) {
        free(d.d.sandbox.pod_spec);
        free(d.d.sandbox.claim_templates);
    } else if (!o && kind == KIND_KERNEL) {
        free(d.d.kernel.pod_spec);
    }
    buf_done(&d.scratch);
    return o;
}

void object_drop_template(struct object *o)
{
    if (o->kind == KIND_SANDBOX) {
        struct sandbox *s = (struct sandbox *)o;
        free(s->pod_spec);
        free(s->claim_templates);
        s->pod_spec = s->claim_templates = NULL;
    } else if (o->kind == KIND_KERNEL) {
        free(((struct kernel *)o)->pod_spec);
        ((struct kernel *)o)->pod_spec = NULL;
    }
}

void object_free(struct object *o)
{
    if (!o)
        return;
    object_drop_template(o);
    free(o);
}

bool object_is_owned_by(const struct object *o, const struct object *owner)
{
    return o && o->owner_uid && strcmp(o->owner_uid, owner->uid) == 0;
}
