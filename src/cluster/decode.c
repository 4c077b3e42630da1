/* From the API server's JSON to what the cache keeps.
 *
 * A draft on the stack has its strings in a scratch buffer; pack() then makes one allocation of the struct and exactly
 * those bytes. The text is walked member by member, once for each level, so that an object's size costs little. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "cluster/object.h"

/* Which members of a struct are strings in its own allocation. */
#define STRING(type, member) (uint16_t)offsetof(type, member)
static const uint16_t common_strings[] = {
    STRING(struct object, namespace), STRING(struct object, name), STRING(struct object, uid),
    STRING(struct object, owner_uid), STRING(struct object, owner_kind), STRING(struct object, owner_name),
    STRING(struct object, owner_group), STRING(struct object, owners), STRING(struct object, name_hash), 0xffff };
static const uint16_t pod_strings[] = {
    STRING(struct pod, node), STRING(struct pod, ips), STRING(struct pod, scheduled_reason),
    STRING(struct pod, scheduled_message), STRING(struct pod, labels), STRING(struct pod, notes),
    STRING(struct pod, conditions), STRING(struct pod, state), 0xffff };
static const uint16_t service_strings[] = { STRING(struct service, cluster_ip), STRING(struct service, selector),
                                            0xffff };
static const uint16_t claim_strings[] = { 0xffff };
static const uint16_t sandbox_strings[] = {
    STRING(struct sandbox, pod_name), STRING(struct sandbox, created_by), STRING(struct sandbox, launch),
    STRING(struct sandbox, template_ref), STRING(struct sandbox, pool), STRING(struct sandbox, template_hash_label),
    STRING(struct sandbox, claim_id), STRING(struct sandbox, labels), STRING(struct sandbox, notes),
    STRING(struct sandbox, foreign), STRING(struct sandbox, status_service), STRING(struct sandbox, status_fqdn),
    STRING(struct sandbox, status_selector), STRING(struct sandbox, status_ips), STRING(struct sandbox, status_node),
    STRING(struct sandbox, condition[0].reason), STRING(struct sandbox, condition[0].message),
    STRING(struct sandbox, condition[1].reason), STRING(struct sandbox, condition[1].message),
    STRING(struct sandbox, condition[2].reason), STRING(struct sandbox, condition[2].message),
    STRING(struct sandbox, condition[3].reason), STRING(struct sandbox, condition[3].message), 0xffff };
static const uint16_t kernel_strings[] = {
    STRING(struct kernel, kernel_id), STRING(struct kernel, connection), STRING(struct kernel, labels),
    STRING(struct kernel, notes), STRING(struct kernel, conditions), STRING(struct kernel, state), 0xffff };

static const struct { size_t size; const uint16_t *strings; const char *name; } kinds[KINDS] = {
    [KIND_SANDBOX] = { sizeof(struct sandbox), sandbox_strings, "Sandbox" },
    [KIND_KERNEL] = { sizeof(struct kernel), kernel_strings, "Kernel" },
    [KIND_POD] = { sizeof(struct pod), pod_strings, "Pod" },
    [KIND_SERVICE] = { sizeof(struct service), service_strings, "Service" },
    [KIND_CLAIM] = { sizeof(struct claim), claim_strings, "PersistentVolumeClaim" },
};

union draft {
    struct object  o;
    struct sandbox sandbox;
    struct kernel  kernel;
    struct pod     pod;
    struct service service;
    struct claim   claim;
};

struct decoder {
    union draft d;
    struct buf  scratch;        /* strings; the draft's pointers are offsets + 1 until pack() */
    struct { const char *name; bool is_template; } claims[CLAIMS_MAX];
    size_t      n_claims;
    struct err *e;
};

static const char *offset_of(size_t at)
{
    return (const char *)(uintptr_t)(at + 1);
}

/* A copy of bytes; NULL stays NULL. */
static const char *keep(struct decoder *d, const char *data, size_t size)
{
    size_t at = d->scratch.length;

    if (!data)
        return NULL;
    buf_add(&d->scratch, data, size);
    buf_add_char(&d->scratch, '\0');
    return offset_of(at);
}

static const char *keep_raw(struct decoder *d, struct jsonslice value)
{
    return keep(d, value.data, value.size);
}

/* A string's text; NULL if it is none or empty. */
static const char *keep_text(struct decoder *d, struct jsonslice value)
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

static bool is_object(struct jsonslice v)
{
    return v.data && *v.data == '{';
}

static bool is_true(struct jsonslice v)
{
    return v.size == 4 && memcmp(v.data, "true", 4) == 0;
}

