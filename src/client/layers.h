/* Layers of packages in two places: the folder of this user, which `carrel layer ... --here` reads, and that of a
 * server which another user runs. */
#ifndef CARREL_CLIENT_LAYERS_H
#define CARREL_CLIENT_LAYERS_H

#include "client/client.h"

/* A list as `carrel layer list --json` prints it; "where" is "here" or "server". Layers of a server that runs with this
 * user's folder are listed once, as "here". c NULL: there is no server. NULL, and complained: failure. */
json_t *layers_read(const struct client *c, bool everybody);

#endif
