/* How many boxes of a kind callers create at once. Pure arithmetic: the clock is the caller's. */
#ifndef CARREL_FRONT_BOXES_DEMAND_H
#define CARREL_FRONT_BOXES_DEMAND_H

#include <stdint.h>

/* DEMAND_GAP_MS without a create ends a burst: in that time some boxes can be made ahead. */
enum { DEMAND_GAP_MS = 100, DEMAND_HALF_MS = 60000 };

/* Zeroed: there was none. */
struct demand {
    uint64_t last_ms, peak_ms;          /* the last create; when the peak was reached */
    unsigned creates, least, peak;      /* of this burst: creates, and the fewest boxes alive; of the largest one */
};

/* A caller creates a box of this kind; alive: the boxes of all callers, without this one. */
void     demand_note(struct demand *d, unsigned alive, uint64_t now_ms);
/* The peak, halved each DEMAND_HALF_MS since. */
unsigned demand_now(const struct demand *d, uint64_t now_ms);

#endif
