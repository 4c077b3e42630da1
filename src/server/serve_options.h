/* The settings and flags of `carrel serve`. */
#ifndef CARREL_SERVER_SERVE_OPTIONS_H
#define CARREL_SERVER_SERVE_OPTIONS_H

#include <sys/types.h>

#include "front/config/config.h"

struct serve_options {
    struct config config;
    const char   *config_path;      /* the file that was read, and that the front shall read; NULL: none */
    char          own_config[300];
    const char   *private_dir;      /* of a server with --private, where all that it has is; NULL: it is not one */
    const char   *keeper_path;      /* of a keeper that somebody else runs; NULL: ours */
    int           n_set;            /* settings to hand on to the front */
    char         *set[32];          /* owned, until the process ends */
};

/* The file alone. */
MUST_CHECK int serve_options_load(int argc, char **argv, struct serve_options *o, struct err *e);
/* The file, then the flags; checked. */
MUST_CHECK int serve_options_read(int argc, char **argv, struct serve_options *o, struct err *e);
/* Whom the front becomes. */
MUST_CHECK int serve_options_user(const struct config *config, uid_t *ret_uid, gid_t *ret_gid, struct err *e);

#endif
