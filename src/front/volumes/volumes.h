/* Volumes: named trees that outlive boxes. A volume belongs to an identity, which may share it with others for reading.
 * Its files are the keeper's, under a number; the row in the database has everything else. A row is stored before the
 * keeper makes the files, and deleted after it has removed them. */
#ifndef CARREL_FRONT_VOLUMES_VOLUMES_H
#define CARREL_FRONT_VOLUMES_VOLUMES_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "proto/events.h"

struct box;
struct box_mounts;
struct front;
struct volume;

enum { VOLUME_SHARES = 64, VOLUME_NAME_SIZE = 160 /* "OWNER/NAME" */ };

/* A request to change one. NULL, 0, -1: as it is. */
struct volume_wish {
    const char *name;           /* of a new one */
    uint64_t    bytes;
    int         many;           /* written by many boxes at once; of a new one */
    json_t     *shared;         /* borrowed: list of identities, or "all" */
};

/* v NULL: it is gone. e NULL: success. Never called from inside the function that began it. */
typedef void volume_callback(struct volume *v, const struct err *e, void *arg);

/* By id, by the name that viewer has for it (NAME, or OWNER/NAME of one that is shared with it); NULL: none that it may
 * see. is_admin: it may see all. */
struct volume *volume_find(const struct front *front, const char *viewer, bool is_admin, const char *name);
struct volume *volume_by_number(const struct front *front, uint64_t number);
uint64_t       volume_number(const struct volume *v);
const char    *volume_id(const struct volume *v);
bool           volume_is_of(const struct volume *v, const char *owner);
/* The name that viewer has for it. */
const char    *volume_name_for(const struct volume *v, const char *viewer, char room[VOLUME_NAME_SIZE]);
/* As in the API; boxes of others than viewer are only counted. */
json_t        *volume_json(const struct volume *v, const char *viewer);
/* All that viewer may see (is_admin: all), as a list. */
json_t        *volumes_json(struct front *front, const char *viewer, bool is_admin);

/* -EINVAL, -EEXIST, -EDQUOT, -ENOTSUP, -ETXTBSY (a box has it). */
MUST_CHECK int volume_create(struct front *front, const char *owner, const struct volume_wish *wish,
                             volume_callback *call, void *arg, struct err *e);
/* 1: the callback comes. 0: it is done. */
MUST_CHECK int volume_update(struct volume *v, const struct volume_wish *wish, volume_callback *call, void *arg,
                             struct err *e);
MUST_CHECK int volume_delete(struct volume *v, volume_callback *call, void *arg, struct err *e);
/* Asks the keeper how much the volumes that viewer may see take; the last answer calls back, with v if it is one. */
void           volumes_measure(struct front *front, struct volume *v, const char *viewer, bool is_admin,
                               volume_callback *call, void *arg);
void           volumes_cancel(struct front *front, const void *arg);

/* Whether owner may have these volumes now, in a new box or in self, which starts again. */
MUST_CHECK int volumes_admit(struct front *front, const char *owner, const struct box_mounts *mounts,
                             const struct box *self, struct err *e);
/* Promised to volumes of an owner (NULL: of all); their number, unless ret_n is NULL. */
uint64_t       volumes_promised(const struct front *front, const char *owner, unsigned *ret_n);

/* Called by the front's main part. */
void           volumes_init(struct front *front);
MUST_CHECK int volumes_load(struct front *front, struct err *e);
void           volumes_on_greeted(struct front *front);
void           volumes_on_told(struct front *front, const struct event_volume *event);
void           volumes_on_synced(struct front *front);
void           volumes_free(struct front *front);

#endif
