/* Addresses that stand for names in one box: 198.18.0.0/15. A program looks a name up and gets such an address, by
 * which egress knows the name of a connection. A name usually gets the same address again, also from a restarted
 * egress, because the address is derived from the name. */
#ifndef CARREL_EGRESS_NAMETABLE_H
#define CARREL_EGRESS_NAMETABLE_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/net.h"

enum { NAMETABLE_MOST = 4096 };

struct nametable;

struct nametable *nametable_new(void);
void              nametable_free(struct nametable *t);

/* The address of a name as 4 bytes in network order; makes one if necessary. pinned: a name that the policy contains;
 * when the table is full, other names are dropped, the least recently used first. False: memory is short, or all are
 * pinned. */
bool              nametable_give(struct nametable *t, const char *name, bool pinned, uint8_t ret[4]);
/* NULL: no name has this address. Valid until the next nametable_give. */
const char       *nametable_find(struct nametable *t, const uint8_t address[4]);
/* Unpins all names, for a new policy. */
void              nametable_unpin(struct nametable *t);

#endif
