/* What the files of a box are made of. The create frame and struct box_spec each carry one list of these; plan.c turns
 * it into steps, in the list's order. */
#ifndef CARREL_PROTO_MOUNTS_H
#define CARREL_PROTO_MOUNTS_H

enum mount_kind {
    MOUNT_HOST,     /* a directory or plain file that the caller opened, at its target */
    MOUNT_ROOT,     /* what the box is made from, at /; writable means changes that are private to the box */
    MOUNT_LAYER,    /* directories of the host's own at their own paths: read-only, and nobody's ids are mapped */
    MOUNT_TMPFS,    /* takes all that the box writes: memory, as much as the disk limit. The default */
    MOUNT_STORE,    /* the same, but kept: a disk image that outlives the box */
    MOUNT_DEVICE,   /* in the frame a device by its CDI name, whatever it is made of; in the spec one of its nodes */
    MOUNT_KINDS
};

#endif
