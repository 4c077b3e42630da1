/* The devices that this host's CDI specifications describe. */
#ifndef CARREL_DEVICES_CDI_HOST_H
#define CARREL_DEVICES_CDI_HOST_H

#include "devices/cdi.h"

enum { DEVICES_FILES_MAX = 64 };

struct devices {
    size_t          n;
    struct cdi_file file[DEVICES_FILES_MAX];    /* owned */
    size_t          n_wrong;                    /* files that cannot be used */
    struct err      wrong;                      /* the error of the first of them */
};

/* Reads /etc/cdi and /var/run/cdi. Skips files that others can write or that are invalid. Never fails: a missing
 * directory has no devices. rootless: this process is in a user namespace of its own, where root's files seem to belong
 * to the overflow id. */
void           devices_read(bool rootless, struct devices *ret);
void           devices_free(struct devices *devices);

/* By its full name. -ENOENT lists the existing names; -ENOTSUP gives the reason why the device cannot be used. */
MUST_CHECK int devices_find(const struct devices *devices, const char *name, const struct cdi_file **ret_file,
                            const struct cdi_device **ret, struct err *e);

/* Calls for every device with its full name, and "" or the reason why it is refused. */
void           devices_each(const struct devices *devices,
                            void (*call)(const char *name, const char *refused, void *arg), void *arg);

#endif
