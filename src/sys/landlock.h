/* Landlock: the second, independent wall around files. It refuses everything that no rule allows. Needs only base and
 * libc, because the server, which links nothing else from sys, confines itself with it. */
#ifndef CARREL_SYS_LANDLOCK_H
#define CARREL_SYS_LANDLOCK_H

#include <stdint.h>

#include "base/err.h"

enum landlock_rights {
    LANDLOCK_READ,      /* read, list, execute */
    LANDLOCK_DEVICE,    /* read, write and ioctl existing files, create none */
    LANDLOCK_WRITE,     /* everything but making device nodes */
    LANDLOCK_DATA,      /* the same without execution */
    LANDLOCK_LOOK,      /* read files, neither list nor execute */
};

/* What a ruleset can restrict beside the file system, as far as the kernel supports it. */
enum landlock_walls {
    LANDLOCK_TCP = 1,           /* ABI 4: bind and connect */
    LANDLOCK_OTHERS = 2,        /* ABI 6: abstract unix sockets and signals, except to itself */
};

/* The running kernel's ABI, 0 if it has no Landlock, or -errno. */
int landlock_abi(void);

/* A new ruleset that handles everything that this ABI knows of the file system and of walls (enum landlock_walls).
 * Returns an fd or -errno. */
MUST_CHECK int landlock_open(int abi, unsigned walls);
/* A path that does not exist gives -ENOENT. Follows no symbolic link at the end. */
MUST_CHECK int landlock_allow(int ruleset, int abi, const char *path, enum landlock_rights rights);
MUST_CHECK int landlock_enter(int ruleset);

#endif
