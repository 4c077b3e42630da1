/* The package indexes of this host's pip, uv, npm and apt, for boxes with network: the addresses only, without user
 * names, passwords and tokens. */
#ifndef CARREL_BOX_INDEXES_H
#define CARREL_BOX_INDEXES_H

#include <stddef.h>

#include "base/buf.h"

enum index_kind { INDEX_PIP, INDEX_UV, INDEX_NPM, INDEX_APT_LIST, INDEX_APT_SOURCES };

/* Appends the clean addresses of a settings file, in the same format. Pure; fuzzed. Returns how many addresses were
 * dropped because they may hold a secret. */
unsigned indexes_clean(enum index_kind kind, const char *text, struct buf *out);

#endif
