/* Sandboxes and their Pods, from the API server's JSON. */
#include <stdio.h>
#include <string.h>

#include "cluster/decode.h"

/* ---- Pods ---- */

/* ---- why a Pod died, or does not start ---- */

/* A container's memory limit from its spec. */
static void write_limit(struct buf *out, struct jsonslice pod, struct jsonslice name)
{
    struct jsonwalk w = jsonscan_walk(jsonscan_find(jsonscan_find(pod, "spec"), "containers"));
    char own[128], limit[64];

    while (jsonscan_next(&w)) {
        struct jsonslice limits = jsonscan_find(jsonscan_find(w.value, "resources"), "limits");
        if (jsonscan_text(name, own, sizeof own) && jsonscan_is(jsonscan_find(w.value, "name"), own) &&
            jsonscan_text(jsonscan_find(limits, "memory"), limit, sizeof limit))
            buf_printf(out, " (limit %s)", limit);
    }
}

static void write_text(struct buf *out, const char *before, struct jsonslice value)
{
    char text[1024];

    if (jsonscan_inside(value).size > 0 && jsonscan_text(value, text, sizeof text))
        buf_printf(out, "%s%s", before, text);
}

/* One container. True: it has a problem. */
static bool write_container(struct buf *out, struct jsonslice pod, struct jsonslice c)
{
    struct jsonslice state = jsonscan_find(c, "state"), ended = jsonscan_find(state, "terminated");
    struct jsonslice waiting = jsonscan_find(state, "waiting"), name = jsonscan_find(c, "name");
    struct jsonslice reason = jsonscan_find(waiting, "reason");
    unsigned long long code = 0;

    if (!ended.data)
        ended = jsonscan_find(jsonscan_find(c, "lastState"), "terminated");
    bool has_ended = ended.data && jsonscan_number(jsonscan_find(ended, "exitCode"), &code) && code > 0;
    bool cannot_start = jsonscan_inside(reason).size > 0 && !jsonscan_is(reason, "ContainerCreating") &&
                        !jsonscan_is(reason, "PodInitializing") && !jsonscan_is(reason, "CrashLoopBackOff");
    if (!has_ended && !cannot_start)
        return false;
    write_text(out, out->length ? "; container " : "container ", name);
    if (cannot_start) {
        write_text(out, ": ", reason);
        write_text(out, ": ", jsonscan_find(waiting, "message"));
        return true;
    }
    write_text(out, ": ", jsonscan_find(ended, "reason"));
    if (jsonscan_is(jsonscan_find(ended, "reason"), "OOMKilled"))
        write_limit(out, pod, name);
    buf_printf(out, ", exit code %llu", code);
    write_text(out, ": ", jsonscan_find(ended, "message"));
    return true;
}

static const char *keep_trouble(struct decoder *d, struct jsonslice pod)
{
    struct jsonslice status = jsonscan_find(pod, "status"), reason = jsonscan_find(status, "reason");
    static const char *const lists[] = { "initContainerStatuses", "containerStatuses" };
    const char *kept = NULL;
    struct buf text;

    buf_init(&text, 4096);
    if (jsonscan_is(jsonscan_find(status, "phase"), "Failed") && jsonscan_inside(reason).size > 0) {
        write_text(&text, "Pod: ", reason);
        write_text(&text, ": ", jsonscan_find(status, "message"));
    }
    for (size_t i = 0; i < 2; i++) {
        struct jsonwalk w = jsonscan_walk(jsonscan_find(status, lists[i]));
        while (jsonscan_next(&w))
            (void)write_container(&text, pod, w.value);
    }
    if (text.length > 0)
        kept = decode_keep(d, buf_string(&text), text.length);
    buf_done(&text);
    return kept;
}

