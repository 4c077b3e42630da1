/* Addresses that programs of a box without network tried: its network has loopback alone, so connect() fails in the
 * kernel and no process of ours sees it; but the kernel counts. */
#ifndef CARREL_BOX_UNROUTED_H
#define CARREL_BOX_UNROUTED_H

#include <stdint.h>

struct engine_box;

/* How often the kernel found no route there so far; 0 also if that cannot be read. Takes some 40 us. */
uint64_t unrouted_count(const struct engine_box *box);

#endif
