/* The host files that a template needs: its interpreter (base/prefix.h), the files of kernels, the directories of its
 * settings. */
#define _GNU_SOURCE
#include "front/config/layers.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/guest.h"
#include "base/prefix.h"

int layers_of(const struct config_template *t, const char *guest, char *ret, size_t size, struct err *e)
{
    char one[PATH_MAX];

    ret[0] = '\0';
    int r = prefix_add_python(t->python, ret, size, e);
    if (r == 0 && t->python_is_default) {
        /* The folder that 'carrel setup' will fill is mounted before it is filled, so that existing boxes see the
         * result. */
        snprintf(one, sizeof one, "%s", t->python);
        guest_cut(one, 2);
        r = prefix_add(one, ret, size, e);
    }
    if (r == 0)
        r = prefix_add(guest, ret, size, e);
    if (r == 0)
        r = prefix_add(t->startup, ret, size, e);
    for (const char *at = t->layers; *at && r == 0; at += strcspn(at, ":"), at += *at == ':') {
        snprintf(one, sizeof one, "%.*s", (int)strcspn(at, ":"), at);
        r = prefix_add(one, ret, size, e);
    }
    return r;
}