static void take_pod_status(struct decoder *d, struct jsonslice status, bool for_kernel)
{
    static const char *const phases[] = { "", "Pending", "Running", "Succeeded", "Failed", "Unknown" };
    struct pod *p = &d->d.pod;
    struct jsonslice phase = jsonscan_find(status, "phase"), conditions = jsonscan_find(status, "conditions");
    struct jsonwalk w = jsonscan_walk(conditions);

    for (uint8_t i = POD_PENDING; i <= POD_UNKNOWN; i++)
        if (jsonscan_is(phase, phases[i]))
            p->phase = i;
    while (jsonscan_next(&w)) {
        struct jsonslice type = jsonscan_find(w.value, "type");
        if (jsonscan_is(type, "Ready") && p->ready == COND_ABSENT) {
            p->ready = decode_status(jsonscan_find(w.value, "status"));
        } else if (jsonscan_is(type, "PodScheduled") && p->scheduled == COND_ABSENT) {
            p->scheduled = decode_status(jsonscan_find(w.value, "status"));
            p->scheduled_reason = decode_text(d, jsonscan_find(w.value, "reason"));
            p->scheduled_message = decode_text(d, jsonscan_find(w.value, "message"));
            p->scheduled_since = decode_time(jsonscan_find(w.value, "lastTransitionTime"));
        }
    }
    p->ips = decode_ips(d, jsonscan_find(status, "podIPs"), "ip");
    if (for_kernel) {
        struct jsonwalk c = jsonscan_walk(jsonscan_find(status, "containerStatuses"));
        p->conditions = decode_conditions(d, conditions);
        if (jsonscan_next(&c))
            p->state = decode_raw(d, jsonscan_find(c.value, "state"));
    }
}

int decode_pod(struct decoder *d, struct jsonslice whole)
{
    struct decoded_meta m;
    int r = decode_metadata(d, whole, &m);

    if (r < 0)
        return r;
    d->d.o.owned_key = d->d.o.owner_uid;
    const char *kind = decode_kept(d, d->d.o.owner_kind);
    bool for_kernel = strcmp(kind, "Kernel") == 0, for_sandbox = strcmp(kind, "Sandbox") == 0;
    /* Foreign Pods are kept only to notice that a name is taken. */
    if (d->d.o.name_hash || d->d.o.adoptable || for_kernel || for_sandbox) {
        d->d.pod.labels = decode_raw(d, m.labels);
        d->d.pod.notes = decode_raw(d, m.notes);
        d->d.pod.node = decode_text(d, jsonscan_find(jsonscan_find(whole, "spec"), "nodeName"));
        take_pod_status(d, jsonscan_find(whole, "status"), for_kernel);
        d->d.pod.trouble = keep_trouble(d, whole);
    }
    return 0;
}

/* ---- Sandboxes ---- */

static void take_condition(struct decoder *d, struct jsonslice c, struct buf *foreign)
{
    static const char *const names[CONDITIONS] = { "Ready", "Suspended", "PodScheduled", "Finished" };

    for (size_t i = 0; i < CONDITIONS; i++)
        if (decode_condition(d, c, names[i], &d->d.sandbox.condition[i]))
            return;
    decode_foreign(foreign, c);
}

