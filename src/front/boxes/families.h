/* Families of kernels: for an owner, a template and a profile, a warmed interpreter from which kernels are forked into
 * boxes. The front decides which families there are; the keeper makes them (REQUEST_FAMILY). The server's own user has
 * his from the start; everybody else gets one with the first box of a template, which is made without it. */
#ifndef CARREL_FRONT_BOXES_FAMILIES_H
#define CARREL_FRONT_BOXES_FAMILIES_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/create.h"

struct box;
struct box_settings;
struct front;

/* A kernel of its template can be forked in this box (START_FORK): it is of a family whose zygote lives. Else a kernel
 * is exec'd there, which always works in a box with the template's layers. */
bool     family_can_fork(const struct box *b);

/* The family that a box is to be made in, as in request_create: 0 if there is none yet, or if such a box has none. One
 * that is not there is started, for the next, unless the template says that this is to wait for a kernel. */
uint32_t families_for(struct front *front, const char *owner, const struct box_settings *s);
/* Such a box had better be made a moment later: kernels of its kind are wanted, and the zygote is getting warm. It is
 * held (is_held), and asked for as soon as the family is there, or is not to come, or took too long. */
bool     families_hold(struct front *front, const char *owner, const struct box_settings *s);
/* A kernel is to run in this box, which is of no family: the next shall have one, where zygotes are started late. */
void     families_want(const struct box *b);
/* The template whose layers the keeper is to put into a box, as in request_create: the first one's if it names none, so
 * that a kernel can run in it. 0: it has a root of its own. */
uint32_t families_layers(const struct front *front, const struct box_settings *s);

/* For the pool: how many parked boxes a family (as in request_create) is to have, and what they are like. 0: it is
 * none, or not ready. */
unsigned families_pool_size(const struct front *front, uint32_t family, struct box_settings *ret);

/* Called by the front's other parts. */
void     families_on_keeper_event(struct front *front, const struct event *event);
void     families_on_synced(struct front *front);
void     families_on_lost(struct front *front);
void     families_free(struct front *front);

#endif
