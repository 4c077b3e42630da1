/* Bodies of writes for a Sandbox's claims, its Service and its status. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/jsonout.h"
#include "cluster/body.h"
#include "cluster/sandbox.h"

/* The template of the claim with this number. */
static struct jsonslice template_of(const struct sandbox *s, size_t index)
{
    struct jsonwalk w = jsonscan_walk(body_slice(s->claim_templates));

    for (size_t i = 0; jsonscan_next(&w); i++)
        if (i == index)
            return w.value;
    return (struct jsonslice){ 0 };
}

void sandbox_write_claim(const struct sandbox *s, const struct policy *p, size_t index, struct buf *out)
{
    struct jsonslice template = template_of(s, index), meta = jsonscan_find(template, "metadata");
    struct jsonslice notes = jsonscan_find(meta, "annotations"), spec = jsonscan_find(template, "spec");
    struct jsonwalk w = jsonscan_walk(jsonscan_find(meta, "labels"));
    struct jsonout j;
    char hash[9], key[320];

    hash_name(s->o.name, hash);
    jsonout_init(&j, out);
    jsonout_open_object(&j, NULL);
    jsonout_string(&j, "apiVersion", "v1");
    jsonout_string(&j, "kind", "PersistentVolumeClaim");
    jsonout_open_object(&j, "metadata");
    jsonout_string(&j, "name", s->claims[index].name);
    jsonout_string(&j, "namespace", s->o.namespace);
    jsonout_open_object(&j, "labels");
    while (jsonscan_next(&w))
        if (jsonscan_text(w.key, key, sizeof key) && strcmp(key, LABEL_HASH) != 0)
            jsonout_raw(&j, key, w.value.data, w.value.size);
    jsonout_string(&j, LABEL_HASH, hash);
    jsonout_close(&j);
    if (notes.data && *notes.data == '{')
        jsonout_raw(&j, "annotations", notes.data, notes.size);
    if (!sandbox_wants(s->retain, p->retain_volumes)) {
        jsonout_open_array(&j, "ownerReferences");
        body_owner(&j, &s->o);
        jsonout_close(&j);
    }
    jsonout_close(&j);
    if (spec.data)
        jsonout_raw(&j, "spec", spec.data, spec.size);
    jsonout_close(&j);
    body_finish(&j, out);
}

void sandbox_write_adoption(const struct sandbox *s, const struct object *o, struct buf *out)
{
    struct jsonwalk w = jsonscan_walk(body_slice(o->owners));
    struct jsonout j;

    jsonout_init(&j, out);
    jsonout_open_object(&j, NULL);
    jsonout_open_object(&j, "metadata");
    body_version(&j, o);
    jsonout_open_array(&j, "ownerReferences");
    while (jsonscan_next(&w))
        jsonout_raw(&j, NULL, w.value.data, w.value.size);
    body_owner(&j, &s->o);
    jsonout_close(&j);
    jsonout_close(&j);
    jsonout_close(&j);
    body_finish(&j, out);
}

void sandbox_write_disowning(const struct sandbox *s, const struct object *o, struct buf *out)
{
    struct jsonwalk w = jsonscan_walk(body_slice(o->owners));
    struct jsonout j;
    char hash[9];

    hash_name(s->o.name, hash);
    jsonout_init(&j, out);
    jsonout_open_object(&j, NULL);
    jsonout_open_object(&j, "metadata");
    body_version(&j, o);
    jsonout_open_object(&j, "labels");
    jsonout_string(&j, LABEL_HASH, hash);       /* lets a new Sandbox of that name find it */
    jsonout_close(&j);
    jsonout_open_array(&j, "ownerReferences");
    while (jsonscan_next(&w))
        if (!jsonscan_is(jsonscan_find(w.value, "uid"), s->o.uid))
            jsonout_raw(&j, NULL, w.value.data, w.value.size);
    jsonout_close(&j);
    jsonout_close(&j);
    jsonout_close(&j);
    body_finish(&j, out);
}

/* ---- the Service ---- */

/* now NULL: there is none yet. A merge patch keeps unnamed members, so foreign keys of a selector are removed by
 * name. */
static void write_service_spec(struct jsonout *j, const struct sandbox *s, const struct service *now, const char *hash,
                               bool with_ports)
{
    struct jsonwalk w = jsonscan_walk(body_slice(now ? now->selector : NULL));
    struct buf ports;
    char key[320];

    jsonout_open_object(j, "selector");
    while (jsonscan_next(&w))
        if (jsonscan_text(w.key, key, sizeof key) && strcmp(key, LABEL_HASH) != 0)
            jsonout_null(j, key);
    jsonout_string(j, LABEL_HASH, hash);
    jsonout_close(j);
    if (!with_ports)
        return;
    buf_init(&ports, 1 << 20);
    ports_write(body_slice(s->pod_spec), &ports);
    if (ports.length > 2)
        jsonout_raw(j, "ports", buf_string(&ports), ports.length);
    else
        jsonout_null(j, "ports");
    buf_done(&ports);
}

