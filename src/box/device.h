/* Devices of the host in a box: the nodes and mounts of a CDI specification become entries of the box's list of mounts,
 * each with an open descriptor. */
#ifndef CARREL_BOX_DEVICE_H
#define CARREL_BOX_DEVICE_H

#include "box/plan.h"
#include "box/spec.h"
#include "devices/cdi_host.h"

struct device_files {
    size_t n;
    int    fd[SPEC_LIST_MAX];       /* owned */
};

/* Adds a device's nodes and mounts to the spec, after its root. devices and files must outlive the plan. On failure
 * files holds the descriptors opened so far; -ENOTSUP: this host cannot provide the device, e says why. */
MUST_CHECK int device_add(struct box_spec *spec, const struct host_facts *facts, const struct devices *devices,
                          const char *name, struct device_files *files, struct err *e);
void           device_close(struct device_files *files);

#endif
