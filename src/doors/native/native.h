/* Carrel's own API: /v1/…, the health pages, the metrics. */
#ifndef CARREL_DOORS_NATIVE_NATIVE_H
#define CARREL_DOORS_NATIVE_NATIVE_H

#include <stddef.h>

#include "front/door.h"

/* Takes every path that no other door took: what is not found is told as JSON, as everything else is. */
extern const struct door native_door;

/* The API's description, as served at /openapi.json. */
extern const char   native_openapi[];
extern const size_t native_openapi_size;

#endif
