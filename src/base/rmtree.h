/* Removes a folder with everything in it, also if its contents are hostile: follows no link, and depth costs no
 * descriptors. */
#ifndef CARREL_BASE_RMTREE_H
#define CARREL_BASE_RMTREE_H

#include <stdint.h>

#include "base/err.h"

/* A missing name is no error. 0 or -errno; after a failure another call can remove the rest. */
MUST_CHECK int rmtree(int dir, const char *name);

/* The bytes that a folder takes on its disk. Stops counting beyond most; unreadable parts count 0. */
uint64_t       rmtree_bytes(int dir, const char *name, uint64_t most);

#endif
