/* A few empty boxes of the default kind, made ahead by the keeper, so that creating a box only means to name one of
 * them; and for each family some of its own, in which a kernel waits, and in times of demand blank ones, in which a
 * kernel can be forked at once. They have no owner: they are neither listed nor
 * counted nor stored. Their tokens differ from every box's; after a restart of the front, those not taken by a box are
 * destroyed. */
#ifndef CARREL_FRONT_BOXES_POOL_H
#define CARREL_FRONT_BOXES_POOL_H

#include "front/boxes/boxes.h"

enum { POOL_MOST = 512 };

/* True: the settings fit, and the caller now owns the keeper's slot and token; the slot is marked as used. family: as
 * in request_create. */
bool pool_take(struct front *front, const struct box_settings *s, uint32_t family, uint32_t *ret_slot,
               uint64_t *ret_token);
/* The memory that boxes in the pool use. */
uint64_t pool_memory(const struct front *front);
/* How many slots of the keeper it has: callers' boxes come first, and do not count these. */
uint32_t pool_slots(const struct boxes *all);
/* A caller's box is about to be made in a slot of its own: destroys ready boxes if the keeper would have too many. */
void pool_make_room(struct front *front);
/* There may be a box to make. */
void pool_fill(struct front *front);
/* The family is ending. */
void pool_drop_family(struct front *front, uint32_t family);

void pool_on_synced(struct front *front);
void pool_on_lost(struct front *front);
/* An event about a slot that no box has. */
void pool_on_gone(struct front *front, uint64_t token);
void pool_init(struct front *front);
void pool_free(struct front *front);

#endif
