/* A command as bytes in a sealed memfd. The keeper passes it on unread; only the sealed payload reads it. */
#ifndef CARREL_PROTO_COMMAND_H
#define CARREL_PROTO_COMMAND_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* Linux accepts at most 6 MiB of strings for argv and environment: three quarters of its usual stack. */
enum {
    COMMAND_BYTES_MAX = 6 << 20, COMMAND_STRINGS_MAX = 65536,
    COMMAND_FILES_MAX = 64, COMMAND_FILE_NAME = 64, COMMAND_FILE_BYTES = 65536,
};

/* A file that the payload writes for the command, below BOX_SECRETS: a secret. */
struct command_file {
    const char *name;                   /* at most COMMAND_FILE_NAME of a-z A-Z 0-9 . _ -; begins with none of ._- */
    const char *bytes;
    size_t      size;                   /* at most COMMAND_FILE_BYTES */
};

struct command_spec {
    char      **argv;
    char      **env;                    /* complete, NULL-terminated */
    const char *workdir;                /* NULL: the home directory */
    bool        terminal;               /* a PTY of the box becomes the controlling terminal */
    uint16_t    rows, columns;          /* its size; 0: unknown. Rows below 32,768 */
    struct command_file *files;
    size_t      n_files;
    uint64_t    timeout_ms;             /* 0: none; not packed, nor is output_bytes */
    uint64_t    output_bytes;           /* 0: none */
};

/* The memfd's header; argc + envc + 1 strings follow, each with its NUL: argv, env, workdir ("": none). Then n_files
 * files: four bytes with the size, the name with its NUL, the contents; at the end a NUL. */
struct packed_command {
    uint32_t argc, envc;
    uint32_t bytes;         /* of all that follows */
    uint32_t terminal;      /* 0: none; else 1 | columns << 1 | rows << 17 */
    uint32_t n_files, reserved;
};
_Static_assert(sizeof(struct packed_command) == 24, "nothing is between the fields");

/* Returns a sealed memfd. */
MUST_CHECK int command_pack(const struct command_spec *command, int *ret, struct err *e);

/* Maps the memfd and points into it; the mapping stays until exec. Trusts nothing in it. */
MUST_CHECK int command_unpack(int memfd, struct command_spec *ret);

#endif
