/* Strings that a box is made of: what every program that handles them takes. */
#ifndef CARREL_PROTO_CHECKS_H
#define CARREL_PROTO_CHECKS_H

#include <stdbool.h>
#include <stddef.h>

/* Up to BOX_HOSTNAME_MAX letters, digits, '-' and '.', a letter or digit first. Reads at most size bytes; without a NUL
 * among them it is none. */
bool hostname_is_plain(const char *name, size_t size);

/* A mount's target: an absolute path without empty, "." or ".." components and without a slash at the end, not in /proc
 * or /dev. It is never resolved on the host, but a mount point is made of it. Reads at most size bytes. */
bool target_is_plain(const char *path, size_t size);

#endif
