/* Package layers of boxes and families: open, and locked against removal, while in use. */
#ifndef CARREL_KEEPER_LAYERS_H
#define CARREL_KEEPER_LAYERS_H

#include "keeper/keeper.h"

struct kept_layer {
    struct kept_layer *next, **back;
    char               name[LAYER_TARGET_MAX];  /* as in the frame: "OWNER/DIGEST" */
    int                fd;                      /* owned */
    unsigned           users;
};

/* Opens the layer in a list of mounts, before its maker is called. *ret is NULL if the list has none. */
MUST_CHECK int keeper_hold_layer(struct keeper *keeper, const struct frame_mounts *list, struct kept_layer **ret,
                                 struct err *e);
void           keeper_release_layer(struct kept_layer *layer);     /* NULL: none */
/* The folder of a held layer; -1: not held. */
int            keeper_find_layer(const struct keeper *keeper, const char *name);

#endif
