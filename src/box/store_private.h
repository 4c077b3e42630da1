/* Shared by store.c and volume.c: a folder of images that are named by numbers. */
#ifndef CARREL_BOX_STORE_PRIVATE_H
#define CARREL_BOX_STORE_PRIVATE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

enum { STORE_NAME_SIZE = 32, STORE_PATIENCE_MS = 60000 /* for the last box's data to be flushed */ };

/* "NUMBER.KIND". */
void           store_name_of(uint64_t number, const char *kind, char name[STORE_NAME_SIZE]);
/* The reverse. False: the name is not one of ours. */
bool           store_number_of(const char *name, const char *kind, uint64_t *ret);
/* Waits for a lock that the kernel drops with its last holder. -EBUSY. */
MUST_CHECK int store_lock_patiently(int fd, uint64_t patience_ms);
/* Calls for every name of this kind. */
MUST_CHECK int store_each(int dir, const char *kind,
                          void (*call)(int dir, const char *name, uint64_t number, void *arg), void *arg);
/* For store_each(): unlinks it. */
void           store_remove_one(int dir, const char *name, uint64_t number, void *arg);
/* Opens or makes a folder for this keeper alone. */
MUST_CHECK int store_open_directory(const char *path, int *ret, struct err *e);
/* A size is granted only if the disk could hold it even when all other images of both folders (-1: none) are full. */
MUST_CHECK int store_check_room(int dir, int beside, uint64_t bytes, const char *whose, struct err *e);
/* NUMBER.new, empty and of its final size. */
MUST_CHECK int store_make_file(int dir, uint64_t number, uint64_t bytes, struct err *e);

#endif
