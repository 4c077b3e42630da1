/* Whether the host has memory for boxes that are made ahead. */
#ifndef CARREL_FRONT_BOXES_HEADROOM_H
#define CARREL_FRONT_BOXES_HEADROOM_H

#include <stdbool.h>
#include <stdint.h>

struct headroom;

/* Opens the kernel's files. Call it before the front confines itself. NULL: out of memory. */
struct headroom *headroom_open(void);
/* Takes over both descriptors, which read like /proc/meminfo and /proc/pressure/memory; -1: there is none. */
struct headroom *headroom_new(int memory, int pressure);
void             headroom_free(struct headroom *h);
/* The bytes that boxes made ahead may use; 0: memory is short. NULL and unreadable files: UINT64_MAX. Reads the files
 * at most once a second. */
uint64_t         headroom_bytes(struct headroom *h, uint64_t now_ms);

#endif