static uint8_t truth_of(struct jsonslice v)
{
    return jsonscan_is(v, "true") ? YES : jsonscan_is(v, "false") ? NO : UNSET;
}

static int64_t time_of(struct jsonslice v)
{
    char text[64];
    int64_t t = 0;

    return jsonscan_text(v, text, sizeof text) && time_parse(text, &t) ? t : 0;
}

/* ---- metadata ---- */

static void take_owners(struct decoder *d, struct jsonslice owners)
{
    struct jsonwalk w = jsonscan_walk(owners);
    size_t n = 0;
    bool has_controller = false;

    for (; jsonscan_next(&w); n++) {
        if (!is_true(jsonscan_find(w.value, "controller")) || has_controller)
            continue;
        struct jsonslice group = jsonscan_inside(jsonscan_find(w.value, "apiVersion"));
        has_controller = true;
        d->d.o.owner_uid = keep_text(d, jsonscan_find(w.value, "uid"));
        d->d.o.owner_kind = keep_text(d, jsonscan_find(w.value, "kind"));
        d->d.o.owner_name = keep_text(d, jsonscan_find(w.value, "name"));
        const char *slash = group.data ? memchr(group.data, '/', group.size) : NULL;
        d->d.o.owner_group = slash ? keep(d, group.data, (size_t)(slash - group.data)) : NULL;
    }
    if (n > (has_controller ? 1 : 0))
        d->d.o.owners = keep_raw(d, owners);
}

static int take_metadata(struct decoder *d, struct jsonslice meta, struct jsonslice *ret_labels,
                         struct jsonslice *ret_notes, int64_t *ret_generation, int64_t *ret_created)
{
    struct object *o = &d->d.o;
    struct jsonwalk w = jsonscan_walk(meta);
    unsigned long long number;
    char version[32] = "";

    while (jsonscan_next(&w)) {
        if (jsonscan_is(w.key, "name"))
            o->name = keep_text(d, w.value);
        else if (jsonscan_is(w.key, "namespace"))
            o->namespace = keep_text(d, w.value);
        else if (jsonscan_is(w.key, "uid"))
            o->uid = keep_text(d, w.value);
        else if (jsonscan_is(w.key, "resourceVersion"))
            (void)jsonscan_text(w.value, version, sizeof version);
        else if (jsonscan_is(w.key, "generation") && jsonscan_number(w.value, &number))
            *ret_generation = (int64_t)number;
        else if (jsonscan_is(w.key, "creationTimestamp"))
            *ret_created = time_of(w.value);
        else if (jsonscan_is(w.key, "deletionTimestamp"))
            o->deleting = *w.value.data == '"';
        else if (jsonscan_is(w.key, "labels"))
            *ret_labels = w.value;
        else if (jsonscan_is(w.key, "annotations"))
            *ret_notes = w.value;
        else if (jsonscan_is(w.key, "ownerReferences"))
            take_owners(d, w.value);
    }
    if (!o->name || !o->namespace || !o->uid || !version[0])
        return err_set(d->e, EBADMSG, STEP_PROTOCOL, "%s without name, namespace, uid or version", kinds[o->kind].name);
    if (buf_error(&d->scratch) < 0)
        return err_at(d->e, ENOMEM, STEP_MEMORY, 0, kinds[o->kind].name);
    o->version = strtoull(version, NULL, 10);
    o->name_hash = keep_text(d, jsonscan_find(*ret_labels, LABEL_HASH));
    o->adoptable = jsonscan_is(jsonscan_find(*ret_labels, LABEL_ADOPTABLE), "true");
    return 0;
}

/* ---- Pods ---- */

static uint8_t status_of(struct jsonslice v)
{
    return jsonscan_is(v, "True") ? COND_TRUE : jsonscan_is(v, "False") ? COND_FALSE : COND_UNKNOWN;
}

static const char *keep_conditions(struct decoder *d, struct jsonslice conditions)
{
    struct buf normal;

    buf_init(&normal, 1 << 20);
    conditions_write(conditions, &normal);
    const char *kept = keep(d, buf_string(&normal), normal.length);
    buf_done(&normal);
    return kept;
}

