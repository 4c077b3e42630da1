/* A requested box; its command is struct command_spec (proto/command.h). Plain data; nothing here has been checked
 * against the host. */
#ifndef CARREL_BOX_SPEC_H
#define CARREL_BOX_SPEC_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "proto/command.h"
#include "proto/limits.h"
#include "proto/mounts.h"
#include "proto/names.h"

enum { SPEC_MOUNTS_MAX = 64, SPEC_LIST_MAX = 128 /* with the root, layers, devices */, SPEC_ENV_MAX = 16384,
       SPEC_SECRETS_MAX = 32 };

struct mount_spec {
    enum mount_kind kind;
    bool            writable;
    bool            is_file;    /* set when the source was opened */
    bool            fills_gap;  /* of a LAYER: only if its place is an empty directory in another tree */
    const char     *source;     /* a host path as the caller wrote it; of a ROOT the directory, NULL the host's /usr */
    const char     *target;     /* absolute path in the box; of a HOST, a LAYER, a VOLUME and a DEVICE */
    int             fd;         /* borrowed, except a ROOT's. Of a STORE, a VOLUME the mounted tree. -1: not yet open */
    dev_t           device;     /* of a DEVICE: its number */
    bool            is_block;
};

/* Files of certificates that the box has instead of the host's (proto/certificates.h). Borrowed; NULL: none. */
struct box_trust {
    const char *pem, *java;
    size_t      pem_size, java_size;
};

struct box_spec {
    bool              no_proc;          /* /proc is an empty folder, if the kernel allows no fresh one */
    bool              terminal;         /* the box has /dev/pts */
    bool              has_secrets;      /* it has BOX_SECRETS */
    bool              has_network;      /* something outside of it can be reached */
    enum profile      profile;
    struct limits     limits;
    const char       *hostname;         /* NULL: "box" */
    uid_t             uid;              /* inside the box */
    gid_t             gid;
    struct box_trust  trust;
    size_t            n_mounts;
    struct mount_spec mount[SPEC_LIST_MAX];
};

/* The first mount of a kind; NULL: none. */
const struct mount_spec *spec_find(const struct box_spec *spec, enum mount_kind kind);
/* The directory of the box's root; NULL: the host's own /usr. */
const char              *spec_root(const struct box_spec *spec);

/* Whether anything is mounted at or below /var/tmp. */
bool spec_uses_var_tmp(const struct box_spec *spec);

#endif
