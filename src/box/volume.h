/* Volumes: named trees of a user that outlive boxes and may be in several boxes at once. The front knows names and
 * owners; here a volume is a number.
 *
 *   DIR/volumes/N.img    under root: a file system in a file, as a store's (store.h), so the size is a limit
 *   DIR/volumes/N.dir    without root: a folder, whose size is not limited
 *   DIR/volumes/N.new    being made; N.old being removed
 *
 * An image is mounted once for all boxes that have it: the first mount attaches a loop device, others mount that device
 * again, and the kernel gives them the same file system. Only the boxes hold it, so it is unmounted with the
 * last of them. All slow work is done by a child (struct volume_job), which holds a lock on the image. */
#ifndef CARREL_BOX_VOLUME_H
#define CARREL_BOX_VOLUME_H

#include "box/store.h"
#include "proto/mounts.h"
#include "proto/volumes.h"

struct volumes {
    const struct stores *stores;        /* borrowed: the driver of images, and their folder */
    int                  dir;           /* owned; -1: none, why says why */
    bool                 are_folders;
    struct err           why;
};

enum volume_task { VOLUME_MAKE, VOLUME_GROW, VOLUME_MOUNT };

/* A volume of a box. */
struct volume_use {
    uint64_t number;
    uint32_t device;            /* number of the loop device of its last known mount, plus one; 0: unknown */
    int      tree;              /* owned, after VOLUME_MOUNT: a mount or a folder; -1: none */
};

/* The volumes of a box, in the order of its frame. */
struct volume_uses {
    size_t            n;
    struct volume_use use[KEEPER_VOLUMES];
};

struct volume_job {
    struct process   process;   /* owned; its end is the job's end */
    int              link;      /* owned */
    enum volume_task task;
    uint64_t         number, bytes;
};

/* DIR/volumes beside the stores, which must be open and outlive it. Missing features are no error, as for stores. */
MUST_CHECK int volumes_open(const char *path, bool rootless, struct stores *stores, struct volumes *ret,
                            struct err *e);
void           volumes_close(struct volumes *volumes);

/* Begins to make a volume, which must not exist, or to grow one that no box has. keeper: a pidfd of the caller.
 * -ENOSPC, -EEXIST, -ENOENT, -EINVAL, -ENOTSUP. Growing goes on if the keeper is killed. */
MUST_CHECK int volume_change(const struct volumes *volumes, int keeper, enum volume_task task, uint64_t number,
                             uint64_t bytes, struct volume_job *ret, struct err *e);
/* After the child's end was reaped: whether it is done. is_wanted false: undoes a VOLUME_MAKE. Ends the job. */
MUST_CHECK int volume_changed(const struct volumes *volumes, struct volume_job *job, bool is_wanted, struct err *e);

/* A folder that is a volume; needs no child. */
MUST_CHECK int volume_open_folder(const struct volumes *volumes, uint64_t number, int *ret, struct err *e);
/* Begins to mount some volumes for a box, whose user gets new ones. */
MUST_CHECK int volumes_mount(const struct volumes *volumes, int keeper, const struct volume_use *use, size_t n,
                             uid_t uid, gid_t gid, struct store_job *ret, struct err *e);
/* After the child's end was reaped: their trees. Ends the job. */
MUST_CHECK int volumes_mounted(struct store_job *job, struct volume_use *use, size_t n, struct err *e);

/* It must not be in use. A missing one is no error. *ret: a child that removes the files; its end needs no
 * attention. */
MUST_CHECK int volume_remove(const struct volumes *volumes, uint64_t number, struct process *ret, struct err *e);

struct volume_facts {
    uint64_t number, bytes;     /* bytes: its size; 0: a folder */
    uint64_t used_bytes;        /* on the host's disk; of a folder 0 */
};
/* -ENOENT. */
MUST_CHECK int volume_look(const struct volumes *volumes, uint64_t number, struct volume_facts *ret, struct err *e);
void           volumes_each(const struct volumes *volumes, void (*call)(const struct volume_facts *facts, void *arg),
                            void *arg);

#endif