static void take_pod_status(struct decoder *d, struct jsonslice status, bool for_kernel)
{
    static const char *const phases[] = { "", "Pending", "Running", "Succeeded", "Failed", "Unknown" };
    struct pod *p = &d->d.pod;
    struct jsonslice phase = jsonscan_find(status, "phase"), conditions = jsonscan_find(status, "conditions");
    struct jsonwalk w = jsonscan_walk(conditions);
    char ips[512], one[64];
    size_t n = 0;

    for (uint8_t i = POD_PENDING; i <= POD_UNKNOWN; i++)
        if (jsonscan_is(phase, phases[i]))
            p->phase = i;
    while (jsonscan_next(&w)) {
        struct jsonslice type = jsonscan_find(w.value, "type");
        if (jsonscan_is(type, "Ready") && p->ready == COND_ABSENT) {
            p->ready = status_of(jsonscan_find(w.value, "status"));
        } else if (jsonscan_is(type, "PodScheduled") && p->scheduled == COND_ABSENT) {
            p->scheduled = status_of(jsonscan_find(w.value, "status"));
            p->scheduled_reason = keep_text(d, jsonscan_find(w.value, "reason"));
            p->scheduled_message = keep_text(d, jsonscan_find(w.value, "message"));
        }
    }
    w = jsonscan_walk(jsonscan_find(status, "podIPs"));
    while (jsonscan_next(&w))
        if (jsonscan_text(jsonscan_find(w.value, "ip"), one, sizeof one) && n + strlen(one) + 2 < sizeof ips) {
            size_t length = strlen(one);
            if (n > 0)
                ips[n++] = ',';
            memcpy(ips + n, one, length);
            n += length;
        }
    p->ips = n > 0 ? keep(d, ips, n) : NULL;
    if (for_kernel) {
        struct jsonwalk c = jsonscan_walk(jsonscan_find(status, "containerStatuses"));
        p->conditions = keep_conditions(d, conditions);
        if (jsonscan_next(&c))
            p->state = keep_raw(d, jsonscan_find(c.value, "state"));
    }
}

static int take_pod(struct decoder *d, struct jsonslice whole)
{
    struct jsonslice labels = { 0 }, notes = { 0 };
    int64_t ignored;
    int r = take_metadata(d, jsonscan_find(whole, "metadata"), &labels, &notes, &ignored, &ignored);

    if (r < 0)
        return r;
    const char *kind = d->d.o.owner_kind ? d->scratch.data + ((uintptr_t)d->d.o.owner_kind - 1) : "";
    bool for_kernel = strcmp(kind, "Kernel") == 0;
    /* Somebody else's Pods are here only so that a name that is taken is noticed. */
    if (d->d.o.name_hash || d->d.o.adoptable || for_kernel || strcmp(kind, "Sandbox") == 0) {
        d->d.pod.labels = keep_raw(d, labels);
        d->d.pod.notes = keep_raw(d, notes);
        d->d.pod.node = keep_text(d, jsonscan_find(jsonscan_find(whole, "spec"), "nodeName"));
        take_pod_status(d, jsonscan_find(whole, "status"), for_kernel);
    }
    return 0;
}

static int take_service(struct decoder *d, struct jsonslice whole)
{
    struct jsonslice labels = { 0 }, notes = { 0 }, spec = jsonscan_find(whole, "spec");
    int64_t ignored;
    struct buf ports;
    int r = take_metadata(d, jsonscan_find(whole, "metadata"), &labels, &notes, &ignored, &ignored);

    if (r < 0)
        return r;
    d->d.service.cluster_ip = keep_text(d, jsonscan_find(spec, "clusterIP"));
    buf_init(&ports, 1 << 20);
    ports_write_own(jsonscan_find(spec, "ports"), &ports);
    d->d.service.ports_hash = hash_bytes(HASH_SEED, buf_string(&ports), ports.length);
    buf_done(&ports);
    char own[9];
    hash_name(d->scratch.data + ((uintptr_t)d->d.o.name - 1), own);
    struct jsonslice selector = jsonscan_find(spec, "selector");
    struct jsonwalk w = jsonscan_walk(selector);
    size_t n = 0;
    while (jsonscan_next(&w)) {
        n++;
        d->d.service.selects = n == 1 && jsonscan_is(w.key, LABEL_HASH) && jsonscan_is(w.value, own);
    }
    if (!d->d.service.selects && (d->d.o.name_hash || d->d.o.adoptable || d->d.o.owner_uid))
        d->d.service.selector = keep_raw(d, selector);
    return 0;
}

/* ---- Sandboxes ---- */

static void take_condition(struct decoder *d, struct jsonslice c, struct buf *foreign)
{
    static const char *const names[CONDITIONS] = { "Ready", "Suspended", "PodScheduled", "Finished" };
    struct jsonslice type = jsonscan_find(c, "type");
    unsigned long long generation = 0;

    for (size_t i = 0; i < CONDITIONS; i++)
        if (jsonscan_is(type, names[i])) {
            (void)jsonscan_number(jsonscan_find(c, "observedGeneration"), &generation);
            d->d.sandbox.condition[i] = (struct condition){
                .status = status_of(jsonscan_find(c, "status")), .reason = keep_text(d, jsonscan_find(c, "reason")),
                .message = keep_text(d, jsonscan_find(c, "message")),
                .since = time_of(jsonscan_find(c, "lastTransitionTime")), .generation = (int64_t)generation };
            return;
        }
    if (foreign->length > 0)
        buf_add_char(foreign, ',');
    buf_add(foreign, c.data, c.size);
}

