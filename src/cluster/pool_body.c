/* Bodies of writes for a pool and its Sandboxes. */
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "cluster/body.h"
#include "cluster/pool.h"

void pool_name_box(const struct pool *pool, uint64_t random, char name[static BOX_NAME_SIZE])
{
    static const char letters[] = "bcdfghjklmnpqrstvwxz2456789";       /* Kubernetes': no vowels, no ambiguous
                                                                        * characters */
    int n = snprintf(name, 59, "%s-", pool->o.name);
    size_t at = n > 58 ? 58 : (size_t)n;

    for (size_t i = 0; i < 5; i++, random /= sizeof letters - 1)
        name[at++] = letters[random % (sizeof letters - 1)];
    name[at] = '\0';
}

static void write_metadata(struct jsonout *j, const struct pool *pool, const struct template *t, const char *name)
{
    char pool_hash[9], template_hash[9];

    hash_name(pool->o.name, pool_hash);
    hash_name(t->o.name, template_hash);
    jsonout_open_object(j, "metadata");
    jsonout_string(j, "name", name);
    jsonout_string(j, "namespace", pool->o.namespace);
    jsonout_open_object(j, "labels");
    jsonout_string(j, LABEL_POOL, pool_hash);
    jsonout_string(j, LABEL_TEMPLATE, template_hash);
    jsonout_string(j, LABEL_LAUNCH, "warm");
    jsonout_string(j, LABEL_POD_TEMPLATE, t->pod_label);
    jsonout_string(j, LABEL_BLUEPRINT, t->blueprint_label);
    jsonout_string(j, LABEL_CREATED_BY, "controller");
    jsonout_close(j);
    jsonout_open_object(j, "annotations");
    jsonout_string(j, NOTE_TEMPLATE, t->o.name);
    jsonout_close(j);
    jsonout_open_array(j, "ownerReferences");
    body_owner(j, &pool->o);
    jsonout_close(j);
    jsonout_close(j);
}

void pool_write_box(const struct pool *pool, const struct template *t, const char *name, struct buf *out)
{
    struct jsonout j;

    jsonout_init(&j, out);
    jsonout_open_object(&j, NULL);
    jsonout_string(&j, "apiVersion", kind_info[KIND_SANDBOX].api_version);
    jsonout_string(&j, "kind", kind_info[KIND_SANDBOX].name);
    write_metadata(&j, pool, t, name);
    jsonout_open_object(&j, "spec");
    jsonout_open_object(&j, "podTemplate");
    jsonout_open_object(&j, "metadata");
    if (t->labels)
        jsonout_raw(&j, "labels", t->labels, strlen(t->labels));
    if (t->notes)
        jsonout_raw(&j, "annotations", t->notes, strlen(t->notes));
    jsonout_close(&j);
    jsonout_raw(&j, "spec", t->pod_spec, strlen(t->pod_spec));
    jsonout_close(&j);
    if (t->claim_templates)
        jsonout_raw(&j, "volumeClaimTemplates", t->claim_templates, strlen(t->claim_templates));
    if (t->service != UNSET)
        jsonout_bool(&j, "service", t->service == YES);
    jsonout_close(&j);
    jsonout_close(&j);
    body_finish(&j, out);
}

void pool_write_adoption(const struct pool *pool, const struct sandbox *box, struct buf *out)
{
    struct jsonwalk w = jsonscan_walk(body_slice(box->o.owners));
    struct jsonout j;

    jsonout_init(&j, out);
    jsonout_open_object(&j, NULL);
    jsonout_open_object(&j, "metadata");
    body_version(&j, &box->o);
    jsonout_open_object(&j, "labels");
    jsonout_string(&j, LABEL_LAUNCH, "warm");
    jsonout_close(&j);
    jsonout_open_array(&j, "ownerReferences");
    while (jsonscan_next(&w))
        jsonout_raw(&j, NULL, w.value.data, w.value.size);
    body_owner(&j, &pool->o);
    jsonout_close(&j);
    jsonout_close(&j);
    jsonout_close(&j);
    body_finish(&j, out);
}

void pool_write_label(struct buf *out)
{
    buf_add_text(out, "{\"metadata\":{\"labels\":{\"" LABEL_LAUNCH "\":\"warm\"}}}");
}

void pool_write_status(const struct pool *pool, const struct pool_plan *plan, struct buf *out)
{
    struct jsonout j;

    jsonout_init(&j, out);
    jsonout_open_object(&j, NULL);
    jsonout_open_object(&j, "status");
    jsonout_signed(&j, "replicas", plan->replicas);
    jsonout_signed(&j, "readyReplicas", plan->ready);
    jsonout_string(&j, "selector", plan->selector);
    jsonout_signed(&j, "observedGeneration", pool->generation);
    jsonout_close(&j);
    jsonout_close(&j);
    body_finish(&j, out);
}
