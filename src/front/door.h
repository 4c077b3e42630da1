/* A door: one protocol of the front. A new one is a folder, a struct door, and one line in src/server/doors.c. What it
 * does not need it leaves NULL. */
#ifndef CARREL_FRONT_DOOR_H
#define CARREL_FRONT_DOOR_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "front/config/config_key.h"
#include "front/db/db_tables.h"
#include "http/router.h"

struct front;
struct http_request;
struct open_door;

struct door {
    const char                  *name;
    const char *const           *under;     /* its paths are these and what is below them; ends with NULL. NULL: any */
    const struct config_section *config;    /* its settings */
    const struct db_schema      *schema;    /* its tables */
    const struct http_route     *routes;    /* its paths; a handler's owner is the open door */
    size_t                       n_routes;
    /* Of its settings: where it listens besides the front's own listeners, ADDRESS:PORT or the path of a unix socket;
     * "": nowhere. What comes there is for this door only. */
    const char *(*listen)(const void *config);
    /* Before the first request, once there is a loop. */
    int  (*open)(struct open_door *d, struct err *e);
    /* Of a path under one of the above. False: it is none of its own after all, and nothing was done. Else the request
     * is answered, now or later. NULL: door_route() does it. */
    bool (*dispatch)(struct open_door *d, struct http_request *r);
    /* The same for a request that came over a box's inlet (inlets.h); NULL: nothing of this door is there. */
    bool (*dispatch_inlet)(struct open_door *d, struct http_request *r);
    /* After the last request. Also after a failed open. */
    void (*close)(struct open_door *d);
};

struct open_door {
    const struct door  *door;
    struct front       *front;
    const void         *config;         /* what door->config was read into */
    struct db_tables   *tables;         /* of door->schema; owned */
    struct http_router *router;         /* of door->routes; owned */
    void               *state;          /* the door's own */
};

/* By the table of routes: a path that is not in it is none of the door's; a wrong method is answered with 405. */
bool           door_route(struct open_door *d, struct http_request *r);

/* All doors of a server, in the order in which they are asked. */
enum { DOORS_MOST = 8 };
struct doors {
    struct open_door open[DOORS_MOST];
    size_t           n;
};

/* list ends with NULL. Before the configuration is read: */
MUST_CHECK int doors_configure(const struct door *const *list, struct config *config, struct err *e);
/* After it was read: what the doors want, and config_check() knows nothing of. */
MUST_CHECK int doors_check(const struct door *const *list, const struct config *config, struct err *e);
/* Where the door listens by itself; "": nowhere. */
const char    *door_address(const struct door *door, const struct config *config);
/* The front's parts but its HTTP server are there. doors_close() also after a failure. */
MUST_CHECK int doors_open(struct doors *doors, const struct door *const *list, struct front *front, struct err *e);
/* only: what came over the listener of this door's; NULL: over one of the front's. */
void           doors_dispatch(struct doors *doors, const struct door *only, struct http_request *r);
void           doors_close(struct doors *doors);

#endif
