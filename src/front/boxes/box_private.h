/* What the files about boxes share with each other and with nobody else. */
#ifndef CARREL_FRONT_BOXES_BOX_PRIVATE_H
#define CARREL_FRONT_BOXES_BOX_PRIVATE_H

#include "front/boxes/boxes.h"

struct box *box_new(struct front *front, const char *owner, const char *name, const char *key);
void        box_free(struct box *b);
/* Into the list and the index, by number and id; and out of them. */
void        box_list(struct box *b);
void        box_unlist(struct box *b);
bool        box_is_alive(const struct box *b);
struct box *box_by_slot(struct front *front, uint32_t slot);
/* What the keeper calls it. */
uint64_t    box_token(const struct box *b);
uint32_t    box_free_slot(const struct boxes *all);
/* box_keep.c: it is dead, and forgotten when its time has come. */
void        box_bury(struct box *b);

void        box_save(struct box *b);
/* The row of a new box, which is complete from the start; gives the box its number. */
MUST_CHECK int box_insert(struct box *b, struct err *e);
/* The same for one that is there already: in one go it takes its slot, runs and has said so. */
MUST_CHECK int box_insert_running(struct box *b, uint32_t slot, struct err *e);
/* The JSON of its row; to be freed. */
char       *box_row_text(const struct box *b);
/* Saves the box (or, if there is one, its exec) together with the event, then tells the watchers. body is
 * taken over. */
void        box_event_with(struct box *b, struct exec *x, const char *type, json_t *body);
void        box_set_phase(struct box *b, enum phase phase, enum box_reason reason, const char *message);
void        box_end(struct box *b, enum phase phase, enum box_reason reason, const char *message);
void        box_take_slot(struct box *b, uint32_t slot);
void        box_release_slot(struct box *b);
void        box_arm_timers(struct box *b);

void        box_wake(struct box *b, const struct err *e);

/* box_ops.c: the frame for such a box; its slot is yet to be filled in. number: the front's name for it. */
void        box_create_frame(const struct front *front, const struct box_settings *s, uint64_t number, uint32_t family,
                             struct request_create *ret);
/* box_ops.c: forgets the calls in flight that have this arg. */
void        box_calls_cancel(struct front *front, void *arg);
bool        box_has_calls(const struct box *b);
void        box_calls_free(struct front *front);      /* unanswered, when nobody can answer any more */

/* box_ops.c: may the box have a place among the running ones, and which? */
MUST_CHECK int box_admit_again(struct box *b, uint32_t *ret_slot, struct err *e);
void        box_ask_keeper(struct box *b, const int *mount_fd);
/* The keeper has made the box, or not. */
void        box_raised(struct box *b, const struct err *e);
/* A box that was held is asked for now, in this family (0: a plain one). Of others nothing happens. */
void        box_unhold(struct box *b, uint32_t family);

/* box_sync.c: ends what no box owns; its slot is in use until it is gone. */
void        boxes_destroy_slot(struct front *front, uint32_t slot);

void        box_meter_close(struct box *b);

/* box_stop.c */
void        box_remove_store(struct box *b);    /* and then a box that is DELETING is DELETED */
void        boxes_note_store(struct front *front, uint64_t number);
void        boxes_remove_orphans(struct front *front);  /* of what was noted, what no living box owns */

/* box_body.c: the other way round of box_json. */
MUST_CHECK int box_from_json(struct box *b, json_t *body, struct err *e);

#endif
