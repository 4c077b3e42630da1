/* SandboxTemplates, SandboxWarmPools, SandboxClaims and NetworkPolicies, from the API server's JSON. */
#include <stdio.h>
#include <string.h>

#include "base/jsonout.h"
#include "cluster/decode.h"

/* ---- templates ---- */

static uint8_t addition_of(struct jsonslice v)
{
    return jsonscan_is(v, "Allowed") ? ADD_NEW : jsonscan_is(v, "Overrides") ? ADD_ANY : ADD_NOTHING;
}

/* The Pod spec with the defaults of a template: no service account token and, because the default network policy blocks
 * the cluster's DNS, resolvers outside. */
static void write_secure_spec(struct jsonslice spec, bool default_policy, struct buf *out)
{
    struct jsonwalk w = jsonscan_walk(spec);
    struct jsonout j;
    char key[128];

    jsonout_init(&j, out);
    jsonout_open_object(&j, NULL);
    while (jsonscan_next(&w))
        if (jsonscan_text(w.key, key, sizeof key))
            jsonout_raw(&j, key, w.value.data, w.value.size);
    if (!jsonscan_find(spec, "automountServiceAccountToken").data)
        jsonout_bool(&j, "automountServiceAccountToken", false);
    if (default_policy && jsonscan_inside(jsonscan_find(spec, "dnsPolicy")).size == 0) {
        static const char resolvers[] = "{\"nameservers\":[\"8.8.8.8\",\"1.1.1.1\"]}";
        jsonout_string(&j, "dnsPolicy", "None");
        jsonout_raw(&j, "dnsConfig", resolvers, sizeof resolvers - 1);
    }
    jsonout_close(&j);
    if (jsonout_finish(&j) < 0)
        buf_clear(out);
}

/* Only the router may connect; connections may leave the cluster, but not reach anything inside. */
static const char default_rules[] =
    "\"ingress\":[{\"from\":[{\"namespaceSelector\":{\"matchLabels\":{\"kubernetes.io/metadata.name\":"
    "\"agent-sandbox-system\"}},\"podSelector\":{\"matchLabels\":{\"app\":\"sandbox-router\"}}}]}],"
    "\"egress\":[{\"to\":[{\"ipBlock\":{\"cidr\":\"0.0.0.0/0\",\"except\":[\"10.0.0.0/8\",\"172.16.0.0/12\","
    "\"192.168.0.0/16\",\"169.254.0.0/16\"]}},{\"ipBlock\":{\"cidr\":\"::/0\",\"except\":[\"fc00::/7\","
    "\"fe80::/10\"]}}]}]";

static void write_policy(struct jsonslice rules, const char *hash, struct buf *out)
{
    static const char *const directions[] = { "ingress", "egress" };

    buf_printf(out, "{\"podSelector\":{\"matchLabels\":{\"" LABEL_TEMPLATE "\":\"%s\"}},"
               "\"policyTypes\":[\"Ingress\",\"Egress\"]", hash);
    if (!rules.data)
        buf_printf(out, ",%s", default_rules);
    for (size_t i = 0; rules.data && i < 2; i++) {
        struct jsonslice list = jsonscan_find(rules, directions[i]);
        struct jsonwalk w = jsonscan_walk(list);
        if (!jsonscan_next(&w))
            continue;
        buf_printf(out, ",\"%s\":", directions[i]);
        buf_add(out, list.data, list.size);
    }
    buf_add_char(out, '}');
}

static void hash_text(struct jsonslice value, char label[static 9])
{
    struct buf text;

    buf_init(&text, 8 << 20);
    normal_write(value, NORMAL_POD, &text);
    hash_name(buf_string(&text), label);
    buf_done(&text);
}

