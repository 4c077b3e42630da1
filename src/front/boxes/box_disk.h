/* The disk of an identity (quota.disk): what is promised to its volumes and to its boxes whose files are on disk, and
 * what the kept output of commands in its living boxes takes. */
#ifndef CARREL_FRONT_BOXES_BOX_DISK_H
#define CARREL_FRONT_BOXES_BOX_DISK_H

#include <stdint.h>

#include "base/err.h"

struct front;

struct disk_use {
    uint64_t volumes, boxes, output;
};

/* owner NULL: of all. */
struct disk_use box_disk_use(const struct front *front, const char *owner);
uint64_t        box_disk_sum(const struct disk_use *use);
/* Whether the owner's quota allows so much more; 0: to start a command. -EDQUOT, with what is used by what. */
MUST_CHECK int  box_disk_check(const struct front *front, const char *owner, uint64_t more, struct err *e);

#endif
