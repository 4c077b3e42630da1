/* Layers of packages (box/layer.h) for the command line. */
#ifndef CARREL_CLI_LAYERS_LAYERS_H
#define CARREL_CLI_LAYERS_LAYERS_H

#include <stdbool.h>

#include "base/buf.h"
#include "base/interpreter.h"
#include "base/jsonout.h"
#include "box/layer.h"
#include "proto/packages.h"

enum { INDEX_MAX = 512 };

/* The package index: $UV_DEFAULT_INDEX, $PIP_INDEX_URL; pip's configuration files; the default of this build. An
 * address with a password is refused, because the packages' own code could read it. */
MUST_CHECK int index_find(char ret[INDEX_MAX], struct err *e);
/* The same for the key of a list: without a user name and password, which do not change the packages. "": none. */
void           index_name(char ret[INDEX_MAX]);
/* The name and the port of an address in the form of a network rule: "index.example.org:443". */
MUST_CHECK int index_rule(const char *url, char *ret, size_t size, struct err *e);

/* Writes what makes a folder an environment of this interpreter, over what packages may have put there: a link in it
 * decides which directories of the host boxes see. */
MUST_CHECK int interpreter_place(int dir, const char *python, struct err *e);

struct layer_build {
    const struct layers   *layers;
    const char            *python;      /* its path */
    const struct packages *packages;    /* sorted */
    uint64_t               most_bytes;  /* the layer's size limit */
    const char            *at;          /* its place in a box; NULL: PACKAGES_PLACE */
    const char            *kept;        /* lines "keep NAME==VERSION": versions to prefer; NULL: none */
    const char            *trial;       /* Python that must run afterwards, in a box; NULL: none */
    void                 (*say)(const char *text, void *arg);       /* progress, one line */
    void                  *arg;
};

/* -ENOEXEC: a package is there, but not for this interpreter.
 *
 * Installs the packages in a worker box: a `carrel run` that can only reach the index and only write to the new layer.
 * If this process ends, the box ends. */
MUST_CHECK int layer_make(const struct layer_build *build, const char *key, char ret[LAYER_NAME], struct err *e);

/* Installs into a folder of the caller's: stage is in build->layers. info: its description is appended. */
MUST_CHECK int layer_fill(const struct layer_build *build, struct layer_stage *stage, struct buf *info, struct err *e);

/* For a server (wire.c). */
int            layer_wire_build(const char *owner, const char *python, uint64_t most_bytes);
int            layer_wire_ask(const char *owner, bool removes);
/* A layer as a member of an array. owner: may be NULL. */
void           layer_write(struct jsonout *json, const char *folder, const char *owner, const struct layer_info *info);

/* Progress on standard error: one line on a terminal, which is overwritten; else only slow steps. */
void           layer_show(const char *text, void *arg);
void           layer_show_end(void);

/* Finds the layer of a list, or makes it; shows progress on standard error. ret_fd: the layer is in use while this is
 * open. ret_path: its folder. */
MUST_CHECK int layer_get(struct packages *packages, const char *python, int *ret_fd, char ret_path[LAYER_PATH],
                         struct err *e);

#endif
