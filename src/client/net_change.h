/* The changes of `carrel net` to a policy: PATCH takes a whole one. */
#ifndef CARREL_CLIENT_NET_CHANGE_H
#define CARREL_CLIENT_NET_CHANGE_H

#include <jansson.h>

#include "base/err.h"

/* Adds what asked has, as from take_net(), to a box's present policy, without the rules in remove (texts).
 * "none" or the name of a network replaces all of it. -EINVAL at STEP_USAGE; *ret: a new reference. */
MUST_CHECK int net_change(const char *box, const json_t *now, const json_t *asked, const json_t *remove, json_t **ret,
                          struct err *e);

#endif
