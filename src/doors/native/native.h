/* Carrel's own API: /v1/…, the health pages, the metrics. */
#ifndef CARREL_DOORS_NATIVE_NATIVE_H
#define CARREL_DOORS_NATIVE_NATIVE_H

#include <stdbool.h>
#include <stddef.h>

#include "http/router.h"

struct front;

/* Every handler's owner is the struct front. The table lives as long as the process. */
void native_routes(const struct http_route **ret, size_t *ret_n);

/* A request that came over a box's inlet: answers it (there is little that can be asked there), and says so. */
bool native_inlet(struct front *front, struct http_request *r);

/* Like http_router_dispatch, but what is not found is told as JSON, as everything else is. */
void native_dispatch(struct front *front, struct http_request *r);

/* The API's description, as served at /openapi.json. */
extern const char   native_openapi[];
extern const size_t native_openapi_size;

#endif
