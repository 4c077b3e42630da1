/* Any object as a Sandbox or Kernel: decoded, planned for with Pods and Services made of the same bytes, and every body
 * that could be written for it is JSON. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/buf.h"
#include "cluster/kernel.h"
#include "cluster/sandbox.h"

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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct jsonslice text = { (const char *)data, size };
    struct object *o[KINDS];
    struct err e;

    if (!jsonscan_is_object(text.data, text.size))
        return 0;
    for (int k = 0; k < KINDS; k++)
        o[k] = object_decode((enum kind)k, text, &e);
    if (o[KIND_SANDBOX])
        try_sandbox((struct sandbox *)o[KIND_SANDBOX], (struct pod *)o[KIND_POD], (struct service *)o[KIND_SERVICE],
                    (struct claim *)o[KIND_CLAIM]);
    if (o[KIND_KERNEL])
        try_kernel((struct kernel *)o[KIND_KERNEL]);
    for (int k = 0; k < KINDS; k++)
        object_free(o[k]);
    return 0;
}
