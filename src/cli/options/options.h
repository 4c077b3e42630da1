/* The command line of `carrel run` and `carrel plan`. */
#ifndef CARREL_CLI_OPTIONS_OPTIONS_H
#define CARREL_CLI_OPTIONS_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "box/spec.h"
#include "proto/create.h"
#include "proto/net.h"

struct run_options {
    struct box_spec     box;
    struct command_spec command;
    bool                help;           /* --help: nothing else was read */
    bool                interactive;    /* -i */
    bool                json;
    bool                trace;
    struct limits       given;          /* not 0: this limit is no default */
    enum { RUN_ANYWHERE, RUN_HERE, RUN_BY_SERVER } where;
    const char         *report_path;    /* NULL: none */
    const char         *zygote;         /* NULL: none */
    struct net_policy   net;
    size_t              n_devices;
    const char         *device[KEEPER_DEVICES];     /* names of CDI */
    struct arena        arena;          /* owns the strings; command.env is owned too */
};

/* argv[0] is the word of the command ("run"), environment that of the caller, NULL-terminated. Strings of argv are kept
 * by reference. On failure ret holds nothing. */
MUST_CHECK int options_parse(int argc, char **argv, char *const *environment, struct run_options *ret, struct err *e);
void options_done(struct run_options *options);

#endif
