/* Bodies of writes to a claim and its Sandbox. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "cluster/body.h"
#include "cluster/boxclaim.h"

enum { KEY_SIZE = 320 };

/* ---- labels and annotations ---- */

static bool is_same(struct jsonslice a, struct jsonslice b)
{
    return a.data && b.data && a.size == b.size && memcmp(a.data, b.data, a.size) == 0;
}

/* Whether each key of the map, except reserved ones, is in one of the others with this value; ret_n: how many. */
static bool is_within(struct jsonslice map, struct jsonslice a, struct jsonslice b)
{
    struct jsonwalk w = jsonscan_walk(map);
    char key[KEY_SIZE];

    while (jsonscan_next(&w))
        if (jsonscan_text(w.key, key, sizeof key) && !body_is_reserved(key) &&
            !is_same(w.value, jsonscan_find(a, key)) && !is_same(w.value, jsonscan_find(b, key)))
            return false;
    return true;
}

static bool is_merged(const char *has, const char *template, const char *claim)
{
    struct jsonslice none = { 0 }, now = body_slice(has), a = body_slice(template), b = body_slice(claim);

    return is_within(now, a, b) && is_within(a, now, none) && is_within(b, now, none);
}

/* Whether the Sandbox was made from this template. */
static bool is_from(const struct template *t, const struct sandbox *box)
{
    return t && (!box->template_ref || strcmp(box->template_ref, t->o.name) == 0);
}

static bool has_metadata(const struct boxclaim_view *v, const struct sandbox *box)
{
    const struct boxclaim *c = v->claim;

    if (!is_from(v->template, box))
        return is_within(body_slice(c->labels), body_slice(box->labels), (struct jsonslice){ 0 }) &&
               is_within(body_slice(c->notes), body_slice(box->notes), (struct jsonslice){ 0 });
    return is_merged(box->labels, v->template->labels, c->labels) &&
           is_merged(box->notes, v->template->notes, c->notes);
}

bool boxclaim_is_aligned(const struct boxclaim_view *v, const struct sandbox *box)
{
    return box->launch && texts_are_same(box->claim_id, v->claim->o.uid) &&
           texts_are_same(box->created_by, v->claim->created_by) && (box->template_hash_label || !v->template) &&
           has_metadata(v, box);
}

/* Sets wanted keys and removes all others. */
static void write_map(struct jsonout *j, const char *key, const char *has, const char *template, const char *claim)
{
    const char *const wanted[] = { template, claim };
    struct jsonwalk w = jsonscan_walk(body_slice(has));
    char name[KEY_SIZE];

    jsonout_open_object(j, key);
    while (jsonscan_next(&w))
        if (jsonscan_text(w.key, name, sizeof name) && !jsonscan_find(body_slice(template), name).data &&
            !jsonscan_find(body_slice(claim), name).data)
            jsonout_null(j, name);
    for (size_t i = 0; i < 2; i++)
        for (w = jsonscan_walk(body_slice(wanted[i])); jsonscan_next(&w);)
            if (jsonscan_text(w.key, name, sizeof name) && !body_is_reserved(name) &&
                !(i == 0 && jsonscan_find(body_slice(claim), name).data))
                jsonout_raw(j, name, w.value.data, w.value.size);
    jsonout_close(j);
}

/* The Pod template's labels and annotations, if they must change. The Pod's reserved labels come from the Sandbox's. */
static void write_pod_metadata(struct jsonout *j, const struct boxclaim_view *v, const struct sandbox *box)
{
    const struct boxclaim *c = v->claim;
    bool from = is_from(v->template, box);

    if (has_metadata(v, box))
        return;
    jsonout_open_object(j, "spec");
    jsonout_open_object(j, "podTemplate");
    jsonout_open_object(j, "metadata");
    write_map(j, "labels", from ? box->labels : NULL, from ? v->template->labels : NULL, c->labels);
    write_map(j, "annotations", from ? box->notes : NULL, from ? v->template->notes : NULL, c->notes);
    jsonout_close(j);
    jsonout_close(j);
    jsonout_close(j);
}

