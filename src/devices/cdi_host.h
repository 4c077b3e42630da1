/* The devices that this host's CDI specifications describe. */
#ifndef CARREL_DEVICES_CDI_HOST_H
#define CARREL_DEVICES_CDI_HOST_H

#include "devices/cdi.h"

enum { DEVICES_FILES_MAX = 64 };

struct devices {
    size_t          n;
    struct cdi_file file[DEVICES_FILES_MAX];    /* owned */
    size_t          n_wrong;                    /* files that cannot be used */
    struct err      wrong;                      /* why the first of them cannot */
};

/* Reads /etc/cdi and /var/run/cdi; of files that are not the administrator's own, or are wrong, the rest is not held
 * up. Never fails: what is not there is not there. rootless: this process is in a user namespace of its own, where root
 * is nobody. */
void           devices_read(bool rootless, struct devices *ret);
void           devices_free(struct devices *devices);

/* By its whole name. -ENOENT with the names that there are; -ENOTSUP with the reason why it cannot be held. */
MUST_CHECK int devices_find(const struct devices *devices, const char *name, const struct cdi_file **ret_file,
                            const struct cdi_device **ret, struct err *e);

/* Calls for every device: its whole name, and "" or why it is refused. */
void           devices_each(const struct devices *devices,
                            void (*call)(const char *name, const char *refused, void *arg), void *arg);

#endif
