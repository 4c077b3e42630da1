/* The part of YAML that programs write, which includes JSON: maps, lists and scalars in block and flow style, comments,
 * quotes. Refuses anchors, tags, block scalars and several documents, and names the line; every scalar is a text. Pure:
 * bytes in, a tree out. */
#ifndef CARREL_DEVICES_NOTATION_H
#define CARREL_DEVICES_NOTATION_H

#include <stddef.h>

#include "base/err.h"

enum { NOTATION_BYTES_MAX = 1 << 20, NOTATION_DEPTH_MAX = 24 };

enum notation_kind { NOTATION_TEXT, NOTATION_MAP, NOTATION_LIST };

struct notation {
    enum notation_kind kind;
    unsigned           line;
    const char        *key;         /* in a map; else NULL */
    const char        *text;        /* of a TEXT; "" for an empty value */
    struct notation   *child;       /* of a MAP and a LIST: the first member */
    struct notation   *next;        /* the next member */
};

struct notation_tree {
    struct notation      *root;
    struct notation_part *parts;    /* owned: all nodes */
    char                 *texts;    /* owned */
};

/* name is the file's, for messages ("FILE:LINE: ..."). */
MUST_CHECK int notation_read(const char *name, const char *text, size_t size, struct notation_tree *ret, struct err *e);
/* A no-op for a zeroed tree. */
void           notation_free(struct notation_tree *tree);

/* A member of a map; NULL: the map lacks it, or this is no map. */
const struct notation *notation_get(const struct notation *map, const char *key);

#endif
