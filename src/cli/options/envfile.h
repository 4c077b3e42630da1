/* Files of environment variables: KEY=VALUE lines, comments, `export`, quotes. Nothing is expanded.
 *
 *     # a comment
 *     NAME=value            text up to the end of the line or to a '#' after a blank
 *     export NAME='it is'   exactly what is between the quotes
 *     NAME="a \"b\""        the same; \" and \\ stand for " and \
 */
#ifndef CARREL_CLI_OPTIONS_ENVFILE_H
#define CARREL_CLI_OPTIONS_ENVFILE_H

#include <stddef.h>

#include "base/err.h"
#include "cli/options/envlist.h"

enum { ENVFILE_BYTES_MAX = 4 << 20 };

/* Adds all variables of a text; file is its name for messages ("FILE:LINE: ..."), which never show its contents. */
MUST_CHECK int envfile_parse(const char *file, const char *text, size_t size, struct envlist *list, struct err *e);

/* The same for a file, which may be a pipe. */
MUST_CHECK int envfile_read(const char *path, struct envlist *list, struct err *e);

#endif
