/* Volumes: the bounds that front and keeper share (box/volume.h). */
#ifndef CARREL_PROTO_VOLUMES_H
#define CARREL_PROTO_VOLUMES_H

#include <stdint.h>

/* Sizes are multiples of a step: a file system does not use a remainder that is too small for its tables. */
#define VOLUME_STEP_BYTES    (UINT64_C(16) << 20)
#define VOLUME_MOST_BYTES    (UINT64_C(16) << 40)
#define VOLUME_DEFAULT_BYTES (UINT64_C(10) << 30)

/* Of a REQUEST_VOLUME. */
enum volume_operation {
    VOLUME_OP_MAKE,     /* of this size */
    VOLUME_OP_GROW,     /* to this size; not while a box has it */
    VOLUME_OP_REMOVE,   /* the same */
    VOLUME_OP_LOOK,     /* answered with EVENT_VOLUME */
    VOLUME_OP_COUNT
};

#endif
