/* Families of kernels: for an owner, a template and a profile, a warmed interpreter from which kernels are forked into
 * boxes. The front decides which families exist; the keeper makes them (REQUEST_FAMILY). The server's own user has
 * families from the start; other users get one with their first box of a template, which is made without it. */
#ifndef CARREL_FRONT_BOXES_FAMILIES_H
#define CARREL_FRONT_BOXES_FAMILIES_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/events.h"

struct box;
struct box_settings;
struct front;

/* Whether a kernel of its template can be forked in this box (START_FORK): its family's zygote lives. Otherwise a
 * kernel is exec'd there, which always works in a box with the template's layers. */
bool     family_can_fork(const struct box *b);

/* The family for a new box, as in request_create: 0 if there is none yet, or if such a box cannot have one. Starts a
 * missing family, for the next box, unless the template says to wait for a kernel. */
uint32_t families_for(struct front *front, const char *owner, const struct box_settings *s);
/* Whether such a box should be made later: kernels of its kind are wanted, and the zygote is warming up. The box is
 * held (is_held), and made when the family is ready, has failed, or has taken as long as a kernel takes to start
 * without it. */
bool     families_hold(struct front *front, const char *owner, const struct box_settings *s);
/* A kernel will run in this plain box: starts a family for the next, if the template starts zygotes late. */
void     families_want(const struct box *b);
/* A kernel that was started there without a zygote is ready; it took so long. */
void     families_on_cold_kernel(const struct box *b, uint64_t took_us);

/* For the pool: how many parked boxes a family (as in request_create) should have; adds their settings to *ret, which
 * the caller drops. 0: no such family, or not ready. */
unsigned families_pool_size(const struct front *front, uint32_t family, struct box_settings *ret);

/* Ends families of this layer ("OWNER/DIGEST") that have no box, so that it can be removed. */
void     families_end_of_layer(struct front *front, const char *layer);

/* Called by other parts of the front. */
void     families_on_told(struct front *front, const struct event_family *event);
void     families_on_gone(struct front *front, const struct event_family_gone *event);
void     families_on_synced(struct front *front);
void     families_on_lost(struct front *front);
void     families_init(struct front *front);
void     families_free(struct front *front);

#endif
