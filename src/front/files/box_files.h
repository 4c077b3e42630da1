/* Conversations with a box's file helper. A helper is used by one request at a time and kept for the next one for a
 * while, so that a small file costs no process. */
#ifndef CARREL_FRONT_FILES_BOX_FILES_H
#define CARREL_FRONT_FILES_BOX_FILES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "proto/files.h"

struct box;
struct box_files;

/* A user of a helper. Embedded in its owner. After on_done or on_lost it has no helper any more, unless it sends the
 * next request from inside on_done. */
struct box_files_user {
    struct box_files *files;          /* NULL: none */
    void (*on_entries)(struct box_files_user *u, const char *data, size_t size);
    /* A piece of a DATA frame. */
    void (*on_data)(struct box_files_user *u, const char *data, size_t size);
    void (*on_done)(struct box_files_user *u, const struct files_done *done);
    void (*on_room)(struct box_files_user *u);         /* box_files_send() can continue; may be NULL */
    void (*on_lost)(struct box_files_user *u, const struct err *e);
};

/* -EBUSY: the box does not run; -EAGAIN: too many are in use. */
MUST_CHECK int box_files_open(struct box *box, struct box_files_user *u, struct err *e);
/* Releases the helper. in_order: the last answer was complete, so the helper can be reused. */
void           box_files_close(struct box_files_user *u, bool in_order);

/* -EINVAL if the paths are too long. */
MUST_CHECK int box_files_ask(struct box_files_user *u, struct files_request *q, const char *path, const char *other,
                          struct err *e);
/* Sends a frame of an upload: size bytes, with room before them in memory for a struct files_head that this function
 * fills. Takes all; if box_files_has_room() is false afterwards, wait for on_room. */
void           box_files_send(struct box_files_user *u, enum files_frame type, char *data, size_t size);
bool           box_files_has_room(const struct box_files_user *u);
/* Stops on_data until it is called with false. */
void           box_files_hold(struct box_files_user *u, bool hold);

#endif
