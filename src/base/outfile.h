/* A file for the report of a run. The command may change the folder that the file lies in, and earlier runs may have
 * done so. The file is therefore opened before the run begins, and no symbolic link on the way is followed. */
#ifndef CARREL_BASE_OUTFILE_H
#define CARREL_BASE_OUTFILE_H

#include "base/err.h"

/* Creates the file if it is missing; keeps its contents until outfile_write(). Accepts only a regular file or a device,
 * or a descriptor that the caller has open (/dev/stderr, /dev/fd/3). option is the option's name for messages. Returns
 * the fd or -errno. */
MUST_CHECK int outfile_open(const char *option, const char *path, struct err *e);

/* Replaces the contents by text. 0 or -errno. */
MUST_CHECK int outfile_write(int fd, const char *text, size_t length);

#endif