static void take_sandbox_status(struct decoder *d, struct jsonslice status)
{
    struct sandbox *s = &d->d.sandbox;
    struct jsonwalk w = jsonscan_walk(jsonscan_find(status, "conditions"));
    struct buf foreign, ips;
    unsigned long long n;
    char one[64];

    buf_init(&foreign, 65536);
    buf_init(&ips, 4096);
    while (jsonscan_next(&w))
        if (is_object(w.value))
            take_condition(d, w.value, &foreign);
    s->foreign = foreign.length ? keep(d, foreign.data, foreign.length) : NULL;
    w = jsonscan_walk(jsonscan_find(status, "podIPs"));
    while (jsonscan_next(&w))
        if (jsonscan_text(w.value, one, sizeof one))
            buf_printf(&ips, "%s%s", ips.length ? "," : "", one);
    s->status_ips = ips.length ? keep(d, ips.data, ips.length) : NULL;
    s->status_service = keep_text(d, jsonscan_find(status, "service"));
    s->status_fqdn = keep_text(d, jsonscan_find(status, "serviceFQDN"));
    s->status_selector = keep_text(d, jsonscan_find(status, "selector"));
    s->status_node = keep_text(d, jsonscan_find(status, "nodeName"));
    s->status_replicas = jsonscan_number(jsonscan_find(status, "replicas"), &n) && n < 100 ? (int8_t)n : -1;
    buf_done(&foreign);
    buf_done(&ips);
}

static void mention_claim(struct decoder *d, const char *name, bool is_template)
{
    if (!name)
        return;
    if (d->n_claims == CLAIMS_MAX) {
        d->d.sandbox.too_many_claims = true;
        return;
    }
    d->claims[d->n_claims].name = name;
    d->claims[d->n_claims++].is_template = is_template;
}

/* Names of the claims: those made from templates are "<template>-<sandbox>". */
static void take_claims(struct decoder *d, struct jsonslice templates, struct jsonslice pod_spec)
{
    struct jsonwalk w = jsonscan_walk(templates);
    const char *own = d->scratch.data + ((uintptr_t)d->d.o.name - 1);
    char name[600], box[256];

    snprintf(box, sizeof box, "%s", own);
    while (jsonscan_next(&w)) {
        char first[256];
        if (!jsonscan_text(jsonscan_find(jsonscan_find(w.value, "metadata"), "name"), first, sizeof first))
            first[0] = '\0';
        snprintf(name, sizeof name, "%s-%s", first, box);
        mention_claim(d, keep(d, name, strlen(name)), true);
    }
    w = jsonscan_walk(jsonscan_find(pod_spec, "volumes"));
    while (jsonscan_next(&w))
        mention_claim(d, keep_text(d, jsonscan_find(jsonscan_find(w.value, "persistentVolumeClaim"), "claimName")),
                      false);
}

static char *copy_of(struct jsonslice v)
{
    return v.data ? strndup(v.data, v.size) : NULL;
}

static void take_sandbox_spec(struct decoder *d, struct jsonslice spec)
{
    struct sandbox *s = &d->d.sandbox;
    struct jsonslice template = jsonscan_find(spec, "podTemplate"), meta = jsonscan_find(template, "metadata");
    struct jsonslice pod_spec = jsonscan_find(template, "spec"), service = jsonscan_find(spec, "service");
    struct jsonslice templates = jsonscan_find(spec, "volumeClaimTemplates");
    unsigned long long n;
    struct buf ports;

    s->replicas = jsonscan_number(jsonscan_find(spec, "replicas"), &n) && n < 100 ? (int8_t)n : -1;
    s->suspended = jsonscan_is(jsonscan_find(spec, "operatingMode"), "Suspended");
    s->shutdown = time_of(jsonscan_find(spec, "shutdownTime"));
    s->deletes_at_shutdown = jsonscan_is(jsonscan_find(spec, "shutdownPolicy"), "Delete");
    s->service = is_true(service) ? YES : service.data && *service.data == 'f' ? NO : UNSET;
    s->labels = keep_raw(d, jsonscan_find(meta, "labels"));
    s->notes = keep_raw(d, jsonscan_find(meta, "annotations"));
    s->has_spec = is_object(pod_spec);
    if (!s->has_spec)
        return;
    s->spec_hash = hash_bytes(HASH_SEED, pod_spec.data, pod_spec.size);
    buf_init(&ports, 1 << 20);
    ports_write(pod_spec, &ports);
    s->ports_hash = hash_bytes(HASH_SEED, buf_string(&ports), ports.length);
    buf_done(&ports);
    take_claims(d, templates, pod_spec);
    s->pod_spec = copy_of(pod_spec);
    s->claim_templates = copy_of(templates);
}

