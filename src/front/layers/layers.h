/* Layers of packages for boxes: turns an owner's list into the name of a layer. The keeper starts a builder for it
 * (keeper/clerk.h), which finds or makes the layer and writes its progress here. */
#ifndef CARREL_FRONT_LAYERS_LAYERS_H
#define CARREL_FRONT_LAYERS_LAYERS_H

#include <jansson.h>
#include <stdint.h>

#include "base/err.h"

struct front;
struct front_layers;
struct layer_ask;

/* name: "OWNER/DIGEST", as the keeper knows it; NULL: e has the reason. Never called from inside layers_want(). */
typedef void layer_callback(const char *name, const struct err *e, void *arg);

/* The layer of a list that was wanted before; NULL: unknown. list: sorted lines. */
const char    *layers_known(const struct front *front, const char *owner, uint32_t template, const char *list);
/* Finds or makes it. Callers with the same list wait for one builder. say, if not NULL, receives the progress. */
MUST_CHECK int layers_want(struct front *front, const char *owner, uint32_t template, const char *list,
                           layer_callback *call, void (*say)(const char *text, void *arg), void *arg, struct err *e);
/* Cancels the waiters with this arg. A builder without waiters is ended. */
void           layers_cancel(struct front *front, const void *arg);
/* The keeper reports that a layer is gone: the next request for its list makes it again. */
void           layers_forget(struct front *front, const char *name);

/* ---- layers_ask.c ---- */

/* answer: an array, as `carrel layer list --json` prints it; empty after a removal; borrowed. NULL: e says why. */
typedef void layers_answer(json_t *answer, const struct err *e, void *arg);
MUST_CHECK int layers_list(struct front *front, const char *owner, layers_answer *call, void *arg, struct err *e);
/* Callers use box_layers_remove(). */
MUST_CHECK int layers_remove(struct front *front, const char *owner, const char *digest, layers_answer *call,
                             void *arg, struct err *e);
void           layers_ask_cancel(struct front *front, const void *arg);
void           layers_ask_free(struct front *front);
struct layer_ask **layers_asks(struct front *front);

void           layers_init(struct front *front);
void           layers_free(struct front *front);

#endif
