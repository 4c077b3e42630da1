/* SOURCE:TARGET[:ro|rw], the value of --mount. */
#ifndef CARREL_CLI_OPTIONS_MOUNTARG_H
#define CARREL_CLI_OPTIONS_MOUNTARG_H

#include <stddef.h>

#include "base/arena.h"
#include "base/err.h"
#include "box/spec.h"

/* Parses one mount, read-only unless it says rw. Its strings are in the arena; the target has no needless slashes. */
MUST_CHECK int mountarg_parse(const char *text, struct arena *arena, struct mount_spec *ret, struct err *e);

/* The box's root in its list of mounts; adds one if it is missing. */
struct mount_spec *mountarg_root(struct box_spec *box);

/* Parses one mount and appends it to the box; two mounts cannot have one target. */
MUST_CHECK int mountarg_add(struct box_spec *box, const char *text, struct arena *arena, struct err *e);

#endif
