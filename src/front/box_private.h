/* What the files about boxes share with each other and with nobody else. */
#ifndef CARREL_FRONT_BOX_PRIVATE_H
#define CARREL_FRONT_BOX_PRIVATE_H

#include "front/boxes.h"

struct box *box_new(struct front *front, const char *owner, const char *name, const char *key);
void        box_free(struct box *b);
bool        box_is_alive(const struct box *b);
struct box *box_by_slot(struct front *front, uint32_t slot);

void        box_save(struct box *b);
void        box_set_phase(struct box *b, enum phase phase, const char *reason, const char *message);
void        box_end(struct box *b, enum phase phase, const char *reason, const char *message);
void        box_take_slot(struct box *b, uint32_t slot);
void        box_release_slot(struct box *b);
void        box_arm_timers(struct box *b);

void        box_wait(struct box *b, box_callback *call, void *arg);
void        box_wake(struct box *b, const struct err *e);

/* box_ops.c: forgets the calls in flight that have this arg. */
void        box_calls_cancel(struct front *front, void *arg);
bool        box_has_calls(const struct box *b);

/* box_body.c: the other way round of box_json. */
MUST_CHECK int box_from_json(struct box *b, json_t *body, struct err *e);

#endif
