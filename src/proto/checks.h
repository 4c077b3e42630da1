/* Checks of a box's strings, the same in every program that handles them. */
#ifndef CARREL_PROTO_CHECKS_H
#define CARREL_PROTO_CHECKS_H

#include <stdbool.h>
#include <stddef.h>

/* Up to BOX_HOSTNAME_MAX letters, digits, '-' and '.', a letter or digit first. Reads at most size bytes; without a NUL
 * among them it is invalid. */
bool hostname_is_plain(const char *name, size_t size);

/* A mount's target: an absolute path without empty, "." or ".." components and without a slash at the end, not in /proc
 * or /dev. It is never resolved on the host, but a mount point is made from it. Reads at most size bytes. */
bool target_is_plain(const char *path, size_t size);

/* The name of a layer in a frame: "OWNER/DIGEST", of characters that cannot lead elsewhere. */
bool layer_target_is_plain(const char *target, size_t size);

#endif
