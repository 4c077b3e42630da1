/* The command line of `carrel run` and `carrel plan`. */
#ifndef CARREL_CLI_OPTIONS_OPTIONS_H
#define CARREL_CLI_OPTIONS_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "box/spec.h"
#include "cli/options/keyarg.h"
#include "proto/create.h"
#include "proto/net.h"
#include "proto/net_options.h"
#include "proto/packages.h"

struct run_options {
    struct box_spec     box;
    struct command_spec command;
    bool                help;           /* --help: the rest was not read */
    bool                interactive;    /* -i */
    bool                json;
    bool                trace;
    struct limits       given;          /* not 0: the user gave this limit */
    uint64_t            request_memory_bytes;   /* of a server's box; requests.cpus is in box.limits */
    const char         *report_path;    /* NULL: none */
    const char         *zygote;         /* NULL: none */
    struct net_options  net_options;
    struct net_policy   net;
    struct net_bounds   net_bounds;
    struct packages     packages;
    const char         *python;         /* the interpreter for packages; NULL: the default */
    size_t              n_keys;
    struct keyarg      *key[BROKER_KEYS];           /* owned; their values are overwritten once the broker has them */
    size_t              n_devices;
    const char         *device[KEEPER_DEVICES];     /* names of CDI */
    size_t              n_secrets;
    const char         *secret[SPEC_SECRETS_MAX];   /* NAME=PLACE, as given */
    size_t              n_volumes;
    const char         *volume[KEEPER_VOLUMES];     /* NAME:/PATH[:ro], as given */
    struct arena        arena;          /* owns the strings; command.env is owned too */
};

/* argv[0] is the command's name ("run"), environment the caller's, NULL-terminated. Strings of argv are kept by
 * reference. On failure ret holds nothing. */
MUST_CHECK int options_parse(int argc, char **argv, char *const *environment, struct run_options *ret, struct err *e);
void options_done(struct run_options *options);

#endif
