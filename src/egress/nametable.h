/* Addresses that stand for names in one box: 198.18.0.0/15. A program looks a name up, gets such an address, and egress
 * knows by it which name a connection is for. The same name mostly gets the same address again, also from an egress
 * that was restarted, because it is derived from the name. */
#ifndef CARREL_EGRESS_NAMETABLE_H
#define CARREL_EGRESS_NAMETABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/net.h"

enum { NAMETABLE_MOST = 4096 };

struct nametable;

struct nametable *nametable_new(void);
void              nametable_free(struct nametable *t);

/* The address of a name as 4 bytes in network order; a new one if it has none yet. pinned: a name that the policy says
 * by itself; others are dropped, the one that was not used for longest first, when the table is full. False: memory is
 * short, or all are pinned. */
bool              nametable_give(struct nametable *t, const char *name, bool pinned, uint8_t ret[4]);
/* NULL: no name has this address. Valid until the next nametable_give. */
const char       *nametable_find(struct nametable *t, const uint8_t address[4]);
/* Nothing is pinned any more; for a new policy. */
void              nametable_unpin(struct nametable *t);
/* Is it of the range that only names have? */
bool              nametable_covers(const struct net_address *address);

#endif
