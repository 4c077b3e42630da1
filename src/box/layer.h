/* Layers: trees of installed packages that never change. Boxes have one read-only at PACKAGES_PLACE.
 *
 *   PLACE/OWNER/DIGEST/          the tree: a virtual environment
 *   PLACE/OWNER/DIGEST.info      its description, in lines (struct layer_info)
 *   PLACE/OWNER/KEY.key          a link from a list of packages to its DIGEST
 *   PLACE/OWNER/DIGEST.dirty     it may not be on the disk yet; names the boot that made it
 *   PLACE/OWNER/new-*            being made: locked as long as its maker lives
 *
 * Each owner has a folder, and boxes of an owner get layers from there only. A layer is completed in new-* and renamed;
 * its users hold a shared lock on it, and it is removed only without users. Nothing here blocks. */
#ifndef CARREL_BOX_LAYER_H
#define CARREL_BOX_LAYER_H

#include <stdint.h>

#include "base/err.h"
#include "base/sha256.h"

enum { LAYER_PATH = 512, LAYER_NAME = SHA256_HEX + 1 };

struct layers {
    int  dir;                   /* owned; -1: none */
    char path[LAYER_PATH];
};

/* The folder of layers: $CARREL_LAYERS; root's /var/lib/carrel/layers, a user's ~/.local/share/carrel/layers. "" if a
 * user has no home. */
void           layers_place(char ret[LAYER_PATH]);

/* Opens the folder of an owner and makes it if necessary. owner: from packages_owner(). */
MUST_CHECK int layers_open(const char *place, const char *owner, struct layers *ret, struct err *e);
void           layers_close(struct layers *layers);

/* The layer of a list; -ENOENT: none yet. */
MUST_CHECK int layer_find(const struct layers *layers, const char *key, char ret[LAYER_NAME]);
/* Opens a layer, which keeps it in use. -ENOENT, -EBUSY (it is being removed). */
MUST_CHECK int layer_open(const struct layers *layers, const char *digest, int *ret);

struct layer_stage {
    char name[32];
    int  fd;                    /* owned: the folder, locked */
};

/* Removes what killed makers and removers have left, and keys of layers that are gone; the number of folders. */
unsigned       layers_sweep(const struct layers *layers);
/* Calls for the folder of each owner; it is closed afterwards. */
MUST_CHECK int layers_owners(const char *place, void (*call)(const struct layers *layers, const char *owner, void *arg),
                             void *arg, struct err *e);
/* A folder for a new layer. First sweeps. */
MUST_CHECK int layer_stage(const struct layers *layers, struct layer_stage *ret, struct err *e);
/* The folder becomes the layer, or is removed if there is one with this digest. info: its description. */
MUST_CHECK int layer_keep(const struct layers *layers, struct layer_stage *stage, const char *digest, const char *info,
                          struct err *e);
void           layer_drop(const struct layers *layers, struct layer_stage *stage);
/* Links a list to this layer. */
MUST_CHECK int layer_name(const struct layers *layers, const char *key, const char *digest, struct err *e);

struct layer_info {
    char     digest[LAYER_NAME];
    uint64_t bytes;
    int64_t  used_s;            /* when a box was last made with it, in seconds since 1970 */
    char *text; /* borrowed: lines "python PATH", "asked REQUIREMENT", "lock NAME==VERSION", "bytes N" */
};
/* Calls for each layer. */
MUST_CHECK int layers_each(const struct layers *layers, void (*call)(const struct layer_info *info, void *arg),
                           void *arg, struct err *e);
/* -EBUSY: a box uses it; -ENOENT. */
MUST_CHECK int layer_remove(const struct layers *layers, const char *digest, struct err *e);

#endif
