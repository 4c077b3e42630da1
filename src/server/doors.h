/* The doors of this server. */
#ifndef CARREL_SERVER_DOORS_H
#define CARREL_SERVER_DOORS_H

#include "front/door.h"

extern const struct door *const server_doors[];     /* ends with NULL */

#endif
