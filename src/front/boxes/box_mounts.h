/* The files of a box: one list of mounts, by the kinds of proto/mounts.h. The caller's JSON becomes such a list
 * (box_mount_fields.c), the box keeps it, and the keeper's frame is made from it. An empty list is the default: the
 * host's files read-only, no template, changes in memory. */
#ifndef CARREL_FRONT_BOXES_BOX_MOUNTS_H
#define CARREL_FRONT_BOXES_BOX_MOUNTS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "front/config/config.h"
#include "front/request/fields.h"
#include "proto/mounts.h"

struct box_request;
struct front;

struct box_mount {
    enum mount_kind kind;
    bool            writable;
    int             fd;             /* owned; HOST: opened with the caller's rights, until the box exists. Else -1 */
    uint64_t        number;         /* ROOT: of a configured root, 0: the host. LAYER: config_template(). VOLUME: its
                                     * number. PACKAGES: the keeper's template of their interpreter, one of the
                                     * configuration's pythons; 0: that of the box. Else 0 */
    char           *target;         /* owned; HOST, VOLUME: path in the box; DEVICE: its name; PACKAGES: the layer, ""
                                     * until it is made. Else NULL */
    char           *source;         /* owned; HOST: the caller's path, for display; PACKAGES: its lines; VOLUME: its
                                     * name for the box's owner. Else NULL */
};

/* Sorted by kind, with the caller's own directories last. Zeroed: empty. */
struct box_mounts {
    uint32_t         n;
    struct box_mount at[KEEPER_LIST];
};

void                    box_mounts_done(struct box_mounts *list);
/* Appends an entry to those of its kind. target and source are copied; NULL: none. */
MUST_CHECK int          box_mounts_add(struct box_mounts *list, enum mount_kind kind, uint64_t number,
                                       const char *target, const char *source, struct box_mount **ret, struct err *e);
/* Whether an entry is mounted at this path, above it or below it. */
bool                    box_mounts_cover(const struct box_mounts *list, const char *path);
/* For a kind with at most one entry: replaces it. An entry without a value (0, false) is removed. */
void                    box_mounts_set(struct box_mounts *list, enum mount_kind kind, uint64_t number, bool writable);
/* Changes the target of the first entry of a kind, which must exist. */
MUST_CHECK int          box_mounts_name(struct box_mounts *list, enum mount_kind kind, const char *target,
                                        struct err *e);
/* Sets the list of the packages (NULL: as it is) and the number of their interpreter (0: as it is). */
MUST_CHECK int          box_mounts_set_packages(struct box_mounts *list, const char *lines, uint32_t python,
                                                struct err *e);
/* The first entry of a kind, and its number; NULL and 0: none. */
const struct box_mount *box_mounts_find(const struct box_mounts *list, enum mount_kind kind);
uint64_t                box_mounts_number(const struct box_mounts *list, enum mount_kind kind);
uint32_t                box_mounts_count(const struct box_mounts *list, enum mount_kind kind);
/* Whether all entries are of kinds with one of these flags. */
bool                    box_mounts_are_all(const struct box_mounts *list, unsigned flags);
/* The entries of kinds with one of these flags (0: all), without descriptors. */
MUST_CHECK int          box_mounts_copy(const struct box_mounts *from, unsigned flags, struct box_mounts *ret);
/* Whether those entries are the same in both, ignoring sources and descriptors. */
bool                    box_mounts_equal(const struct box_mounts *a, const struct box_mounts *b, unsigned flags);

/* The descriptors for the frame, borrowed; returns how many. */
size_t                  box_mounts_fds(const struct box_mounts *list, int fds[KEEPER_LIST]);
/* Closes the descriptors: the box has them, or will not be made. */
void                    box_mounts_close(struct box_mounts *list);
/* A stopped box starts again: checks that these are its mounts, opened again by the caller. */
MUST_CHECK int          box_mounts_match(const struct box_mounts *list, const struct box_mounts *again, struct err *e);
/* After that check: moves the descriptors and sources into the box's list. */
void                    box_mounts_reopen(struct box_mounts *list, struct box_mounts *again);

/* Whether the box's files are in a store of the keeper, so that it can be stopped. */
bool                    box_mounts_on_disk(const struct box_mounts *list);
void                    box_mounts_set_disk(struct box_mounts *list, bool on_disk);
/* The number of the template; 0: none. */
uint32_t                box_mounts_template(const struct box_mounts *list);
/* For a box that will run a kernel or a service: sets the first template if it has none. */
void                    box_mounts_want_template(struct box_mounts *list);
/* The template whose layers the box gets: the first one's if it names none, so that a kernel can run in it. 0: none,
 * because it has a root of its own or the keeper does not know the template. */
uint32_t                box_mounts_layers(const struct front *front, const struct box_mounts *list);
/* Whether boxes of both lists get the same frame. */
bool                    box_mounts_are_alike(const struct front *front, const struct box_mounts *a,
                                             const struct box_mounts *b);
/* box_packages.c: the interpreter of kernels and services, NULL if there is no such template; and the PATH of commands.
 * Packages have their own. */
const char             *box_mounts_python(const struct front *front, const struct box_mounts *list, uint32_t template);
const char             *box_mounts_path(const struct front *front, const struct box_mounts *list, uint32_t template,
                                        char room[CONFIG_PATH_SIZE]);
/* Makes the keeper's frame. store: the number of the box's store, if it has one. */
void                    box_mounts_frame(const struct front *front, const struct box_mounts *list, uint64_t store,
                                         struct frame_mounts *ret);

/* One field of POST /v1/boxes, of the box in the API and of its row in the database. */
struct box_mount_field {
    struct body_field body;         /* into is the struct box_request */
    bool              is_handed_over;   /* needed at each start of a stopped box: only the caller can open it */
    /* A new reference. */
    json_t *(*show)(const struct front *front, const struct box_mounts *list);
    /* The reverse. Ignores what it does not know. */
    int     (*load)(const struct front *front, json_t *value, struct box_mounts *into, struct err *e);
};
enum { BOX_MOUNT_FIELDS = 10 };
extern const struct box_mount_field box_mount_fields[BOX_MOUNT_FIELDS];

/* The field "volumes" (box_volumes.c). */
MUST_CHECK int          box_volumes_take(const char *name, json_t *v, void *into, struct err *e);
json_t                 *box_volumes_show(const struct front *front, const struct box_mounts *list);
MUST_CHECK int          box_volumes_load(const struct front *front, json_t *value, struct box_mounts *into,
                                         struct err *e);

/* The fields "packages", "python" and "layer" (box_package_fields.c). */
#define BOX_FIELD(name)                                                                                   \
    MUST_CHECK int name##_take(const char *field, json_t *v, void *into, struct err *e);                  \
    json_t *name##_show(const struct front *front, const struct box_mounts *list);                        \
    MUST_CHECK int name##_load(const struct front *front, json_t *value, struct box_mounts *into, struct err *e);
BOX_FIELD(box_packages)
BOX_FIELD(box_python)
BOX_FIELD(box_layer)
#undef BOX_FIELD

void                    box_mounts_show(const struct front *front, const struct box_mounts *list, json_t *into);
MUST_CHECK int          box_mounts_load(const struct front *front, json_t *body, struct box_mounts *into,
                                        struct err *e);

#endif
