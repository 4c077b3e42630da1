/* For the files of this folder. */
#ifndef CARREL_FRONT_KEYS_KEYS_PRIVATE_H
#define CARREL_FRONT_KEYS_KEYS_PRIVATE_H

#include "front/keys/keys.h"
#include "proto/keys.h"

/* Host, header and value of one key, for the broker. what: names it in messages. The caller wipes ret. */
MUST_CHECK int key_fill(struct front *front, const char *owner, const char *what, const json_t *key,
                        struct broker_key *ret, struct err *e);
void           key_placeholder(const struct box *b, const char *name, char ret[BROKER_PLACEHOLDER_SIZE]);

#endif
