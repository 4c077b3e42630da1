/* Private to the files of this folder. */
#ifndef CARREL_FRONT_BOXES_BOX_PRIVATE_H
#define CARREL_FRONT_BOXES_BOX_PRIVATE_H

#include "front/boxes/box_parts.h"
#include "front/boxes/boxes.h"
#include "proto/create.h"

/* Iterates over the parts that have this function. */
#define FOR_PARTS(front, part, function) \
    for (const struct box_part *const *at_##part = (front)->parts, *part; (part = *at_##part) != NULL; at_##part++) \
        if (part->function)

/* State of the comparison with a keeper that has just connected (box_sync.c). */
struct box_sync {
    struct told_stores {
        uint64_t *number;           /* owned */
        size_t    n, room;
    }        stores;                            /* reported by the keeper since HELLO */
    uint64_t slots[KEEPER_BOXES / 64];          /* reported by the keeper, and not yet claimed by a box */
    bool     is_unreadable;     /* some rows could not be read: an unclaimed store may still belong to a box */
};

struct box *box_new(struct front *front, const char *owner, const char *name, const char *key);
void        box_free(struct box *b);
/* Adds to the list and the indexes, by number and id; removes from them. */
void        box_list(struct box *b);
void        box_unlist(struct box *b);
/* box_admit.c: BOX_NO_SLOT if all are in use; the errors for that, and for a keeper that is not there. */
uint32_t    box_free_slot(const struct boxes *all);
int         boxes_full(const struct boxes *all, struct err *e);
int         box_no_keeper(struct err *e);
/* Fills in the defaults of a new box, and checks all that can refuse it. */
MUST_CHECK int box_admit(struct front *front, const char *owner, const char *name, struct box_settings *s,
                         struct err *e);
/* box_keep.c: it is dead, and will be forgotten in time. */
void        box_bury(struct box *b);

/* Inserts the row of a new box, which is complete from the start; gives the box its number. */
MUST_CHECK int box_insert(struct box *b, struct err *e);
/* The same for a box from the pool: in one transaction it takes its slot, runs and logs it. */
MUST_CHECK int box_insert_running(struct box *b, uint32_t slot, struct err *e);
/* The JSON of its row; the caller frees it. */
char       *box_row_text(const struct box *b);
void        box_set_phase(struct box *b, enum phase phase, enum box_reason reason, const char *message);
void        box_end(struct box *b, enum phase phase, enum box_reason reason, const char *message);
void        box_take_slot(struct box *b, uint32_t slot);
void        box_release_slot(struct box *b);
void        box_arm_timers(struct box *b);

void        box_wake(struct box *b, const struct err *e);

/* box_ops.c: the frame for such a box, without its slot. number: the front's id for it. */
void        box_create_frame(const struct front *front, const struct box_settings *s, uint64_t number, uint32_t family,
                             struct request_create *ret);
/* box_ops.c: cancels the calls in flight with this arg. */
void        box_calls_cancel(struct front *front, void *arg);
bool        box_has_calls(const struct box *b);
void        box_calls_free(struct front *front);      /* without answers, when the keeper's link is closed */

/* box_quota.c: whether the owner's quota allows these settings. self: a box that they replace; NULL: none. */
MUST_CHECK int box_check_quota(struct front *front, const char *owner, const struct box_settings *s,
                               const struct box *self, struct err *e);
/* The same for a box that grows. Shrinking is always allowed, also if the quota has become smaller. */
MUST_CHECK int box_check_growth(struct box *b, const struct limits *limits, struct err *e);
/* box_shares.c: fills in the requests that the template or the configuration has, and the limits that must follow them.
 * -EINVAL. */
MUST_CHECK int box_shares_settle(const struct config *config, struct box_settings *s, struct err *e);
/* The same as box_check_quota() for requests alone. */
MUST_CHECK int box_check_request_quota(struct front *front, const char *owner, const struct box_settings *s,
                                       const struct box *self, struct err *e);
/* The sum of all guarantees never exceeds the host's resources, and that of limits not those times the factor. */
MUST_CHECK int box_check_host(struct front *front, const char *owner, const struct box_settings *s,
                              const struct box *self, struct err *e);
/* box_ops.c: a box's limits, including changes that the keeper has not answered yet: otherwise many requests at once
 * would each find the quota free. */
struct limits box_limits_to_come(const struct box *b);

/* box_admit.c: whether the box may run again, and in which slot. */
MUST_CHECK int box_admit_again(struct box *b, uint32_t *ret_slot, struct err *e);
void        box_ask_keeper(struct box *b);
/* The keeper has made the box, or failed. */
void        box_raised(struct box *b, const struct err *e);
/* Makes a held box now, in this family (0: a plain one). A no-op for others. */
void        box_unhold(struct box *b, uint32_t family);

/* box_packages.c. Fills in the template's packages and the known layer of new settings; starts to wait for the layer;
 * stops waiting. */
MUST_CHECK int box_packages_settle(struct front *front, const char *owner, struct box_settings *s, struct err *e);
bool        box_packages_are_awaited(const struct box_mounts *list);
MUST_CHECK int box_packages_fetch(struct box *b, struct err *e);
void        box_packages_abandon(struct box *b);
/* The keeper says that the layer is gone: it is made again, once. False: the box cannot be made. */
bool        box_packages_fetch_again(struct box *b);
/* Whether the packages are those of the template's settings, or both are none. */
bool        box_packages_are_templates(const struct front *front, const struct box_mounts *list);

/* box_templates.c: has the layer of a template with packages made, whether or not a box waits for it. */
void        templates_await(struct front *front, uint32_t number);
void        templates_on_synced(struct front *front);
void        templates_init(struct front *front);
void        templates_free(struct front *front);

/* box_volumes.c: the volumes of its template, if it names none. */
MUST_CHECK int box_volumes_default(const struct front *front, const char *owner, struct box_settings *s, struct err *e);

/* box_secrets.c: adds those of its template; whether the owner has all of them, and they suit their places. */
MUST_CHECK int box_secrets_admit(struct front *front, const char *owner, struct box_settings *s, struct err *e);

/* box_sync.c: ends a box of the keeper that no row owns; its slot is in use until it is gone. */
void        boxes_destroy_slot(struct front *front, uint32_t slot);

void        box_meter_close(struct box *b);

/* box_stop.c */
void        box_remove_store(struct box *b);    /* then a box that is DELETING becomes DELETED */
void        boxes_note_store(struct front *front, uint64_t number);
void        boxes_forget_stores(struct front *front);   /* forgets the noted ones */
void        boxes_remove_orphans(struct front *front);  /* removes noted stores that no living box owns */

/* box_body.c: the reverse of box_json. */
MUST_CHECK int box_from_json(struct box *b, json_t *body, struct err *e);

#endif
