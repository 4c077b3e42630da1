/* Bodies of writes for the Sandbox's Pod: the new Pod, and changes of its labels and annotations.
 *
 * The template's spec is copied as text, so numbers stay as the user wrote them; only volumes and the service account's
 * token are changed. Two annotations of the Pod list the keys that came from the template, so that a key that leaves
 * the template leaves the Pod, and foreign keys stay. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/jsonout.h"
#include "cluster/body.h"
#include "cluster/extension.h"
#include "cluster/sandbox.h"

enum { KEYS_MAX = 256, KEY_SIZE = 320 };

static bool is_reserved_note(const char *key)
{
    return body_is_reserved(key) || !strcmp(key, "opentelemetry.io/trace-context") || !strcmp(key, NOTE_SPEC_HASH);
}

static int compare_keys(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The template's keys that are copied to the Pod, and one more (or NULL), sorted, separated by commas; "" if there are
 * none. */
static void join_keys(struct jsonslice map, bool (*skips)(const char *), const char *more, struct buf *out)
{
    char *keys[KEYS_MAX], key[KEY_SIZE];
    size_t n = 0;
    struct jsonwalk w = jsonscan_walk(map);

    if (more && (keys[n] = strdup(more)))
        n++;
    while (n < KEYS_MAX && jsonscan_next(&w))
        if (jsonscan_text(w.key, key, sizeof key) && !skips(key) && (keys[n] = strdup(key)))
            n++;
    if (n > 1)
        qsort(keys, n, sizeof *keys, compare_keys);
    for (size_t i = 0; i < n; i++) {
        buf_printf(out, "%s%s", i > 0 ? "," : "", keys[i]);
        free(keys[i]);
    }
}

static const char *normal_creator(const char *by)
{
    if (!by)
        return NULL;
    return !strcmp(by, "go-client") || !strcmp(by, "python-client") || !strcmp(by, "controller") ? by : "unknown";
}

/* The annotation that lets an autoscaler evict a Pod that waits in a pool, unless the template sets it. It is not in
 * the Sandbox's template, so that adoption by a claim leaves the template unchanged. NULL: not for this Pod. */
static const char *eviction_note(const struct sandbox *s, const struct policy *p)
{
    bool in_pool = s->o.owner_group && !strcmp(s->o.owner_group, EXTENSION_GROUP) && s->o.owner_kind &&
                   !strcmp(s->o.owner_kind, kind_info[KIND_POOL].name);

    return in_pool && p->evictable_pools && !jsonscan_find(body_slice(s->notes), NOTE_EVICT).data ? NOTE_EVICT : NULL;
}

struct fixed_label {
    const char *key, *value;        /* NULL: the Pod must not have it */
};

/* The labels that follow from the Sandbox itself. */
static void fixed_labels(const struct sandbox *s, const char *hash, struct fixed_label ret[5])
{
    bool extended = s->o.owner_uid && s->o.owner_group && !strcmp(s->o.owner_group, "extensions.agents.x-k8s.io");
    const char *kind = extended && s->o.owner_kind ? s->o.owner_kind : "";

    ret[0] = (struct fixed_label){ LABEL_HASH, hash };
    ret[1] = (struct fixed_label){ LABEL_CLAIM_ID, !strcmp(kind, "SandboxClaim") ? s->claim_id : NULL };
    ret[2] = (struct fixed_label){ LABEL_POOL, !strcmp(kind, "SandboxWarmPool") ? s->pool : NULL };
    ret[3] = (struct fixed_label){ LABEL_TEMPLATE, extended ? s->template_hash_label : NULL };
    ret[4] = (struct fixed_label){ LABEL_CREATED_BY, normal_creator(s->created_by) };
}

/* Members of the map, without the reserved ones. */
static void write_map(struct jsonout *j, struct jsonslice map, bool (*skips)(const char *))
{
    struct jsonwalk w = jsonscan_walk(map);
    char key[KEY_SIZE];

    while (jsonscan_next(&w))
        if (jsonscan_text(w.key, key, sizeof key) && !skips(key) && *w.value.data == '"')
            jsonout_raw(j, key, w.value.data, w.value.size);
}

static void write_spec_hash(struct jsonout *j, const struct sandbox *s)
{
    char hash[24];

    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)s->spec_hash);
    jsonout_string(j, NOTE_SPEC_HASH, hash);
}

