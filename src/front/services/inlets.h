/* Inlets: a listener in a box's network that this front serves. A connection to it carries the box's identity by
 * construction, so the code there needs no token. The keeper makes it, and has a duplicate for the next front. */
#ifndef CARREL_FRONT_SERVICES_INLETS_H
#define CARREL_FRONT_SERVICES_INLETS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct box;
struct front;
struct http_peer;

/* e NULL: it is there. From the loop. */
typedef void inlet_callback(struct box *box, const struct err *e, void *arg);

/* 1: it is there already; 0: call will come. */
int         inlet_open(struct box *box, inlet_callback *call, void *arg);
void        inlets_cancel(struct front *front, void *arg);
void        inlet_close(struct box *box);
/* What an earlier front had opened: takes the descriptor. */
void        inlet_adopt(struct front *front, uint32_t slot, int *fd);
/* The box whose inlet a request came over; NULL: it came another way. *ret_is_inlet: even if the box is gone. */
struct box *inlet_box(struct front *front, const struct http_peer *peer, bool *ret_is_inlet);

#endif
