/* What a caller asks of a new box, in JSON as POST /v1/boxes has it. Every door makes boxes through this, so that what
 * may be asked for, and by whom, is decided in one place. */
#ifndef CARREL_FRONT_BOXES_BOX_REQUEST_H
#define CARREL_FRONT_BOXES_BOX_REQUEST_H

#include "front/boxes/boxes.h"

struct config;
struct http_request;
struct identity;

struct box_request {
    const struct front        *front;
    const struct identity     *who;
    const struct http_request *r;           /* descriptors for mounts come with it */
    const char                *name;        /* read; NULL: none. Borrowed from the JSON */
    struct box_settings        settings;    /* read; the reader's own until boxes_create() takes them */
};

/* Nothing is left to drop on failure. */
MUST_CHECK int box_request_read(struct box_request *c, json_t *root, struct err *e);
/* A body in which only mounts may be. What was read is the caller's to drop, also on failure. */
MUST_CHECK int box_request_read_mounts(struct box_request *c, json_t *root, struct err *e);
/* Limits alone, by the table of proto/limits.h: those that are not told stay 0. name: "limits" or "requests". */
MUST_CHECK int box_request_limits(const char *name, json_t *value, struct limits *into, struct err *e);
MUST_CHECK int box_request_check_limits(const struct config *config, const struct limits *limits, struct err *e);
/* Both for a box that is there already: only what may be changed then. */
MUST_CHECK int box_request_live_limits(const struct config *config, json_t *value, struct limits *into,
                                       struct err *e);

#endif
