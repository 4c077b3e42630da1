/* Volumes: changes that the front requests, and those that boxes have. */
#ifndef CARREL_KEEPER_VOLUMES_H
#define CARREL_KEEPER_VOLUMES_H

#include "keeper/keeper.h"

/* A volume that is being made or grown. */
struct kept_volume_job {
    struct kept_volume_job *next, **back;
    struct volume_job       job;
    uint32_t                serial;     /* of the request; 0: its front is gone */
};

/* 1: the answer comes, or has come, with an event of its own. 0: it is done. */
MUST_CHECK int keeper_change_volume(struct keeper *keeper, const struct request_volume *q, struct err *e);
/* A child of these has ended. */
void           keeper_volumes_ended(struct keeper *keeper);
/* To a front that has just connected, which knows nothing of earlier requests. */
void           keeper_tell_volumes(struct keeper *keeper);
void           keeper_end_volumes(struct keeper *keeper);

/* For a new box: reads the numbers in its list of mounts; finds out where they are mounted for other boxes. */
void           keeper_name_volumes(const struct frame_mounts *list, struct volume_uses *ret);
void           keeper_recall_devices(const struct keeper *keeper, struct volume_uses *volumes);
MUST_CHECK int keeper_open_folders(const struct keeper *keeper, struct volume_uses *volumes, struct err *e);
/* Closes our copies of their trees. */
void           keeper_close_volumes(struct volume_uses *volumes);

#endif
