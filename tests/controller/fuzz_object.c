/* Any object as a Sandbox, Kernel, template, pool or claim: decoded, planned for with others made of the same bytes,
 * and every body that could be written for it is JSON. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/buf.h"
#include "cluster/boxclaim.h"
#include "cluster/kernel.h"
#include "cluster/pool.h"
#include "cluster/sandbox.h"
#include "cluster/template.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(struct buf *out)
{
    if (buf_error(out) == 0 && !jsonscan_is_object(buf_string(out), out->length))
        abort();
    buf_done(out);
    buf_init(out, 1 << 24);
}

static void try_sandbox(const struct sandbox *s, const struct pod *pod, const struct service *service,
                        const struct claim *claim)
{
    static struct plan plan;
    static const struct policy policy = { .cluster_domain = "x", .secure_defaults = true, .recreate_on_change = true };
    struct view v = {
        .box = s, .named = pod, .service = service, .claim = { claim }, .policy = &policy, .now = 1700000000
    };
    struct buf out;

    sandbox_plan(&v, &plan);
    buf_init(&out, 1 << 24);
    if (plan.n_actions == 0 && !s->o.deleting) {
        sandbox_write_status(s, &plan.status, &out);
        check(&out);
    }
    if (s->pod_spec) {
        sandbox_write_pod(s, &policy, &out);
        check(&out);
        sandbox_write_service(s, &out);
        check(&out);
        for (size_t i = 0; i < s->n_claims; i++) {
            sandbox_write_claim(s, &policy, i, &out);
            check(&out);
        }
    }
    if (pod && sandbox_write_pod_patch(s, &policy, pod, true, &out))
        check(&out);
    if (service) {
        sandbox_write_service_patch(s, service, true, &out);
        check(&out);
    }
    buf_done(&out);
}

static void try_kernel(const struct kernel *k)
{
    static const struct policy policy = { .cluster_domain = "x" };
    struct kernel_view v = { .kernel = k, .policy = &policy };
    struct kernel_plan plan;
    struct buf out;

    kernel_plan(&v, &plan);
    buf_init(&out, 1 << 24);
    if (k->pod_spec) {
        kernel_write_pod(k, &policy, &out);
        check(&out);
        kernel_write_service(k, &out);
        check(&out);
        kernel_write_notes(k, &policy, &out);
        check(&out);
    }
    buf_done(&out);
}

static void try_extensions(struct object *const o[KINDS])
{
    static const struct policy policy = { .cluster_domain = "x", .max_batch = 4, .grace_ms = 1, .recheck_ms = 1 };
    static struct boxclaim_plan plan;
    const struct sandbox *member[2] = { (const struct sandbox *)o[KIND_SANDBOX] }, *owned[1] = { member[0] };
    const struct template *t = (const struct template *)o[KIND_TEMPLATE];
    struct pool_action actions[8];
    struct pool_plan pool = { .action = actions };
    struct pool_view pv = { .pool = (const struct pool *)o[KIND_POOL], .template = t, .member = member, .n_members = 1,
                            .orphan = owned, .n_orphans = 1, .policy = &policy, .now = 1700000000, .now_ms = 5 };
    struct boxclaim_view v = { .claim = (const struct boxclaim *)o[KIND_BOXCLAIM], .pool = pv.pool, .template = t,
                               .owned = owned, .member = owned, .policy = &policy, .now_us = 1700000000000000 };
    struct buf out;

    buf_init(&out, 1 << 24);
    pool_plan(&pv, &pool);
    pool_write_status(pv.pool, &pool, &out);
    check(&out);
    if (t->pod_spec) {
        pool_write_box(pv.pool, t, "n", &out);
        check(&out);
        boxclaim_write_box(&v, &out);
        check(&out);
    }
    if (t->policy_spec) {
        template_write_policy(t, &out);
        check(&out);
    }
    for (v.n_owned = 0; v.n_owned < 2; v.n_owned++) {
        v.n_members = 1 - v.n_owned;
        boxclaim_plan(&v, &plan);
        boxclaim_write_status(v.claim, &plan.status, &out);
        check(&out);
        boxclaim_write_notes(v.claim, &plan.notes, &out);
        check(&out);
    }
    boxclaim_write_adoption(&v, owned[0], &out);
    check(&out);
    boxclaim_write_alignment(&v, owned[0], &out);
    check(&out);
    buf_done(&out);
}

/* The object once more, with its conditions repeated until they are more than 64 KiB: inputs of that size are rare. */
static void enlarge(struct jsonslice whole, struct buf *out)
{
    struct jsonslice conditions = jsonscan_find(jsonscan_find(whole, "status"), "conditions");
    struct jsonslice meta = jsonscan_find(whole, "metadata");
    struct jsonwalk w = jsonscan_walk(conditions);

    if (!meta.data || conditions.size < 16 || *conditions.data != '[' || !jsonscan_next(&w))
        return;
    struct jsonslice inside = { conditions.data + 1, conditions.size - 2 };
    buf_add_text(out, "{\"metadata\":");
    buf_add(out, meta.data, meta.size);
    buf_add_text(out, ",\"status\":{\"conditions\":[");
    for (size_t n = 0; n <= 70000; n += inside.size) {
        buf_add_text(out, n > 0 ? "," : "");
        buf_add(out, inside.data, inside.size);
    }
    buf_add_text(out, "]}}");
}

static void try_all(struct jsonslice text)
{
    struct object *o[KINDS];
    struct err e;

    for (int k = 0; k < KINDS; k++)
        o[k] = object_decode((enum kind)k, text, &e);
    if (o[KIND_SANDBOX])
        try_sandbox((struct sandbox *)o[KIND_SANDBOX], (struct pod *)o[KIND_POD], (struct service *)o[KIND_SERVICE],
                    (struct claim *)o[KIND_CLAIM]);
    if (o[KIND_KERNEL])
        try_kernel((struct kernel *)o[KIND_KERNEL]);
    if (o[KIND_SANDBOX] && o[KIND_TEMPLATE] && o[KIND_POOL] && o[KIND_BOXCLAIM])
        try_extensions(o);
    for (int k = 0; k < KINDS; k++)
        object_free(o[k]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct jsonslice text = { (const char *)data, size };
    struct buf large;

    if (!jsonscan_is_object(text.data, text.size))
        return 0;
    try_all(text);
    buf_init(&large, 1 << 20);
    if (size % 8 == 0)
        enlarge(text, &large);
    if (large.length > 0) {
        if (!jsonscan_is_object(buf_string(&large), large.length))
            abort();
        try_all((struct jsonslice){ buf_string(&large), large.length });
    }
    buf_done(&large);
    return 0;
}
