/* Families of kernels: for an owner and a template, a warmed interpreter from which kernels are forked into boxes. The
 * front decides which families there are; the keeper makes them (REQUEST_FAMILY). */
#ifndef CARREL_FRONT_FAMILIES_H
#define CARREL_FRONT_FAMILIES_H

#include <stdbool.h>
#include <stdint.h>

#include "keeper/proto.h"

struct box;
struct front;

/* A kernel of its template can be forked in this box (START_FORK): it is of a family whose zygote lives. Else a kernel
 * is exec'd there, which always works in a box with the template's layers. */
bool family_can_fork(const struct box *b);

#endif
