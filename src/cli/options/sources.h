/* The host side of --mount: opened once, under the caller's own rights, before anything else is done with it. */
#ifndef CARREL_CLI_OPTIONS_SOURCES_H
#define CARREL_CLI_OPTIONS_SOURCES_H

#include "base/err.h"
#include "box/spec.h"

struct sources {
    size_t n;
    int    fd[SPEC_MOUNTS_MAX];     /* owned */
};

/* Opens the sources of all host mounts: the spec then has the descriptors and knows which are files. A source that is a
 * symbolic link is refused: where it leads can change. */
MUST_CHECK int sources_open(struct box_spec *spec, struct sources *ret, struct err *e);
void           sources_close(struct sources *sources);

#endif
