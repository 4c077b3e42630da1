/* A command as bytes in a sealed memfd. The keeper passes it on unread; only the sealed payload reads it. */
#ifndef CARREL_PROTO_COMMAND_H
#define CARREL_PROTO_COMMAND_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* Linux takes no more than 6 MiB of strings for argv and environment: three quarters of its usual stack. */
enum { COMMAND_BYTES_MAX = 6 << 20, COMMAND_STRINGS_MAX = 65536 };

struct command_spec {
    char      **argv;
    char      **env;                    /* complete, NULL-terminated */
    const char *workdir;                /* NULL: the home directory */
    bool        terminal;               /* a PTY of the box becomes the controlling terminal */
    uint16_t    rows, columns;          /* of it; 0: not known. Rows below 32,768 */
    uint64_t    timeout_ms;             /* 0: none; not packed, nor is output_bytes */
    uint64_t    output_bytes;           /* 0: none */
};

/* What the memfd begins with; argc + envc + 1 strings follow, each with its NUL: argv, env, workdir ("": none). */
struct packed_command {
    uint32_t argc, envc;
    uint32_t bytes;         /* of all strings */
    uint32_t terminal;      /* 0: none; else 1 | columns << 1 | rows << 17 */
};
_Static_assert(sizeof(struct packed_command) == 16, "nothing is between the fields");

/* Returns a sealed memfd. */
MUST_CHECK int command_pack(const struct command_spec *command, int *ret, struct err *e);

/* Maps the memfd and points into it; the mapping stays until exec. Believes nothing that is in it. */
MUST_CHECK int command_unpack(int memfd, struct command_spec *ret);

#endif