static void write_metadata(struct jsonout *j, const struct sandbox *s, const struct policy *p)
{
    const char *evict = eviction_note(s, p);
    struct fixed_label fixed[5];
    struct buf keys;
    char hash[9];

    hash_name(s->o.name, hash);
    fixed_labels(s, hash, fixed);
    jsonout_open_object(j, "metadata");
    jsonout_string(j, "name", s->o.name);
    jsonout_string(j, "namespace", s->o.namespace);
    jsonout_open_object(j, "labels");
    write_map(j, body_slice(s->labels), body_is_reserved);
    for (size_t i = 0; i < 5; i++)
        if (fixed[i].value)
            jsonout_string(j, fixed[i].key, fixed[i].value);
    jsonout_close(j);
    jsonout_open_object(j, "annotations");
    write_map(j, body_slice(s->notes), is_reserved_note);
    if (evict)
        jsonout_string(j, evict, "true");
    buf_init(&keys, 1 << 20);
    join_keys(body_slice(s->labels), body_is_reserved, NULL, &keys);
    if (keys.length > 0)
        jsonout_string(j, NOTE_LABELS, buf_string(&keys));
    buf_clear(&keys);
    join_keys(body_slice(s->notes), is_reserved_note, evict, &keys);
    if (keys.length > 0)
        jsonout_string(j, NOTE_NOTES, buf_string(&keys));
    buf_done(&keys);
    write_spec_hash(j, s);
    jsonout_close(j);
    jsonout_open_array(j, "ownerReferences");
    body_owner(j, &s->o);
    jsonout_close(j);
    jsonout_close(j);
}

/* The template's volumes, then one for each claim template, which wins if the names are the same. */
static void write_volumes(struct jsonout *j, const struct sandbox *s, struct jsonslice volumes)
{
    struct jsonslice templates = body_slice(s->claim_templates);
    struct jsonwalk w = jsonscan_walk(volumes);
    char name[KEY_SIZE], other[KEY_SIZE], claim[2 * KEY_SIZE + 2];

    jsonout_open_array(j, "volumes");
    while (jsonscan_next(&w)) {
        struct jsonwalk t = jsonscan_walk(templates);
        bool replaced = false;
        if (!jsonscan_text(jsonscan_find(w.value, "name"), name, sizeof name))
            name[0] = '\0';
        while (!replaced && jsonscan_next(&t))
            replaced = jsonscan_text(jsonscan_find(jsonscan_find(t.value, "metadata"), "name"), other, sizeof other) &&
                       strcmp(name, other) == 0;
        if (!replaced)
            jsonout_raw(j, NULL, w.value.data, w.value.size);
    }
    w = jsonscan_walk(templates);
    while (jsonscan_next(&w)) {
        if (!jsonscan_text(jsonscan_find(jsonscan_find(w.value, "metadata"), "name"), name, sizeof name))
            name[0] = '\0';
        snprintf(claim, sizeof claim, "%s-%s", name, s->o.name);
        jsonout_open_object(j, NULL);
        jsonout_string(j, "name", name);
        jsonout_open_object(j, "persistentVolumeClaim");
        jsonout_string(j, "claimName", claim);
        jsonout_close(j);
        jsonout_close(j);
    }
    jsonout_close(j);
}

static void write_spec(struct jsonout *j, const struct sandbox *s, const struct policy *p)
{
    struct jsonslice spec = body_slice(s->pod_spec), templates = body_slice(s->claim_templates);
    struct jsonwalk w = jsonscan_walk(templates);
    bool has_templates = jsonscan_next(&w), has_volumes = false;
    struct jsonslice account = jsonscan_find(spec, "serviceAccountName");
    bool asks = jsonscan_find(spec, "automountServiceAccountToken").data ||
                (jsonscan_inside(account).size > 0 && !jsonscan_is(account, "default"));
    bool hides = sandbox_wants(s->secure, p->secure_defaults) && !asks;
    char key[KEY_SIZE];

    jsonout_open_object(j, "spec");
    w = jsonscan_walk(spec);
    while (jsonscan_next(&w)) {
        if (!jsonscan_text(w.key, key, sizeof key))
            continue;
        if (has_templates && strcmp(key, "volumes") == 0) {
            write_volumes(j, s, w.value);
            has_volumes = true;
        } else {
            jsonout_raw(j, key, w.value.data, w.value.size);
        }
    }
    if (has_templates && !has_volumes)
        write_volumes(j, s, (struct jsonslice){ 0 });
    if (hides)
        jsonout_bool(j, "automountServiceAccountToken", false);
    jsonout_close(j);
}

void sandbox_write_pod(const struct sandbox *s, const struct policy *p, struct buf *out)
{
    struct jsonout j;

    jsonout_init(&j, out);
    jsonout_open_object(&j, NULL);
    jsonout_string(&j, "apiVersion", "v1");
    jsonout_string(&j, "kind", "Pod");
    write_metadata(&j, s, p);
    write_spec(&j, s, p);
    jsonout_close(&j);
    if (jsonout_finish(&j) < 0)
        out->failure = out->failure ? out->failure : EINVAL;
}

/* ---- changes ---- */

struct change {
    struct jsonout *j;
    size_t          n;
};

static void change_to(struct change *c, const char *key, const char *value)
{
    c->n++;
    jsonout_string(c->j, key, value);
}

static void change_map(struct change *c, struct jsonslice wanted, struct jsonslice has, bool (*skips)(const char *))
{
    struct jsonwalk w = jsonscan_walk(wanted);
    char key[KEY_SIZE];

    while (jsonscan_next(&w)) {
        if (!jsonscan_text(w.key, key, sizeof key) || skips(key) || *w.value.data != '"')
            continue;
        struct jsonslice now = jsonscan_find(has, key);
        if (now.size != w.value.size || memcmp(now.data, w.value.data, now.size) != 0) {
            c->n++;
            jsonout_raw(c->j, key, w.value.data, w.value.size);
        }
    }
}

