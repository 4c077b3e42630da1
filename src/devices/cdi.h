/* Specifications of the Container Device Interface: which nodes, mounts and variables a device is made of. Pure: the
 * bytes of one file in, its devices out. What cannot be held (hooks above all) is kept as the reason why a device is
 * refused, so that the others of the file can be used. */
#ifndef CARREL_DEVICES_CDI_H
#define CARREL_DEVICES_CDI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "devices/notation.h"

enum { CDI_NAME_MAX = 200 };    /* bytes of "vendor.com/class=device" */

struct cdi_node {
    const char *path;           /* in the box: below /dev */
    const char *host;           /* on the host */
    char        type;           /* 'c', 'b', or 0: whatever it is */
    bool        has_number;
    uint32_t    major, minor;   /* if has_number, it must be this one */
    bool        read, write;
};

struct cdi_mount {
    const char *host, *path;
};

/* Nodes, mounts and variables ("NAME=VALUE") of a device, or of all devices of a file. Lists are owned. */
struct cdi_edits {
    size_t            n_env, n_nodes, n_mounts;
    const char      **env;
    struct cdi_node  *node;
    struct cdi_mount *mount;
    char              refused[160];     /* "": it can be held */
};

struct cdi_device {
    const char      *name;
    struct cdi_edits edits;
};

struct cdi_file {
    const char          *kind;          /* "vendor.com/class" */
    struct cdi_edits     edits;         /* of every device in it */
    size_t               n;
    struct cdi_device   *device;        /* owned */
    struct notation_tree tree;          /* owned: what the texts point into */
};

/* name is the file's, for messages. */
MUST_CHECK int cdi_parse(const char *name, const char *text, size_t size, struct cdi_file *ret, struct err *e);
/* Does nothing to a zeroed file. */
void           cdi_free(struct cdi_file *file);

/* "vendor.com/class": a domain name, and letters, digits, '-', '_' and '.'. */
bool           cdi_kind_is_valid(const char *text, size_t length);
/* Whether one of a comma list of kinds allows this one: itself, "*" + "/class" for any vendor's, or "*" for all. */
bool           cdi_kind_is_allowed(const char *list, const char *kind);
/* "vendor.com/class=device". */
bool           cdi_name_is_valid(const char *text);

#endif
