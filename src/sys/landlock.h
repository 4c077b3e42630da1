/* Landlock: the second, independent wall around files. Everything that a rule does not allow is refused. */
#ifndef CARREL_SYS_LANDLOCK_H
#define CARREL_SYS_LANDLOCK_H

#include <stdint.h>

#include "base/err.h"

enum landlock_rights {
    LANDLOCK_READ,      /* read, list, execute */
    LANDLOCK_DEVICE,    /* read, write and ioctl what is there, make nothing */
    LANDLOCK_WRITE,     /* everything but making device nodes */
};

/* The running kernel's ABI, 0 if it has no Landlock, -errno if it does not tell. */
int landlock_abi(void);

/* A new ruleset that handles all that this ABI knows of the file system. Returns an fd or -errno. */
MUST_CHECK int landlock_open(int abi);
/* A path that does not exist gives -ENOENT. Follows no symbolic link at the end. */
MUST_CHECK int landlock_allow(int ruleset, int abi, const char *path, enum landlock_rights rights);
MUST_CHECK int landlock_enter(int ruleset);

#endif
