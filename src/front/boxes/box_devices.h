/* Devices for boxes: of the configured kinds, from the host's specifications as of the front's start. The keeper reads
 * them again for each box, and decides. */
#ifndef CARREL_FRONT_BOXES_BOX_DEVICES_H
#define CARREL_FRONT_BOXES_BOX_DEVICES_H

#include "front/boxes/boxes.h"

/* Call it before the front confines itself. */
void           box_devices_open(struct front *front);
void           box_devices_free(struct front *front);

/* The member "devices" of a request. */
MUST_CHECK int box_devices_take(const struct front *front, const char *name, json_t *value, struct box_mounts *into,
                                struct err *e);
/* Adds the devices' variables, unless the caller has set them. */
MUST_CHECK int box_devices_env(const struct front *front, struct box_settings *s, struct err *e);

/* The list in GET /v1/info. A new reference. */
json_t        *box_devices_json(const struct front *front);

#endif
