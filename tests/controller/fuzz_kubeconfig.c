/* Kubeconfigs and what credential plugins print. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "kube/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct kube_config c = { 0 };
    struct err e;

    if (memmem(data, size, "certificate:", 12) || memmem(data, size, "File", 4) || memmem(data, size, "-key:", 5) ||
        memmem(data, size, "authority:", 10))
        return 0;       /* no files of this machine */
    const uint8_t *cut = memmem(data, size, "\n---\n", 5);     /* what follows is a second file */
    size_t first = cut ? (size_t)(cut - data) : size;
    struct kube_config_source from[] = {
        { "f", (const char *)data, "/nonexistent", first },
        { "g", (const char *)data + first, "/nonexistent", size - first },
    };
    if (kube_config_parse(from, cut ? 2 : 1, NULL, &c, &e) == 0)
        kube_config_done(&c);
    if (kube_config_take_credential(&c, (const char *)data, size, &e) <= 0)
        kube_config_done(&c);
    return 0;
}
