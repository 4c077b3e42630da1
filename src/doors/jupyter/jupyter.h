/* The Jupyter door: /api and /kernelspecs at the origin's root, as notebook servers, gateways and their clients know
 * them. */
#ifndef CARREL_DOORS_JUPYTER_JUPYTER_H
#define CARREL_DOORS_JUPYTER_JUPYTER_H

#include "front/door.h"

extern const struct door jupyter_door;

#endif