static int take_sandbox(struct decoder *d, struct jsonslice whole)
{
    struct sandbox *s = &d->d.sandbox;
    struct jsonslice labels = { 0 }, notes = { 0 };
    int r = take_metadata(d, jsonscan_find(whole, "metadata"), &labels, &notes, &s->generation, &s->created);

    if (r < 0)
        return r;
    s->created_by = keep_text(d, jsonscan_find(labels, LABEL_CREATED_BY));
    s->launch = keep_text(d, jsonscan_find(labels, LABEL_LAUNCH));
    s->pool = keep_text(d, jsonscan_find(labels, LABEL_POOL));
    s->template_hash_label = keep_text(d, jsonscan_find(labels, LABEL_TEMPLATE));
    s->claim_id = keep_text(d, jsonscan_find(labels, LABEL_CLAIM_ID));
    s->pod_name = keep_text(d, jsonscan_find(notes, NOTE_POD_NAME));
    s->template_ref = keep_text(d, jsonscan_find(notes, NOTE_TEMPLATE));
    s->retain = truth_of(jsonscan_find(notes, NOTE_RETAIN));
    s->recreate = truth_of(jsonscan_find(notes, NOTE_RECREATE));
    s->release = truth_of(jsonscan_find(notes, NOTE_RELEASE));
    s->secure = truth_of(jsonscan_find(notes, NOTE_SECURE));
    s->scaled = truth_of(jsonscan_find(notes, NOTE_SCALED)) == YES;
    take_sandbox_status(d, jsonscan_find(whole, "status"));
    take_sandbox_spec(d, jsonscan_find(whole, "spec"));
    return 0;
}

static int take_kernel(struct decoder *d, struct jsonslice whole)
{
    struct kernel *k = &d->d.kernel;
    struct jsonslice labels = { 0 }, notes = { 0 }, status = jsonscan_find(whole, "status");
    struct jsonslice template = jsonscan_find(jsonscan_find(whole, "spec"), "template");
    struct jsonslice spec = jsonscan_find(template, "spec"), meta = jsonscan_find(template, "metadata");
    struct jsonwalk w = jsonscan_walk(jsonscan_find(status, "conditions"));
    int r = take_metadata(d, jsonscan_find(whole, "metadata"), &labels, &notes, &k->generation, &k->created);

    if (r < 0)
        return r;
    k->kernel_id = keep_text(d, jsonscan_find(notes, "jupyter.org/kernel-id"));
    k->connection = keep_text(d, jsonscan_find(notes, "jupyter.org/kernel-connection-info"));
    k->labels = keep_raw(d, jsonscan_find(meta, "labels"));
    k->notes = keep_raw(d, jsonscan_find(meta, "annotations"));
    k->conditions = keep_conditions(d, jsonscan_find(status, "conditions"));
    k->state = keep_raw(d, jsonscan_find(status, "containerState"));
    k->has_replicas = jsonscan_find(status, "readyReplicas").data != NULL;
    while (jsonscan_next(&w))
        if (jsonscan_is(jsonscan_find(w.value, "type"), "Ready"))
            k->ready = status_of(jsonscan_find(w.value, "status"));
    k->has_spec = is_object(spec);
    k->pod_spec = k->has_spec ? copy_of(spec) : NULL;
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
        [KIND_SANDBOX] = take_sandbox, [KIND_KERNEL] = take_kernel, [KIND_POD] = take_pod, [KIND_SERVICE] = take_service
    };
    struct decoder d = { .e = e };
    struct jsonslice labels = { 0 }, notes = { 0 };
    int64_t ignored;
    struct object *o = NULL;

    d.d.o.kind = (uint8_t)kind;
    buf_init(&d.scratch, 8 << 20);
    int r = take[kind] ? take[kind](&d, text)
                       : take_metadata(&d, jsonscan_find(text, "metadata"), &labels, &notes, &ignored, &ignored);
    if (r == 0 && !(o = pack(&d)))
        err_at(e, ENOMEM, STEP_MEMORY, 0, kinds[kind].name);
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
