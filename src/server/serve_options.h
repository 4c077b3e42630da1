/* The settings and flags of `carrel serve`. */
#ifndef CARREL_SERVER_SERVE_OPTIONS_H
#define CARREL_SERVER_SERVE_OPTIONS_H

#include <sys/types.h>

#include "front/config/config.h"

struct serve_options {
    struct config config;
    const char   *config_path;      /* the file that was read and that the front reads, too; NULL: none */
    char          own_config[300];
    const char   *private_dir;      /* of a server with --private: the folder of all its files; NULL: not private */
    const char   *keeper_path;      /* socket of a keeper started by another; NULL: ours */
    int           n_set;            /* settings to pass on to the front */
    char         *set[96];          /* owned, until the process ends */
};

/* Reads only the file. */
MUST_CHECK int serve_options_load(int argc, char **argv, struct serve_options *o, struct err *e);
/* Reads the file, then the flags, and checks them. */
MUST_CHECK int serve_options_read(int argc, char **argv, struct serve_options *o, struct err *e);
/* Adds a setting of our own, which the front gets, too. */
MUST_CHECK int serve_options_add(struct serve_options *o, const char *key, const char *value, struct err *e);
/* The user that the front becomes. With a running keeper it is the user that this keeper expects. */
MUST_CHECK int serve_options_user(const struct serve_options *o, uid_t *ret_uid, gid_t *ret_gid, struct err *e);

#endif
