/* A file that is told what came of a run. What ran may have changed the folder that it lies in, and so may runs before
 * it. So it is opened before the run begins, and no link on the way is followed. */
#ifndef CARREL_BASE_OUTFILE_H
#define CARREL_BASE_OUTFILE_H

#include "base/err.h"

/* Makes the file if there is none; what is in it stays until there is something to write. Only a regular file or a
 * device will do, except for what the caller has open himself (/dev/stderr, /dev/fd/3). option is what the user calls
 * it. Returns its fd or -errno. */
MUST_CHECK int outfile_open(const char *option, const char *path, struct err *e);

/* Puts text in place of what was there. 0 or -errno. */
MUST_CHECK int outfile_write(int fd, const char *text, size_t length);

#endif
