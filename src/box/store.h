/* Stores: files of a box that outlive it.
 *
 * Without a store, a box writes to a tmpfs, which counts as its memory and ends with it (tree.c). A store is a file in
 * the keeper's store directory, named by a number and exactly as large as the box's disk limit, with a file system in
 * it; the limit holds because the file system ends there.
 *
 *   struct stores stores;      stores_open()        once per keeper
 *   struct store_job job;      store_prepare()      a child makes or mends the file system and mounts it, detached
 *                              store_ready()        when job.process.pidfd is readable: the tree of a MOUNT_STORE
 *                              store_remove()
 *
 * A store is mounted once at a time: the loop device holds the file and with it a lock on the file, whichever processes
 * live or die. */
#ifndef CARREL_BOX_STORE_H
#define CARREL_BOX_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "sys/process.h"

enum { STORE_LEAST_BYTES = 16 << 20 };

/* The file format. All functions work on an open file with exclusive access; they may take long, and run in a child. */
struct store_driver {
    const char *name;
    int (*probe)(struct err *e);                            /* whether this host has the required parts */
    /* Of an empty file of this size. grows: with room to grow later. */
    int (*format)(int file, uint64_t bytes, bool grows, struct err *e);
    int (*mend)(int file, struct err *e); /* after a crash of the host; a no-op on a clean one */
    /* Of a file that became larger: the file system fills it. A no-op on one that does already. */
    int (*grow)(int file, struct err *e);
    /* A detached mount, nosuid and nodev, its ids as on the disk; the number of its device. */
    int (*attach)(int file, int *ret_tree, uint32_t *ret_device, struct err *e);
    /* Another mount of a file that is mounted now, perhaps on this device; -ENXIO: it is not. */
    int (*share)(int file, uint32_t device, int *ret_tree);
};

extern const struct store_driver store_image;       /* ext4 through a loop device */

struct stores {
    const struct store_driver *driver;  /* NULL: no stores here, why says why */
    int                        dir;     /* owned; -1: none */
    int                        beside;  /* borrowed: volumes, whose sizes are promised, too; -1: none */
    struct err                 why;
};

struct store_job {
    struct process process;             /* owned; its end is the job's end */
    int            link;                /* owned */
    uint64_t       number;
};

/* Opens or makes the directory and locks it for this keeper. path NULL: no stores. Missing features of the host are no
 * error here, but every store_prepare is refused with them. */
MUST_CHECK int stores_open(const char *path, bool rootless, struct stores *ret, struct err *e);
void           stores_close(struct stores *stores);

/* Begins to mount a store; a missing one is made, if the disk can hold it and everything reserved for others. keeper: a
 * pidfd of the caller. -ENOSPC, -ENOTSUP, -EINVAL (it exists with another size). */
MUST_CHECK int store_prepare(const struct stores *stores, int keeper, uint64_t number, uint64_t bytes,
                             struct store_job *ret, struct err *e);
/* After the child's end was reaped: the mounted tree, or why there is none. Ends the job. */
MUST_CHECK int store_ready(const struct stores *stores, struct store_job *job, int *ret_tree, struct err *e);

/* It must not be in use, or the file lives on without a name until its box ends. A missing one is no error. */
MUST_CHECK int store_remove(const struct stores *stores, uint64_t number, struct err *e);

/* Calls for every store. */
void stores_each(const struct stores *stores, void (*call)(uint64_t number, uint64_t used_bytes, void *arg), void *arg);

#endif
