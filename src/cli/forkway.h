/* `carrel run --zygote PROGRAM`: a family of one box, whose command is forked from the program. */
#ifndef CARREL_CLI_FORKWAY_H
#define CARREL_CLI_FORKWAY_H

#include "box/family/family.h"
#include "cli/options/options.h"

struct forkway {
    int           program;      /* owned: if it was given as a path; else -1 */
    char          path[256];    /* its path inside */
    struct plan   plan;
    struct family family;
    bool          has_family;
};

/* After the host was opened: a tree can only be cloned from a descriptor of the keeper's own mount namespace. */
MUST_CHECK int forkway_open(struct forkway *way, const struct run_options *options, struct err *e);

/* Makes the family and, in it, the box; starts the command. On failure nothing is left. */
MUST_CHECK int forkway_create(struct forkway *way, struct box_host *host, const struct run_options *options,
                              const struct plan *plan, const struct start *start, struct engine_box *ret,
                              struct payload *ret_payload, struct err *e);

/* Call it after the box was released. */
void           forkway_close(struct forkway *way, struct box_host *host);

#endif
