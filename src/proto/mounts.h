/* The files of a box: one list of mounts, from the API to the plan. Each program has its own form of it, and each form
 * has the kinds of this table:
 *
 *     front/boxes/box_mounts.h     the caller's list: read from JSON, shown as JSON, stored with the box
 *     struct frame_mounts          the keeper's request, below
 *     struct box_spec              the engine's input; plan.c turns it into steps, in the list's order
 *
 * A new kind is a row here, a field of the API (front/boxes/box_mount_fields.c) and a maker that turns its frame entry
 * into entries of the spec (keeper/mounts.c). docs/recipes.md says how. */
#ifndef CARREL_PROTO_MOUNTS_H
#define CARREL_PROTO_MOUNTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { KEEPER_MOUNTS = 16, KEEPER_DEVICES = 8, KEEPER_VOLUMES = 8, LAYER_TARGET_MAX = 160 };

enum {
    MOUNT_HAS_FD = 1,       /* a descriptor comes with its entry of the frame */
    MOUNT_IS_PLACE = 2,     /* holds all files that the box writes; a box has at most one entry of all these kinds */
    MOUNT_IN_FAMILY = 4,    /* allowed in a box of a family */
    MOUNT_OF_FAMILY = 8,    /* a family's zygote and all of its boxes have the same entries of this kind */
};

/* ROW(NAME, most entries in a list, flags)
 * HOST     a directory or plain file that the caller opened, at its target
 * ROOT     the box's root, at /; writable means changes that are private to the box
 * LAYER    directories of the host's own at their own paths: read-only, without id mapping. In the front and in the
 *          frame the number of a template, which stands for all its layers; in the spec one directory
 * TMPFS    holds all files that the box writes: memory, as much as the disk limit. The default
 * STORE    the same, but kept: a disk image that outlives the box
 * DEVICE   in the front and in the frame a device by its CDI name; in the spec one of its nodes
 * VOLUME   in the front and in the frame the number of a volume (box/volume.h), with its target; in the spec its tree
 * PACKAGES in the front and in the frame a layer of installed packages, "OWNER/DIGEST"; in the spec its folder */
#define MOUNT_ROWS(ROW) \
    ROW(HOST, KEEPER_MOUNTS, MOUNT_HAS_FD | MOUNT_IN_FAMILY) \
    ROW(ROOT, 1, 0) \
    ROW(LAYER, 1, MOUNT_IN_FAMILY | MOUNT_OF_FAMILY) \
    ROW(TMPFS, 1, MOUNT_IS_PLACE | MOUNT_IN_FAMILY) \
    ROW(STORE, 1, MOUNT_IS_PLACE) \
    ROW(DEVICE, KEEPER_DEVICES, 0) \
    ROW(PACKAGES, 1, MOUNT_IN_FAMILY | MOUNT_OF_FAMILY) \
    ROW(VOLUME, KEEPER_VOLUMES, 0)

#define MOUNT_NAME(name, ...) MOUNT_##name,
enum mount_kind { MOUNT_ROWS(MOUNT_NAME) MOUNT_KINDS };
#undef MOUNT_NAME

#define MOUNT_MOST(name, most, flags) +(most)
enum { KEEPER_LIST = 0 MOUNT_ROWS(MOUNT_MOST) };
#undef MOUNT_MOST

struct mount_row {
    const char *name;
    uint32_t    most;
    unsigned    flags;
};
extern const struct mount_row mount_table[MOUNT_KINDS];

/* One entry of a frame's list. */
struct frame_mount {
    /* ROOT: 0 the host's /usr, else a root of the keeper's configuration. LAYER: a template of it. STORE: the store's
     * number; a missing store is made. VOLUME: its number, too. PACKAGES: the template of
     * their interpreter, 0: that of the box. */
    uint64_t number;
    char     target[247];   /* of a HOST, a VOLUME: absolute, NUL-terminated; of a DEVICE and of PACKAGES: its name */
    uint8_t  kind;          /* enum mount_kind */
    uint8_t  writable;
    uint8_t  is_file;       /* filled in by the keeper */
    uint8_t  reserved[6];
};
_Static_assert(sizeof(struct frame_mount) == 264, "a frame has no hidden bytes");

struct frame_mounts {
    uint32_t           n;
    uint32_t           reserved;
    struct frame_mount at[KEEPER_LIST];
};
_Static_assert(sizeof(struct frame_mounts) == 8 + KEEPER_LIST * 264, "a frame has no hidden bytes");

/* The next entry of a list, which must have room for it. */
struct frame_mount       *frame_mount_add(struct frame_mounts *list, enum mount_kind kind, uint64_t number);
/* The first entry of a kind; NULL: none. */
const struct frame_mount *frame_mount_find(const struct frame_mounts *list, enum mount_kind kind);
/* Its number; 0: none. */
uint64_t                  frame_mount_number(const struct frame_mounts *list, enum mount_kind kind);
/* The number of entries of kinds with one of these flags, and of one kind. */
size_t                    frame_mount_flagged(const struct frame_mounts *list, unsigned flags);
size_t                    frame_mount_count(const struct frame_mounts *list, enum mount_kind kind);
/* Whether it has only known kinds, and no more of each than its row allows. */
bool                      frame_mounts_are_sane(const struct frame_mounts *list);
/* Whether both lists have the same entries of kinds with one of these flags. */
bool                      frame_mounts_equal(const struct frame_mounts *a, const struct frame_mounts *b,
                                             unsigned flags);

#endif
