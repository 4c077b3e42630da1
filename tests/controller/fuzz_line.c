/* Lines of a watch, and what they carry into the cache. */
#include <stddef.h>
#include <stdint.h>

#include "cluster/object.h"
#include "kube/lease.h"
#include "kube/watch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct kube_line_parts parts;
    struct kube_lease lease = { .identity = "me" };
    struct err e;
    enum kube_line kind = kube_line_parse((const char *)data, size, &parts);

    if (kind == KUBE_LINE_SET || kind == KUBE_LINE_DELETED) {
        for (int k = 0; k < KINDS; k++)
            object_free(object_decode((enum kind)k, parts.object, &e));
        (void)kube_lease_take(&lease, parts.object, 1);
    }
    return 0;
}
