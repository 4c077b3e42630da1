/* Whether what is found at a path will be the same in a moment: nobody but root and the caller can put something else
 * there. */
#ifndef CARREL_BASE_PLACE_H
#define CARREL_BASE_PLACE_H

#include <stdbool.h>

/* path: absolute, of a socket. It is a socket and no link to one; its folder is a real one, of root's or the caller's,
 * which nobody else may write to; nor can that folder itself be put aside by others. */
bool place_is_own_socket(const char *path);

#endif
