/* Specifications of the Container Device Interface: the nodes, mounts and variables of each device. Pure: the bytes of
 * one file in, its devices out. A device that needs something unsupported (hooks above all) keeps the reason why it is
 * refused, so that the other devices of the file remain usable. */
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
    char        type;           /* 'c', 'b', or 0: any type */
    bool        has_number;
    uint32_t    major, minor;   /* if has_number, the node must have this number */
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
    char              refused[160];     /* why it cannot be used; "": it can */
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
    struct notation_tree tree;          /* owned: the texts point into it */
};

/* name is the file's, for messages. */
MUST_CHECK int cdi_parse(const char *name, const char *text, size_t size, struct cdi_file *ret, struct err *e);
/* A no-op for a zeroed file. */
void           cdi_free(struct cdi_file *file);

/* "vendor.com/class": a domain name, and letters, digits, '-', '_' and '.'. */
bool           cdi_kind_is_valid(const char *text, size_t length);
/* Whether a comma-separated list of kinds allows this one: the kind itself, "*" + "/class" for any vendor's, or "*" for
 * all. */
bool           cdi_kind_is_allowed(const char *list, const char *kind);
/* "vendor.com/class=device". */
bool           cdi_name_is_valid(const char *text);

#endif
