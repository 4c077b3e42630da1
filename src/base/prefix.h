/* The directories that an interpreter needs in a box, as a colon-separated list. Directories below /usr are in every
 * box and are left out. */
#ifndef CARREL_BASE_PREFIX_H
#define CARREL_BASE_PREFIX_H

#include <stddef.h>

#include "base/err.h"

/* Adds a directory, unless a directory in the list already contains it. */
MUST_CHECK int prefix_add(const char *dir, char *list, size_t size, struct err *e);
/* Adds the directories of an interpreter: its environment, and the prefix of the interpreter that the environment was
 * made from. */
MUST_CHECK int prefix_add_python(const char *python, char *list, size_t size, struct err *e);

#endif
