/* Keys of boxes: a named secret that the broker puts into requests of one box to one host (proto/broker.h). A box's
 * list of keys is JSON as in the API: [{"secret", "name", "host", "header"}]. */
#ifndef CARREL_FRONT_KEYS_KEYS_H
#define CARREL_FRONT_KEYS_KEYS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "http/loop.h"
#include "proto/broker.h"
#include "proto/egress.h"

struct box;
struct box_settings;

/* Of a box with keys. */
struct box_keys {
    bool              awaits;       /* creating or starting, not sent to the keeper: the broker gets its keys */
    uint8_t           seed[BROKER_SEED_BYTES];      /* of its authority */
    int               trust[2];     /* owned: its certificates, from the broker; -1: not yet, or not any more */
    struct loop_timer late;         /* the broker's answer */
};

struct front;

/* ---- the list ---- */

/* The member "keys" of a request. *ret: complete, with clean names of hosts, a new reference; NULL: none. */
MUST_CHECK int keys_take(const char *name, json_t *value, json_t **ret, struct err *e);
/* The same from words like those of --key, with ';' between them, as a template has them. */
MUST_CHECK int keys_read(const char *name, const char *text, json_t **ret, struct err *e);
/* Whether a new box of this owner may have the keys of its settings: the secrets are there and can stand in a header,
 * the network permits the hosts, and there is a broker. */
MUST_CHECK int keys_admit(struct front *front, const char *owner, const struct box_settings *s, struct err *e);
/* The hosts, for egress. */
void           keys_list_hosts(const json_t *keys, struct egress_brokered *ret);

/* ---- a box ---- */

/* The seed of a new box's certificate authority. */
MUST_CHECK int keys_make_seed(struct box *b, struct err *e);
/* Its text in the box's row, and back. */
json_t        *keys_seed_json(const struct box *b);
void           keys_load_seed(struct box *b, const json_t *text);
/* Adds the box's placeholders, and the variables by which programs find its certificates. -1: out of memory. */
MUST_CHECK int keys_add_variables(const struct box *b, json_t *env);

/* Sends the box to the broker. When its certificates are there, box_keys_came() is called; if it fails, with an
 * error. b->keys.awaits until then. */
void           keys_want(struct box *b);
/* The box exists, or never will: its certificates are not kept here. */
void           keys_close_trust(struct box *b);
/* The box has ended: stops waiting, closes its certificates, and the broker forgets the keys. */
void           keys_box_gone(struct box *b);
/* A secret of this owner has another value, or is gone: boxes that use it get the new value with their next request. */
void           keys_secret_changed(struct front *front, const char *owner, const char *name);

/* ---- the link ---- */

/* helper: connects to the broker (dial.h); taken over, also on failure. -1: there is none; why_none: the reason, NULL a
 * general one. */
MUST_CHECK int keys_init(struct front *front, int helper, const char *why_none, struct err *e);
void           keys_free(struct front *front);
/* Egress has connected: it and the broker get a link to each other. */
void           keys_introduce(struct front *front);
/* NULL: there is a broker; else why there is none. */
const char    *keys_why_none(const struct front *front);

#endif
