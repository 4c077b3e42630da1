/* Landlock: the second, independent wall around files. Everything that a rule does not allow is refused. It needs only
 * base and libc: the server, which links no other part of sys, closes itself in with it too. */
#ifndef CARREL_SYS_LANDLOCK_H
#define CARREL_SYS_LANDLOCK_H

#include <stdint.h>

#include "base/err.h"

enum landlock_rights {
    LANDLOCK_READ,      /* read, list, execute */
    LANDLOCK_DEVICE,    /* read, write and ioctl what is there, make nothing */
    LANDLOCK_WRITE,     /* everything but making device nodes */
    LANDLOCK_DATA,      /* the same, and nothing there can be executed */
    LANDLOCK_LOOK,      /* read files, neither list nor execute */
};

/* What a ruleset can close beside the file system, as far as the kernel knows it. */
enum landlock_walls {
    LANDLOCK_TCP = 1,           /* ABI 4: to bind and to connect */
    LANDLOCK_OTHERS = 2,        /* ABI 6: abstract unix sockets and signals, to others than oneself */
};

/* The running kernel's ABI, 0 if it has no Landlock, -errno if it does not tell. */
int landlock_abi(void);

/* A new ruleset that handles all that this ABI knows of the file system, and of walls (enum landlock_walls). Returns an
 * fd or -errno. */
MUST_CHECK int landlock_open(int abi, unsigned walls);
/* A path that does not exist gives -ENOENT. Follows no symbolic link at the end. */
MUST_CHECK int landlock_allow(int ruleset, int abi, const char *path, enum landlock_rights rights);
MUST_CHECK int landlock_enter(int ruleset);

#endif
