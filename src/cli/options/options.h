/* The command line of `carrel run` and `carrel plan`. */
#ifndef CARREL_CLI_OPTIONS_OPTIONS_H
#define CARREL_CLI_OPTIONS_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "box/spec.h"
#include "cli/options/strings.h"

enum {
    OPTIONS_PIDS_DEFAULT = 1024,
    OPTIONS_PIDS_MAX     = 4 << 20,     /* PID_MAX_LIMIT */
};
#define OPTIONS_DISK_DEFAULT (UINT64_C(512) << 20)
#define OPTIONS_DISK_MIN     (UINT64_C(64) << 10)
#define OPTIONS_MEMORY_MIN   (UINT64_C(1) << 20)

struct run_options {
    struct box_spec     box;
    struct command_spec command;
    bool                help;           /* --help: nothing else was read */
    bool                interactive;    /* -i */
    bool                json;
    bool                trace;
    bool                pids_by_default;    /* --pids was not given */
    bool                disk_by_default;    /* --disk was not given */
    enum { RUN_ANYWHERE, RUN_HERE, RUN_BY_SERVER } where;
    const char         *report_path;    /* NULL: none */
    const char         *zygote;         /* NULL: none */
    struct pool         pool;           /* owns the strings; command.env is owned too */
};

/* argv[0] is the word of the command ("run"), environment that of the caller, NULL-terminated. Strings of argv are kept
 * by reference. On failure ret holds nothing. */
MUST_CHECK int options_parse(int argc, char **argv, char *const *environment, struct run_options *ret, struct err *e);
void options_done(struct run_options *options);

#endif
