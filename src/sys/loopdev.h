/* Files as block devices. */
#ifndef CARREL_SYS_LOOPDEV_H
#define CARREL_SYS_LOOPDEV_H

#include "base/err.h"

enum { LOOP_PATH = 32 };

/* Attaches an open file to a free loop device. The device frees itself when its last user closes it, so the fd in *ret
 * must live until a mount uses it; the kernel holds the file open for as long, with the locks on it. path: the device's
 * name, which a mount wants. 0 or -errno. */
MUST_CHECK int loop_attach(int file, char path[LOOP_PATH], int *ret);

/* 0 if this process could. */
MUST_CHECK int loop_probe(void);

#endif
