/* Where a server of this machine is found, and whether what is found there may be trusted. */
#ifndef CARREL_PROTO_PLACES_H
#define CARREL_PROTO_PLACES_H

#include <stdbool.h>
#include <stddef.h>

#define PLACES_MACHINE_RUN "/run/carrel"
#define PLACES_SOCKET_NAME "carrel.sock"
#define PLACES_MACHINE_SOCKET PLACES_MACHINE_RUN "/" PLACES_SOCKET_NAME

/* The directory of what lives as long as the machine is up: root's, or the user's own. runtime: the value of
 * XDG_RUNTIME_DIR, or NULL. False if it does not fit. */
bool places_run(bool is_root, const char *runtime, char *ret, size_t size);

/* The socket of a server in a usual place that root or the caller serves, the caller's own first; false: there is none.
 * ret_looked, if not NULL: where it was looked for, for people. */
bool places_find_server(char *ret, size_t size, char *ret_looked, size_t looked_size);

/* Somebody answers at this path; unless by_anybody, it is root or the caller. */
bool places_is_served(const char *path, bool by_anybody);

/* path: absolute, of a socket. It is a socket and no link to one; its folder is a real one, of root's or the caller's,
 * which nobody else may write to; nor can that folder itself be put aside by others. So nobody else can put another
 * socket there in a moment. */
bool places_is_own_socket(const char *path);

#endif