/* Removes keys that once came from the template and have left it; keys is the annotation that lists them. */
static void remove_dropped(struct change *c, struct jsonslice keys, struct jsonslice wanted, struct jsonslice has,
                           bool (*skips)(const char *), const char *more)
{
    char *list = keys.data ? malloc(keys.size + 1) : NULL, *at, *save = NULL;
    bool is_list = list && jsonscan_text(keys, list, keys.size + 1);

    for (at = is_list ? strtok_r(list, ",", &save) : NULL; at; at = strtok_r(NULL, ",", &save)) {
        bool stays = skips(at) ? !strcmp(at, LABEL_HASH) || !strcmp(at, NOTE_LABELS) || !strcmp(at, NOTE_NOTES) ||
                                 !strcmp(at, NOTE_SPEC_HASH)
                               : jsonscan_find(wanted, at).data != NULL;
        if (!stays && jsonscan_find(has, at).data && !(more && !strcmp(at, more)))
            change_to(c, at, NULL);
    }
    free(list);
}

static void change_labels(struct change *c, const struct sandbox *s, struct jsonslice has, struct jsonslice notes)
{
    struct fixed_label fixed[5];
    char hash[9];

    hash_name(s->o.name, hash);
    fixed_labels(s, hash, fixed);
    change_map(c, body_slice(s->labels), has, body_is_reserved);
    remove_dropped(c, jsonscan_find(notes, NOTE_LABELS), body_slice(s->labels), has, body_is_reserved, NULL);
    for (size_t i = 0; i < 5; i++) {
        struct jsonslice now = jsonscan_find(has, fixed[i].key);
        if (fixed[i].value ? !jsonscan_is(now, fixed[i].value) : now.data != NULL)
            change_to(c, fixed[i].key, fixed[i].value);
    }
}

static void change_keys(struct change *c, const char *note, struct jsonslice map, struct jsonslice notes,
                        bool (*skips)(const char *), const char *more)
{
    struct jsonslice now = jsonscan_find(notes, note);
    struct buf keys;

    buf_init(&keys, 1 << 20);
    join_keys(map, skips, more, &keys);
    if (now.data ? !jsonscan_is(now, buf_string(&keys)) : keys.length > 0) {
        char *text = now.data ? malloc(now.size + 1) : NULL;    /* long ones do not fit jsonscan_is() */
        if (!text || !jsonscan_text(now, text, now.size + 1) || strcmp(text, buf_string(&keys)) != 0)
            change_to(c, note, keys.length > 0 ? buf_string(&keys) : NULL);
        free(text);
    }
    buf_done(&keys);
}

bool sandbox_write_pod_patch(const struct sandbox *s, const struct policy *p, const struct pod *pod, bool adopt,
                             struct buf *out)
{
    struct jsonslice labels = body_slice(pod->labels), notes = body_slice(pod->notes);
    struct buf body;
    struct jsonout j;
    struct change c = { .j = &j };
    const char *evict = eviction_note(s, p);
    char version[32];

    buf_init(&body, 8 << 20);
    jsonout_init(&j, &body);
    jsonout_open_object(&j, NULL);
    jsonout_open_object(&j, "metadata");
    jsonout_open_object(&j, "labels");
    change_labels(&c, s, labels, notes);
    jsonout_close(&j);
    jsonout_open_object(&j, "annotations");
    change_map(&c, body_slice(s->notes), notes, is_reserved_note);
    if (evict && !jsonscan_is(jsonscan_find(notes, evict), "true"))
        change_to(&c, evict, "true");
    remove_dropped(&c, jsonscan_find(notes, NOTE_NOTES), body_slice(s->notes), notes, is_reserved_note, evict);
    change_keys(&c, NOTE_LABELS, body_slice(s->labels), notes, body_is_reserved, NULL);
    change_keys(&c, NOTE_NOTES, body_slice(s->notes), notes, is_reserved_note, evict);
    if (sandbox_wants(s->recreate, p->recreate_on_change) && !jsonscan_find(notes, NOTE_SPEC_HASH).data) {
        write_spec_hash(&j, s);
        c.n++;
    }
    jsonout_close(&j);
    if (adopt) {
        snprintf(version, sizeof version, "%llu", (unsigned long long)pod->o.version);
        jsonout_string(&j, "resourceVersion", version);
        jsonout_open_array(&j, "ownerReferences");
        struct jsonwalk w = jsonscan_walk(body_slice(pod->o.owners));
        while (jsonscan_next(&w))
            jsonout_raw(&j, NULL, w.value.data, w.value.size);
        body_owner(&j, &s->o);
        jsonout_close(&j);
    }
    jsonout_close(&j);
    jsonout_close(&j);
    bool is_needed = c.n > 0 || adopt;
    if (is_needed) {
        if (jsonout_finish(&j) < 0)
            out->failure = out->failure ? out->failure : EINVAL;
        buf_add(out, buf_string(&body), body.length);
    }
    buf_done(&body);
    return is_needed;
}
