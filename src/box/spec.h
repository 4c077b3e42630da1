/* The box that somebody asks for; the command in it is struct command_spec (proto/command.h). Plain data; nothing here
 * has been checked against the host. */
#ifndef CARREL_BOX_SPEC_H
#define CARREL_BOX_SPEC_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "proto/command.h"
#include "proto/limits.h"
#include "proto/mounts.h"
#include "proto/names.h"

enum { SPEC_MOUNTS_MAX = 64, SPEC_LIST_MAX = 128 /* with the root, layers, devices */, SPEC_ENV_MAX = 16384 };

struct mount_spec {
    enum mount_kind kind;
    bool            writable;
    bool            is_file;    /* found when the source was opened */
    bool            fills_gap;  /* of a LAYER: only if the tree that it lies in has an empty directory there */
    const char     *source;     /* a host path as the caller wrote it; of a ROOT the directory, NULL the host's /usr */
    const char     *target;     /* absolute path in the box; of a HOST, a LAYER and a DEVICE */
    int             fd;         /* borrowed; but of a ROOT. Of a STORE the mounted tree. -1: not yet there */
    dev_t           device;     /* of a DEVICE: its number */
    bool            is_block;
};

struct box_spec {
    bool              no_proc;          /* /proc is an empty folder: where the kernel gives no fresh one */
    bool              terminal;         /* the box has /dev/pts */
    bool              has_network;      /* something outside of it can be reached */
    enum profile      profile;
    struct limits     limits;
    const char       *hostname;         /* NULL: "box" */
    uid_t             uid;              /* inside the box */
    gid_t             gid;
    size_t            n_mounts;
    struct mount_spec mount[SPEC_LIST_MAX];
};

/* The first mount of a kind; NULL: there is none. */
const struct mount_spec *spec_find(const struct box_spec *spec, enum mount_kind kind);
/* The directory that the box is made from; NULL: the host's own /usr. */
const char              *spec_root(const struct box_spec *spec);

#endif
