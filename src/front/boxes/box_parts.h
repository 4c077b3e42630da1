/* The parts of the front with state in boxes: commands, kernels, services, grants, inlets. Boxes know them by this
 * table only (front/parts.c), so that boxes do not depend on what they contain. */
#ifndef CARREL_FRONT_BOXES_BOX_PARTS_H
#define CARREL_FRONT_BOXES_BOX_PARTS_H

#include "front/boxes/boxes.h"

/* Parts are called in the order of front->parts, and freed in the opposite order. Unused functions are NULL. */
struct box_part {
    /* A box was read from the database. */
    int      (*load)(struct box *b, struct err *e);
    /* The keeper sent an event about a payload of the box. */
    void     (*on_payload)(struct box *b, const union event *event, int *fds, size_t n_fds);
    /* The keeper has passed the inlet of the box in this slot; *fd may be taken. */
    void     (*on_inlet)(struct front *front, uint32_t slot, int *fd);
    /* The keeper has reported everything that it runs: in this box; in all boxes. */
    void     (*on_box_synced)(struct box *b);
    void     (*on_synced)(struct front *front);
    /* The box will be stopped; its processes end next. */
    void     (*on_stop)(struct box *b);
    /* Its processes have ended, for any reason; it still has its old phase. */
    void     (*on_end)(struct box *b, enum phase phase, enum box_reason reason);
    /* What it keeps on the front's disk for this box. */
    uint64_t (*disk_bytes)(const struct box *b);
    /* It gives up the keeper's slot. */
    void     (*on_release)(struct box *b);
    /* How many of b->running are idle. */
    unsigned (*count_idle)(const struct box *b);
    /* True: a caller waits for the first result of something in a box, which must not be delayed. */
    bool     (*is_awaited)(const struct front *front);
    /* True: this dead box must not be forgotten yet. */
    bool     (*needs)(const struct box *b);
    /* It is forgotten: called before its row is deleted, and afterwards. */
    void     (*on_forget)(struct box *b);
    void     (*remove_files)(struct box *b);
    /* Its memory is freed; the row stays. */
    void     (*free)(struct box *b);
};

bool        box_is_alive(const struct box *b);
struct box *box_by_slot(struct front *front, uint32_t slot);
/* The keeper's id of the box. */
uint64_t    box_token(const struct box *b);
void        box_save(struct box *b);
/* The broker has the keys of a box that waited for it, or failed: the keeper makes the box. */
void        box_keys_came(struct box *b, const struct err *e);
/* Calls save, adds an event to the log in the same transaction, then notifies the watchers. body is taken over. */
void        box_event_with(struct box *b, void (*save)(void *arg), void *arg, const char *type, json_t *body);

#endif
