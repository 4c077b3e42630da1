/* The host files that a box must see so that a template's interpreter runs in it. */
#ifndef CARREL_FRONT_CONFIG_LAYERS_H
#define CARREL_FRONT_CONFIG_LAYERS_H

#include <stddef.h>

#include "base/err.h"
#include "front/config/config.h"

/* The directories of a template, separated by colons, for `carrel keeper --template`: the environment of its
 * interpreter, the prefix of the real one, the guest directory, its own layers; without those under /usr, which every
 * box has. Missing directories are left out. */
MUST_CHECK int layers_of(const struct config_template *t, const char *guest, char *ret, size_t size, struct err *e);

#endif
