/* Inlets: a listener in a box's network that this front serves. A connection to it carries the box's identity by
 * construction, so the code there needs no token. The keeper makes it, and keeps a duplicate for the next front. */
#ifndef CARREL_FRONT_SERVICES_INLETS_H
#define CARREL_FRONT_SERVICES_INLETS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "http/server.h"

struct box;
struct box_part;
struct front;

/* e NULL: it is open. From the loop. */
typedef void inlet_callback(struct box *box, const struct err *e, void *arg);

/* 1: it is open already; 0: call will follow. */
int         inlet_open(struct box *box, inlet_callback *call, void *arg);
void        inlets_cancel(struct front *front, void *arg);
enum { INLET_TAG = 1 << 16 };       /* of a listener, plus the box's slot; other listeners have small tags */
static inline bool inlet_is(const struct http_peer *peer)
{
    return peer->tag >= INLET_TAG;
}
/* The box of an inlet's connection; NULL: it is gone. */
struct box *inlet_box(struct front *front, const struct http_peer *peer);

/* For front/parts.c. */
extern const struct box_part inlets_part;

#endif
