/* A few empty boxes of the default kind that the keeper has ready, so that a create is the work of naming one of them;
 * and for each family some of its own, in which a kernel waits.
 * They are nobody's: neither listed nor counted nor stored. No box has a token like theirs; after a restart of the
 * front those that no box has taken are destroyed as strangers. */
#ifndef CARREL_FRONT_BOXES_POOL_H
#define CARREL_FRONT_BOXES_POOL_H

#include "front/boxes/boxes.h"

enum { POOL_MOST = 256 };

/* True: the settings fit, and the keeper's slot and token are the caller's now; the slot is marked as used. family: as
 * in request_create. */
bool pool_take(struct front *front, const struct box_settings *s, uint32_t family, uint32_t *ret_slot,
               uint64_t *ret_token);
/* There may be something to make. */
void pool_fill(struct front *front);
/* The family is going. */
void pool_drop_family(struct front *front, uint32_t family);

void pool_on_synced(struct front *front);
void pool_on_lost(struct front *front);
/* About a slot that no box has. */
void pool_on_keeper_event(struct front *front, const struct event *event);
void pool_free(struct front *front);

#endif