static void write_box_labels(struct jsonout *j, const struct boxclaim_view *v, const struct sandbox *box,
                             const char *launch)
{
    char hash[9];

    jsonout_string(j, LABEL_LAUNCH, launch);
    jsonout_string(j, LABEL_CLAIM_ID, v->claim->o.uid);
    if (v->claim->created_by || (box && box->created_by))
        jsonout_string(j, LABEL_CREATED_BY, v->claim->created_by);
    if (v->template && !(box && box->template_hash_label)) {
        hash_name(v->template->o.name, hash);
        jsonout_string(j, LABEL_TEMPLATE, hash);
    }
}

void boxclaim_write_adoption(const struct boxclaim_view *v, const struct sandbox *box, struct buf *out)
{
    struct jsonout j;

    jsonout_init(&j, out);
    jsonout_open_object(&j, NULL);
    jsonout_open_object(&j, "metadata");
    body_version(&j, &box->o);
    jsonout_open_object(&j, "labels");
    jsonout_null(&j, LABEL_POOL);
    jsonout_null(&j, LABEL_BLUEPRINT);
    jsonout_null(&j, LABEL_POD_TEMPLATE);
    write_box_labels(&j, v, box, "warm");
    jsonout_close(&j);
    if (v->claim->trace) {
        jsonout_open_object(&j, "annotations");
        jsonout_string(&j, NOTE_TRACE, v->claim->trace);
        jsonout_close(&j);
    }
    jsonout_open_array(&j, "ownerReferences");
    body_owner(&j, &v->claim->o);
    jsonout_close(&j);
    jsonout_close(&j);
    write_pod_metadata(&j, v, box);
    jsonout_close(&j);
    body_finish(&j, out);
}

void boxclaim_write_alignment(const struct boxclaim_view *v, const struct sandbox *box, struct buf *out)
{
    bool is_warm = strcmp(box->o.name, v->claim->o.name) != 0;
    struct jsonout j;

    jsonout_init(&j, out);
    jsonout_open_object(&j, NULL);
    jsonout_open_object(&j, "metadata");
    jsonout_open_object(&j, "labels");
    write_box_labels(&j, v, box, box->launch ? box->launch : is_warm ? "warm" : "cold");
    jsonout_close(&j);
    jsonout_close(&j);
    write_pod_metadata(&j, v, box);
    jsonout_close(&j);
    body_finish(&j, out);
}

/* ---- a Sandbox from the template ---- */

static bool is_for(struct jsonslice variable, struct jsonslice container, bool is_first)
{
    struct jsonslice target = jsonscan_find(variable, "containerName");
    char name[KEY_SIZE];

    if (jsonscan_inside(target).size == 0)
        return is_first;
    return jsonscan_text(target, name, sizeof name) && jsonscan_is(jsonscan_find(container, "name"), name);
}

/* The last of the claim's variables of this name for the container; data NULL: it has none. */
static struct jsonslice find_variable(struct jsonslice env, struct jsonslice container, bool is_first, const char *name)
{
    struct jsonwalk w = jsonscan_walk(env);
    struct jsonslice found = { 0 };

    while (jsonscan_next(&w))
        if (is_for(w.value, container, is_first) && jsonscan_is(jsonscan_find(w.value, "name"), name))
            found = w.value;
    return found;
}

static void write_variable(struct jsonout *j, struct jsonslice variable)
{
    struct jsonslice name = jsonscan_find(variable, "name"), value = jsonscan_find(variable, "value");

    jsonout_open_object(j, NULL);
    jsonout_raw(j, "name", name.data, name.size);
    if (value.data)
        jsonout_raw(j, "value", value.data, value.size);
    jsonout_close(j);
}

/* The container's own variables in their places, replaced by the claim's of the same name; the claim's other variables
 * follow. */
