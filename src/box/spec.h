/* The box that somebody asks for; the command in it is struct command_spec (proto/command.h). Plain data; nothing here
 * has been checked against the host. */
#ifndef CARREL_BOX_SPEC_H
#define CARREL_BOX_SPEC_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "proto/command.h"
#include "proto/names.h"

enum { SPEC_MOUNTS_MAX = 64, SPEC_ENV_MAX = 16384 };

/* 0 means: not asked for. */
struct limits {
    uint64_t memory_bytes;
    uint64_t disk_bytes;        /* all that the box writes */
    uint32_t pids;
    uint32_t cpu_milli;         /* 1500 = one and a half processors */
};

struct mount_spec {
    const char *source;         /* a host path as the caller wrote it */
    const char *target;         /* absolute path in the box */
    bool        writable;
    bool        is_file;        /* found when the source was opened */
    bool        is_layer;       /* the host's own, like /usr: read-only, and nobody's ids are mapped */
};

struct box_spec {
    const char *root; /* NULL: the host's own /usr; else a directory with an unpacked root filesystem */
    bool              writable_root;
    bool              no_proc;          /* /proc is an empty folder: where the kernel gives no fresh one */
    bool              terminal;         /* the box has /dev/pts */
    bool              on_store;         /* what it writes goes to a store (store.h) and not to memory */
    enum profile      profile;
    struct limits     limits;
    const char       *hostname;         /* NULL: "box" */
    uid_t             uid;              /* inside the box */
    gid_t             gid;
    size_t            n_mounts;
    struct mount_spec mount[SPEC_MOUNTS_MAX];
};

#endif
