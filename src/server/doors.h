/* The doors that this server has. */
#ifndef CARREL_SERVER_DOORS_H
#define CARREL_SERVER_DOORS_H

#include "front/door.h"

extern const struct door *const server_doors[];     /* ends with NULL */

#endif