static void write_env(struct jsonout *j, struct jsonslice env, struct jsonslice container, bool is_first)
{
    struct jsonslice own = jsonscan_find(container, "env");
    struct jsonwalk w = jsonscan_walk(own);
    char name[KEY_SIZE];

    jsonout_open_array(j, "env");
    while (jsonscan_next(&w)) {
        struct jsonslice by = { 0 };
        if (jsonscan_text(jsonscan_find(w.value, "name"), name, sizeof name))
            by = find_variable(env, container, is_first, name);
        if (by.data)
            write_variable(j, by);
        else
            jsonout_raw(j, NULL, w.value.data, w.value.size);
    }
    for (w = jsonscan_walk(env); jsonscan_next(&w);) {
        bool is_there = false;
        if (!jsonscan_text(jsonscan_find(w.value, "name"), name, sizeof name) || !is_for(w.value, container, is_first))
            continue;
        for (struct jsonwalk o = jsonscan_walk(own); !is_there && jsonscan_next(&o);)
            is_there = jsonscan_is(jsonscan_find(o.value, "name"), name);
        if (!is_there && find_variable(env, container, is_first, name).data == w.value.data)
            write_variable(j, w.value);
    }
    jsonout_close(j);
}

static void write_containers(struct jsonout *j, const char *key, struct jsonslice list, struct jsonslice env)
{
    struct jsonwalk w = jsonscan_walk(list);
    char name[KEY_SIZE];

    jsonout_open_array(j, key);
    for (size_t i = 0; jsonscan_next(&w); i++) {
        struct jsonwalk m = jsonscan_walk(w.value);
        jsonout_open_object(j, NULL);
        while (jsonscan_next(&m))
            if (jsonscan_text(m.key, name, sizeof name) && strcmp(name, "env") != 0)
                jsonout_raw(j, name, m.value.data, m.value.size);
        write_env(j, env, w.value, i == 0 && strcmp(key, "containers") == 0);
        jsonout_close(j);
    }
    jsonout_close(j);
}

static void write_pod_spec(struct jsonout *j, const struct boxclaim_view *v)
{
    struct jsonslice spec = body_slice(v->template->pod_spec);
    struct jsonwalk w = jsonscan_walk(spec);
    char key[KEY_SIZE];

    if (!v->claim->env) {
        jsonout_raw(j, "spec", spec.data, spec.size);
        return;
    }
    jsonout_open_object(j, "spec");
    while (jsonscan_next(&w)) {
        if (!jsonscan_text(w.key, key, sizeof key))
            continue;
        if (strcmp(key, "containers") == 0 || strcmp(key, "initContainers") == 0)
            write_containers(j, key, w.value, body_slice(v->claim->env));
        else
            jsonout_raw(j, key, w.value.data, w.value.size);
    }
    jsonout_close(j);
}

static struct jsonslice find_volume(struct jsonslice list, struct jsonslice like)
{
    struct jsonslice name = jsonscan_find(jsonscan_find(like, "metadata"), "name");
    struct jsonwalk w = jsonscan_walk(list);

    while (jsonscan_next(&w))
        if (is_same(jsonscan_find(jsonscan_find(w.value, "metadata"), "name"), name))
            return w.value;
    return (struct jsonslice){ 0 };
}

static void write_volumes(struct jsonout *j, const struct boxclaim_view *v)
{
    struct jsonslice there = body_slice(v->template->claim_templates), wanted = body_slice(v->claim->claim_templates);
    struct jsonwalk w = jsonscan_walk(there);

    if (!there.data && !wanted.data)
        return;
    jsonout_open_array(j, "volumeClaimTemplates");
    while (jsonscan_next(&w)) {
        struct jsonslice by = find_volume(wanted, w.value);
        jsonout_raw(j, NULL, by.data ? by.data : w.value.data, by.data ? by.size : w.value.size);
    }
    for (w = jsonscan_walk(wanted); jsonscan_next(&w);)
        if (!find_volume(there, w.value).data)
            jsonout_raw(j, NULL, w.value.data, w.value.size);
    jsonout_close(j);
}

