/* LOOP_CTL_GET_FREE only names a device that was free a moment ago; on a collision we try the next one. LOOP_CONFIGURE
 * (Linux 5.8) sets file and flags in one step, so an attached device always frees itself. */
#define _GNU_SOURCE
#include "sys/loopdev.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"

enum { TRIES = 64, BLOCK_BYTES = 4096 };

int loop_probe(void)
{
    FD control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
    return control < 0 ? -errno : 0;
}

int loop_attach(int file, char path[LOOP_PATH], int *ret)
{
    /* With this block size direct I/O works on any disk; if the file system below does not support it, the kernel goes
     * without. */
    struct loop_config config = { .fd = (uint32_t)file, .block_size = BLOCK_BYTES,
                                  .info.lo_flags = LO_FLAGS_AUTOCLEAR | LO_FLAGS_DIRECT_IO };
    FD control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);

    if (control < 0)
        return -errno;
    for (int i = 0; i < TRIES; i++) {
        int number = ioctl(control, LOOP_CTL_GET_FREE);
        if (number < 0)
            return -errno;
        snprintf(path, LOOP_PATH, "/dev/loop%d", number);
        FD device = open(path, O_RDWR | O_CLOEXEC);
        if (device < 0)
            return -errno;
        if (ioctl(device, LOOP_CONFIGURE, &config) == 0) {
            *ret = TAKE_FD(device);
            return 0;
        }
        if (errno != EBUSY)
            return -errno;
    }
    return -EBUSY;
}

int loop_reopen(unsigned number, int file, char path[LOOP_PATH], int *ret)
{
    struct loop_info64 info;
    struct stat status;

    snprintf(path, LOOP_PATH, "/dev/loop%u", number);
    FD device = open(path, O_RDWR | O_CLOEXEC);
    if (device < 0 || fstat(file, &status) < 0 || ioctl(device, LOOP_GET_STATUS64, &info) < 0
        || info.lo_device != status.st_dev || info.lo_inode != status.st_ino)
        return -ENXIO;
    *ret = TAKE_FD(device);
    return 0;
}
