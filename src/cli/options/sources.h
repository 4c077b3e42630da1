/* The host side of --mount: opened once, with the caller's own rights, before it is used. */
#ifndef CARREL_CLI_OPTIONS_SOURCES_H
#define CARREL_CLI_OPTIONS_SOURCES_H

#include "base/err.h"
#include "box/spec.h"

struct sources {
    size_t n;
    int    fd[SPEC_MOUNTS_MAX];     /* owned */
};

/* Opens the sources of all host mounts and records in the spec the descriptors and which are files. A symbolic link is
 * refused, because its target can change. */
MUST_CHECK int sources_open(struct box_spec *spec, struct sources *ret, struct err *e);
void           sources_close(struct sources *sources);

#endif
