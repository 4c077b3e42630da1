/* The host ids of a box's users. Every live box has a range of its own, so that two boxes share no limit, no key and no
 * file.
 *
 * The range is a slot of a large reserve. A slot is held by a lock on one byte of a file in the run directory; the
 * kernel drops the lock when its holder dies, so no slot is ever leaked. */
#ifndef CARREL_BOX_HOST_IDS_H
#define CARREL_BOX_HOST_IDS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

enum { IDS_MAP_TEXT = 160, IDS_SLOTS_MAX = 65536 };

struct ids_host {
    uint32_t first, count;      /* the reserve, in the numbers of our own user namespace; count 1: only the user's id */
    uint32_t size;              /* ids per box */
    int      lock;              /* owned */
    uint32_t last;              /* the slot given last */
    uint8_t  taken[IDS_SLOTS_MAX / 8];
};

struct ids {
    uint32_t slot, base, size;
    bool     held;
};

/* Opens (or makes) the lock file in the run directory and finds the reserve. rootless: the reserve is the range that
 * enter_user_namespace() mapped. */
MUST_CHECK int ids_host_open(struct ids_host *ret, bool rootless, uint32_t mapped, struct err *e);
void           ids_host_close(struct ids_host *host);
MUST_CHECK int ids_take(struct ids_host *host, struct ids *ret, struct err *e);
void           ids_release(struct ids_host *host, struct ids *ids);

/* The text of /proc/PID/uid_map. keep_own: the box's id `inside` becomes the keeper's own user instead of one of the
 * range. shift is added to the outside ids: 0 if the box's user namespace is a child of the keeper's. */
void ids_map_text(const struct ids *ids, uint32_t inside, bool keep_own, uint32_t shift, char text[IDS_MAP_TEXT]);

/* The map of a family: a range of its own, and the rest of the reserve shifted, so that its boxes can get any range. */
void ids_family_text(const struct ids_host *host, const struct ids *ids, uint32_t inside, char text[IDS_MAP_TEXT]);
/* The shift of its boxes' maps. */
uint32_t       ids_family_shift(const struct ids_host *host, uint32_t inside);

/* True if the box has this id. */
bool           ids_holds(const struct ids *ids, uint32_t inside);

/* The keeper's id for the box's id `inside`. */
uint32_t       ids_outside(const struct ids *ids, uint32_t inside, bool keep_own);

/* A user namespace that only carries a map, for idmapped mounts. keeper is a pidfd of the caller. Returns its fd or
 * -errno. */
MUST_CHECK int ids_namespace(int keeper, const char *uid_map, const char *gid_map);

#endif