int decode_template(struct decoder *d, struct jsonslice whole)
{
    struct template *t = &d->d.template;
    struct jsonslice spec = jsonscan_find(whole, "spec"), pod = jsonscan_find(spec, "podTemplate");
    struct jsonslice meta = jsonscan_find(pod, "metadata"), service = jsonscan_find(spec, "service");
    struct jsonslice pod_spec = jsonscan_find(pod, "spec"), claims = jsonscan_find(spec, "volumeClaimTemplates");
    struct jsonslice rules = jsonscan_find(spec, "networkPolicy");
    struct decoded_meta m;
    struct buf text;
    char hash[9];
    int r = decode_metadata(d, whole, &m);

    if (r < 0)
        return r;
    if (!decode_is_object(rules))
        rules = (struct jsonslice){ 0 };
    bool unmanaged = jsonscan_is(jsonscan_find(spec, "networkPolicyManagement"), "Unmanaged");
    t->generation = m.generation;
    t->hash_label = decode_text(d, jsonscan_find(m.labels, LABEL_TEMPLATE));
    t->labels = decode_raw(d, jsonscan_find(meta, "labels"));
    t->notes = decode_raw(d, jsonscan_find(meta, "annotations"));
    t->claim_templates = decode_raw(d, claims);
    t->service = decode_is_true(service) ? YES : service.data && *service.data == 'f' ? NO : UNSET;
    t->env = addition_of(jsonscan_find(spec, "envVarsInjectionPolicy"));
    t->volumes = addition_of(jsonscan_find(spec, "volumeClaimTemplatesPolicy"));
    buf_init(&text, 8 << 20);
    if (decode_is_object(pod_spec)) {
        write_secure_spec(pod_spec, !unmanaged && !rules.data, &text);
        struct jsonslice secure = { buf_string(&text), text.length };
        t->pod_spec = decode_raw(d, secure);
        t->blueprint = blueprint_hash(secure, claims, t->service);
    }
    buf_clear(&text);
    hash_name(decode_kept(d, d->d.o.name), hash);
    if (!unmanaged) {
        write_policy(rules, hash, &text);
        struct jsonslice policy = { buf_string(&text), text.length };
        t->policy_spec = decode_raw(d, policy);
        t->policy_hash = normal_hash(policy, NORMAL_RULES);
    }
    buf_done(&text);
    hash_text(pod, t->pod_label);
    /* The blueprint covers the spec, without claims' and networks' settings. */
    snprintf(t->blueprint_label, sizeof t->blueprint_label, "%08x",
             (unsigned)(blueprint_hash(pod, claims, t->service) & 0xffffffff));
    return 0;
}

int decode_netpolicy(struct decoder *d, struct jsonslice whole)
{
    struct decoded_meta ignored;
    int r = decode_metadata(d, whole, &ignored);

    /* Foreign policies are kept only to notice that a name is taken. */
    if (r == 0 && strcmp(decode_kept(d, d->d.o.owner_kind), kind_info[KIND_TEMPLATE].name) == 0)
        d->d.netpolicy.spec_hash = normal_hash(jsonscan_find(whole, "spec"), NORMAL_RULES);
    return r;
}

/* ---- pools ---- */

static int64_t number_of(struct jsonslice v, int64_t otherwise)
{
    unsigned long long n;

    return jsonscan_number(v, &n) && n <= INT32_MAX ? (int64_t)n : otherwise;
}

int decode_pool(struct decoder *d, struct jsonslice whole)
{
    struct pool *p = &d->d.pool;
    struct jsonslice spec = jsonscan_find(whole, "spec"), status = jsonscan_find(whole, "status");
    struct decoded_meta m;
    int r = decode_metadata(d, whole, &m);

    if (r < 0)
        return r;
    p->generation = m.generation;
    p->template_name = decode_text(d, jsonscan_find(jsonscan_find(spec, "sandboxTemplateRef"), "name"));
    p->replicas = number_of(jsonscan_find(spec, "replicas"), 1);
    p->recreates = jsonscan_is(jsonscan_find(jsonscan_find(spec, "updateStrategy"), "type"), "Recreate");
    p->status_replicas = number_of(jsonscan_find(status, "replicas"), -1);
    p->status_ready = number_of(jsonscan_find(status, "readyReplicas"), -1);
    p->status_generation = number_of(jsonscan_find(status, "observedGeneration"), -1);
    p->status_selector = decode_text(d, jsonscan_find(status, "selector"));
    return 0;
}

/* ---- claims ---- */

