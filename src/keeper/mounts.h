/* From the list of mounts in a frame to the list in a spec. */
#ifndef CARREL_KEEPER_MOUNTS_H
#define CARREL_KEEPER_MOUNTS_H

#include "box/device.h"
#include "keeper/keeper.h"

/* What a spec borrows of the host's devices. Zeroed: nothing. */
struct borrowed {
    struct devices      devices;
    struct device_files files;
};

/* Appends the entries of a sane list to the spec's. fds: of the entries that have one, in their order. store: the
 * mounted tree, or -1. volumes: mounted, too; NULL: not yet. borrowed: to release when the spec and its plan are no
 * longer used, also on failure; NULL: the list has no devices. */
MUST_CHECK int keeper_read_mounts(const struct keeper *keeper, const struct frame_mounts *list, const int *fds,
                                  int store, const struct volume_uses *volumes, struct borrowed *borrowed,
                                  struct box_spec *spec, struct err *e);
void           keeper_return_mounts(struct borrowed *borrowed);

#endif
