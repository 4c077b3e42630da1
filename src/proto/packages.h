/* A list of packages for a box: requirements in pip's form, by name and version.
 *
 * A requirement with an option, an address or a path is refused: packages only come from the index that this machine is
 * configured for. */
#ifndef CARREL_PROTO_PACKAGES_H
#define CARREL_PROTO_PACKAGES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/sha256.h"

/* A builder's output for a server, a line each: progress, then one of the other two. `list` and `rm` write one line: an
 * array of JSON, or the error. */
#define LAYER_SAY   "say "
#define LAYER_DONE  "layer "            /* DIGEST */
#define LAYER_ERROR "error "            /* ERRNO TEXT */

#define PACKAGES_PLACE "/opt/venv"      /* the place of the layer in a box: a virtual environment */

enum { PACKAGES_BYTES = 256 << 10, PACKAGES_LINES = 1024, PACKAGES_LINE = 4096, PACKAGES_OWNER = 64 };

struct packages {
    size_t n, used;
    char  *line[PACKAGES_LINES];        /* into text */
    char  *text;                        /* owned; PACKAGES_BYTES */
};

void           packages_done(struct packages *p);
/* Adds "numpy<2", or several: "numpy<2,pandas" and "numpy pandas" are two. name: the caller's name of the list. */
MUST_CHECK int packages_add(struct packages *p, const char *name, const char *words, struct err *e);
/* Adds the lines of a requirements or lock file; accepts comments, continued lines and --hash. */
MUST_CHECK int packages_add_file(struct packages *p, const char *name, const char *text, struct err *e);
/* The same from a file. name: the option that names it. */
MUST_CHECK int packages_read_file(struct packages *p, const char *name, const char *path, struct err *e);
/* Whether the list has a requirement for this package: case and the choice of "-", "_" and "." do not matter. */
bool           packages_has(const struct packages *p, const char *name, size_t length);
/* The length of the name that a requirement begins with. */
size_t         packages_name_length(const char *requirement);
/* Sorts the list and drops repetitions. */
void           packages_sort(struct packages *p);
/* A sorted list as lines; the caller frees it. NULL: out of memory. */
char          *packages_join(const struct packages *p);
/* The key of a sorted list for an interpreter and an index. */
void           packages_key(const struct packages *p, const char *python, const char *index, char ret[SHA256_HEX + 1]);

/* The folder of an identity's layers: "uid-1000", or a digest of any other name. */
void           packages_owner(const char *identity, char ret[PACKAGES_OWNER]);

#endif
