/* A command as bytes in a sealed memfd. The keeper passes it on unread; only the sealed payload reads it. */
#ifndef CARREL_BOX_COMMAND_H
#define CARREL_BOX_COMMAND_H

#include "base/err.h"
#include "box/spec.h"

enum { COMMAND_BYTES_MAX = 8 << 20 };

/* Whether there is a terminal and how large, in one word; rows below 32,768. */
#define COMMAND_TERMINAL(is, rows, columns)                                                                            \
    ((is) ? 1u | (uint32_t)(columns) << 1 | ((uint32_t)(rows)&0x7fff) << 17 : 0u)

/* Returns a sealed memfd. */
MUST_CHECK int command_pack(const struct command_spec *command, int *ret, struct err *e);

/* Maps the memfd and points into it; the mapping stays until exec. Believes nothing that is in it. */
MUST_CHECK int command_unpack(int memfd, struct command_spec *ret);

#endif
