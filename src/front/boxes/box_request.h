/* A request for a new box, in JSON as for POST /v1/boxes. Every door makes boxes through this, so that one place
 * decides which settings are allowed, and for whom. */
#ifndef CARREL_FRONT_BOXES_BOX_REQUEST_H
#define CARREL_FRONT_BOXES_BOX_REQUEST_H

#include "front/boxes/boxes.h"

struct config;
struct http_request;
struct identity;

struct box_request {
    const struct front        *front;
    const struct identity     *who;
    const struct http_request *r;           /* carries the descriptors for mounts */
    const char                *name;        /* read; NULL: none. Borrowed from the JSON */
    struct box_settings        settings;    /* result; owned by the reader until boxes_create() takes them */
};

/* Frees everything itself on failure. */
MUST_CHECK int box_request_read(struct box_request *c, json_t *root, struct err *e);
/* A body that may only have mounts. The caller drops the result, also on failure. */
MUST_CHECK int box_request_read_mounts(struct box_request *c, json_t *root, struct err *e);
/* Only limits, by the table of proto/limits.h; missing ones stay 0. name: "limits" or "requests". */
MUST_CHECK int box_request_limits(const char *name, json_t *value, struct limits *into, struct err *e);
MUST_CHECK int box_request_check_limits(const struct config *config, const struct limits *limits, struct err *e);
/* Both for an existing box: only limits that can be changed then. */
MUST_CHECK int box_request_live_limits(const struct config *config, json_t *value, struct limits *into,
                                       struct err *e);

#endif
