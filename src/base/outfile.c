#define _GNU_SOURCE
#include "base/outfile.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"

/* Names of descriptors that this process has open. They are links by nature, and lie in no folder that a guest can
 * change. */
static bool is_own_descriptor(const char *path)
{
    static const char *const whole[] = { "/dev/stdout", "/dev/stderr" };
    static const char *const begins[] = { "/dev/fd/", "/proc/self/fd/" };

    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
        if (strcmp(path, whole[i]) == 0)
            return true;
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++) {
        const char *number = path + strlen(begins[i]);
        if (strncmp(path, begins[i], strlen(begins[i])) == 0 && *number && !number[strspn(number, "0123456789")])
            return true;
    }
    return false;
}

int outfile_open(const char *option, const char *path, struct err *e)
{
    /* O_NONBLOCK so that a FIFO without a reader does not block. */
    struct open_how how = { .flags = O_WRONLY | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK,
                            .mode = 0644,
                            .resolve = RESOLVE_NO_SYMLINKS };
    struct stat status;

    if (is_own_descriptor(path)) {
        int own = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
        return own < 0 ? err_set(e, errno, STEP_STDIO, "%s %s", option, path) : own;
    }
    FD fd = (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how);
    if (fd < 0 && errno == ELOOP)
        return err_set(e, ELOOP, STEP_USAGE, "%s follows no links, and there is one in %s", option, path);
    if (fd < 0 || fstat(fd, &status) < 0)
        return err_set(e, errno, STEP_STDIO, "%s %s", option, path);
    if (!S_ISREG(status.st_mode) && !S_ISCHR(status.st_mode))
        return err_set(e, EINVAL, STEP_USAGE, "%s needs a file, and %s is none", option, path);
    return TAKE_FD(fd);
}

int outfile_write(int fd, const char *text, size_t length)
{
    struct stat status;

    if (fstat(fd, &status) < 0)
        return -errno;
    if (S_ISREG(status.st_mode) && ftruncate(fd, 0) < 0)
        return -errno;
    return fd_write_all(fd, text, length);
}
