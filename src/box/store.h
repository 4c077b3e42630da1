/* Stores: where what a box writes outlives the box.
 *
 * Without one, a box writes to a tmpfs, which counts as its memory and ends with it (tree.c). A store is a file in the
 * keeper's store directory, named by a number and exactly as large as the box's disk limit, with a file system in it;
 * the limit holds because the file system ends there.
 *
 *   struct stores stores;      stores_open()        once per keeper
 *   struct store_job job;      store_prepare()      a child makes or mends the file system and mounts it, detached
 *                              store_ready()        when job.process.pidfd is readable: the tree of a MOUNT_STORE
 *                              store_remove()
 *
 * A store is mounted once at a time: the loop device holds the file and with it a lock on the file, whoever else lives
 * or dies. */
#ifndef CARREL_BOX_STORE_H
#define CARREL_BOX_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "sys/process.h"

enum { STORE_LEAST_BYTES = 16 << 20 };

/* What is in the file. All work on an open file that nobody else has; they may take long, and run in a child. */
struct store_driver {
    const char *name;
    int (*probe)(struct err *e);                            /* does this host have what it takes? */
    int (*format)(int file, uint64_t bytes, struct err *e); /* of an empty file of this size */
    int (*mend)(int file, struct err *e); /* after a crash of the host; does nothing to what was left in order */
    int (*attach)(int file, int *ret_tree,
                  struct err *e); /* a detached mount, nosuid and nodev, its ids as on the disk */
};

extern const struct store_driver store_image;       /* ext4 through a loop device */

struct stores {
    const struct store_driver *driver;  /* NULL: no stores here, why says why */
    int                        dir;     /* owned; -1: none */
    struct err                 why;
};

struct store_job {
    struct process process;             /* owned; its end is the job's end */
    int            link;                /* owned */
    uint64_t       number;
};

/* Opens or makes the directory and locks it for this keeper. path NULL: there are no stores. What the host lacks is no
 * error here, but every store_prepare is refused with it. */
MUST_CHECK int stores_open(const char *path, bool rootless, struct stores *ret, struct err *e);
void           stores_close(struct stores *stores);

/* Begins to mount a store; one that does not exist is made, if the disk can hold it and all that was promised to
 * others. keeper: a pidfd of the caller. -ENOSPC, -ENOTSUP, -EINVAL (it exists with another size). */
MUST_CHECK int store_prepare(const struct stores *stores, int keeper, uint64_t number, uint64_t bytes,
                             struct store_job *ret, struct err *e);
/* After the child's end was reaped: the mounted tree, or why there is none. Ends the job. */
MUST_CHECK int store_ready(const struct stores *stores, struct store_job *job, int *ret_tree, struct err *e);

/* Nobody may have it in use, or the file lives on without a name until its box ends. One that does not exist is no
 * error. */
MUST_CHECK int store_remove(const struct stores *stores, uint64_t number, struct err *e);

/* Calls for every store. */
void stores_each(const struct stores *stores, void (*call)(uint64_t number, uint64_t used_bytes, void *arg), void *arg);

#endif