void boxclaim_write_box(const struct boxclaim_view *v, struct buf *out)
{
    const struct boxclaim *c = v->claim;
    const struct template *t = v->template;
    struct jsonout j;

    jsonout_init(&j, out);
    jsonout_open_object(&j, NULL);
    jsonout_string(&j, "apiVersion", kind_info[KIND_SANDBOX].api_version);
    jsonout_string(&j, "kind", kind_info[KIND_SANDBOX].name);
    jsonout_open_object(&j, "metadata");
    jsonout_string(&j, "name", c->o.name);
    jsonout_string(&j, "namespace", c->o.namespace);
    jsonout_open_object(&j, "labels");
    write_box_labels(&j, v, NULL, "cold");
    jsonout_close(&j);
    jsonout_open_object(&j, "annotations");
    jsonout_string(&j, NOTE_TEMPLATE, t->o.name);
    if (c->trace)
        jsonout_string(&j, NOTE_TRACE, c->trace);
    jsonout_close(&j);
    jsonout_open_array(&j, "ownerReferences");
    body_owner(&j, &c->o);
    jsonout_close(&j);
    jsonout_close(&j);
    jsonout_open_object(&j, "spec");
    jsonout_open_object(&j, "podTemplate");
    jsonout_open_object(&j, "metadata");
    write_map(&j, "labels", NULL, t->labels, c->labels);
    write_map(&j, "annotations", NULL, t->notes, c->notes);
    jsonout_close(&j);
    write_pod_spec(&j, v);
    jsonout_close(&j);
    write_volumes(&j, v);
    if (t->service != UNSET)
        jsonout_bool(&j, "service", t->service == YES);
    jsonout_close(&j);
    jsonout_close(&j);
    body_finish(&j, out);
}

/* ---- the claim itself ---- */

void boxclaim_write_notes(const struct boxclaim *c, const struct boxclaim_notes *notes, struct buf *out)
{
    char time[32];
    struct jsonout j;

    jsonout_init(&j, out);
    jsonout_open_object(&j, NULL);
    jsonout_open_object(&j, "metadata");
    jsonout_string(&j, "uid", c->o.uid);        /* refused if another claim has that name by now */
    jsonout_open_object(&j, "annotations");
    if (!texts_are_same(notes->assigned, c->assigned))
        jsonout_string(&j, NOTE_BOX_NAME, notes->assigned);
    if (!texts_are_same(notes->trouble, c->trouble))
        jsonout_string(&j, NOTE_TROUBLE, notes->trouble);
    if (notes->observed_us) {
        time_write_us(notes->observed_us, time);
        jsonout_string(&j, NOTE_OBSERVED, time);
    }
    if (notes->ready_us) {
        time_write_us(notes->ready_us, time);
        jsonout_string(&j, NOTE_FIRST_READY, notes->ready_us < 0 ? "unknown" : time);
    }
    jsonout_close(&j);
    if (c->assigned_label) {
        jsonout_open_object(&j, "labels");
        jsonout_null(&j, NOTE_BOX_NAME);
        jsonout_close(&j);
    }
    jsonout_close(&j);
    jsonout_close(&j);
    body_finish(&j, out);
}

void boxclaim_write_status(const struct boxclaim *c, const struct boxclaim_status *s, struct buf *out)
{
    struct jsonout j;

    jsonout_init(&j, out);
    jsonout_open_object(&j, NULL);
    jsonout_open_object(&j, "status");
    jsonout_open_array(&j, "conditions");
    if (c->foreign)
        jsonout_raw(&j, NULL, c->foreign, strlen(c->foreign));
    if (s->finished.status != COND_ABSENT)
        body_condition(&j, "Finished", &s->finished);
    if (s->ready.status != COND_ABSENT)
        body_condition(&j, "Ready", &s->ready);
    jsonout_close(&j);
    jsonout_open_object(&j, "sandbox");
    jsonout_string(&j, "name", s->name);
    body_ips(&j, s->ips);
    jsonout_string(&j, "serviceFQDN", s->fqdn);
    jsonout_close(&j);
    jsonout_close(&j);
    jsonout_close(&j);
    body_finish(&j, out);
}
