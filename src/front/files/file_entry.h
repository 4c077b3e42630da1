/* The file helper's entries, and their JSON. */
#ifndef CARREL_FRONT_FILES_FILE_ENTRY_H
#define CARREL_FRONT_FILES_FILE_ENTRY_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "proto/files.h"

/* Cuts the next entry off a frame. False at its end, or if it is malformed. */
bool file_entry_next(const char **data, size_t *size, struct files_entry *ret, const char **ret_name,
                     const char **ret_link);
/* path NULL: only the name. */
void file_entry_json(struct buf *out, const struct files_entry *entry, const char *name, const char *link,
                     const char *path);

#endif