static const char *keep_list(struct decoder *d, struct jsonslice list)
{
    struct jsonwalk w = jsonscan_walk(list);

    return list.data && *list.data == '[' && jsonscan_next(&w) ? decode_raw(d, list) : NULL;
}

static void take_boxclaim_spec(struct decoder *d, struct jsonslice spec)
{
    struct boxclaim *c = &d->d.boxclaim;
    struct jsonslice life = jsonscan_find(spec, "lifecycle"), extra = jsonscan_find(spec, "additionalPodMetadata");
    struct jsonslice policy = jsonscan_find(life, "shutdownPolicy");

    c->pool_name = decode_text(d, jsonscan_find(jsonscan_find(spec, "warmPoolRef"), "name"));
    if (!c->pool_name) {
        c->template_name = decode_text(d, jsonscan_find(jsonscan_find(spec, "sandboxTemplateRef"), "name"));
        c->warmth = decode_text(d, jsonscan_find(spec, "warmpool"));
    }
    c->shutdown = decode_time(jsonscan_find(life, "shutdownTime"));
    c->ttl = number_of(jsonscan_find(life, "ttlSecondsAfterFinished"), -1);
    c->policy = jsonscan_is(policy, "Delete") ? SHUTDOWN_DELETE
                : jsonscan_is(policy, "DeleteForeground") ? SHUTDOWN_FOREGROUND : SHUTDOWN_RETAIN;
    c->labels = decode_raw(d, jsonscan_find(extra, "labels"));
    c->notes = decode_raw(d, jsonscan_find(extra, "annotations"));
    c->env = keep_list(d, jsonscan_find(spec, "env"));
    c->claim_templates = keep_list(d, jsonscan_find(spec, "volumeClaimTemplates"));
}

static void take_boxclaim_status(struct decoder *d, struct jsonslice status)
{
    struct boxclaim *c = &d->d.boxclaim;
    struct jsonslice box = jsonscan_find(status, "sandbox");
    struct jsonwalk w = jsonscan_walk(jsonscan_find(status, "conditions"));
    struct buf foreign;

    buf_init(&foreign, FOREIGN_MAX);
    while (jsonscan_next(&w)) {
        if (!decode_is_object(w.value) || decode_condition(d, w.value, "Ready", &c->ready) ||
            decode_condition(d, w.value, "Finished", &c->finished))
            continue;
        decode_foreign(&foreign, w.value);
    }
    c->foreign = foreign.length ? decode_keep(d, foreign.data, foreign.length) : NULL;
    buf_done(&foreign);
    c->box_name = decode_text(d, jsonscan_find(box, "name"));
    c->box_ips = decode_ips(d, jsonscan_find(box, "podIPs"), NULL);
    c->box_fqdn = decode_text(d, jsonscan_find(box, "serviceFQDN"));
}

int decode_boxclaim(struct decoder *d, struct jsonslice whole)
{
    struct boxclaim *c = &d->d.boxclaim;
    struct decoded_meta m;
    int r = decode_metadata(d, whole, &m);

    if (r < 0)
        return r;
    c->generation = m.generation;
    c->created = m.created;
    c->created_by = decode_text(d, jsonscan_find(m.labels, LABEL_CREATED_BY));
    c->assigned_label = decode_text(d, jsonscan_find(m.labels, NOTE_BOX_NAME));
    c->assigned = decode_text(d, jsonscan_find(m.notes, NOTE_BOX_NAME));
    c->observed = decode_text(d, jsonscan_find(m.notes, NOTE_OBSERVED));
    c->first_ready = decode_text(d, jsonscan_find(m.notes, NOTE_FIRST_READY));
    c->requested = decode_text(d, jsonscan_find(m.notes, NOTE_REQUESTED));
    c->webhook = decode_text(d, jsonscan_find(m.notes, NOTE_WEBHOOK));
    c->trace = decode_text(d, jsonscan_find(m.notes, NOTE_TRACE));
    c->trouble = decode_text(d, jsonscan_find(m.notes, NOTE_TROUBLE));
    take_boxclaim_spec(d, jsonscan_find(whole, "spec"));
    take_boxclaim_status(d, jsonscan_find(whole, "status"));
    return 0;
}
