/* The tar format as bytes: ustar with pax records; GNU's long names and numbers are read but never written. Touches no
 * file. */
#ifndef CARREL_FILES_TAR_H
#define CARREL_FILES_TAR_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "proto/files.h"

enum { TAR_BLOCK = 512, TAR_RECORDS_MAX = 32 << 10 };

/* Types, as the letter in the header. */
enum { TAR_FILE = '0', TAR_HARD_LINK = '1', TAR_LINK = '2', TAR_FOLDER = '5' };

struct tar_entry {
    char     type;                          /* one of the above; when read, also types that tar_next handles itself */
    uint64_t size;                          /* of a file; in the archive it is followed by zeros up to the next block */
    int64_t  mtime_s;
    uint32_t mode, uid, gid;
    char     path[FILES_PATH_MAX + 1];
    char     link[FILES_PATH_MAX + 1];
};

/* Records before the next entry's header that describe it. */
struct tar_notes {
    bool     has_path, has_link, has_size, has_mtime;
    uint64_t size;
    int64_t  mtime_s;
    char     path[FILES_PATH_MAX + 1];
    char     link[FILES_PATH_MAX + 1];
};

/* One header. 1: read; 0: a block of zeros; -EBADMSG: not a header. */
MUST_CHECK int tar_read_header(const unsigned char block[TAR_BLOCK], struct tar_entry *ret);

/* The records of a pax header, into notes (NULL: of a global one, whose records must not matter). 0, -EBADMSG; -ENOTSUP
 * for sparse files. */
MUST_CHECK int tar_read_records(const char *text, size_t size, struct tar_notes *notes);

/* GNU's long name, with or without its NUL. */
MUST_CHECK int tar_read_long_name(const char *text, size_t size, char *ret);

/* Turns a path of an archive into plain names with single slashes, relative to the folder. -EPERM if it is absolute,
 * has "..", or is empty. A path of dots only gives "". */
MUST_CHECK int tar_clean_path(const char *path, char *ret);

/* An entry's header, with pax records before it where ustar has no room. Returns its size, a multiple of TAR_BLOCK; at
 * most TAR_HEAD_MAX. */
enum { TAR_HEAD_MAX = 3 * TAR_BLOCK + 2 * FILES_PATH_MAX + 2 * TAR_BLOCK };
size_t tar_write_header(const struct tar_entry *entry, char *ret);

#endif
