/* Files as block devices. */
#ifndef CARREL_SYS_LOOPDEV_H
#define CARREL_SYS_LOOPDEV_H

#include "base/err.h"

enum { LOOP_PATH = 32 };

/* Attaches an open file to a free loop device. The device frees itself when its last user closes it, so the fd in *ret
 * must live until a mount uses it; the kernel keeps the file open, with its locks, as long. path: the device's name for
 * mount. 0 or -errno. */
MUST_CHECK int loop_attach(int file, char path[LOOP_PATH], int *ret);

/* Opens the device of this number if it is attached to this very file; as long as *ret lives it stays so. -ENXIO: it is
 * not. */
MUST_CHECK int loop_reopen(unsigned number, int file, char path[LOOP_PATH], int *ret);

/* 0 if this process could attach a file. */
MUST_CHECK int loop_probe(void);

#endif
