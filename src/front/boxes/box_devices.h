/* Devices that boxes may have: of the kinds that the configuration allows, as the host's specifications told when the
 * front started. The keeper reads them anew for each box, and has the last word. */
#ifndef CARREL_FRONT_BOXES_BOX_DEVICES_H
#define CARREL_FRONT_BOXES_BOX_DEVICES_H

#include "front/boxes/boxes.h"

/* Before the front confines itself. */
void           box_devices_open(struct front *front);
void           box_devices_free(struct front *front);

/* The member "devices" of a request. */
MUST_CHECK int box_devices_take(const struct front *front, const char *name, json_t *value, struct box_settings *into,
                                struct err *e);
/* What they want in the environment, where the caller says nothing else. */
MUST_CHECK int box_devices_env(const struct front *front, struct box_settings *s, struct err *e);

/* What GET /v1/info lists. A new reference. */
json_t        *box_devices_json(const struct front *front);

#endif
