/* The Jupyter door: /api and /kernelspecs at the origin's root, as notebook servers, gateways and their clients know
 * them. */
#ifndef CARREL_DOORS_JUPYTER_JUPYTER_H
#define CARREL_DOORS_JUPYTER_JUPYTER_H

#include <stdbool.h>

#include "base/err.h"

struct front;
struct http_request;

/* Before the first request, once there is a loop. The front keeps it as its member jupyter. */
MUST_CHECK int jupyter_open(struct front *front, struct err *e);
void           jupyter_close(struct front *front);

/* False: the path is none of ours, and nothing was done. Else the request is answered, now or later. */
bool           jupyter_dispatch(struct front *front, struct http_request *r);

#endif