static void take_sandbox_status(struct decoder *d, struct jsonslice status)
{
    struct sandbox *s = &d->d.sandbox;
    struct jsonwalk w = jsonscan_walk(jsonscan_find(status, "conditions"));
    struct buf foreign;
    unsigned long long n;

    buf_init(&foreign, FOREIGN_MAX);
    while (jsonscan_next(&w))
        if (decode_is_object(w.value))
            take_condition(d, w.value, &foreign);
    s->foreign = foreign.length ? decode_keep(d, foreign.data, foreign.length) : NULL;
    s->status_ips = decode_ips(d, jsonscan_find(status, "podIPs"), NULL);
    s->status_service = decode_text(d, jsonscan_find(status, "service"));
    s->status_fqdn = decode_text(d, jsonscan_find(status, "serviceFQDN"));
    s->status_selector = decode_text(d, jsonscan_find(status, "selector"));
    s->status_node = decode_text(d, jsonscan_find(status, "nodeName"));
    s->status_replicas = jsonscan_number(jsonscan_find(status, "replicas"), &n) && n < 100 ? (int8_t)n : -1;
    buf_done(&foreign);
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
    char name[600], box[256];

    snprintf(box, sizeof box, "%s", decode_kept(d, d->d.o.name));
    while (jsonscan_next(&w)) {
        char first[256];
        if (!jsonscan_text(jsonscan_find(jsonscan_find(w.value, "metadata"), "name"), first, sizeof first))
            first[0] = '\0';
        snprintf(name, sizeof name, "%s-%s", first, box);
        mention_claim(d, decode_keep(d, name, strlen(name)), true);
    }
    w = jsonscan_walk(jsonscan_find(pod_spec, "volumes"));
    while (jsonscan_next(&w))
        mention_claim(d, decode_text(d, jsonscan_find(jsonscan_find(w.value, "persistentVolumeClaim"), "claimName")),
                      false);
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
    s->shutdown = decode_time(jsonscan_find(spec, "shutdownTime"));
    s->deletes_at_shutdown = jsonscan_is(jsonscan_find(spec, "shutdownPolicy"), "Delete");
    s->service = decode_is_true(service) ? YES : service.data && *service.data == 'f' ? NO : UNSET;
    s->labels = decode_raw(d, jsonscan_find(meta, "labels"));
    s->notes = decode_raw(d, jsonscan_find(meta, "annotations"));
    s->has_spec = decode_is_object(pod_spec);
    if (!s->has_spec)
        return;
    s->spec_hash = hash_bytes(HASH_SEED, pod_spec.data, pod_spec.size);
    buf_init(&ports, 1 << 20);
    ports_write(pod_spec, &ports);
    s->ports_hash = hash_bytes(HASH_SEED, buf_string(&ports), ports.length);
    buf_done(&ports);
    take_claims(d, templates, pod_spec);
    if (s->pool)
        s->blueprint = blueprint_hash(pod_spec, templates, s->service);
    s->pod_spec = decode_copy(pod_spec);
    s->claim_templates = decode_copy(templates);
}

/* Finds the pool or claim that it belongs to. A Sandbox that lost its pool is indexed by the pool's label, so that a
 * new pool of that name takes it over. */
static void take_place(struct decoder *d)
{
    struct sandbox *s = &d->d.sandbox;
    char key[320];

    s->o.owned_key = s->o.owner_uid;
    if (s->o.owner_uid || !s->pool)
        return;
    snprintf(key, sizeof key, "%s/", decode_kept(d, s->o.namespace));
    size_t n = strlen(key);
    snprintf(key + n, sizeof key - n, "%s", decode_kept(d, s->pool));
    s->o.owned_key = decode_keep(d, key, strlen(key));
}

int decode_sandbox(struct decoder *d, struct jsonslice whole)
{
    struct sandbox *s = &d->d.sandbox;
    struct decoded_meta m;
    int r = decode_metadata(d, whole, &m);

    if (r < 0)
        return r;
    struct jsonslice labels = m.labels, notes = m.notes;
    s->generation = m.generation;
    s->created = m.created;
    s->created_by = decode_text(d, jsonscan_find(labels, LABEL_CREATED_BY));
    s->launch = decode_text(d, jsonscan_find(labels, LABEL_LAUNCH));
    s->pool = decode_text(d, jsonscan_find(labels, LABEL_POOL));
    s->template_hash_label = decode_text(d, jsonscan_find(labels, LABEL_TEMPLATE));
    s->claim_id = decode_text(d, jsonscan_find(labels, LABEL_CLAIM_ID));
    s->blueprint_label = decode_text(d, jsonscan_find(labels, LABEL_BLUEPRINT));
    s->trouble = decode_text(d, jsonscan_find(notes, NOTE_TROUBLE));
    s->waiting = decode_text(d, jsonscan_find(notes, NOTE_WAITING));
    take_place(d);
    s->pod_name = decode_text(d, jsonscan_find(notes, NOTE_POD_NAME));
    s->template_ref = decode_text(d, jsonscan_find(notes, NOTE_TEMPLATE));
    s->retain = decode_truth(jsonscan_find(notes, NOTE_RETAIN));
    s->recreate = decode_truth(jsonscan_find(notes, NOTE_RECREATE));
    s->release = decode_truth(jsonscan_find(notes, NOTE_RELEASE));
    s->secure = decode_truth(jsonscan_find(notes, NOTE_SECURE));
    s->scaled = decode_truth(jsonscan_find(notes, NOTE_SCALED)) == YES;
    take_sandbox_status(d, jsonscan_find(whole, "status"));
    take_sandbox_spec(d, jsonscan_find(whole, "spec"));
    return 0;
}
