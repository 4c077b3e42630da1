/* A door: one protocol of the front. A new one is a folder, this struct, and one line in program.c. */
#ifndef CARREL_FRONT_DOOR_H
#define CARREL_FRONT_DOOR_H

#include <stdbool.h>

#include "base/err.h"

struct front;
struct http_request;

struct door {
    const char *name;
    /* Before the first request, once there is a loop; NULL: there is nothing to open. */
    int  (*open)(struct front *front, struct err *e);
    /* False: the path is none of its own, and nothing was done. Else the request is answered, now or later. */
    bool (*dispatch)(struct front *front, struct http_request *r);
    /* The same for a request that came over a box's inlet (inlets.h); NULL: nothing of this door is there. */
    bool (*dispatch_inlet)(struct front *front, struct http_request *r);
    /* After the last request; NULL: nothing to close. Also after a failed open. */
    void (*close)(struct front *front);
};

#endif
