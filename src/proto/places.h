/* The default places of this machine's servers, and whether a socket there can be trusted. */
#ifndef CARREL_PROTO_PLACES_H
#define CARREL_PROTO_PLACES_H

#include <stdbool.h>
#include <stddef.h>

#define PLACES_MACHINE_RUN "/run/carrel"
#define PLACES_MACHINE_STATE "/var/lib/carrel"
#define PLACES_SOCKET_NAME "carrel.sock"
#define PLACES_MACHINE_SOCKET PLACES_MACHINE_RUN "/" PLACES_SOCKET_NAME

/* The directory for files that live as long as the machine is up: root's, or the user's own. runtime: the value of
 * XDG_RUNTIME_DIR, or NULL. False if it does not fit. */
bool places_run(bool is_root, const char *runtime, char *ret, size_t size);

/* The socket at a default place that root or the caller serves, the caller's own first; false: there is none.
 * ret_looked, if not NULL: the places searched, for people. */
bool places_find_server(char *ret, size_t size, char *ret_looked, size_t looked_size);

/* path: absolute. Whether it is a socket and no link to one, in a real folder of root's or the caller's that others
 * cannot write to, rename or replace. So no other user can place another socket there. */
bool places_is_own_socket(const char *path);

#endif
