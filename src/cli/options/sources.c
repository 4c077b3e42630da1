#define _GNU_SOURCE
#include "cli/options/sources.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fd.h"

static int open_source(struct mount_spec *mount, struct err *e)
{
    /* Magic links (/proc/PID/fd, /proc/PID/root) could lead to files that the caller cannot name. */
    struct open_how how = { .flags = O_PATH | O_CLOEXEC | O_NOFOLLOW, .resolve = RESOLVE_NO_MAGICLINKS };
    FD fd = (int)syscall(SYS_openat2, AT_FDCWD, mount->source, &how, sizeof how);
    struct stat status;

    if (fd < 0 && errno == ENOENT)
        return err_set(e, ENOENT, STEP_USAGE, "--mount %s: there is no such file or directory", mount->source);
    if (fd < 0 || fstat(fd, &status) < 0)
        return err_set(e, errno, STEP_TREE, "--mount %s", mount->source);
    if (S_ISLNK(status.st_mode))
        return err_set(e, ELOOP, STEP_USAGE, "--mount %s: this is a symbolic link; name its target",
                       mount->source);
    if (!S_ISDIR(status.st_mode) && !S_ISREG(status.st_mode))
        return err_set(e, EINVAL, STEP_USAGE, "--mount %s: only directories and plain files can be mounted",
                       mount->source);
    mount->is_file = S_ISREG(status.st_mode);
    mount->fd = TAKE_FD(fd);
    return 0;
}

int sources_open(struct box_spec *spec, struct sources *ret, struct err *e)
{
    ret->n = 0;
    for (size_t i = 0; i < spec->n_mounts; i++) {
        if (spec->mount[i].kind != MOUNT_HOST)
            continue;
        int r = open_source(&spec->mount[i], e);
        if (r < 0) {
            sources_close(ret);
            return r;
        }
        ret->fd[ret->n++] = spec->mount[i].fd;
    }
    return 0;
}

void sources_close(struct sources *sources)
{
    while (sources->n > 0)
        fd_close(sources->fd[--sources->n]);
}
