/* Carrel's own API: /v1/…, the health pages, the metrics. */
#ifndef CARREL_DOORS_NATIVE_NATIVE_H
#define CARREL_DOORS_NATIVE_NATIVE_H

#include <stddef.h>

#include "front/door.h"

/* Takes every path that no other door took; a 404 is JSON like every other error. */
extern const struct door native_door;

/* The API's description, as served at /openapi.json. */
extern const char   native_openapi[];
extern const size_t native_openapi_size;

#endif
