/* The events of boxes: a part of boxes.h. */
#ifndef CARREL_FRONT_BOXES_BOX_WATCH_H
#define CARREL_FRONT_BOXES_BOX_WATCH_H

#include <jansson.h>
#include <stdint.h>

struct box;
struct front;

/* Notified of every change (SSE). Embedded in its owner. */
struct box_watcher {
    struct box_watcher *next, **back;
    void (*on_event)(struct box_watcher *w, const struct box *box, uint64_t number, const char *type, json_t *body);
    const char         *owner;          /* whose boxes; NULL: all */
};

/* Adds to the event log and notifies the watchers. body is taken over; may be NULL. */
void           box_event(struct box *b, const char *type, json_t *body);

void           boxes_watch(struct front *front, struct box_watcher *w);
void           boxes_unwatch(struct box_watcher *w);

#endif
