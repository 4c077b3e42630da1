/* Layers of packages and the boxes that use them. */
#ifndef CARREL_FRONT_BOXES_BOX_LAYERS_H
#define CARREL_FRONT_BOXES_BOX_LAYERS_H

#include "front/layers/layers.h"

struct box;

/* The next box with a layer of the owner's; after NULL: the first one. */
const struct box *box_layers_user(const struct front *front, const char *owner, const char *digest,
                                  const struct box *after);
/* -ETXTBSY: a box uses it. Interpreters without boxes that kernels are forked from are ended first. */
MUST_CHECK int    box_layers_remove(struct front *front, const char *owner, const char *digest, layers_answer *call,
                                    void *arg, struct err *e);

#endif