void sandbox_write_service(const struct sandbox *s, struct buf *out)
{
    struct jsonout j;
    char hash[9];

    hash_name(s->o.name, hash);
    jsonout_init(&j, out);
    jsonout_open_object(&j, NULL);
    jsonout_string(&j, "apiVersion", "v1");
    jsonout_string(&j, "kind", "Service");
    jsonout_open_object(&j, "metadata");
    jsonout_string(&j, "name", s->o.name);
    jsonout_string(&j, "namespace", s->o.namespace);
    jsonout_open_object(&j, "labels");
    jsonout_string(&j, LABEL_HASH, hash);
    jsonout_close(&j);
    jsonout_open_array(&j, "ownerReferences");
    body_owner(&j, &s->o);
    jsonout_close(&j);
    jsonout_close(&j);
    jsonout_open_object(&j, "spec");
    jsonout_string(&j, "clusterIP", "None");
    write_service_spec(&j, s, NULL, hash, true);
    jsonout_close(&j);
    jsonout_close(&j);
    body_finish(&j, out);
}

void sandbox_write_service_patch(const struct sandbox *s, const struct service *now, bool adopt, struct buf *out)
{
    struct jsonout j;
    struct jsonwalk w = jsonscan_walk(body_slice(now->o.owners));
    char hash[9];

    hash_name(s->o.name, hash);
    jsonout_init(&j, out);
    jsonout_open_object(&j, NULL);
    jsonout_open_object(&j, "metadata");
    body_version(&j, &now->o);
    jsonout_open_object(&j, "labels");
    jsonout_string(&j, LABEL_HASH, hash);
    jsonout_close(&j);
    if (adopt) {
        jsonout_open_array(&j, "ownerReferences");
        while (jsonscan_next(&w))
            jsonout_raw(&j, NULL, w.value.data, w.value.size);
        body_owner(&j, &s->o);
        jsonout_close(&j);
    }
    jsonout_close(&j);
    jsonout_open_object(&j, "spec");
    write_service_spec(&j, s, now, hash, s->service == YES);
    jsonout_close(&j);
    jsonout_close(&j);
    body_finish(&j, out);
}

/* ---- the status ---- */

void sandbox_write_status(const struct sandbox *s, const struct status *status, struct buf *out)
{
    static const char *const names[CONDITIONS] = { "Ready", "Suspended", "PodScheduled", "Finished" };
    static const enum condition_kind order[CONDITIONS] = { COND_SUSPENDED, COND_FINISHED, COND_SCHEDULED, COND_READY };
    struct jsonout j;

    jsonout_init(&j, out);
    jsonout_open_object(&j, NULL);
    jsonout_open_object(&j, "status");
    jsonout_open_array(&j, "conditions");
    if (s->foreign)
        jsonout_raw(&j, NULL, s->foreign, strlen(s->foreign));
    for (size_t i = 0; i < CONDITIONS; i++)
        if (status->condition[order[i]].status != COND_ABSENT)
            body_condition(&j, names[order[i]], &status->condition[order[i]]);
    jsonout_close(&j);
    jsonout_string(&j, "service", status->service);
    jsonout_string(&j, "serviceFQDN", status->fqdn);
    jsonout_string(&j, "selector", status->selector);
    body_ips(&j, status->ips);
    jsonout_string(&j, "nodeName", status->node);
    if (status->replicas >= 0)
        jsonout_signed(&j, "replicas", status->replicas);
    else if (s->status_replicas >= 0)
        jsonout_null(&j, "replicas");
    jsonout_close(&j);
    jsonout_close(&j);
    body_finish(&j, out);
}

void sandbox_write_mode(bool suspend, struct buf *out)
{
    struct jsonout j;

    jsonout_init(&j, out);
    jsonout_open_object(&j, NULL);
    jsonout_open_object(&j, "metadata");
    jsonout_open_object(&j, "annotations");
    jsonout_string(&j, NOTE_SCALED, suspend ? "true" : NULL);
    jsonout_close(&j);
    jsonout_close(&j);
    jsonout_open_object(&j, "spec");
    jsonout_string(&j, "operatingMode", suspend ? "Suspended" : "Running");
    jsonout_close(&j);
    jsonout_close(&j);
    body_finish(&j, out);
}

void sandbox_write_notes(const struct plan *plan, struct buf *out)
{
    struct jsonout j;

    jsonout_init(&j, out);
    jsonout_open_object(&j, NULL);
    jsonout_open_object(&j, "metadata");
    jsonout_open_object(&j, "annotations");
    jsonout_string(&j, NOTE_TROUBLE, plan->trouble);
    jsonout_string(&j, NOTE_WAITING, plan->waiting);
    jsonout_close(&j);
    jsonout_close(&j);
    jsonout_close(&j);
    body_finish(&j, out);
}
