/* Private to the files of this folder. */
#ifndef CARREL_FRONT_VOLUMES_VOLUME_PRIVATE_H
#define CARREL_FRONT_VOLUMES_VOLUME_PRIVATE_H

#include "front/volumes/volumes.h"

/* A change that the keeper has not answered keeps others away. LOST: the keeper does not have its files. */
enum volume_state {
    VOLUME_MAKING,
    VOLUME_READY,
    VOLUME_GROWING,
    VOLUME_REMOVING,
    VOLUME_LOST,
    VOLUME_STATES
};
extern const char *const volume_state_names[VOLUME_STATES];

struct volume {
    struct volume    *next, **back;
    struct front     *front;
    uint64_t          number;
    char              id[16];
    char             *owner, *name;     /* owned */
    uint64_t          bytes, used_bytes;
    bool              many;             /* written by many boxes at once */
    json_t           *shared;           /* owned: list of identities, or "all" */
    int64_t           created_ms;
    enum volume_state state;
    bool              seen;             /* the keeper has reported it */
};

/* A request to the keeper that has not been answered. */
struct volume_call {
    struct volume_call *next, **back;
    struct volume      *volume;
    struct volume_wish  wish;           /* its size alone */
    volume_callback    *call;           /* NULL: cancelled */
    void               *arg;
    struct measuring   *measuring;      /* one of several */
};

struct front_volumes {
    struct volume      *first;
    struct volume_call *calls;
    struct measuring   *measurings;
};

/* volume_body.c: the row's JSON, and back. */
json_t        *volume_row(const struct volume *v);
MUST_CHECK int volume_from_row(struct volume *v, json_t *body);
bool           volume_is_shared_with(const struct volume *v, const char *who);
/* volume_use.c: the box that has it, or NULL: one that writes; one that does not. self is left out. */
const struct box *volume_user(const struct volume *v, const struct box *self, bool writers_only, bool also_stopped);
/* what: "grows", "is removed". -ETXTBSY: a box has it. */
MUST_CHECK int    volume_check_unused(const struct volume *v, const char *what, struct err *e);
bool              volume_state_allows(const struct volume *v, struct err *e);

#endif
