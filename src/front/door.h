/* A door: one protocol of the front. A new one is a folder, a struct door, and one line in src/server/doors.c. Unused
 * members are NULL. */
#ifndef CARREL_FRONT_DOOR_H
#define CARREL_FRONT_DOOR_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "front/config/config_key.h"
#include "front/db/db_tables.h"
#include "http/router.h"

struct box;
struct front;
struct http_request;
struct open_door;

struct door {
    const char                  *name;
    const char *const           *under;     /* prefixes of its paths; ends with NULL. NULL: any path */
    const struct config_section *config;    /* its settings */
    const struct db_schema      *schema;    /* its tables */
    const struct http_route     *routes;    /* its paths; a handler's owner is the open door */
    size_t                       n_routes;
    /* From its settings: a listener of its own, ADDRESS:PORT or the path of a unix socket; "": none. Its requests go to
     * this door only. */
    const char *(*listen)(const void *config);
    /* Called before the first request, once there is a loop. */
    int  (*open)(struct open_door *d, struct err *e);
    /* A request for a path under one of the prefixes. False: not this door's path after all, and nothing was done.
     * Otherwise the request is answered, now or later. NULL: door_route() does it. */
    bool (*dispatch)(struct open_door *d, struct http_request *r);
    /* The same for a request over the inlet of this box (inlets.h); NULL: the door serves no inlets. */
    bool (*dispatch_inlet)(struct open_door *d, struct http_request *r, struct box *box);
    /* Called after the last request. Also after a failed open. */
    void (*close)(struct open_door *d);
};

struct open_door {
    const struct door  *door;
    struct front       *front;
    const void         *config;         /* the values of door->config */
    struct db_tables   *tables;         /* of door->schema; owned */
    struct http_router *router;         /* of door->routes; owned */
    void               *state;          /* owned by the door */
};

/* Uses the table of routes: a path that is not in it is not the door's; a wrong method is answered with 405. */
bool           door_route(struct open_door *d, struct http_request *r);

/* All doors of a server, in the order in which they are tried. */
enum { DOORS_MOST = 8 };
struct doors {
    struct open_door open[DOORS_MOST];
    size_t           n;
};

/* list ends with NULL. Called before the configuration is read: */
MUST_CHECK int doors_configure(const struct door *const *list, struct config *config, struct err *e);
/* After it was read: checks the doors' settings, which config_check() does not know. */
MUST_CHECK int doors_check(const struct door *const *list, const struct config *config, struct err *e);
/* The door's own listener; "": none. */
const char    *door_address(const struct door *door, const struct config *config);
/* Called when all parts of the front but its HTTP server are open. Call doors_close() also after a failure. */
MUST_CHECK int doors_open(struct doors *doors, const struct door *const *list, struct front *front, struct err *e);
/* only: the request came over this door's listener; NULL: over one of the front's. */
void           doors_dispatch(struct doors *doors, const struct door *only, struct http_request *r);
void           doors_close(struct doors *doors);

#endif
